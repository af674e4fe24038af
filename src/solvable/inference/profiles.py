"""Profile likelihood: how far a number can move before the data object, with all others fitted again."""

import math
from typing import NamedTuple

import numpy as np

from solvable.inference.fitting import Fit, Point, Problem

LEVELS = (0.68, 0.95)
_MOST_STEPS = 14
# A profile that falls this far below the best fit has found a better one.
_BETTER = 0.05
_CLOSE = 0.03
# A rise this many times the expected one is looked at again.
_JUMP = 2.0
# Parameters whose standard error is above this part of the box, or that are this close to its ends, may have a second
# valley, which is looked for at these places of the box.
_LOOSE, _EDGE, _ELSEWHERE = 0.1, 0.05, (0.25, 0.65)


class Side(NamedTuple):
    """One side of a profile: the ends of the intervals at :data:`LEVELS`, and whether the data allow all of the box."""

    ends: tuple[float, ...]
    open: bool


class Profile(NamedTuple):
    """Profile of one number. Values are those of the parameter, not of its fitted coordinate.

    ``deviances`` is the rise of minus twice the log-likelihood; intervals are where it stays below ``thresholds``.
    """

    label: str
    values: np.ndarray
    deviances: np.ndarray
    thresholds: tuple[float, ...]
    low: Side
    high: Side

    @property
    def identified(self) -> str:
        """``"yes"``, ``"bound"`` where one side is open, ``"no"`` where both are."""
        return {0: "yes", 1: "bound", 2: "no"}[int(self.low.open) + int(self.high.open)]


class BetterOptimumError(Exception):
    """A profile found a point that is better than the fit."""

    def __init__(self, point: Point) -> None:
        super().__init__("a better optimum")
        self.point = point


def thresholds(freedom: float) -> tuple[float, ...]:
    """The rise of the deviance at the ends of the intervals, with a scale of the noise that was estimated.

    Parameters
    ----------
    freedom
        Degrees of freedom of the scale, :attr:`solvable.inference.fitting.Fit.freedom`.
    """
    from scipy.stats import t as student

    return tuple(float(student.ppf((1 + level) / 2, freedom)) ** 2 for level in LEVELS)


def covariance(fit: Fit) -> np.ndarray:
    """Covariance of coordinates and logarithms of coefficients from the Jacobian at the optimum.

    Directions that the data leave open are bounded by the box: the prior is a Gaussian of the box's width.

    Parameters
    ----------
    fit
        The fit.
    """
    problem = fit.problem
    slopes = problem.whiten(problem.jacobian(fit.best)) * (math.sqrt(problem.noise.information) / problem.noise.scale)
    low, high = problem.box
    widths = np.concatenate([high - low, np.full(len(problem.columns), 10.0)])
    return np.linalg.inv(slopes.T @ slopes + np.diag(1 / widths**2))


def profile(fit: Fit, number: int, spread: np.ndarray) -> Profile:
    """Profile of one coordinate or coefficient, in both directions.

    Parameters
    ----------
    fit
        The fit.
    number
        Its place among the labels of the problem.
    spread
        The covariance of all numbers, for the first steps.
    """
    limits = thresholds(fit.freedom)
    walker = _Walker(fit, number, spread)
    sides, tried = [], {walker.start: 0.0}
    for direction in (-1, 1):
        side, points = walker.walk(direction, limits)
        sides.append(side)
        tried.update(points)
    order = sorted(tried)
    return Profile(
        fit.problem.labels[number],
        np.array([walker.outward(x) for x in order]),
        np.array([tried[x] for x in order]),
        limits,
        *sides,
    )


def scouts(fit: Fit, spread: np.ndarray) -> list[np.ndarray]:
    """Points from which other valleys of the deviance are looked for.

    Where a parameter is hardly determined, the likelihood may have two valleys, such as a lazy and a rich explanation,
    of which only one is the best fit; held at another value, a number may prefer the other one. A local search does not
    cross over, and an interval that misses it is too short. So each parameter whose standard error is a large part of
    its box, or that is at an end of it, is also started from two other places.

    Parameters
    ----------
    fit
        The fit.
    spread
        The covariance of all numbers.
    """
    low, high = fit.problem.box
    found = [one.coordinates for one in fit.others]
    for number, (begin, end) in enumerate(zip(low, high, strict=True)):
        error, at = math.sqrt(spread[number, number]), fit.best.coordinates[number]
        if error > _LOOSE * (end - begin) or min(at - begin, end - at) < _EDGE * (end - begin):
            for share in _ELSEWHERE:
                moved = fit.best.coordinates.copy()
                moved[number] = begin + share * (end - begin)
                found.append(moved)
    return found


