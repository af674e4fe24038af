"""Whether a law fits at all: a test of its residuals against smooth curves that it cannot follow."""

import math
from typing import NamedTuple

import numpy as np

from solvable.inference.fitting import Fit
from solvable.inference.noise import autocorrelation, estimate

# Smooth curves in the logarithm of time, up to this degree, per run.
_DEGREE = 16
_FEWEST_PER_DEGREE = 4
# The chance of a false alarm.
FALSE_ALARM = 1e-3


class Misfit(NamedTuple):
    """A lack-of-fit test: the chance of such residuals if the law is right, and the size of what it cannot follow."""

    chance: float
    # Root mean square of the smooth part of the residuals, and of the noise, in the logarithm of the loss.
    structure: float
    noise: float

    @property
    def found(self) -> bool:
        """Whether the law is rejected at the false-alarm rate."""
        return self.chance < FALSE_ALARM


def lack_of_fit(fit: Fit, kind: str) -> Misfit:
    """Test the residuals of a fit against Chebyshev polynomials of the logarithm of time.

    A wrong law leaves smooth residuals, which correlated noise may be mistaken for. The correlation is therefore
    estimated with the polynomials taken out, by restricted likelihood, and an F test then asks whether they are needed
    beside the law (linearised at the optimum).

    Parameters
    ----------
    fit
        The fit.
    kind
        Kind of the noise, as in :func:`solvable.inference.fitting.fit`.
    """
    from scipy.stats import f as fisher

    problem = fit.problem
    errors = np.concatenate(problem.errors)
    residuals = (np.concatenate(problem.logs) - np.concatenate(fit.best.logs)) / errors
    slopes = problem.jacobian(fit.best)[:, problem.movable(fit.best)] / errors[:, None]
    smooth = _polynomials(fit) / errors[:, None]
    whole = np.concatenate([slopes, smooth], axis=1)
    noise = estimate(problem.runs, problem.split(residuals), problem.split(whole), kind.replace("student", "gaussian"))
    before = problem.noise
    problem.with_noise(noise)
    try:
        # The weights of a heavy tail are those of the fit, so that single spikes are no structure.
        white, law, all_columns = (problem.whiten(part * _like(errors, part)) for part in (residuals, slopes, whole))
        weights = _robust(white)
        white, law, all_columns = white * weights, law * weights[:, None], all_columns * weights[:, None]
    finally:
        problem.with_noise(before)
    (small, few), (large, many) = (_left(white, columns) for columns in (law, all_columns))
    freedom = white.size - many
    if many <= few or freedom < 3:
        return Misfit(1.0, 0.0, noise.scale)
    ratio = max(small - large, 0.0) / (many - few) / max(large / freedom, 1e-300)
    excess = max(small - large - (many - few) * large / freedom, 0.0)
    chance = float(fisher.sf(ratio, many - few, freedom))
    return Misfit(chance, math.sqrt(excess / white.size), math.sqrt(large / freedom))


def _like(errors: np.ndarray, part: np.ndarray) -> np.ndarray:
    return errors.reshape(-1, *([1] * (part.ndim - 1)))


def _robust(white: np.ndarray) -> np.ndarray:
    scale = 1.4826 * float(np.median(np.abs(white))) + 1e-300
    return np.where(np.abs(white) > 5 * scale, 5 * scale / np.maximum(np.abs(white), 1e-300), 1.0)


def _left(values: np.ndarray, columns: np.ndarray) -> tuple[float, int]:
    """Sum of squares that columns leave, and their rank."""
    if columns.shape[1] == 0:
        return float(values @ values), 0
    norms = np.sqrt((columns**2).sum(0)) + 1e-300
    basis, strengths, _ = np.linalg.svd(columns / norms, full_matrices=False)
    kept = strengths > 1e-7 * strengths[0]
    left = values - basis[:, kept] @ (basis[:, kept].T @ values)
    return float(left @ left), int(kept.sum())


def _polynomials(fit: Fit) -> np.ndarray:
    """Chebyshev polynomials of the logarithm of the step, one set per run."""
    runs, first = fit.problem.runs, 0
    parts = []
    for run in runs:
        degree = min(_DEGREE, run.size // _FEWEST_PER_DEGREE)
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
