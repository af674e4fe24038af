"""Whether a law fits at all: a test of its residuals against smooth curves that it cannot follow."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from solvable.inference.fitting import Fit
from solvable.inference.noise import (
    CORRELATIONS,
    Noise,
    autocorrelation,
    clock_of,
    gaps,
    likelihood_weights,
)

# Smooth curves in the logarithm of time, up to these degrees per run: slow misfits are found by few polynomials, which
# cost little freedom, and faster ones need more. The chance is that of the better of the two tests.
_DEGREES = (4, 12)
_FEWEST_PER_DEGREE = 4
# The chance of a false alarm, and that at which residuals of independent noise would be called a misfit.
FALSE_ALARM, SURE_IF_INDEPENDENT = 1e-2, 1e-3


class Misfit(NamedTuple):
    """A lack-of-fit test: the chance of such residuals if the law is right, and the size of what it cannot follow."""

    chance: float
    # Root mean square of the smooth part of the residuals, and of the noise, in the logarithm of the loss.
    structure: float
    noise: float
    # The chance if the noise of neighbouring records were known to be independent.
    independent: float = 1.0

    @property
    def ambiguous(self) -> bool:
        """Whether residuals have a structure that may be a misfit or correlated noise: the records do not tell."""
        return not self.found and self.independent < SURE_IF_INDEPENDENT

    @property
    def found(self) -> bool:
        """Whether the law is rejected at the false-alarm rate."""
        return self.chance < FALSE_ALARM


def lack_of_fit(fit: Fit, kind: str) -> Misfit:
    """Test the residuals of a fit against Chebyshev polynomials of the logarithm of time.

    A wrong law leaves smooth residuals, which correlated noise may be mistaken for. For a known correlation an F test
    asks whether the polynomials are needed beside the law (linearised at the optimum). The correlation is not known:
    its restricted likelihood, with the polynomials taken out so that a misfit does not enter it, is averaged over, and
    so is the chance of the F test. A single estimate in its place would raise false alarms wherever it is too small.

    Parameters
    ----------
    fit
        The fit.
    kind
        Kind of the noise, as in :func:`solvable.inference.fitting.fit`.
    """
    problem = fit.problem
    errors = np.concatenate(problem.scales)
    residuals = (np.concatenate(problem.logs) - np.concatenate(fit.best.logs)) / errors
    slopes = problem.jacobian(fit.best)[:, problem.movable(fit.best)] / errors[:, None]
    # Single spikes are no structure.
    residuals = residuals * _robust(residuals)
    correlations = CORRELATIONS if kind.endswith("ar1") else CORRELATIONS[:1]
    spacing = [gaps(run.steps, clock_of(problem.runs)) for run in problem.runs]
    found, independent = [], []
    for degree in _DEGREES:
        smooth = _polynomials(fit, degree) / errors[:, None]
        values = averaged_test(residuals[:, None], slopes, smooth, spacing, correlations)
        found.append(tuple(float(value[0]) for value in values))
        values = averaged_test(residuals[:, None], slopes, smooth, spacing, CORRELATIONS[:1])
        independent.append(float(values[0][0]))
    chance, structure, noise = min(found)
    count = len(_DEGREES)
    return Misfit(min(1.0, count * chance), structure, noise, min(1.0, count * min(independent)))


def averaged_test(
    residuals: np.ndarray,
    slopes: np.ndarray,
    smooth: np.ndarray,
    spacing: Sequence[np.ndarray],
    correlations: np.ndarray = CORRELATIONS,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chance, size of the structure and scale of the noise, for several sets of residuals at once.

    Parameters
    ----------
    residuals
        One column per set.
    slopes
        Jacobian of the law.
    smooth
        The smooth curves that the law is tested against.
    spacing
        Distances of neighbouring records of each run.
    correlations
        Correlations over which the test is averaged.
    """
    from scipy.stats import f as fisher

    whole = np.concatenate([slopes, smooth], axis=1)
    whole = whole / (np.sqrt((whole**2).sum(axis=0)) + 1e-300)
    deviances, chances, structures, scales = [], [], [], []
    for rho in correlations:
        noise = Noise(correlation=float(rho))
        white, law, columns = (_whitened(part, noise, spacing) for part in (residuals, slopes, whole))
        (small, few, _), (large, many, volume) = (_left(white, part) for part in (law, columns))
        freedom = white.shape[0] - many
        if many <= few or freedom < 3:
            count = residuals.shape[1]
            return np.ones(count), np.zeros(count), np.sqrt((residuals**2).mean(axis=0))
        scale = large / freedom + 1e-300
        chances.append(fisher.sf(np.maximum(small - large, 0.0) / (many - few) / scale, many - few, freedom))
        structures.append(np.maximum(small - large - (many - few) * scale, 0.0) / white.shape[0])
        scales.append(scale)
        determinant = sum(noise.log_determinant(gap) for gap in spacing)
        deviances.append(freedom * np.log(scale) + determinant + volume)
    weights = likelihood_weights(np.array(deviances), correlations)
    chance, structure, scale = ((weights * np.array(values)).sum(axis=0) for values in (chances, structures, scales))
    return chance, np.sqrt(structure), np.sqrt(scale)


