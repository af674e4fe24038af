"""What a run of the latent closure leaves behind: order parameters at the times wanted, and when it ran away."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from solvable.models.committee.closure import Evaluation, LatentClosure, largest_rate
from solvable.models.committee.kernel import sample_alignment
from solvable.models.committee.population import test_loss
from solvable.models.committee.problem import Problem, Wanted
from solvable.models.committee.task import Task

# A loss this many times the first one has left for good.
_RUNAWAY = 1e6


class Recorder:
    """Weights and losses of one run at the times wanted."""

    def __init__(self, closure: LatentClosure, problem: Problem, shrunk: bool, wanted: Wanted) -> None:
        self._closure, self._problem, self._shrunk, self._wanted = closure, problem, shrunk, wanted
        self._weights: list[Array] = []
        self._projections: list[Array] = []
        self._losses: list[Array] = []
        self._alignments: list[Array] = []
        self._first: float | None = None
        self.stopped: float | None = None
        self.stable_step = np.inf
        self._samples = closure.samples

    def record(self, weights: Array, evaluation: Evaluation) -> None:
        self._weights.append(weights)
        self._losses.append(evaluation.loss)
        if self._wanted.correlations or self._wanted.loss_gap:
            self._projections.append(evaluation.projections)
        if self._wanted.kernel_alignment:
            self._alignments.append(sample_alignment(self._closure, self._problem, weights))

    def ran_away(self, evaluation: Evaluation, time: float) -> bool:
        """Whether the loss has left for good; the stable step is that of the weights at the last time recorded."""
        loss = float(evaluation.loss)
        if self._first is None:
            self._first = loss
        if loss < _RUNAWAY * max(self._first, 1e-300):
            return False
        finite = [w for w, value in zip(self._weights, self._losses, strict=True) if np.isfinite(float(value))]
        rate = fastest_rate(self._problem, self._closure, finite[-1] if finite else self._closure.start)
        self.stopped, self.stable_step = time, 2 / rate
        return True

    def finish(self, times: np.ndarray) -> None:
        """Take the numbers off the device and let the samples go."""
        bad = [i for i, loss in enumerate(self._losses) if not float(loss) < _RUNAWAY * max(self._first or 0, 1e-300)]
        if bad and self.stopped is None:
            before = self._weights[max(bad[0] - 1, 0)]
            self.stopped = float(times[bad[0]])
            self.stable_step = 2 / fastest_rate(self._problem, self._closure, before)
        good = bad[0] if bad else len(self._losses)
        self.rank, self.bytes = self._closure.rank, self._closure.memory()
        self.evaluations = self._closure.evaluations
        self.fixed = self._closure.fixed
        width = self._closure.width
        neurons = self._problem.overlap.shape[0]
        self._stacked = _stack(self._weights[:good], neurons, width)
        self._projected = _stack(self._projections[:good], neurons, width - self.fixed)
        self._loss = np.asarray([float(loss) for loss in self._losses[:good]])
        self._aligned = np.asarray([float(value) for value in self._alignments[:good]])
        del self._closure, self._weights, self._projections

    def arrays(self, problem: Problem, times: np.ndarray, wanted: Wanted) -> dict[str, np.ndarray]:
        """Order parameters (time, ...); NaN from where the run ran away."""
        out = _order_parameters(problem, self._stacked, self._loss)
        weights, projected = self._stacked, self._projected
        if wanted.correlations:
            out["weight_correlation"] = np.einsum("tia,sja->tsij", weights, weights)
            out["gradient_correlation"] = np.einsum("tia,sja->tsij", projected, projected)
        if wanted.loss_gap:
            out["loss_gap"] = self._loss_gap(problem, weights, projected)
        if wanted.kernel_alignment:
            out["kernel_alignment"] = self._aligned
        return {name: _padded(values, times.size, name) for name, values in out.items()}

    def _loss_gap(self, problem: Problem, weights: np.ndarray, projected: np.ndarray) -> np.ndarray:
        """``2 sum_i (c_i / b_i) <g_i m_i>``, m the part of the field that the sample itself has caused (eq. 18)."""
        readout, moved = np.asarray(problem.task.readout), np.asarray(problem.task.gradient_readout)
        ratio = np.divide(readout, moved, out=np.zeros_like(readout), where=moved != 0)
        columns = np.arange(self.fixed, weights.shape[2])
        taken = columns * problem.samples_per_dimension / self._samples if self._shrunk else 0.0 * columns
        own = np.sqrt(np.maximum(1 - taken, 0.0) / problem.samples_per_dimension)
        return 2 * np.einsum("i,tia,tia,a->t", ratio, projected, weights[:, :, self.fixed :], own)


def _order_parameters(problem: Problem, weights: np.ndarray, losses: np.ndarray) -> dict[str, np.ndarray]:
    alignment = weights[:, :, : problem.alignment.shape[1]]
    overlap = np.einsum("tia,tja->tij", weights, weights)
    tests = _test_losses(problem.task, alignment, overlap)
    return {"train_loss": losses, "test_loss": np.asarray(tests), "alignment": alignment, "overlap": overlap}


@jax.jit
def _test_losses(task: Task, alignment: Array, overlap: Array) -> Array:
    return jax.vmap(lambda a, c: test_loss(task, a, c))(alignment, overlap)


def _padded(values: np.ndarray, count: int, name: str) -> np.ndarray:
    """Values with NaN at the times a run did not reach."""
    missing = count - values.shape[0]
    if not missing:
        return values
    axes = 2 if name.endswith("correlation") else 1
    widths = [(0, missing)] * axes + [(0, 0)] * (values.ndim - axes)
    return np.pad(values, widths, constant_values=np.nan)


def _stack(arrays: list[Array], rows: int, width: int) -> np.ndarray:
    """Arrays of growing width as one; none at all are as good as any other number."""
    stacked = np.zeros((len(arrays), rows, width))
    for place, array in enumerate(arrays):
        stacked[place, :, : array.shape[1]] = np.asarray(array)
    return stacked


def fastest_rate(problem: Problem, closure: LatentClosure, weights: Array) -> float:
    """The fastest relaxation of descent at these weights: an upper bound from the samples."""
    fields, index = closure.fields(weights)
    return float(_edge(problem.task, fields, index, problem.samples_per_dimension))


@jax.jit
def _edge(task: Task, fields: Array, index: Array, ratio: Any) -> Array:
    return largest_rate(task.curvature_bound(fields, index), ratio)
