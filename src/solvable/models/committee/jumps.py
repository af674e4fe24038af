"""Responses through a kink of the activation: the signals jump where a field crosses zero, and autodiff misses it.

    Rh_ij(t,s) = <dg_i(t)/du_j(s)>_a.e. + sum_{t'=s..t} sum_k < p_k(t') [g_i^+(t) - g_i^-(t)] dh_k(t')/du_j(s)_a.e. >

``p_k(t')`` is the density of ``h_k(t')`` at zero given all latents but the newest (a Gaussian, known), and ``g^+-`` the
signals of the trajectory that passes zero at t' from above or below: the newest latents are moved by what puts
``h_k(t')`` at zero, ``g_k(t')`` is set to either side, and the sample runs on. No derivative is smoothed: there is no
width to choose.
"""

import jax
import numpy as np

from solvable.models.committee.task import Task
from solvable.models.committee.trajectories import Samples

_MOST_BYTES = 3e9


def kink(task: Task) -> bool:
    """Whether the slope of the activation jumps at zero."""
    below, above = side_slopes(task)
    return abs(above - below) > 1e-6 * (abs(above) + abs(below))


def side_slopes(task: Task) -> tuple[float, float]:
    """Slopes of the activation just below and just above zero."""
    slope = jax.grad(task.activation)
    return float(slope(-1e-9)), float(slope(1e-9))


def check_memory(task: Task, samples: int, steps: int) -> None:
    """Raise if the trajectories and tangents through kinks would not fit."""
    times, neurons = steps + 1, task.readout.size
    needed = 8.0 * samples * times**2 * neurons**2 * 4
    if kink(task) and needed > _MOST_BYTES:
        raise ValueError(
            f"responses of an activation with a kink need {needed / 1e9:.1f} GB for {steps} steps and {samples} "
            f"samples, above {_MOST_BYTES / 1e9:.0f} GB: lower samples or steps, or use the latent solver, which needs "
            "no responses"
        )


class Kinks:
    """Tangents and branched trajectories of every sample along training."""

    def __init__(self, task: Task, times: int, samples: int):
        neurons = task.readout.size
        self.sides = np.array(side_slopes(task))
        # dh(t)/du(s) and dg(t)/du(s), almost everywhere: (time, neuron, time, neuron, sample).
        self.tangents = np.zeros((times, neurons, times, neurons, samples))
        self.signal_tangents = np.zeros((times, neurons, times, neurons, samples))
        # Signals of the branches: (branch time, neuron that crosses, side, time, neuron, sample).
        self.branches = np.zeros((times, neurons, 2, times, neurons, samples))
        self.moves = np.zeros((times, neurons, neurons, samples))
        self.densities = np.zeros((times, neurons, samples))
        self.columns: list[slice] = []

    def advance(
        self, samples: Samples, cavity: np.ndarray, newest: slice, normals: np.ndarray, kernel: np.ndarray
    ) -> None:
        """Add the last time of ``cavity``: tangents, branches that start there, and all others one step on."""
        t = len(cavity) - 1
        self._tangents(samples, kernel)
        self.columns.append(newest)
        self._open(samples, cavity[t][:, newest], normals[newest])
        for start in range(t + 1):
            for neuron in range(len(self.densities[0])):
                shift = cavity[t][:, self.columns[start]] @ self.moves[start, neuron]
                for side in range(2):
                    self._step(samples, kernel[t, :t], start, neuron, side, shift)

    def _tangents(self, samples: Samples, kernel: np.ndarray) -> None:
        t, neurons = samples.time - 1, kernel.shape[-1]
        past = self.signal_tangents[:t].reshape(t * neurons, self.tangents[t, 0].size)
        rows = kernel[t, :t].transpose(1, 0, 2).reshape(neurons, t * neurons)
        self.tangents[t] = (rows @ past).reshape(self.tangents[t].shape)
        self.tangents[t, np.arange(neurons), t, np.arange(neurons)] += 1
        self.signal_tangents[t] = np.einsum("ijn,jskn->iskn", samples.slopes[t], self.tangents[t])

    def _open(self, samples: Samples, innovation: np.ndarray, newest: np.ndarray) -> None:
        t = samples.time - 1
        sizes = np.sqrt(np.sum(innovation**2, axis=1))
        if np.any(sizes == 0):
            raise ValueError(
                "a neuron's field has nothing new at some step (weights inside the span of the index vectors?): the "
                "density of its crossing zero is not defined; use the latent solver, which needs no responses"
            )
        for neuron, size in enumerate(sizes):
            field = samples.fields[t, neuron]
            mean = field - innovation[neuron] @ newest
            self.densities[t, neuron] = np.exp(-((mean / size) ** 2) / 2) / (size * np.sqrt(2 * np.pi))
            self.moves[t, neuron] = -np.outer(innovation[neuron], field) / size**2

    def _step(self, samples: Samples, row: np.ndarray, start: int, neuron: int, side: int, shift: np.ndarray) -> None:
        t, neurons = samples.time - 1, len(shift)
        branch = self.branches[start, neuron, side]
        difference = branch[start:t] - samples.signals[start:t]
        rows = row[start:t].transpose(1, 0, 2).reshape(neurons, (t - start) * neurons)
        fields = samples.fields[t] + shift + rows @ difference.reshape(-1, *shift.shape[1:])
        if start == t:
            fields[neuron] = 0.0
        here = samples.local(fields)
        branch[t] = here.signals
        if start == t:
            # At the kink, approached from one side: the slope of that side.
            readout = float(samples.task.gradient_readout[neuron])
            branch[t, neuron] = readout * self.sides[side] * here.errors

    def responses(self, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
        """What jumps add to ``Rh(t, s <= t)`` and ``R*(t)`` at the last time."""
        t, count = samples.time - 1, samples.fields.shape[-1]
        neurons = samples.fields.shape[1]
        by_fields = np.zeros((t + 1, neurons, neurons))
        by_index = np.zeros(samples.index_response.shape[1:3])
        for start in range(t + 1):
            for neuron in range(neurons):
                below, above = self.branches[start, neuron, :, t]
                jump = self.densities[start, neuron] * (above - below)
                tangents = self.tangents[start, neuron, : start + 1]
                by_fields[: start + 1] += np.einsum("in,sjn->sij", jump, tangents, optimize=True) / count
                by_index += jump @ samples.field_index_response[start, neuron].T / count
        return by_fields, by_index
