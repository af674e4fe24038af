"""Gradient flow by the latent closure, to late times: Runge-Kutta-Chebyshev, an explicit scheme for stiff flows.

A flow whose slowest direction matters at times far beyond its fastest one is stiff. Implicit schemes need an inner
solve for every step; the Chebyshev scheme of Sommeijer, Shampine and Verwer (RKC2, which Diffrax lacks) instead takes s
explicit stages, stable up to ``step * rate = 0.65 (s^2 - 1)``: the cost of a step grows only as the square root of its
length. Where even that is more than an inner solve costs, steps are implicit
(:mod:`solvable.models.committee.implicit`), so that every decade of time costs about the same from there on.

States may grow: a velocity may have more columns (last axis) than the state it belongs to. Columns missing count as
zero.

>>> from solvable.models.committee.flow import stages_needed
>>> stages_needed(step=1.0, rate=1.0), stages_needed(step=1.0, rate=1000.0)
(2, 40)
"""

import dataclasses
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from solvable.checks import check_choice, check_fraction
from solvable.coverage import Covers
from solvable.models.committee.closure import LatentClosure
from solvable.models.committee.implicit import Linearisation, NotConvergedError, implicit_step, steps_of_a_jacobian
from solvable.models.committee.latent import LEAST_TOLERANCE, ClosureSolver
from solvable.models.committee.problem import Advance, OutputRequest, Problem
from solvable.models.committee.protocol import Weights, combine_arrays
from solvable.models.committee.recording import Recorder
from solvable.models.committee.relaxation import fastest_rate
from solvable.training import GradientFlow

_DAMPING = 2 / 13
# The error of the time steps hardly depends on the number of samples. On an accelerator another number of samples is
# another set of programs, whose compilation takes longer than a run with as many samples as before.
_PILOT_SAMPLES, _PILOT_SAMPLES_ON_DEVICE = 4096, 65536
# Evaluations that Newton's iterations of an implicit step take, and the largest Jacobian that is chosen by default.
_NEWTON_EVALUATIONS, _MOST_ROWS = 14, 8192
# A step that Newton's method does not solve is halved up to this often.
_MOST_HALVINGS = 8


