"""Gradient descent by the latent closure: the default solver of the committee.

In the coordinates of :mod:`solvable.models.committee.closure` the weights ``U`` follow the same linear optimiser as the
weights of the network, with ``<g Y>`` in place of minus the gradient: momentum and schedules act on ``U`` directly.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import check_count
from solvable.models.committee.closure import Evaluation, LatentClosure, combine, largest_rate
from solvable.models.committee.gaussian import test_losses
from solvable.models.committee.problem import Advance, OutputRequest, Problem, Solution
from solvable.numerics.cost import check_cost
from solvable.numerics.memory import device_memory
from solvable.training import Covers, GradientDescent

# Steps between two checks for divergence; a check makes an accelerator wait.
_LOOK_EVERY = 64
_DEFAULT_MEMORY = 4.0 * 2**30
# A loss this many times the first one has diverged.
_DIVERGED = 1e6
# Typical rank of the latent basis on long runs, and the overhead of an evaluation from Python in operations.
_USUAL_RANK, _CALL = 64, 1e6


@dataclasses.dataclass(frozen=True)
class ClosureSolver:
    """Settings of a solver that averages over samples of the latent closure.

    Parameters
    ----------
    samples
        Size of one set of samples.
    replicates
        Number of independent randomised quasi-Monte-Carlo sets of samples; their spread is part of the error.
    tolerance
        Fraction of a signal that must lie outside the latent basis for the basis to grow.
    memory_limit
        Most bytes to use; half the accelerator's memory, or 4 GiB on a CPU, if None.
    """

    samples: int = 8192
    replicates: int = 4
    tolerance: float = 3e-3
    memory_limit: float | None = None
    covers: ClassVar[tuple[Covers, ...]] = ()
    # A single replicate has no spread, and hence no error.
    least_replicates: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_count("samples", self.samples, 16)
        check_count("replicates", self.replicates, self.least_replicates)
        if not 1e-6 <= self.tolerance < 1:
            raise ValueError(f"tolerance must lie between 1e-6 and 1, not {self.tolerance!r}")

    def closure(self, problem: Problem, replicate: int, shrunk: bool, key: int) -> LatentClosure:
        """A new latent basis for one set of samples and one convention for new directions."""
        return LatentClosure(
            problem,
            samples=self.samples,
            tolerance=self.tolerance,
            shrunk=shrunk,
            key=(key, replicate),
            memory_limit=_memory() if self.memory_limit is None else self.memory_limit,
        )

    def solve(
        self, problem: Problem, times: np.ndarray, request: OutputRequest, key: int, advance: Advance
    ) -> Solution:
        """Solve with every set of samples, once with each convention for new directions."""
        if request.responses:
            raise ValueError("the latent closure needs no response functions and has none: use the solver Response")
        each = 1 / (2 * self.replicates)
        recorders = [
            [
                self.run(problem, times, request, replicate, shrunk, key, lambda part: advance(each * part))
                for shrunk in (False, True)
            ]
            for replicate in range(self.replicates)
        ]
        every = [recorder for pair in recorders for recorder in pair]
        stopped = [recorder for recorder in every if recorder.stopped is not None]
        first = min(stopped, key=lambda recorder: recorder.stopped or 0.0, default=None)
        pairs = [[recorder.arrays(times.size) for recorder in pair] for pair in recorders]
        names = pairs[0][0]
        values = {name: np.stack([(pair[0][name] + pair[1][name]) / 2 for pair in pairs]) for name in names}
        bias = {name: abs(np.mean([pair[0][name] - pair[1][name] for pair in pairs], axis=0)) / 2 for name in names}
        notes = {
            "rank": max(recorder.rank for recorder in every),
            "evaluations": max(recorder.evaluations for recorder in every),
            "peak_bytes": max(recorder.bytes for recorder in every),
        }
        time_error = {} if stopped else self.time_error(problem, times, key, int(notes["rank"]))
        if first is None:
            return Solution(values, bias, time_error, notes)
        return Solution(values, bias, time_error, notes, first.stopped, first.stable_learning_rate)

    def run(
        self,
        problem: Problem,
        times: np.ndarray,
        request: OutputRequest,
        replicate: int,
        shrunk: bool,
        key: int,
        advance: Advance,
    ) -> "Recorder":
        """One set of samples with one convention."""
        closure = self.closure(problem, replicate, shrunk, key)
        recorder = Recorder(closure, problem, shrunk, request)
        self.follow(problem, times, closure, recorder, advance)
        recorder.finish(times)
        return recorder

    def follow(
        self, problem: Problem, times: np.ndarray, closure: LatentClosure, recorder: "Recorder", advance: Advance
    ) -> None:
        """Train through the times, and record the state at each."""
        raise NotImplementedError

    def time_error(self, problem: Problem, times: np.ndarray, key: int, rank: int) -> dict[str, np.ndarray]:
        """Errors of the time steps; whole steps have none."""
        return {}


@dataclasses.dataclass(frozen=True)
class Latent(ClosureSolver):
    """Gradient descent in whole steps, exact as the dimension grows: the default for ``GradientDescent``."""

    covers: ClassVar[tuple[Covers, ...]] = (
        Covers(GradientDescent, options=("momentum", "nesterov", "weight_decay"), schedules=("learning_rate",)),
    )

    def check_cost(self, problem: Problem, times: np.ndarray) -> None:
        steps = float(times[-1])
        check_cost(
            f"Latent() for {steps:.3g} steps",
            operations=steps * 2 * self.replicates * (4.0 * self.samples * problem.neurons * _USUAL_RANK + _CALL),
            remedy="ask for earlier times, or for gradient flow: GradientFlow(...)",
        )

    def follow(
        self, problem: Problem, times: np.ndarray, closure: LatentClosure, recorder: "Recorder", advance: Advance
    ) -> None:
        training: Any = problem.training
        saved, last = {int(time) for time in times}, int(times[-1])
        rates = training.learning_rates(0, last)
        weights = closure.start
        momentum = jnp.zeros_like(weights)
        for count in range(last + 1):
            evaluation = closure.evaluate(weights)
            weights = closure.widen(weights)
            if count in saved:
                recorder.record(weights, evaluation)
            if (count % _LOOK_EVERY == 0 and recorder.has_diverged(evaluation, count)) or count == last:
                break
            rate, decay = float(rates[count]), training.weight_decay
            moved = combine((1 - rate * decay, rate), (weights, evaluation.velocity))
            if training.momentum:
                before = momentum
                momentum = combine((training.momentum, 1.0, -decay), (momentum, evaluation.velocity, weights))
                carried = momentum if training.nesterov else before
                moved = combine((1.0, rate * training.momentum), (moved, carried))
            weights = moved
            advance(1 / last)


class Recorder:
    """Weights and losses of one run at the times asked for, and when it diverged."""

    def __init__(self, closure: LatentClosure, problem: Problem, shrunk: bool, request: OutputRequest) -> None:
        self._closure, self._problem, self._shrunk, self._request = closure, problem, shrunk, request
        self._weights: list[Array] = []
        self._projections: list[Array] = []
        self._losses: list[Array] = []
        self._alignments: list[Array] = []
        self._first: float | None = None
        self.stopped: float | None = None
        self.stable_learning_rate = np.inf
        self._samples = closure.samples

    def record(self, weights: Array, evaluation: Evaluation) -> None:
        self._weights.append(weights)
        self._losses.append(evaluation.loss)
        if self._request.correlations or self._request.loss_gap:
            self._projections.append(evaluation.projections)
        if self._request.kernel_alignment:
            self._alignments.append(sample_alignment(self._closure, self._problem, weights))

    def has_diverged(self, evaluation: Evaluation, time: float) -> bool:
        """Whether the loss has grown beyond bounds; the stable rate is that of the weights at the last finite time."""
        loss = float(evaluation.loss)
        if self._first is None:
            self._first = loss
        if loss < _DIVERGED * max(self._first, 1e-300):
            return False
        finite = [w for w, value in zip(self._weights, self._losses, strict=True) if np.isfinite(float(value))]
        rate = fastest_rate(self._problem, self._closure, finite[-1] if finite else self._closure.start)
        self.stopped, self.stable_learning_rate = time, 2 / rate
        return True

    def finish(self, times: np.ndarray) -> None:
        """Copy the numbers from the device and release the samples."""
        bad = [i for i, loss in enumerate(self._losses) if not float(loss) < _DIVERGED * max(self._first or 0, 1e-300)]
        if bad and self.stopped is None:
            before = self._weights[max(bad[0] - 1, 0)]
            self.stopped = float(times[bad[0]])
            self.stable_learning_rate = 2 / fastest_rate(self._problem, self._closure, before)
        good = bad[0] if bad else len(self._losses)
        self.rank, self.bytes = self._closure.rank, self._closure.memory()
        self.evaluations = self._closure.evaluations
        self._fixed = self._closure.fixed
        width, neurons = self._closure.width, self._problem.neurons
        self._stacked = _stack(self._weights[:good], neurons, width)
        self._projected = _stack(self._projections[:good], neurons, width - self._fixed)
        self._loss = np.asarray([float(loss) for loss in self._losses[:good]])
        self._aligned = np.asarray([float(value) for value in self._alignments[:good]])
        del self._closure, self._weights, self._projections

    def arrays(self, times: int) -> dict[str, np.ndarray]:
        """Order parameters (time, ...), with NaN from the divergence on."""
        weights, projected = self._stacked, self._projected
        alignment = weights[:, :, : self._problem.indices]
        overlap = np.einsum("tia,tja->tij", weights, weights)
        out = {
            "train_loss": self._loss,
            "test_loss": np.asarray(test_losses(self._problem, alignment, overlap)),
            "alignment": alignment,
            "overlap": overlap,
        }
        if self._request.correlations:
            out["weight_correlation"] = np.einsum("tia,sja->tsij", weights, weights)
            out["gradient_correlation"] = np.einsum("tia,sja->tsij", projected, projected)
        if self._request.loss_gap:
            out["loss_gap"] = self._loss_gap(weights, projected)
        if self._request.kernel_alignment:
            out["kernel_alignment"] = self._aligned
        return {name: _padded(values, times, name) for name, values in out.items()}

    def _loss_gap(self, weights: np.ndarray, projected: np.ndarray) -> np.ndarray:
        """``2 sum_i (c_i / b_i) <g_i m_i>``, m the part of the field that the sample itself has caused (eq. 18)."""
        ratio = self._problem.samples_per_dimension
        columns = np.arange(self._fixed, weights.shape[2])
        taken = columns * ratio / self._samples if self._shrunk else 0.0 * columns
        own = np.sqrt(np.maximum(1 - taken, 0.0) / ratio)
        factors = self._problem.readout_ratio
        return 2 * np.einsum("i,tia,tia,a->t", factors, projected, weights[:, :, self._fixed :], own)


def _padded(values: np.ndarray, count: int, name: str) -> np.ndarray:
    """Values with NaN at the times that a run did not reach."""
    missing = count - values.shape[0]
    if not missing:
        return values
    axes = 2 if name.endswith("correlation") else 1
    widths = [(0, missing)] * axes + [(0, 0)] * (values.ndim - axes)
    return np.pad(values, widths, constant_values=np.nan)


def _stack(arrays: list[Array], rows: int, width: int) -> np.ndarray:
    """Arrays of growing width as one, padded with zeros."""
    stacked = np.zeros((len(arrays), rows, width))
    for place, array in enumerate(arrays):
        stacked[place, :, : array.shape[1]] = np.asarray(array)
    return stacked


def fastest_rate(problem: Problem, closure: LatentClosure, weights: Array) -> float:
    """An upper bound, from the samples, on the rate of the fastest relaxation of gradient flow at these weights."""
    fields, index_fields = closure.fields(weights)
    return float(_spectral_edge(problem, fields, index_fields))


@jax.jit
def _spectral_edge(problem: Problem, fields: Array, index_fields: Array) -> Array:
    return largest_rate(problem.curvature_bound(fields, index_fields), problem.samples_per_dimension)


def _memory() -> float:
    memory = device_memory(jax.devices()[0])
    return _DEFAULT_MEMORY if memory is None else memory / 2


def sample_alignment(closure: LatentClosure, problem: Problem, weights: Array) -> Float[Array, ""]:
    """:meth:`Problem.kernel_alignment` in the limit of many dimensions.

    There ``x . x`` is one and ``(x . x')^2`` is 1/D, so that ``|K|_F^2 / P = <K(x,x)^2> + gamma <K(x,x')^2>``, and
    ``y^T K y / P = gamma sum_i c_i^2 |(1/gamma) sum_mu y phi'_i x|^2 / D``.
    """
    fields, index = closure.fields(weights)
    target, slopes = _target_and_slopes(problem, fields, index)
    pulls = closure.squared_pull(slopes * target)
    return _assemble(problem.readout * problem.gradient_readout, pulls, slopes, target, problem.samples_per_dimension)


@jax.jit
def _target_and_slopes(problem: Problem, fields: Array, index: Array) -> tuple[Array, Array]:
    return problem.target(index), problem.slopes(fields)


@jax.jit
def _assemble(power: Array, pulls: Array, slopes: Array, target: Array, ratio: float) -> Array:
    own = jnp.mean((power @ slopes**2) ** 2)
    pairs = jnp.sum(power[:, None] * power * (slopes @ slopes.T / target.size) ** 2)
    quotient = ratio * (power @ pulls) / jnp.mean(target**2)
    return quotient / jnp.sqrt(own + ratio * pairs)
