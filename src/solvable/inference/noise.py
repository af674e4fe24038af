"""Noise of the logarithm of the loss: Student-t innovations with correlation along a curve, whitened and estimated.

Along a curve the noise is a first-order autoregression: records at distance d on a clock (the logarithm of the step, or
the step) have the correlation ``rho^d``, with d in units of the median distance of neighbouring records, so that uneven
spacing is no trouble. The innovations are Student-t of ``freedom`` degrees of freedom, or Gaussian if it is infinite.

>>> import numpy as np
>>> from solvable.inference.noise import Noise, gaps
>>> run_gaps = gaps(np.array([1.0, 2.0, 4.0, 16.0]), "log")
>>> run_gaps.tolist()
[1.0, 1.0, 2.0]
>>> Noise(correlation=0.5).whiten(np.ones(4), run_gaps).round(3).tolist()
[1.0, 0.577, 0.577, 0.775]
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from solvable.inference.runs import Run

CLOCKS = ("log", "steps")
CORRELATIONS = np.concatenate([np.linspace(0.0, 0.8, 17), np.linspace(0.82, 0.98, 9), [0.99, 0.995]])
_FREEDOMS = (2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0)
# A correlation, and a heavy tail, must improve twice the log-likelihood by this much to be believed.
_GAIN, _TAIL_GAIN = 2.0, 6.0
# Directions of parameter space that are this much weaker than the strongest are not counted as fitted.
_RANK = 1e-9
_MOST_RATIO, _FEWEST_IN_GROUP = 1.5, 15


@dataclasses.dataclass(frozen=True)
class Noise:
    """The noise of all runs.

    Parameters
    ----------
    scale
        Standard deviation of the logarithm of the loss (the scale of the distribution, if it is Student's).
    correlation
        Correlation of neighbouring records.
    freedom
        Degrees of freedom of Student's t; infinite for Gaussian noise.
    clock
        ``"log"`` or ``"steps"``: on which clock the correlation decays.
    relative
        The scale of the runs of each group relative to ``scale``.
    """

    scale: float = 1.0
    correlation: float = 0.0
    freedom: float = math.inf
    clock: str = "log"
    relative: dict[str, float] = dataclasses.field(default_factory=dict)

    def whiten(self, values: np.ndarray, run_gaps: np.ndarray) -> np.ndarray:
        """Rows of one run turned into rows with independent noise of the same scale.

        Parameters
        ----------
        values
            One row per record: residuals, or the columns of a Jacobian.
        run_gaps
            Distances of neighbouring records, from :func:`gaps`.
        """
        if self.correlation == 0 or run_gaps.size == 0:
            return values
        rho = (self.correlation**run_gaps).reshape(-1, *([1] * (values.ndim - 1)))
        white = np.empty_like(values)
        white[0] = values[0]
        white[1:] = (values[1:] - rho * values[:-1]) / np.sqrt(1 - rho**2)
        return white

    def log_determinant(self, run_gaps: np.ndarray) -> float:
        """The logarithm of the determinant of the correlation matrix of one run.

        Parameters
        ----------
        run_gaps
            Distances of neighbouring records.
        """
        return float(np.log1p(-(self.correlation ** (2 * run_gaps))).sum()) if self.correlation > 0 else 0.0

    def deviance(self, white: np.ndarray) -> np.ndarray:
        """Residuals whose squares add up to minus twice the log-likelihood, but for a constant.

        Parameters
        ----------
        white
            Whitened residuals.
        """
        standard = white / self.scale
        if math.isinf(self.freedom):
            return standard
        return np.sign(standard) * np.sqrt((self.freedom + 1) * np.log1p(standard**2 / self.freedom))

    def weights(self, white: np.ndarray) -> np.ndarray:
        """The factors by which iterated least squares multiplies whitened residuals.

        Parameters
        ----------
        white
            Whitened residuals.
        """
        if math.isinf(self.freedom):
            return np.ones(white.shape)
        return np.sqrt((self.freedom + 1) / (self.freedom + (white / self.scale) ** 2))

    @property
    def information(self) -> float:
        """Fisher information of one innovation about its centre, in units of ``1 / scale^2``."""
        return 1.0 if math.isinf(self.freedom) else (self.freedom + 1) / (self.freedom + 3)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise; that of a heavy tail is cut at three degrees of freedom."""
        if math.isinf(self.freedom):
            return self.scale
        freedom = max(self.freedom, 3.0)
        return self.scale * math.sqrt(freedom / (freedom - 2))


def gaps(steps: np.ndarray, clock: str) -> np.ndarray:
    """Distances of neighbouring records on a clock, in units of their median.

    Parameters
    ----------
    steps
        Increasing numbers of steps.
    clock
        ``"log"`` or ``"steps"``.
    """
    if steps.size < 2:
        return np.zeros(0)
    if clock == "log":
        positive = steps[steps > 0]
        steps = np.log(steps + (0.0 if steps[0] > 0 else positive[0]))
    between = np.diff(steps)
    return between / np.median(between)


def clock_of(runs: Sequence[Run]) -> str:
    """The clock on which the records are spaced more evenly.

    Parameters
    ----------
    runs
        The runs.
    """
    uneven = {clock: float(np.mean([np.std(gaps(run.steps, clock)) for run in runs])) for clock in CLOCKS}
    return min(CLOCKS, key=lambda clock: uneven[clock])


def estimate(runs: Sequence[Run], residuals: Sequence[np.ndarray], jacobians: Sequence[np.ndarray], kind: str) -> Noise:
    """Estimate the noise from the residuals of a fit by restricted maximum likelihood.

    Residuals of a fit are less correlated than the noise, because the fit follows its slow part. The restricted
    likelihood corrects for that: it is the likelihood of what the fit could not have followed, with the Jacobian at the
    optimum in place of the law.

    Parameters
    ----------
    runs
        The runs.
    residuals
        Their residuals in the logarithm of the loss, over the relative error of each record.
    jacobians
        Derivatives of the logarithm of the law by all fitted numbers, scaled like the residuals.
    kind
        ``"student-ar1"``, ``"gaussian-ar1"``, ``"student"`` or ``"gaussian"``.
    """
    relative = _relative_scales(runs, residuals)
    scaled = [
        (own / relative.get(run.group, 1.0), jacobian / relative.get(run.group, 1.0))
        for run, own, jacobian in zip(runs, residuals, jacobians, strict=True)
    ]
    best = _restricted(runs, scaled, Noise(relative=relative))
    noise = best[1]
    if kind.endswith("ar1"):
        clock = clock_of(runs)
        trials = [
            _restricted(runs, scaled, Noise(correlation=float(rho), clock=clock, relative=relative))[0]
            for rho in CORRELATIONS
        ]
        if min(trials) < best[0] - _GAIN:
            mean = _mean_correlation(np.array(trials))
            noise = _restricted(runs, scaled, Noise(correlation=mean, clock=clock, relative=relative))[1]
    return _with_tail(noise, runs, scaled) if kind.startswith("student") else noise


def likelihood_weights(deviances: np.ndarray, correlations: np.ndarray) -> np.ndarray:
    """The weight of each correlation under a flat prior, from minus twice the logarithm of its restricted likelihood.

    Parameters
    ----------
    deviances
        One row per correlation.
    correlations
        Increasing correlations.
    """
    ends = np.concatenate([correlations[:1], (correlations[1:] + correlations[:-1]) / 2, correlations[-1:]])
    widths = np.diff(ends) if correlations.size > 1 else np.ones(1)
    weights = np.exp((deviances.min(axis=0) - deviances) / 2) * widths.reshape(-1, *([1] * (deviances.ndim - 1)))
    return weights / weights.sum(axis=0)


def _mean_correlation(deviances: np.ndarray) -> float:
    """The mean over the restricted likelihood, which is skewed: its maximum is too small for few records."""
    return float(likelihood_weights(deviances, CORRELATIONS) @ CORRELATIONS)


def _restricted(
    runs: Sequence[Run], scaled: Sequence[tuple[np.ndarray, np.ndarray]], noise: Noise
) -> tuple[float, Noise]:
    """Minus twice the restricted log-likelihood of a correlation, and the noise with its best scale."""
    spacing = [gaps(run.steps, noise.clock) for run in runs]
    white = np.concatenate([noise.whiten(own, gap) for (own, _), gap in zip(scaled, spacing, strict=True)])
    slopes = np.concatenate([noise.whiten(own, gap) for (_, own), gap in zip(scaled, spacing, strict=True)])
    determinant = sum(noise.log_determinant(gap) for gap in spacing)
    # The scale of the columns of the Jacobian does not depend on the correlation, but the rank must not either.
    norms = np.sqrt((np.concatenate([own for _, own in scaled]) ** 2).sum(axis=0)) + 1e-300
    basis, strengths, _ = np.linalg.svd(slopes / norms, full_matrices=False)
    kept = strengths > _RANK * np.max(strengths, initial=0.0)
    left = white - basis[:, kept] @ (basis[:, kept].T @ white)
    freedom = max(1, white.size - int(kept.sum()))
    square = float(left @ left) / freedom + 1e-300
    deviance = freedom * math.log(square) + determinant + 2 * float(np.log(strengths[kept]).sum())
    return deviance, dataclasses.replace(noise, scale=math.sqrt(square))


def _with_tail(noise: Noise, runs: Sequence[Run], scaled: Sequence[tuple[np.ndarray, np.ndarray]]) -> Noise:
    """The noise with the degrees of freedom of its tail, if they are few."""
    from scipy.stats import t as student

    white = np.concatenate(
        [noise.whiten(own, gaps(run.steps, noise.clock)) for run, (own, _) in zip(runs, scaled, strict=True)]
    )
    # The residuals are smaller than the noise by what the fit took away.
    white = white * (noise.scale / math.sqrt(float(white @ white) / white.size + 1e-300))

    def deviance(freedom: float, scale: float) -> float:
        return -2 * float(student.logpdf(white / scale, freedom).sum()) + 2 * white.size * math.log(scale)

    gaussian = white.size * (math.log(2 * math.pi * noise.scale**2) + 1)
    found = (gaussian - _TAIL_GAIN, math.inf, noise.scale)
    for freedom in _FREEDOMS:
        scale = noise.scale
        for _ in range(30):
            weights = (freedom + 1) / (freedom + (white / scale) ** 2)
            scale = math.sqrt(float(weights @ white**2) / white.size)
        found = min(found, (deviance(freedom, scale), freedom, scale))
    return dataclasses.replace(noise, freedom=found[1], scale=found[2])


def _relative_scales(runs: Sequence[Run], residuals: Sequence[np.ndarray]) -> dict[str, float]:
    """The scale of each group over the mean one, where groups clearly differ; robust against single spikes."""
    parts: dict[str, list[np.ndarray]] = {}
    for run, own in zip(runs, residuals, strict=True):
        parts.setdefault(run.group, []).append(own)
    if len(parts) < 2:
        return {}
    joined = {group: np.concatenate(own) for group, own in parts.items()}
    scales = {group: 1.4826 * float(np.median(np.abs(own))) + 1e-300 for group, own in joined.items()}
    few = min(own.size for own in joined.values()) < _FEWEST_IN_GROUP
    if few or max(scales.values()) < _MOST_RATIO * min(scales.values()):
        return {}
    mean = math.exp(float(np.mean(np.log(list(scales.values())))))
    return {group: scale / mean for group, scale in scales.items()}


def autocorrelation(white: np.ndarray) -> float:
    """The correlation of neighbouring whitened residuals, which is near zero where the noise model is right.

    Parameters
    ----------
    white
        Whitened residuals of one run.
    """
    centred = white - white.mean()
    return float(centred[1:] @ centred[:-1] / (centred @ centred + 1e-300)) if white.size > 2 else 0.0