@dataclasses.dataclass(frozen=True)
class Flow(ClosureSolver):
    """Gradient flow by a stabilised explicit scheme: the default for ``GradientFlow``.

    The error of the time steps is estimated by taking every step once more in two halves, on a smaller set of samples
    that both share.

    Parameters
    ----------
    samples, replicates, tolerance, memory_limit
        As in :class:`Latent`.
    grid
        ``"geometric"``: steps grow with time, each ``ratio`` times the last. ``"adaptive"``: steps as long as the
        estimated local error stays below ``accuracy``.
    ratio
        Growth of the steps of the geometric grid.
    accuracy
        Local error of the adaptive grid, relative to the weights.
    implicit
        Whether steps may be implicit where that is faster; None for networks whose Jacobian has at most 8192 rows.
    """

    covers: ClassVar[tuple[Covers, ...]] = (Covers(GradientFlow, options=("weight_decay",)),)
    grid: Literal["geometric", "adaptive"] = "geometric"
    ratio: float = 1.15
    accuracy: float = 1e-3
    implicit: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("grid", self.grid, ("geometric", "adaptive"))
        if not 1 < self.ratio <= 2:
            raise ValueError(f"ratio must lie between 1 and 2, not {self.ratio!r}")
        check_fraction(self.accuracy, "accuracy")

    def check_cost(self, problem: Problem, times: np.ndarray) -> None:
        """Steps grow with time, so that late times cost little more.

        Parameters
        ----------
        problem
            What is solved.
        times
            Times at which it is solved, in steps or as flow times.
        """

    def with_shorter_steps(self, halvings: int) -> "Flow":
        """This solver with time steps halved some times, which divides their error by about four each time.

        The tolerance is halved with them: what signals leave outside the basis is an error that shorter steps do not
        remove, and it hides theirs.

        Parameters
        ----------
        halvings
            How often the steps are halved.
        """
        finer = dataclasses.replace(self, tolerance=max(self.tolerance / 2**halvings, LEAST_TOLERANCE))
        if self.grid == "adaptive":
            # The local error is of third order in the step.
            return dataclasses.replace(finer, accuracy=self.accuracy / 8**halvings)
        return dataclasses.replace(finer, ratio=self.ratio ** (0.5**halvings))

    def follow(
        self, problem: Problem, times: np.ndarray, closure: LatentClosure, recorder: Recorder, advance: Advance
    ) -> None:
        self._march(problem, times, closure, [recorder], advance)

    def time_error(self, problem: Problem, times: np.ndarray, key: int, rank: int) -> dict[str, np.ndarray]:
        """4/3 of the change when every step is halved: the scheme is of second order.

        Both runs go side by side in one basis, as two students of one dataset do, so that their difference has no
        sampling noise.

        Parameters
        ----------
        problem
            What is solved.
        times
            Times at which it is solved, in steps or as flow times.
        key
            Random key of the samples.
        rank
            Number of directions of the basis.
        """
        # The closure breaks down where rank * gamma reaches the samples, and two runs find up to twice the rank of one.
        enough = 2 ** math.ceil(math.log2(3 * max(rank, 1) * problem.samples_per_dimension))
        pilot = _PILOT_SAMPLES if jax.default_backend() == "cpu" else _PILOT_SAMPLES_ON_DEVICE
        small = dataclasses.replace(self, samples=max(min(self.samples, pilot), enough))
        closure = small.closure(problem, 0, False, key)
        recorders = [Recorder(closure, problem, False, OutputRequest()) for _ in range(2)]
        self._march(problem, times, closure, recorders, lambda part: None)
        for recorder in recorders:
            recorder.finish(times)
        one, two = (recorder.arrays(times.size) for recorder in recorders)
        return {name: 4 / 3 * np.abs(one[name] - two[name]) for name in one}

    def _march(
        self,
        problem: Problem,
        times: np.ndarray,
        closure: LatentClosure,
        recorders: list[Recorder],
        advance: Advance,
    ) -> None:
        """Step through the times. A second recorder follows the same steps, each taken in two halves."""
        clock = problem.training.flow_time(times)
        now, proposed, places = 0.0, np.inf, [_Place(problem, closure, self.implicit)] * len(recorders)
        for time, target in zip(times, map(float, clock), strict=True):
            while now < target:
                length = self._length(now, target, proposed, places[0].rate())
                following = places[0].after(length)
                if self.grid == "adaptive":
                    fraction = places[0].local_error(following, length) / self.accuracy
                    factor = 0.8 * max(fraction, 1e-6) ** (-1 / 3) if np.isfinite(fraction) else 0.1
                    if not fraction <= 1 and length > 1e-9 / places[0].rate():
                        proposed = length * float(np.clip(factor, 0.1, 0.9))
                        continue
                    proposed = length * float(np.clip(factor, 0.2, 3.0))
                places = [following, *(place.after(length / 2).after(length / 2) for place in places[1:])]
                now = _later(now, length, target)
                advance(length / float(clock[-1]))
            for recorder, place in zip(recorders, places, strict=True):
                weights = Weights(place.weights)
                recorder.record(weights)
                recorder.has_diverged(weights, float(time))
            if recorders[0].stopped is not None:
                break

    def _length(self, now: float, target: float, proposed: float, rate: float) -> float:
        """The next step: not beyond the next time asked for, and at first no longer than the fastest relaxation."""
        shift = 1 / rate
        if self.grid == "geometric":
            return float(geometric_steps(now, target, self.ratio, shift)[0])
        proposed = min(proposed, 0.1 * shift) if now == 0 and np.isinf(proposed) else proposed
        left = target - now
        # Two equal steps rather than a long one and a short rest.
        return left if proposed >= left else min(proposed, left / 2) if proposed > left / 2 else proposed


class _Place:
    """Weights along the flow, with their velocity."""

    def __init__(
        self,
        problem: Problem,
        closure: LatentClosure,
        implicit: bool | None,
        weights: np.ndarray | None = None,
        linear: Linearisation | None = None,
    ) -> None:
        training: Any = problem.training
        self._problem, self._closure, self._decay = problem, closure, training.weight_decay
        self._implicit, self._linear = implicit, linear
        self.weights: np.ndarray = closure.start.coordinates if weights is None else weights  # type: ignore[assignment]
        self.velocity = self._velocity(self.weights)
        self._rate: float | None = None

    def rate(self) -> float:
        """The fastest relaxation here."""
        if self._rate is None:
            self._rate = fastest_rate(self._problem, self._closure, Weights(self.weights)) + self._decay
            if not math.isfinite(self._rate):
                used = self._closure.rank * self._problem.samples_per_dimension / self._closure.samples
                raise ValueError(
                    f"the flow left the finite numbers: {self._closure.samples} samples do not carry "
                    f"{self._closure.rank} directions (rank * gamma / samples = {used:.2g}, which must stay far below "
                    "1): raise samples or tolerance"
                )
        return self._rate

    def _velocity(self, weights: np.ndarray) -> np.ndarray:
        return combine_arrays((1.0, -self._decay), (self._closure.velocity(weights), weights))

    def after(self, length: float) -> "_Place":
        """One step on: explicit, or implicit where that takes less time."""
        stages = stages_needed(length, self.rate())
        if self._worth_solving(stages):
            weights = self._solved(length, _MOST_HALVINGS)
        else:
            weights = chebyshev_step(self._velocity, self.weights, self.velocity, length, stages)
        return self._at(weights)

    def _at(self, weights: np.ndarray) -> "_Place":
        return _Place(self._problem, self._closure, self._implicit, weights, self._linear)

    def _worth_solving(self, stages: int) -> bool:
        if self._implicit is False or (self._implicit is None and self._closure.unknowns > _MOST_ROWS):
            return False
        return stages > _NEWTON_EVALUATIONS + self._closure.jacobian_worth() / steps_of_a_jacobian()

    def _solved(self, length: float, halvings: int) -> np.ndarray:
        """The weights after an implicit step, or after two of half its length where it is too long to be solved."""
        if self._linear is not None:
            try:
                return self._step_with(self._linear, length)
            except NotConvergedError:
                pass
        try:
            return self._step_with(Linearisation(self._closure, self.weights, self._decay), length)
        except NotConvergedError:
            if not halvings:
                raise
        middle = self._at(self._solved(length / 2, halvings - 1))
        return middle._solved(length / 2, halvings - 1)

    def _step_with(self, linear: Linearisation, length: float) -> np.ndarray:
        """The weights after an implicit step; its Jacobian is kept for the next one if it is still good."""
        self._linear = None
        weights = implicit_step(self._velocity, linear, self.weights, length)
        self._linear = linear if linear.serves_again() else None
        return weights

    def local_error(self, following: "_Place", length: float) -> float:
        """The error of the step to ``following``, relative to the weights."""
        error = local_error(self.weights, self.velocity, following.weights, following.velocity, length)
        return float(np.linalg.norm(error) / np.linalg.norm(following.weights))


