"""Samples of the fitted numbers, for bands and for functions of parameters, by importance resampling."""

import math
from typing import NamedTuple

import numpy as np

from solvable.inference.fitting import Fit
from solvable.inference.profiles import covariance

_PROPOSALS, _KEPT, _TAIL, _WIDER = 800, 300, 5.0, 1.2
_FEWEST_EFFECTIVE, _REFITS = 40.0, 60


class Draws(NamedTuple):
    """Coordinates and coefficients, one row per draw; how they were made; how many independent ones they equal.

    ``mixing`` is the largest R-hat of several chains, near 1 where they agree; NaN without chains.
    """

    coordinates: np.ndarray
    coefficients: np.ndarray
    method: str
    effective: float
    mixing: float = math.nan


def sample(fit: Fit, seed: int = 0) -> Draws:
    """Draw from the likelihood within the box, by importance resampling; by refits to simulated noise where that fails.

    Parameters
    ----------
    fit
        The fit.
    seed
        Random seed.
    """
    generator = np.random.default_rng(seed)
    problem, count = fit.problem, len(fit.problem.space)
    best = np.concatenate([fit.best.coordinates, fit.best.coefficients])
    units = np.concatenate([np.ones(count), _sizes(fit)])
    spread = covariance(fit) * np.outer(units, units) * _WIDER**2
    root = np.linalg.cholesky(spread + 1e-12 * np.diag(np.diag(spread)))
    normal = generator.normal(size=(_PROPOSALS, best.size))
    stretch = np.sqrt(_TAIL / generator.chisquare(_TAIL, _PROPOSALS))
    moves = normal * stretch[:, None]
    tried = best + moves @ root.T
    # What starts at zero goes up only.
    tried[:, count:] = np.where(fit.best.coefficients > 0, tried[:, count:], np.abs(tried[:, count:]))
    proposal = (_TAIL + best.size) / 2 * np.log1p((moves**2).sum(1) / _TAIL)
    low, high = problem.box
    inside = ((tried[:, :count] >= low) & (tried[:, :count] <= high)).all(1) & (tried[:, count:] >= 0).all(1)
    weights = np.zeros(_PROPOSALS)
    logs = np.concatenate(problem.logs)
    for place in np.flatnonzero(inside):
        matrix, known = problem.design(tried[place, :count])
        curve = np.maximum(matrix @ tried[place, count:] + known, 1e-300)
        deviance = float((problem.noise.deviance(problem.whiten(logs - np.log(curve))) ** 2).sum())
        weights[place] = math.exp(min(50.0, (fit.best.deviance - deviance) / 2 + proposal[place]))
    total = weights.sum()
    effective = total**2 / (weights**2).sum() if total > 0 else 0.0
    if effective < _FEWEST_EFFECTIVE:
        return _refits(fit, generator)
    # Systematic resampling.
    ends = np.cumsum(weights) / total
    chosen = np.minimum(np.searchsorted(ends, (np.arange(_KEPT) + generator.random()) / _KEPT), _PROPOSALS - 1)
    return Draws(tried[chosen, :count], tried[chosen, count:], "importance resampling", float(effective))


def _sizes(fit: Fit) -> np.ndarray:
    """The unit in which the covariance has each coefficient."""
    matrix, _ = fit.problem.design(fit.best.coordinates)
    least = 0.01 * min(float(run.loss.min()) for run in fit.problem.runs)
    found = [
        value if value > 0 else least / max(float(column.max()), 1e-300)
        for value, column in zip(fit.best.coefficients, matrix.T, strict=True)
    ]
    return np.array(found)


def _refits(fit: Fit, generator: np.random.Generator) -> Draws:
    """Fits to curves of the law with simulated noise, each started at the optimum."""
    problem, kept = fit.problem, [log.copy() for log in fit.problem.logs]
    points = []
    try:
        for _ in range(_REFITS):
            problem.logs = [
                curve + noise * scale
                for curve, noise, scale in zip(fit.best.logs, _noise(fit, generator), problem.scales, strict=True)
            ]
            points.append(problem.minimise(fit.best.coordinates, rounds=20, accuracy=1e-5))
    finally:
        problem.logs = kept
    coordinates = np.array([point.coordinates for point in points])
    return Draws(
        coordinates, np.array([point.coefficients for point in points]), "parametric bootstrap", float(_REFITS)
    )


def _noise(fit: Fit, generator: np.random.Generator) -> list[np.ndarray]:
    """Noise of all runs, with the estimated correlation."""
    noise, out = fit.problem.noise, []
    for run, run_gaps in zip(fit.problem.runs, fit.problem.gaps, strict=True):
        fresh = generator.normal(size=run.size) * noise.deviation
        own = fresh.copy()
        rho = noise.correlation**run_gaps if noise.correlation > 0 else np.zeros(run_gaps.size)
        for place in range(1, run.size):
            own[place] = rho[place - 1] * own[place - 1] + math.sqrt(1 - rho[place - 1] ** 2) * fresh[place]
        out.append(own)
    return out
