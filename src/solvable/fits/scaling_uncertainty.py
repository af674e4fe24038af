"""Uncertainty of a scaling law: resampled runs, profile likelihood, and the discrepancy found by rolling origin."""

import dataclasses

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2

from solvable.fits.scaling_objective import Fit, Law, Objective, Robust, fit, projected_starts
from solvable.fits.scaling_table import FEWEST_RUNS, Table

# Rolling origins: the runs below the largest compute over each of these are fitted, those above are predicted.
ORIGINS = (3.0, 5.0, 10.0, 20.0)
_FEWEST_BELOW, _FEWEST_BEYOND = 20, 3
# A resample whose optimum is not found is drawn again, at most this many times in all.
_MOST_FAILURES = 0.2


@dataclasses.dataclass(frozen=True)
class Backtest:
    """Errors of predictions beyond rolling origins.

    Parameters
    ----------
    origin
        The compute below which runs were fitted, for every prediction.
    distance
        Decades of compute beyond the origin.
    error
        Logarithm of the measured over the predicted loss.
    width
        Standard deviation of noise and parameters.
    """

    origin: np.ndarray
    distance: np.ndarray
    error: np.ndarray
    width: np.ndarray

    @property
    def discrepancy(self) -> float:
        """Relative error of the law per decade of extrapolation, beyond noise and parameters."""
        excess = float(np.mean(self.error**2 - self.width**2))
        return float(np.sqrt(max(0.0, excess) / np.mean(self.distance**2)))


def objective_of(table: Table, robust: Robust, counts: np.ndarray | None = None) -> Objective:
    """The objective of a table."""
    return Objective(Law(table.form, table.points), np.log(table.loss), robust, counts, table.relative)


def fit_table(table: Table, robust: Robust) -> Fit:
    """Fit a table from the starts of variable projection."""
    objective = objective_of(table, robust)
    return fit(objective, projected_starts(objective.law, objective.observed))


def covariance(table: Table, found: Fit, robust: Robust) -> np.ndarray:
    """Sandwich covariance of the parameters, in which runs of one group count once.

    Huber's loss has no curvature at most of the runs; the curvature of a Student likelihood of the same scale is used.
    """
    smooth = robust if robust.estimates_scale else Robust()
    objective = objective_of(table, smooth)
    _, hessian = objective.parts(np.append(found.theta, np.log(found.scale)))[1:]
    _, slope, _ = objective.law.derivatives(found.theta, order=1)
    _, first, _ = smooth.value(found.residuals / (found.scale * objective.relative))
    scores = np.column_stack([slope * (first / (found.scale * objective.relative))[:, None], np.zeros(len(slope))])
    scores[:, -1] = 1 - first * found.residuals / (found.scale * objective.relative)
    summed = np.zeros((table.groups.max() + 1, scores.shape[1]))
    np.add.at(summed, table.groups, scores)
    inverse = np.linalg.pinv(hessian, hermitian=True)
    size = found.theta.size
    return (inverse @ (summed.T @ summed) @ inverse)[:size, :size]


def bootstrap(table: Table, found: Fit, robust: Robust, resamples: int, key: int) -> np.ndarray:
    """Parameters of fits to resampled groups of runs, ``[resample, parameter]``, each started from the optimum."""
    objective = objective_of(table, robust)
    generator = np.random.default_rng(key)
    groups = int(table.groups.max()) + 1
    start = np.append(found.theta, np.log(found.scale)) if robust.estimates_scale else found.theta
    draws: list[np.ndarray] = []
    failures = 0
    while len(draws) < resamples:
        taken = generator.multinomial(groups, np.full(groups, 1 / groups))
        objective.counts = taken[table.groups].astype(float)
        if np.count_nonzero(objective.counts) >= max(FEWEST_RUNS - 2, found.theta.size + 1):
            again, _ = objective.minimise(start)
            if np.isfinite(again).all() and np.abs(again - start).max() < 50:
                draws.append(again[: found.theta.size])
                continue
        failures += 1
        if failures > _MOST_FAILURES * resamples + 20:
            raise ValueError(
                f"{failures} of {failures + len(draws)} resampled tables have no optimum: the runs are too few or "
                "too alike for a bootstrap; use intervals='profile'"
            )
    return np.array(draws)


def profile(table: Table, found: Fit, robust: Robust, direction: np.ndarray, confidence: float) -> tuple[float, float]:
    """Profile-likelihood interval of ``direction @ parameters``; an end that the data leave open is infinite."""
    objective = objective_of(table, robust)
    full = np.append(found.theta, np.log(found.scale))
    along = np.append(direction, 0.0)
    # Other parameters are free in the space orthogonal to the direction.
    _, _, space = np.linalg.svd(along[None, :])
    free, unit = space[1:].T, along / (along @ along)
    best = float(along @ full)
    threshold = float(chi2.ppf(confidence, 1)) / 2

    scale = float(np.sqrt(along[:-1] @ covariance(table, found, robust) @ along[:-1]))
    # The other parameters of the last point, from which the next one starts.
    others = free.T @ full

    def excess(value: float) -> float:
        nonlocal others
        others, total = objective.minimise(others, free, unit * value)
        return total - found.objective - threshold

    ends = []
    for sign in (-1, 1):
        others = free.T @ full
        near, far = best, best + sign * 1.5 * scale
        for _ in range(8):
            if excess(far) > 0:
                break
            near, far = far, best + 2 * (far - best)
        else:
            ends.append(sign * np.inf)
            continue
        ends.append(float(brentq(excess, near, far, xtol=2e-3 * scale, rtol=1e-10)))
    return ends[0], ends[1]


def predictive_width(table: Table, found: Fit, cov: np.ndarray, law: Law) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the loss at other runs, and its standard deviation from the parameters to first order."""
    value, slope, _ = law.derivatives(found.theta, order=1)
    return value, np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", slope, cov, slope), 0.0))


def rolling_origin(table: Table, robust: Robust) -> Backtest | None:
    """Fit the runs of small compute, predict the others; None if the table is too small to cut or has no compute."""
    if "compute" not in table.values:
        return None
    compute = table.values["compute"]
    parts = []
    for ratio in ORIGINS:
        origin = compute.max() / ratio
        below = compute <= origin
        if below.sum() < _FEWEST_BELOW or (~below).sum() < _FEWEST_BEYOND:
            continue
        early = table.take(np.flatnonzero(below))
        early = dataclasses.replace(early, groups=np.unique(early.groups, return_inverse=True)[1])
        found = fit_table(early, robust)
        late = table.take(np.flatnonzero(~below))
        value, parameters = predictive_width(
            early, found, covariance(early, found, robust), Law(table.form, late.points)
        )
        distance = np.log10(late.values["compute"] / origin)
        width = np.hypot(parameters, found.scale)
        parts.append((np.full(distance.size, origin), distance, np.log(late.loss) - value, width))
    if not parts:
        return None
    return Backtest(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
