"""Descent and gradient flow by the latent closure: the default solvers of the committee."""

import dataclasses
import math
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.checks import check_choice, check_count
from solvable.models.committee.closure import Evaluation, LatentClosure
from solvable.models.committee.problem import Advance, Problem, Runs, Wanted, diverged
from solvable.models.committee.recorder import Recorder, fastest_rate
from solvable.models.committee.stabilised import chebyshev_step, combine, geometric_steps, local_error, stages_needed

# How many steps may go by before the loss is looked at; looking makes an accelerator wait.
_LOOK_EVERY = 64
_DEFAULT_MEMORY = 4 * 2**30
# The error of the time steps hardly depends on the number of samples.
_PILOT_SAMPLES = 4096


@dataclasses.dataclass(frozen=True)
class _Sampled:
    """Settings of a solver that averages over samples.

    ``samples``: size of one set of samples. ``scrambles``: independent sets; their spread is part of the error.
    ``tolerance``: share of a signal that must lie outside the latent basis for the basis to grow.
    ``memory_limit``: bytes; half the accelerator's memory, or 4 GiB on a CPU, if None.
    """

    samples: int = 8192
    scrambles: int = 4
    tolerance: float = 3e-3
    memory_limit: float | None = None
    whole_steps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("samples", self.samples, 16)
        check_count("scrambles", self.scrambles, 2)
        if not 1e-6 <= self.tolerance < 1:
            raise ValueError(f"tolerance must lie between 1e-6 and 1, not {self.tolerance!r}")

    def _closure(self, problem: Problem, scramble: int, shrunk: bool, key: int) -> LatentClosure:
        return LatentClosure(
            problem.task,
            alignment=problem.alignment,
            overlap=problem.overlap,
            samples_per_dimension=problem.samples_per_dimension,
            samples=self.samples,
            tolerance=self.tolerance,
            shrunk=shrunk,
            key=(key, scramble),
            memory_limit=_memory() if self.memory_limit is None else self.memory_limit,
        )

    def work(self, problem: Problem, times: np.ndarray) -> float:
        """How much :meth:`solve` will report as done."""
        return 2.0 * self.scrambles * float(times[-1])

    def solve(
        self, problem: Problem, times: np.ndarray, wanted: Wanted, key: int, advance: Advance, keep_diverged: bool
    ) -> Runs:
        """Every scramble, once with each convention for the self-term."""
        if wanted.responses:
            raise ValueError("the latent closure does without responses: use the solver Response for them")
        recorders = [
            [self._run(problem, times, wanted, scramble, shrunk, key, advance) for shrunk in (False, True)]
            for scramble in range(self.scrambles)
        ]
        every = [recorder for pair in recorders for recorder in pair]
        stopped = [recorder for recorder in every if recorder.stopped is not None]
        first = min(stopped, key=lambda recorder: recorder.stopped or 0.0, default=None)
        if first is not None and not keep_diverged:
            raise diverged(first.stopped or 0.0, problem.step, first.stable_step)
        pairs = [[recorder.arrays(problem, times, wanted) for recorder in pair] for pair in recorders]
        names = pairs[0][0]
        values = {name: np.stack([(pair[0][name] + pair[1][name]) / 2 for pair in pairs]) for name in names}
        bias = {name: abs(np.mean([pair[0][name] - pair[1][name] for pair in pairs], axis=0)) / 2 for name in names}
        notes = {
            "rank": max(recorder.rank for recorder in every),
            "evaluations": max(recorder.evaluations for recorder in every),
            "peak_bytes": max(recorder.bytes for recorder in every),
        }
        time_error = {} if stopped else self._time_error(problem, times, key, int(notes["rank"]))
        return Runs(values, bias, time_error, notes, None if first is None else first.stopped)

    def _time_error(self, problem: Problem, times: np.ndarray, key: int, rank: int) -> dict[str, np.ndarray]:
        """Errors of the time steps; whole steps have none."""
        return {}

    def _run(
        self,
        problem: Problem,
        times: np.ndarray,
        wanted: Wanted,
        scramble: int,
        shrunk: bool,
        key: int,
        advance: Advance,
    ) -> Recorder:
        closure = self._closure(problem, scramble, shrunk, key)
        recorder = Recorder(closure, problem, shrunk, wanted)
        self._follow(problem, times, closure, recorder, advance)
        recorder.finish(times)
        return recorder

    def _follow(
        self, problem: Problem, times: np.ndarray, closure: LatentClosure, recorder: Recorder, advance: Advance
    ) -> None:
        """Train through the times, and record what is there at each."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Latent(_Sampled):
    """Descent in whole steps, exact as the dimension grows; times are whole multiples of the step."""

    def _follow(
        self, problem: Problem, times: np.ndarray, closure: LatentClosure, recorder: Recorder, advance: Advance
    ) -> None:
        saved = {int(count) for count in np.round(times / problem.step)}
        keep, step, weights = 1 - problem.step * problem.weight_decay, problem.step, closure.start
        for count in range(max(saved) + 1):
            evaluation = closure.evaluate(weights)
            weights = closure.widen(weights)
            if count in saved:
                recorder.record(weights, evaluation)
            if count % _LOOK_EVERY == 0 and recorder.ran_away(evaluation, count * step):
                break
            weights = combine((keep, step), (weights, evaluation.velocity))
            advance(step)


@dataclasses.dataclass(frozen=True)
class Flow(_Sampled):
    """Gradient flow (steps of length zero) by a stabilised explicit scheme, to late times.

    ``grid="geometric"``: steps grow with time, each ``ratio`` times the last. ``"adaptive"``: steps as long as the
    estimated local error stays below ``accuracy`` of the weights. The error of the time steps is estimated by taking
    every step once more in two halves, on a smaller set of samples that both share.
    """

    whole_steps: ClassVar[bool] = False
    grid: Literal["geometric", "adaptive"] = "geometric"
    ratio: float = 1.15
    accuracy: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("grid", self.grid, ("geometric", "adaptive"))
        if not 1 < self.ratio <= 2:
            raise ValueError(f"ratio must lie between 1 and 2, not {self.ratio!r}")
        if not 0 < self.accuracy < 1:
            raise ValueError(f"accuracy must lie between 0 and 1, not {self.accuracy!r}")

    def _follow(
        self, problem: Problem, times: np.ndarray, closure: LatentClosure, recorder: Recorder, advance: Advance
    ) -> None:
        now, proposed, place = 0.0, np.inf, _Place(problem, closure)
        for target in map(float, times):
            while now < target:
                length = self._length(now, target, proposed, place.rate())
                following = place.after(length)
                if self.grid == "adaptive":
                    share = place.local_error(following, length) / self.accuracy
                    factor = 0.8 * max(share, 1e-6) ** (-1 / 3) if np.isfinite(share) else 0.1
                    if not share <= 1 and length > 1e-9 / place.rate():
                        proposed = length * float(np.clip(factor, 0.1, 0.9))
                        continue
                    proposed = length * float(np.clip(factor, 0.2, 3.0))
                place, now = following, _later(now, length, target)
                advance(length)
            recorder.record(closure.widen(place.weights), place.evaluation)
            if recorder.ran_away(place.evaluation, now):
                break

    def _time_error(self, problem: Problem, times: np.ndarray, key: int, rank: int) -> dict[str, np.ndarray]:
        """4/3 of the change when every step is halved: the scheme is of second order.

        Both runs go side by side in one basis, as two students of one dataset do, so that their difference has no
        sampling noise.
        """
        # The closure breaks down where rank * gamma reaches the samples, and two runs find up to twice the rank of one.
        enough = 2 ** math.ceil(math.log2(3 * max(rank, 1) * problem.samples_per_dimension))
        small = dataclasses.replace(self, samples=max(min(self.samples, _PILOT_SAMPLES), enough))
        closure = small._closure(problem, 0, False, key)
        recorders = [Recorder(closure, problem, False, Wanted()) for _ in range(2)]
        whole = halved = _Place(problem, closure)
        now, proposed = 0.0, np.inf
        for target in map(float, times):
            while now < target:
                length = self._length(now, target, proposed, whole.rate())
                following = whole.after(length)
                if self.grid == "adaptive":
                    share = max(whole.local_error(following, length) / self.accuracy, 1e-6)
                    proposed = length * float(np.clip(0.8 * share ** (-1 / 3), 0.2, 3.0))
                whole, halved = following, halved.after(length / 2).after(length / 2)
                now = _later(now, length, target)
            for recorder, place in zip(recorders, (whole, halved), strict=True):
                recorder.record(closure.widen(place.weights), place.evaluation)
                recorder.ran_away(place.evaluation, now)
        for recorder in recorders:
            recorder.finish(times)
        one, two = (recorder.arrays(problem, times, Wanted()) for recorder in recorders)
        return {name: 4 / 3 * np.abs(one[name] - two[name]) for name in one}

    def _length(self, now: float, target: float, proposed: float, rate: float) -> float:
        """The next step: not beyond the next time wanted, and at first no longer than the fastest relaxation."""
        shift = 1 / rate
        if self.grid == "geometric":
            return float(geometric_steps(now, target, self.ratio, shift)[0])
        proposed = min(proposed, 0.1 * shift) if now == 0 and np.isinf(proposed) else proposed
        left = target - now
        # Two equal steps rather than a long one and a scrap.
        return left if proposed >= left else min(proposed, left / 2) if proposed > left / 2 else proposed


class _Place:
    """Weights on a flow, with what the samples say of them."""

    def __init__(self, problem: Problem, closure: LatentClosure, weights: Array | None = None) -> None:
        self._problem, self._closure = problem, closure
        self.weights = closure.start if weights is None else weights
        self.evaluation = closure.evaluate(self.weights)
        self._rate: float | None = None

    def rate(self) -> float:
        """The fastest relaxation here."""
        if self._rate is None:
            self._rate = fastest_rate(self._problem, self._closure, self.weights) + self._problem.weight_decay
            if not math.isfinite(self._rate):
                used = self._closure.rank * self._problem.samples_per_dimension / self._closure.samples
                raise ValueError(
                    f"the flow left the finite numbers: {self._closure.samples} samples do not carry "
                    f"{self._closure.rank} directions (rank * gamma / samples = {used:.2g}, which must stay far below "
                    "1): raise samples or tolerance"
                )
        return self._rate

    def _velocity(self, evaluation: Evaluation, weights: Array) -> Array:
        decay = self._problem.weight_decay
        return combine((1.0, -decay), (evaluation.velocity, weights)) if decay else evaluation.velocity

    def velocity(self) -> Array:
        return self._velocity(self.evaluation, self.weights)

    def after(self, length: float) -> "_Place":
        """One stabilised step on."""
        weights = chebyshev_step(
            lambda at: self._velocity(self._closure.evaluate(at), at),
            self.weights,
            self.velocity(),
            length,
            stages_needed(length, self.rate()),
        )
        return _Place(self._problem, self._closure, weights)

    def local_error(self, following: "_Place", length: float) -> float:
        """The error of the step to ``following``, as a share of the weights."""
        error = local_error(self.weights, self.velocity(), following.weights, following.velocity(), length)
        return float(jnp.linalg.norm(error) / jnp.linalg.norm(following.weights))


def _later(now: float, length: float, target: float) -> float:
    """The time after a step; exactly the target where it is met but for rounding."""
    return target if abs(now + length - target) <= 1e-9 * target else now + length


def _memory() -> float:
    device = jax.devices()[0]
    statistics = (device.memory_stats() or {}) if device.platform != "cpu" else {}
    return 0.5 * statistics.get("bytes_limit", 2 * _DEFAULT_MEMORY)