def _later(now: float, length: float, target: float) -> float:
    """The time after a step; exactly the target where it is met but for rounding."""
    return target if abs(now + length - target) <= 1e-9 * target else now + length


class _Scheme(NamedTuple):
    first: float
    mu: list[float]
    nu: list[float]
    mu_velocity: list[float]
    gamma_velocity: list[float]


def stages_needed(step: float, rate: float) -> int:
    """The fewest stages (2 at least) that keep a step stable where the flow relaxes at up to ``rate``."""
    return max(2, 1 + math.floor(math.sqrt(1 + 1.54 * step * rate)))


@lru_cache(maxsize=256)
def _scheme(stages: int) -> _Scheme:
    """The coefficients, from Chebyshev polynomials and their derivatives at ``1 + damping / stages^2``."""
    at = 1 + _DAMPING / stages**2
    value, slope, bend = [1.0, at], [0.0, 1.0], [0.0, 0.0]
    for _ in range(2, stages + 1):
        bend.append(2 * at * bend[-1] - bend[-2] + 4 * slope[-1])
        slope.append(2 * at * slope[-1] - slope[-2] + 2 * value[-1])
        value.append(2 * at * value[-1] - value[-2])
    width = slope[stages] / bend[stages]
    b = [bend[j] / slope[j] ** 2 if j >= 2 else 0.0 for j in range(stages + 1)]
    b[0] = b[1] = b[2]
    a = [1 - b[j] * value[j] for j in range(stages + 1)]
    indices = range(2, stages + 1)
    mu = [2 * b[j] * at / b[j - 1] for j in indices]
    nu = [-b[j] / b[j - 2] for j in indices]
    mu_velocity = [2 * b[j] * width / b[j - 1] for j in indices]
    gamma_velocity = [-a[j - 1] * tilde for j, tilde in zip(indices, mu_velocity, strict=True)]
    return _Scheme(b[1] * width, mu, nu, mu_velocity, gamma_velocity)


def chebyshev_step(
    velocity: Callable[[np.ndarray], np.ndarray],
    state: Float[np.ndarray, "row column"],
    first_velocity: Float[np.ndarray, "row column2"],
    step: float,
    stages: int,
) -> Float[np.ndarray, "row column3"]:
    """The state after ``step``, from its velocity at the beginning and ``stages - 1`` evaluations more."""
    scheme = _scheme(stages)
    before, now = state, combine_arrays((1.0, scheme.first * step), (state, first_velocity))
    for mu, nu, mu_velocity, gamma_velocity in zip(*scheme[1:], strict=True):
        weights = (1 - mu - nu, mu, nu, mu_velocity * step, gamma_velocity * step)
        before, now = now, combine_arrays(weights, (state, now, before, velocity(now), first_velocity))
    return now


def local_error(
    state: Float[np.ndarray, "row column"],
    velocity: Float[np.ndarray, "row column2"],
    next_state: Float[np.ndarray, "row column3"],
    next_velocity: Float[np.ndarray, "row column4"],
    step: float,
) -> Float[np.ndarray, "row column5"]:
    """The scheme's own estimate of the error made in one step, ``0.8 (y0 - y1) + 0.4 h (f0 + f1)``: third order."""
    return combine_arrays((0.8, -0.8, 0.4 * step, 0.4 * step), (state, next_state, velocity, next_velocity))


def geometric_steps(begin: float, end: float, ratio: float, shift: float) -> Float[np.ndarray, "step"]:
    """Steps from ``begin`` to ``end`` whose lengths grow with ``t + shift``, each at most ``ratio`` times the last."""
    count = max(1, math.ceil(math.log((end + shift) / (begin + shift)) / math.log(ratio) - 1e-9))
    nodes = np.geomspace(begin + shift, end + shift, count + 1) - shift
    nodes[0], nodes[-1] = begin, end
    return np.diff(nodes)