class _Walker:
    """Steps along one number, with the others fitted again at each of them."""

    def __init__(self, fit: Fit, number: int, spread: np.ndarray) -> None:
        self.fit, self.problem, self.number = fit, fit.problem, number
        self.linear = number >= len(self.problem.space)
        count = len(self.problem.space)
        best = fit.best
        error = math.sqrt(spread[number, number])
        if self.linear:
            self.column = number - count
            value = float(best.coefficients[self.column])
            self.size = value if value > 0 else self._small()
            self.start, self.low, self.high = value / self.size, 0.0, math.inf
            self.step = min(error, 1.0) if value > 0 else 1.0
            slope = spread[:count, number] / spread[number, number] if value > 0 else np.zeros(count)
        else:
            self.low, self.high = (float(end) for end in self.problem.box[:, number])
            self.start = float(best.coordinates[number])
            self.step = min(error, (self.high - self.low) / 4)
            slope = spread[:count, number] / spread[number, number]
        self.slope = slope
        self.scouts = scouts(fit, spread)

    def _small(self) -> float:
        """What a coefficient of zero would have to be to matter."""
        matrix, _ = self.problem.design(self.fit.best.coordinates)
        scale = self.problem.noise.scale
        least = min(float(run.loss.min()) for run in self.problem.runs)
        return scale * least / max(float(matrix[:, self.column].max()), 1e-300)

    def outward(self, x: float) -> float:
        if self.linear:
            return x * self.size
        return self.problem.space[self.number].parameter.outward(x)

    def deviance(self, x: float, warm: np.ndarray) -> Point:
        if self.linear:
            return self.problem.minimise(warm, held={self.column: x * self.size}, rounds=25, accuracy=1e-6)
        return self.problem.minimise(warm, frozen={self.number: x}, rounds=25, accuracy=1e-6)

    def walk(self, direction: int, limits: tuple[float, ...]) -> tuple[Side, dict[float, float]]:
        best, furthest = self.fit.best, self.low if direction < 0 else self.high
        roots, places = [0.0], [self.start]
        warm, goal = best.coordinates, math.sqrt(limits[-1])
        x = self.start + direction * 1.8 * self.step
        closed = False
        for _ in range(_MOST_STEPS):
            x = max(x, furthest) if direction < 0 else min(x, furthest)
            if x == places[-1]:
                break
            # The others move along their regression on this one, or from where they were.
            guess = warm + self.slope * (x - places[-1]) if len(roots) < 3 else warm
            point = self.deviance(x, guess)
            rise = point.deviance - best.deviance
            if rise > goal**2:
                # The end of an interval, or a search that was stuck: look into the other valleys.
                steep = rise > _JUMP * self._expected(places, roots, x)
                retries = [self.deviance(x, start) for start in [*([best.coordinates] * steep), *self.scouts]]
                point = min([point, *retries], key=lambda one: one.deviance)
                rise = point.deviance - best.deviance
            if rise < -_BETTER:
                raise BetterOptimumError(point)
            root = math.sqrt(max(rise, 0.0))
            places.append(x)
            roots.append(root)
            warm = point.coordinates
            if root > goal:
                closed = True
                break
            if x == furthest:
                break
            gain = max(root - roots[-2], 0.05) / abs(places[-1] - places[-2])
            x += direction * min(max(1.1 * goal - root, 0.1) / gain, 2.5 * abs(x - self.start) + self.step)
        if closed:
            self._refine(places, roots, goal, warm)
        ends = tuple(self._crossing(places, roots, math.sqrt(limit), furthest) for limit in limits)
        tried = {place: root**2 for place, root in zip(places, roots, strict=True)}
        return Side(tuple(self.outward(end) if math.isfinite(end) else end for end in ends), not closed), tried

    def _expected(self, places: list[float], roots: list[float], x: float) -> float:
        """The rise of the deviance if its root went on as a straight line, or as the standard error says at first."""
        if len(roots) < 2:
            return ((x - self.start) / self.step) ** 2
        slope = max(roots[-1] - roots[-2], 0.2) / abs(places[-1] - places[-2])
        return (roots[-1] + slope * abs(x - places[-1])) ** 2

    def _refine(self, places: list[float], roots: list[float], goal: float, warm: np.ndarray) -> None:
        """One more point at the end of the interval, where the last step went far beyond it."""
        if abs(roots[-1] - goal) < _CLOSE * goal or (len(roots) > 2 and abs(roots[-2] - goal) < _CLOSE * goal):
            return
        x = self._crossing(places, roots, goal, places[-1])
        if x in places:
            return
        point = self.deviance(x, warm)
        rise = point.deviance - self.fit.best.deviance
        if rise < -_BETTER:
            raise BetterOptimumError(point)
        places.insert(-1, x)
        roots.insert(-1, math.sqrt(max(rise, 0.0)))

    def _crossing(self, places: list[float], roots: list[float], goal: float, furthest: float) -> float:
        """Where the root of the rise first passes a goal, by straight lines between the points."""
        for number in range(1, len(roots)):
            if roots[number] >= goal:
                share = (goal - roots[number - 1]) / (roots[number] - roots[number - 1])
                return places[number - 1] + share * (places[number] - places[number - 1])
        return furthest


def rise_at(fit: Fit, label: str, value: float) -> float:
    """By how much the deviance rises where one number is held at a value, with all others fitted again.

    Parameters
    ----------
    fit
        The fit.
    label
        Name of the number.
    value
        Its value.
    """
    problem: Problem = fit.problem
    number, count = problem.labels.index(label), len(problem.space)
    spread = covariance(fit)
    linear = number >= count
    x = value if linear else problem.space[number].parameter.inward(value)
    held, frozen = ({number - count: x}, {}) if linear else ({}, {number: x})
    slope = spread[:count, number] / spread[number, number]
    best = float(fit.best.coefficients[number - count]) if linear else float(fit.best.coordinates[number])
    # Coefficients are logarithms in the covariance.
    away = math.log(value / best) if linear and min(value, best) > 0 else 0.0 if linear else x - best
    starts = [fit.best.coordinates + slope * away, fit.best.coordinates, *scouts(fit, spread)]
    return min(problem.minimise(start, held, frozen).deviance for start in starts) - fit.best.deviance
