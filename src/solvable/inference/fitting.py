"""Fits of a law to runs: variable projection, several starts, and noise that is estimated from the residuals.

For given nonlinear parameters the coefficients of the terms follow from nonnegative least squares, so that the search
is over the nonlinear parameters alone. The residual is the logarithm of the loss over the law, whitened by the noise.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from solvable.inference.law import Law, LawParameter
from solvable.inference.noise import Noise, estimate, gaps
from solvable.inference.runs import Run

_STARTS = 32
_POLISHED = 3
_NOISE_ROUNDS = 3
_LINEAR_ROUNDS = 6
_TINY = 1e-300
# The difference of parameters in derivatives, in units of their natural step.
_DIFFERENCE = 1e-5
# Optima that are within this of the best in minus twice the log-likelihood explain the data as well.
EQUALLY_GOOD = 4.0


class Coordinate(NamedTuple):
    """A free nonlinear parameter: shared by all runs if ``group`` is None."""

    label: str
    parameter: LawParameter
    group: str | None


class Column(NamedTuple):
    """A free coefficient: shared by all runs if ``group`` is None."""

    label: str
    term: str
    group: str | None


class Point(NamedTuple):
    """A point of parameter space with what follows from it."""

    coordinates: np.ndarray
    coefficients: np.ndarray
    # Logarithms of the law, one array per run.
    logs: list[np.ndarray]
    # Residuals whose squares add up to the deviance.
    deviances: np.ndarray

    @property
    def deviance(self) -> float:
        return float(self.deviances @ self.deviances)


class Problem:
    """Runs, a law, what is fixed and what is shared, and the noise.

    Parameters
    ----------
    law
        The law, with its boxes.
    runs
        Checked runs.
    fixed
        Values of parameters and terms that are not fitted.
    separate
        Names of parameters and terms of which each group of runs has its own.
    noise
        The noise.
    """

    def __init__(
        self, law: Law, runs: Sequence[Run], fixed: Mapping[str, float], separate: Sequence[str], noise: Noise
    ) -> None:
        self.law, self.runs, self.fixed, self.separate = law, list(runs), dict(fixed), tuple(separate)
        groups = list(dict.fromkeys(run.group for run in runs))
        own_terms = () if law.shared_terms else law.terms
        self.space = [
            Coordinate(f"{p.name}[{group}]" if group else p.name, p, group)
            for p in law.parameters
            if p.name not in self.fixed
            for group in (groups if p.name in self.separate else [None])
        ]
        self.columns = [
            Column(f"{term}[{group}]" if group else term, term, group)
            for term in law.terms
            if term not in self.fixed
            for group in (groups if term in (*self.separate, *own_terms) else [None])
        ]
        self.logs = [np.log(run.loss) for run in runs]
        self.errors = [
            np.ones(run.size) if run.errors is None else run.errors / run.loss / np.median(run.errors / run.loss)
            for run in runs
        ]
        self._memory: list[dict[tuple[float, ...], np.ndarray]] = [{} for _ in runs]
        self.with_noise(noise)

    def with_noise(self, noise: Noise) -> None:
        """Change the noise in place: gaps and scales are computed once."""
        self._last: tuple[np.ndarray, np.ndarray] | None = None
        self.noise = noise
        self.gaps = [gaps(run.steps, noise.clock) for run in self.runs]
        self.scales = [
            error * noise.relative.get(run.group, 1.0) for run, error in zip(self.runs, self.errors, strict=True)
        ]
        self.is_plain = noise.correlation == 0 and all((scale == 1).all() for scale in self.scales)

    @property
    def labels(self) -> list[str]:
        """Names of all fitted numbers: coordinates, then coefficients."""
        return [one.label for one in self.space] + [one.label for one in self.columns]

    @property
    def points(self) -> int:
        """Number of records."""
        return sum(run.size for run in self.runs)

    @property
    def box(self) -> np.ndarray:
        """Lower and upper ends of the coordinates."""
        return np.array([one.parameter.box for one in self.space]).reshape(-1, 2).T

    @property
    def steps(self) -> np.ndarray:
        """Natural steps of the coordinates."""
        return np.array([one.parameter.step for one in self.space])

    @property
    def start(self) -> np.ndarray:
        """Where the law says that the search begins."""
        return np.array([one.parameter.inward(one.parameter.start) for one in self.space])

    def theta(self, coordinates: np.ndarray, group: str) -> dict[str, float]:
        """All nonlinear parameters of the runs of a group."""
        found = {p.name: self.fixed[p.name] for p in self.law.parameters if p.name in self.fixed}
        for one, value in zip(self.space, coordinates, strict=True):
            if one.group is None or one.group == group:
                found[one.parameter.name] = one.parameter.outward(value)
        return found

    def basis(self, place: int, coordinates: np.ndarray, run: Run | None = None) -> np.ndarray:
        """The basis of a run of the data, remembered where its parameters have not changed, or of a run like it."""
        theta = self.theta(coordinates, self.runs[place].group)
        if run is not None:
            return np.asarray(self.law.basis(theta, run), float)
        memory, key = self._memory[place], tuple(theta.values())
        if key not in memory:
            if len(memory) > 8:
                memory.pop(next(iter(memory)))
            memory[key] = np.asarray(self.law.basis(theta, self.runs[place]), float)
        return memory[key]

    def design(self, coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The curves of the free coefficients over all records, and the sum of those of the fixed ones."""
        matrix, known = np.zeros((self.points, len(self.columns))), np.zeros(self.points)
        first = 0
        for place, run in enumerate(self.runs):
            rows = slice(first, first + run.size)
            basis = self.basis(place, coordinates)
            for number, column in enumerate(self.columns):
                if column.group is None or column.group == run.group:
                    matrix[rows, number] = basis[:, self.law.terms.index(column.term)]
            for number, term in enumerate(self.law.terms):
                if term in self.fixed:
                    known[rows] += self.fixed[term] * basis[:, number]
            first += run.size
        return matrix, known

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Rows over all records, turned into rows of independent noise of equal scale."""
        if self.is_plain:
            return values
        parts, first = [], 0
        for run, run_gaps, scale in zip(self.runs, self.gaps, self.scales, strict=True):
            own = values[first : first + run.size]
            parts.append(self.noise.whiten(own / scale.reshape(-1, *([1] * (own.ndim - 1))), run_gaps))
            first += run.size
        return np.concatenate(parts)

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        """Values over all records, one array per run."""
        return np.split(values, np.cumsum([run.size for run in self.runs])[:-1])

    def evaluate(self, coordinates: np.ndarray, held: Mapping[int, float] | None = None) -> Point:
        """The best coefficients at these coordinates, some of them held, and the residuals."""
        from scipy.optimize import nnls

        held = held or {}
        matrix, known = self.design(coordinates)
        coefficients = np.zeros(len(self.columns))
        for number, value in held.items():
            coefficients[number] = value
            known = known + matrix[:, number] * value
        free = [number for number in range(len(self.columns)) if number not in held]
        logs = np.concatenate(self.logs)
        # The logarithm is linearised at the last curve, which is near: searches move in small steps.
        curve, weights = self._last if self._last is not None else (np.exp(logs), np.ones(logs.size))
        for turn in range(_LINEAR_ROUNDS if free else 0):
            rows = self.whiten(matrix[:, free] / curve[:, None]) * weights[:, None]
            goal = self.whiten(logs - np.log(curve) + 1 - known / curve) * weights
            sizes = np.sqrt((rows**2).sum(0)) + _TINY
            coefficients[free] = nnls(rows / sizes, goal, maxiter=100 * len(free) + 100)[0] / sizes
            before, curve = curve, np.maximum(matrix[:, free] @ coefficients[free] + known, _TINY)
            weights = self.noise.weights(self.whiten(logs - np.log(curve)))
            change = np.max(np.abs(curve / before - 1))
            if not np.isfinite(change) or (change > 1 and turn == 0):
                curve, weights = np.exp(logs), np.ones(logs.size)
            elif change < 1e-7:
                break
        if not free:
            curve = np.maximum(known, _TINY)
        found = np.log(curve)
        self._last = (curve, weights) if curve.min() > 1e-3 * np.exp(logs.min()) else None
        return Point(
            np.array(coordinates), coefficients, self.split(found), self.noise.deviance(self.whiten(logs - found))
        )

    def jacobian(self, point: Point) -> np.ndarray:
        """Derivatives of the logarithm of the law by coordinates and by logarithms of coefficients, not whitened.

        The coefficients are not projected here, so that all correlations are in it. A coefficient of zero enters with
        the size that would matter: a hundredth of the smallest loss.
        """
        matrix, _ = self.design(point.coordinates)
        curve = np.exp(np.concatenate(point.logs))
        columns = []
        low, high = self.box
        for number, step in enumerate(_DIFFERENCE * self.steps):
            ends = np.array([point.coordinates, point.coordinates])
            ends[0, number] = max(low[number], ends[0, number] - step)
            ends[1, number] = min(high[number], ends[1, number] + step)
            values = [np.log(np.maximum(a @ point.coefficients + b, _TINY)) for a, b in map(self.design, ends)]
            columns.append((values[1] - values[0]) / (ends[1, number] - ends[0, number]))
        for number, value in enumerate(point.coefficients):
            size = value if value > 0 else 0.01 * float(np.min(curve)) / max(float(matrix[:, number].max()), _TINY)
            columns.append(matrix[:, number] * size / curve)
        return np.array(columns).T.reshape(self.points, -1)

    def movable(self, point: Point) -> np.ndarray:
        """Which coordinates and coefficients are inside of their limits; the others cannot follow the data."""
        low, high = self.box
        edge = 1e-4 * (high - low)
        inside = (point.coordinates > low + edge) & (point.coordinates < high - edge)
        return np.concatenate([inside, point.coefficients > 0])

    def minimise(
        self,
        start: np.ndarray,
        held: Mapping[int, float] | None = None,
        frozen: Mapping[int, float] | None = None,
        rounds: int = 60,
        accuracy: float = 1e-8,
    ) -> Point:
        """The best point near a start, with some coefficients held and some coordinates frozen."""
        from scipy.optimize import least_squares

        frozen = frozen or {}
        low, high = self.box
        whole = np.clip(start, low, high)
        for number, value in frozen.items():
            whole[number] = value
        free = np.array([number for number in range(len(self.space)) if number not in frozen], dtype=int)
        if free.size == 0:
            return self.evaluate(whole, held)
        steps = self.steps[free]
        margin = 1e-9 * (high - low)[free]

        def at(values: np.ndarray) -> np.ndarray:
            point = whole.copy()
            point[free] = values
            return self.evaluate(point, held).deviances

        def slopes(values: np.ndarray) -> np.ndarray:
            here, out = at(values), []
            for number, step in enumerate(_DIFFERENCE * steps):
                moved = values.copy()
                # One-sided, towards the inside of the box.
                sign = -1.0 if moved[number] + step > high[free][number] else 1.0
                moved[number] += sign * step
                out.append((at(moved) - here) / (sign * step))
            return np.array(out).T

        inside = np.clip(whole[free], low[free] + margin, high[free] - margin)
        found = least_squares(
            at, inside, slopes, bounds=(low[free], high[free]), x_scale=steps, max_nfev=rounds, xtol=accuracy,
            ftol=accuracy, gtol=1e-10,
        )  # fmt: skip
        whole[free] = found.x
        return self.evaluate(whole, held)


@dataclasses.dataclass(frozen=True)
class Fit:
    """The best point of a problem, the other ones that are as good, and the noise.

    Parameters
    ----------
    problem
        Runs, law and noise.
    best
        The best point.
    others
        Other optima whose deviance is within :data:`EQUALLY_GOOD`.
    """

    problem: Problem
    best: Point
    others: list[Point]

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the noise's scale: records minus fitted numbers, fewer where records are correlated.

        The scale of the slow part of correlated noise is known from that many effectively independent records, ``(1 -
        rho) / (1 + rho)`` of all; at least four, as for the noise of forecasts.
        """
        left = self.problem.points - len(self.problem.labels)
        rho = self.problem.noise.correlation
        return max(4.0, left * (1 - rho) / (1 + rho)) if left > 4 else max(1.0, float(left))