def _whitened(values: np.ndarray, noise: Noise, spacing: Sequence[np.ndarray]) -> np.ndarray:
    parts = np.split(values, np.cumsum([gap.size + 1 for gap in spacing])[:-1])
    return np.concatenate([noise.whiten(part, gap) for part, gap in zip(parts, spacing, strict=True)])


def _robust(residuals: np.ndarray) -> np.ndarray:
    scale = 1.4826 * float(np.median(np.abs(residuals))) + 1e-300
    return np.where(np.abs(residuals) > 5 * scale, 5 * scale / np.maximum(np.abs(residuals), 1e-300), 1.0)


def _left(values: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, int, float]:
    """Sums of squares that columns leave, their rank, and the logarithm of their squared volume."""
    if columns.shape[1] == 0:
        return (values**2).sum(axis=0), 0, 0.0
    norms = np.sqrt((columns**2).sum(0)) + 1e-300
    basis, strengths, _ = np.linalg.svd(columns / norms, full_matrices=False)
    kept = strengths > 1e-7 * strengths[0]
    left = values - basis[:, kept] @ (basis[:, kept].T @ values)
    volume = 2 * float(np.log(strengths[kept]).sum() + np.log(norms).sum())
    return (left**2).sum(axis=0), int(kept.sum()), volume


def _polynomials(fit: Fit, most: int) -> np.ndarray:
    """Chebyshev polynomials of the logarithm of the step, one set per run."""
    runs, first = fit.problem.runs, 0
    parts = []
    for run in runs:
        degree = min(most, run.size // _FEWEST_PER_DEGREE)
        x = np.log(run.steps + (0.0 if run.steps[0] > 0 else run.steps[run.steps > 0][0]))
        x = 2 * (x - x[0]) / (x[-1] - x[0]) - 1
        own = np.zeros((fit.problem.points, degree + 1))
        own[first : first + run.size] = np.polynomial.chebyshev.chebvander(x, degree)
        parts.append(own)
        first += run.size
    return np.concatenate(parts, axis=1)


def residual_rows(fit: Fit) -> list[dict[str, float]]:
    """For each run: root mean square and largest residual, and correlations of neighbours before and after whitening.

    Parameters
    ----------
    fit
        The fit.
    """
    problem = fit.problem
    residuals = np.concatenate(problem.logs) - np.concatenate(fit.best.logs)
    white = problem.split(problem.whiten(residuals))
    return [
        {
            "records": float(own.size),
            "rms": float(np.sqrt(np.mean(own**2))),
            "largest": float(np.max(np.abs(own))),
            "autocorrelation": autocorrelation(own),
            "white_autocorrelation": autocorrelation(after),
        }
        for own, after in zip(problem.split(residuals), white, strict=True)
    ]
