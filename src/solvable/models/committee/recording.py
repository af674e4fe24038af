"""What one run of a latent closure records: weights and losses at the times asked for, and whether it diverged.

A run takes snapshots while it trains, because what follows from the weights, such as test losses and two-time
functions, is cheaper for all times at once. When it ends, the snapshots become arrays and the samples are released.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from solvable.models.committee.closure import LatentClosure
from solvable.models.committee.labels import AVERAGED
from solvable.models.committee.population import measure_tests
from solvable.models.committee.problem import OutputRequest, Problem
from solvable.models.committee.protocol import Weights
from solvable.models.committee.relaxation import fastest_rate

# A loss this many times the first one has diverged.
_DIVERGED = 1e6


class Snapshot(NamedTuple):
    """Weights, training loss, misclassification rate and trained readout at one time; None where there is none."""

    weights: Any
    loss: Any
    error_rate: Any
    readout: Any


class History(NamedTuple):
    """Snapshots with the time as first axis, the weights padded with zeros, and what follows from the weights."""

    weights: np.ndarray
    alignment: np.ndarray
    overlap: np.ndarray
    loss: np.ndarray
    error_rate: np.ndarray | None
    readout: np.ndarray | None


class Recorder:
    """Weights and losses of one run at the times asked for, and when it diverged."""

    def __init__(self, closure: LatentClosure, problem: Problem, shrunk: float, request: OutputRequest) -> None:
        self._closure, self._problem, self._shrunk, self._request = closure, problem.task, shrunk, request
        self._snapshots: list[Snapshot] = []
        self._averages: list[Snapshot] = []
        self._projections: list[np.ndarray] = []
        self._alignments: list[float] = []
        self._first: float | None = None
        self.stopped: float | None = None
        self.stable_learning_rate: float | None = None
        self._samples = closure.samples

    def record(self, weights: Weights, readout: Array | None = None, average: Weights | None = None) -> None:
        self._snapshots.append(Snapshot(weights.coordinates, *self._closure.loss(weights, readout), readout))
        if average is not None:
            self._averages.append(Snapshot(average.coordinates, *self._closure.loss(average, readout), readout))
        if self._request.correlations or self._request.loss_gap:
            self._projections.append(self._closure.projections(weights))
        if self._request.kernel_alignment:
            self._alignments.append(sample_alignment(self._closure, self._problem, weights))

    def has_diverged(self, weights: Weights, time: float, readout: Array | None = None) -> bool:
        """Whether the loss has grown beyond bounds; the stable rate is that of the weights at the last finite time."""
        loss = self._closure.loss(weights, readout)[0]
        if self._first is None:
            self._first = loss
        if loss < _DIVERGED * max(self._first, 1e-300):
            return False
        finite = [each.weights for each in self._snapshots if np.isfinite(each.loss)]
        self._stop(time, Weights(finite[-1]) if finite else self._closure.start)
        return True

    def _stop(self, time: float, weights: Weights) -> None:
        rate = fastest_rate(self._problem, self._closure, weights)
        self.stopped, self.stable_learning_rate = time, 2 / rate if np.isfinite(rate) else None

    def finish(self, times: np.ndarray) -> None:
        """Stack what was recorded, and release the samples."""
        limit = _DIVERGED * max(self._first or 0, 1e-300)
        bad = [i for i, each in enumerate(self._snapshots) if not each.loss < limit]
        if bad and self.stopped is None:
            self._stop(float(times[bad[0]]), Weights(self._snapshots[max(bad[0] - 1, 0)].weights))
        good = bad[0] if bad else len(self._snapshots)
        self.rank, self.bytes = self._closure.rank, self._closure.memory()
        self.evaluations = self._closure.evaluations
        self._fixed = self._closure.fixed
        width, neurons = self._closure.width, self._problem.neurons
        self._raw = _stacked(self._snapshots[:good], self._closure)
        self._averaged = _stacked(self._averages[:good], self._closure) if self._averages else None
        self._projected = _stack(self._projections[:good], neurons, width - self._fixed)
        self._aligned = np.asarray(self._alignments[:good])
        del self._closure, self._snapshots, self._averages, self._projections

    def arrays(self, times: int) -> dict[str, np.ndarray]:
        """Order parameters (time, ...), with NaN from the divergence on."""
        weights, projected = self._raw.weights, self._projected
        out = self._measured(self._raw)
        if self._averaged is not None:
            averaged = self._measured(self._averaged)
            out |= {f"averaged_{name}": values for name, values in averaged.items() if name in AVERAGED}
        if self._request.correlations:
            out["weight_correlation"] = np.einsum("tia,sja->tsij", weights, weights)
            out["gradient_correlation"] = np.einsum("tia,sja->tsij", projected, projected)
        if self._request.loss_gap:
            out["loss_gap"] = self._loss_gap(weights, projected)
        if self._request.kernel_alignment:
            out["kernel_alignment"] = self._aligned
        return {name: _padded(values, times, name) for name, values in out.items()}

    def _measured(self, snapshots: History) -> dict[str, np.ndarray]:
        """Losses and order parameters at each time."""
        alignment, overlap = snapshots.alignment, snapshots.overlap
        test = measure_tests(self._problem, alignment, overlap, snapshots.readout)
        found = {
            "train_loss": snapshots.loss,
            "test_loss": test.test_loss,
            "train_error_rate": snapshots.error_rate,
            "test_error_rate": test.test_error_rate,
            "alignment": alignment,
            "overlap": overlap,
            "readout": snapshots.readout,
        }
        return {name: np.asarray(values) for name, values in found.items() if values is not None}

    def _loss_gap(self, weights: np.ndarray, projected: np.ndarray) -> np.ndarray:
        """``2 sum_i (c_i / b_i) <g_i m_i>``, m the part of the field that the sample itself has caused (eq. 18)."""
        ratio = self._problem.samples_per_dimension
        columns = np.arange(self._fixed, weights.shape[2])
        taken = self._shrunk * columns * ratio / self._samples
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


def _stacked(snapshots: list[Snapshot], closure: LatentClosure) -> History:
    """Snapshots of a run with the time as first axis."""
    weights = [Weights(each.weights) for each in snapshots]
    neurons, indices = closure.problem.neurons, closure.problem.indices
    return History(
        _stack([each.weights for each in snapshots], len(closure.start.coordinates), closure.width),
        np.array([closure.alignment(each) for each in weights]).reshape(-1, neurons, indices),
        np.array([closure.overlap(each) for each in weights]).reshape(-1, neurons, neurons),
        np.asarray([each.loss for each in snapshots]),
        *(_optional([each[place] for each in snapshots]) for place in (2, 3)),
    )


def _optional(values: list[Any]) -> np.ndarray | None:
    """Values of all times as one array; None where there are none."""
    return np.stack([np.asarray(value) for value in values]) if values and values[0] is not None else None


def _stack(arrays: list[Any], rows: int, width: int) -> np.ndarray:
    """Arrays of growing width as one, padded with zeros."""
    stacked = np.zeros((len(arrays), rows, width))
    for place, array in enumerate(arrays):
        stacked[place, :, : array.shape[1]] = array
    return stacked


def sample_alignment(closure: LatentClosure, problem: Problem, weights: Weights) -> float:
    """:meth:`Problem.kernel_alignment` in the limit of many dimensions.

    There ``x . x`` is one and ``(x . x')^2`` is 1/D, so that ``|K|_F^2 / P = <K(x,x)^2> + gamma <K(x,x')^2>``, and
    ``y^T K y / P = gamma sum_i c_i^2 |(1/gamma) sum_mu y phi'_i x|^2 / D``.
    """
    target, slopes = _target_and_slopes(problem, closure.fields(weights), closure.index_fields)
    slopes, target = np.asarray(slopes), np.asarray(target)
    power, ratio = np.asarray(problem.readout * problem.gradient_readout), float(problem.samples_per_dimension)
    own = np.mean((power @ slopes**2) ** 2)
    pairs = np.sum(power[:, None] * power * (slopes @ slopes.T / target.size) ** 2)
    quotient = ratio * (power @ closure.squared_pull(slopes * target)) / np.mean(target**2)
    return float(quotient / np.sqrt(own + ratio * pairs))


@jax.jit
def _target_and_slopes(problem: Problem, fields: Array, index: Array) -> tuple[Array, Array]:
    return problem.target(index), problem.slopes(fields)