def fit(
    law: Law,
    runs: Sequence[Run],
    *,
    fixed: Mapping[str, float] | None = None,
    separate: Sequence[str] = (),
    noise: str = "student-ar1",
    starts: int = _STARTS,
    near: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Fit:
    """Fit a law to runs from several starts, estimate the noise from the residuals, and fit again with it.

    Parameters
    ----------
    law
        The law, with boxes that suit the runs.
    runs
        Checked runs.
    fixed
        Values of parameters and terms that are not fitted.
    separate
        Names of parameters and terms of which each group of runs has its own.
    noise
        ``"student-ar1"``, ``"gaussian-ar1"``, ``"student"`` or ``"gaussian"``.
    starts
        Number of points of the box at which the fit is tried; the best few are polished.
    near
        Labels and values from which one more start is made, such as those of an earlier fit.
    seed
        Random seed of the starts.
    """
    problem = Problem(law, runs, fixed or {}, separate, Noise())
    candidates = [problem.minimise(start, rounds=20, accuracy=1e-4) for start in _starts(problem, starts, near, seed)]
    candidates = _distinct(problem, candidates)
    for _ in range(_NOISE_ROUNDS):
        best = candidates[0]
        residuals = np.concatenate(problem.logs) - np.concatenate(best.logs)
        scaled = residuals / np.concatenate(problem.errors)
        slopes = problem.jacobian(best)[:, problem.movable(best)] / np.concatenate(problem.errors)[:, None]
        before = problem.noise
        problem.with_noise(estimate(problem.runs, problem.split(scaled), problem.split(slopes), noise))
        # Optima that are far worse stay so.
        close = [one for one in candidates if one.deviance < candidates[0].deviance * 1.5 + 20]
        candidates = _distinct(problem, [problem.minimise(one.coordinates, accuracy=1e-7) for one in close])
        change = abs(math.log(problem.noise.scale / before.scale)) + abs(problem.noise.correlation - before.correlation)
        if change < 0.01:
            break
    best = problem.minimise(candidates[0].coordinates)
    return Fit(problem, best, [one for one in candidates[1:] if one.deviance < best.deviance + EQUALLY_GOOD])


def _starts(problem: Problem, count: int, near: Mapping[str, float] | None, seed: int) -> list[np.ndarray]:
    """The law's own start, that of an earlier fit, and the best of points spread over the box."""
    chosen = [problem.start]
    if near:
        given = [near.get(one.label, near.get(one.parameter.name)) for one in problem.space]
        pairs = zip(problem.space, given, problem.start, strict=True)
        chosen.append(
            np.array([start if value is None else one.parameter.inward(value) for one, value, start in pairs])
        )
    low, high = problem.box
    if count and low.size:
        from scipy.stats import qmc

        tried = low + (high - low) * qmc.Sobol(low.size, seed=seed).random(2 ** math.ceil(math.log2(count)))
        order = np.argsort([problem.evaluate(point).deviance for point in tried], kind="stable")
        chosen += [tried[place] for place in order[:_POLISHED]]
    return chosen


def _distinct(problem: Problem, points: list[Point]) -> list[Point]:
    """The points from the best on, without those that are the same, and without those that are hopeless."""
    kept: list[Point] = []
    steps = problem.steps
    for point in sorted(points, key=lambda one: one.deviance):
        away = [np.max(np.abs(point.coordinates - one.coordinates) / steps, initial=0.0) for one in kept]
        if not kept or min(away) > 0.05:
            kept.append(point)
    return kept[:_POLISHED]
