"""How wrong a law is where it has not been: fits to the early part of the data, held against the rest."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from solvable.inference.fitting import Fit, Point, fit
from solvable.inference.law import Law
from solvable.inference.profiles import covariance
from solvable.inference.runs import Run

# Fractions of the last step up to which the data are fitted.
CUTS = (0.1, 0.25, 0.5)
# The same for finished runs, which are held against forecasts of their end.
SIBLING_CUTS = (0.2, 0.3, 0.5, 0.7)
_FEWEST_EARLY, _FEWEST_LATE = 8, 3
# Student's t of few origins, which are not independent.
FREEDOM = 4.0


class Origin(NamedTuple):
    """One fit to early data: relative errors of what came later, and what the fit expected of them."""

    cut: float
    errors: np.ndarray
    # log10 of the step over the last fitted one.
    distances: np.ndarray
    noise: float
    # Standard errors of the predicted logarithms that the fitted numbers make.
    spread: np.ndarray

    def score(self, slope: float = 0.0) -> float:
        """Mean logarithm of the predictive density of the later data, Student's t with 4 degrees of freedom.

        Parameters
        ----------
        slope
            Discrepancy per decade.
        """
        from scipy.stats import t as student

        width = np.sqrt(self.noise**2 + self.spread**2 + (slope * self.distances) ** 2)
        return float(np.mean(student.logpdf(self.errors / width, FREEDOM) - np.log(width)))


class Backtest(NamedTuple):
    """Fits to early data at several cuts, and the discrepancy per decade that explains their errors."""

    origins: list[Origin]

    @property
    def slope(self) -> float:
        """Relative discrepancy per decade of extrapolation; NaN where there were no data to measure it."""
        if not self.origins:
            return math.nan
        extra = np.concatenate([one.errors**2 - one.noise**2 - one.spread**2 for one in self.origins])
        distances = np.concatenate([one.distances for one in self.origins])
        return math.sqrt(max(0.0, float(extra.mean())) / float((distances**2).mean()))

    @property
    def reach(self) -> float:
        """The longest extrapolation that was tested, in decades."""
        return max((float(one.distances.max()) for one in self.origins), default=0.0)

    @property
    def rms(self) -> float:
        """Root mean square of the errors of all later data."""
        if not self.origins:
            return math.nan
        return math.sqrt(float(np.mean(np.concatenate([one.errors for one in self.origins]) ** 2)))

    def score(self) -> float:
        """Mean log score over the cuts, each with the discrepancy that the others show."""
        if not self.origins:
            return math.nan
        found = []
        for number, one in enumerate(self.origins):
            others = Backtest(self.origins[:number] + self.origins[number + 1 :])
            found.append(one.score(others.slope if others.origins else 0.0))
        return float(np.mean(found))


def gradient(whole: Fit, runs: Sequence[Run], places: Sequence[int]) -> np.ndarray:
    """Derivatives of the logarithm of the law at other runs by all fitted numbers, as in the covariance.

    Parameters
    ----------
    whole
        The fit.
    runs
        Runs at which the law is wanted, each like one of the data.
    places
        Which run of the data each of them is like.
    """
    problem, best = whole.problem, whole.best
    columns = []
    for number, step in enumerate(1e-4 * problem.steps):
        ends = []
        for sign in (-1, 1):
            moved = best.coordinates.copy()
            moved[number] = np.clip(moved[number] + sign * step, *problem.box[:, number])
            ends.append(
                (moved[number], np.log(curves(whole, Point(moved, best.coefficients, [], np.zeros(0)), runs, places)))
            )
        columns.append((ends[1][1] - ends[0][1]) / (ends[1][0] - ends[0][0]))
    here = curves(whole, best, runs, places)
    for number, value in enumerate(best.coefficients):
        moved_coefficients = best.coefficients.copy()
        moved_coefficients[number] = value * 1.0001 if value > 0 else 0.0
        there = curves(whole, best._replace(coefficients=moved_coefficients), runs, places)
        columns.append(np.log(there / here) / 1e-4 if value > 0 else np.zeros(here.size))
    return np.array(columns).T


def curves(whole: Fit, point: Point, runs: Sequence[Run], places: Sequence[int]) -> np.ndarray:
    """The law at a point of parameter space, at runs like those of the data; one after the other.

    Parameters
    ----------
    whole
        The fit.
    point
        Coordinates and coefficients.
    runs
        Runs at which the law is wanted.
    places
        Which run of the data each of them is like.
    """
    problem, parts = whole.problem, []
    for run, place in zip(runs, places, strict=True):
        basis = problem.basis(place, point.coordinates, run)
        total = np.zeros(run.size)
        for number, term in enumerate(problem.law.terms):
            if term in problem.fixed:
                total += problem.fixed[term] * basis[:, number]
        for value, column in zip(point.coefficients, problem.columns, strict=True):
            if column.group is None or column.group == problem.runs[place].group:
                total += value * basis[:, problem.law.terms.index(column.term)]
        parts.append(np.maximum(total, 1e-300))
    return np.concatenate(parts)


def rolling_origin(whole: Fit, noise: str, cuts: Sequence[float] = CUTS) -> Backtest:
    """Fit the first part of every run, and hold the law against the rest.

    Parameters
    ----------
    whole
        The fit to all data, whose law, sharing and starting point are used.
    noise
        Kind of the noise.
    cuts
        Fractions of the last step.
    """
    problem, origins = whole.problem, []
    names = [one.label for one in problem.space]
    values = [one.parameter.outward(x) for one, x in zip(problem.space, whole.best.coordinates, strict=True)]
    for cut in cuts:
        masks = [run.steps <= cut * run.steps[-1] for run in problem.runs]
        used = [n for n, mask in enumerate(masks) if mask.sum() >= _FEWEST_EARLY and (~mask).sum() >= _FEWEST_LATE]
        if len(used) < len(problem.runs):
            continue
        early = [run.part(mask) for run, mask in zip(problem.runs, masks, strict=True)]
        late = [run.part(~mask) for run, mask in zip(problem.runs, masks, strict=True)]
        found = fit(
            problem.law, early, fixed=problem.fixed, separate=problem.separate, noise=noise, starts=0,
            near=dict(zip(names, values, strict=True)),
        )  # fmt: skip
        slopes = gradient(found, late, used)
        spread = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", slopes, covariance(found), slopes), 0.0))
        errors = np.log(np.concatenate([run.loss for run in late])) - np.log(curves(found, found.best, late, used))
        distances = np.concatenate([np.log10(b.steps / a.steps[-1]) for a, b in zip(early, late, strict=True)])
        origins.append(Origin(cut, errors, distances, found.problem.noise.deviation, spread))
    return Backtest(origins)


def siblings_backtest(law: Law, siblings: Sequence[Run], fixed: Mapping[str, float], noise: str) -> Backtest:
    """Fit the first part of every finished run, one at a time, and hold the law against the rest.

    The rolling origin of an unfinished run cannot see the error that the law will make in what the run has not seen
    yet, such as a decay of the learning rate. Finished runs show it.

    Parameters
    ----------
    law
        The law.
    siblings
        The finished runs.
    fixed
        Values of parameters and terms that are not fitted, as in the fit of the unfinished run.
    noise
        Kind of the noise.
    """
    origins: list[Origin] = []
    for run in siblings:
        whole = fit(law.prepare([run]), [run], fixed=fixed, noise=noise, starts=0)
        origins += rolling_origin(whole, noise, SIBLING_CUTS).origins
    return Backtest(origins)
