"""Fields, signals and their responses along training, sample by sample: what both response-based solvers share.

Given the weight response ``Rw`` and a draw of the cavity fields ``u``, each sample follows

    h(t) = u(t) + (dt/gamma) sum_{s<t} Rw(t,s) g(s)                               (delayed-features, eq. 7)

and the signals respond to the cavity field by ``dg/du = (1 - G K)^-1 G`` with ``G = dg/dh`` at each time and
``K = (dt/gamma) Rw`` (eq. 21; corrected: see docs/errata). A row of its average costs one backward pass per sample.

Where the activation is not differentiable at zero (ReLU), signals jump as a field crosses it, which automatic
differentiation misses:

    Rh_ij(t,s) = <dg_i(t)/du_j(s)>_a.e. + sum_{t'=s..t} sum_k < p_k(t') [g_i^+(t) - g_i^-(t)] dh_k(t')/du_j(s)_a.e. >

``p_k(t')`` is the density of ``h_k(t')`` at zero given all latents but the newest (a Gaussian, known), and ``g^+-`` the
signals of the trajectory that passes zero at t' from above or below: the newest latents are moved by what puts
``h_k(t')`` at zero, ``g_k(t')`` is set to either side, and the sample runs on. No derivative is smoothed.

==============  =======================  ================================================
symbol          name                     shape
==============  =======================  ================================================
``h``           fields                   (time, neuron, sample)
``g``           signals                  (time, neuron, sample)
``G``           slopes                   (time, neuron, neuron, sample)
``dg/dh*``      index_response           (time, neuron, index, sample)
``dh/dh*``      field_index_response     (time, neuron, index, sample)
``K``           kernel                   (time, time, neuron, neuron)
``dt/gamma``    memory_step
``p_k``         densities                (time, neuron, sample)
==============  =======================  ================================================
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from solvable.models.committee.problem import Problem, elementwise

# Samples that pass backwards together: their adjoints stay in the cache of one core.
_CHUNK = 1024
# Steps that a backward pass takes before it carries them on to the earlier times in one matrix product.
_BLOCK = 8
# Most memory for the trajectories through non-differentiable points.
_MOST_BYTES = 3e9


class TwoTime(NamedTuple):
    """Order parameters at steps 0 to T; two-time ones as ``(t, s)``, responses zero where s is too late.

    The arrays of one run have no axis ``replicate``.
    """

    train_loss: Float[np.ndarray, "replicate time"]
    test_loss: Float[np.ndarray, "replicate time"]
    alignment: Float[np.ndarray, "replicate time neuron index"]
    weight_correlation: Float[np.ndarray, "replicate time time neuron neuron"]
    gradient_correlation: Float[np.ndarray, "replicate time time neuron neuron"]
    weight_response: Float[np.ndarray, "replicate time time neuron neuron"]
    field_response: Float[np.ndarray, "replicate time time neuron neuron"]
    index_response: Float[np.ndarray, "replicate time neuron index"]


class Local(NamedTuple):
    """Signals, errors and slopes of the signals at one time."""

    signals: np.ndarray  # (neuron, sample)
    errors: np.ndarray  # (sample,)
    slopes: np.ndarray  # G = dg_i/dh_j, (neuron, neuron, sample)
    teacher_slopes: np.ndarray  # dg_i/dh*_q at fixed h, (neuron, index, sample)


class Signals(NamedTuple):
    """What the samples give from ``Cw``, ``A``, ``Rw``: ``Cg``, ``Rh`` as (t, s, i, j) and ``R*``."""

    correlation: np.ndarray
    field_response: np.ndarray
    index_response: np.ndarray


class Samples:
    """One set of samples along training; ``advance`` adds a time."""

    def __init__(self, problem: Problem, index_fields: np.ndarray, times: int, memory_step: float):
        neurons, (indices, count) = problem.neurons, index_fields.shape
        self.problem, self.memory_step, self.time = problem, memory_step, 0
        self.local = local_signals(problem, index_fields)
        self.fields = np.zeros((times, neurons, count))
        self.signals = np.zeros((times, neurons, count))
        self.slopes = np.zeros((times, neurons, neurons, count))
        self.index_response = np.zeros((times, neurons, indices, count))
        self.field_index_response = np.zeros((times, neurons, indices, count))
        self.train_loss = np.zeros(times)

    def advance(self, cavity: np.ndarray, weight_response: np.ndarray) -> Local:
        """Add the next time: ``cavity`` is u there, ``weight_response`` the row ``Rw(t, s < t)``."""
        t = self.time
        self.fields[t] = cavity + self.memory_step * memory(weight_response, self.signals[:t])
        here = self.local(self.fields[t])
        through_fields = self.memory_step * memory(weight_response, self.index_response[:t])
        self.field_index_response[t] = through_fields
        self.index_response[t] = here.teacher_slopes + np.einsum("ijn,jqn->iqn", here.slopes, through_fields)
        self.signals[t], self.slopes[t] = here.signals, here.slopes
        self.train_loss[t] = np.mean(here.errors**2)
        self.time = t + 1
        return here

    def run(self, cavity: np.ndarray, weight_response: np.ndarray) -> None:
        """Add all times, with cavity fields (time, neuron, sample) and the weight response between all of them."""
        for t, fields in enumerate(cavity):
            self.advance(fields, weight_response[t, :t])

    def estimates(self, field_response: np.ndarray) -> Signals:
        """Averages over the samples, beside a field response that is known."""
        times, neurons, count = self.signals.shape
        rows = self.signals.reshape(times * neurons, count)
        return Signals(as_function(rows @ rows.T / count, times), field_response, self.index_response.mean(axis=-1))


def as_matrix(function: np.ndarray) -> np.ndarray:
    """A two-time function (t, s, i, j) as a matrix from (s, j) to (t, i)."""
    times, _, neurons, _ = function.shape
    return function.transpose(0, 2, 1, 3).reshape(times * neurons, times * neurons)


def as_function(matrix: np.ndarray, times: int) -> np.ndarray:
    """The inverse of :func:`as_matrix`."""
    return matrix.reshape(times, len(matrix) // times, times, -1).transpose(0, 2, 1, 3)


def memory(weight_response: np.ndarray, past: np.ndarray) -> np.ndarray:
    """``sum_s R(t,s) x(s)`` of a row of responses (time, neuron, neuron) and a past (time, neuron, ...)."""
    times, neurons = weight_response.shape[:2]
    rows = weight_response.transpose(1, 0, 2).reshape(neurons, times * neurons)
    columns = past.reshape(times * neurons, math.prod(past.shape[2:]))
    return (rows @ columns).reshape(past.shape[1:])


def local_signals(problem: Problem, index_fields: np.ndarray) -> Callable[[np.ndarray], Local]:
    """Everything about one time that depends on the fields there alone."""
    target, target_slopes = _targets(problem, jnp.asarray(index_fields))

    def local(fields: np.ndarray) -> Local:
        return Local(*(np.asarray(value) for value in _local(problem, target, target_slopes, jnp.asarray(fields))))

    return local


@jax.jit
def _targets(problem: Problem, index_fields: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.vmap(jax.value_and_grad(problem.target), in_axes=-1, out_axes=-1)(index_fields)


@jax.jit
def _local(problem: Problem, target: jax.Array, target_slopes: jax.Array, fields: jax.Array) -> tuple[jax.Array, ...]:
    phi = problem.activation
    values, slopes, curvatures = (elementwise(f)(fields) for f in (phi, jax.grad(phi), jax.grad(jax.grad(phi))))
    errors = target - problem.readout @ values
    scaled = problem.gradient_readout[:, None] * slopes
    own = problem.gradient_readout[:, None] * curvatures * errors
    others = scaled[:, None] * (problem.readout[:, None] * slopes)
    response = jnp.eye(len(slopes))[:, :, None] * own[:, None] - others
    return scaled * errors, errors, response, scaled[:, None] * target_slopes


def mean_field_response(slopes: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """``<dg(t)/du(s)>`` for the last time of ``slopes`` and every s up to it, (time, neuron, neuron)."""
    return _responses_from(len(slopes) - 1, slopes, kernel)[0]


def mean_field_responses(slopes: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """``<dg(t)/du(s)>`` for all t and s at once, (time, time, neuron, neuron): where the whole kernel is known."""
    return _responses_from(0, slopes, kernel)


def _responses_from(first: int, slopes: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """``<dg(t)/du(s)>`` for the times t from ``first`` on and every s, (time, time, neuron, neuron).

    Backward in s per sample: ``mu(s) = [sum_{t'>s} mu(t') K(t',s)] G(s)`` from ``mu(t) = G(t)``. ``slopes`` are G
    (time, neuron, neuron, sample) and ``kernel`` is K (time, time, neuron, neuron).
    """
    times, neurons, _, samples = slopes.shape
    # K as a matrix from the later times' adjoints (columns) to the earlier times' (rows).
    onto_past = np.ascontiguousarray(kernel[:times, :times].transpose(1, 3, 0, 2))
    onto_past = onto_past.reshape(times * neurons, times * neurons)
    total = np.zeros((times - first, times, neurons, neurons))
    # Every output time has adjoints of its own, so that fewer samples fill the cache.
    chunk = min(_CHUNK, max(4 * _CHUNK // (times - first), 8))
    for start in range(0, samples, chunk):
        total += _backward(first, slopes[..., start : start + chunk], onto_past)
    return total / samples


def _backward(first: int, slopes: np.ndarray, onto_past: np.ndarray) -> np.ndarray:
    times, neurons, _, samples = slopes.shape
    # (time and neuron acted on, output time, output neuron, sample)
    arriving = np.zeros((times * neurons, times - first, neurons, samples))
    for t in range(first, times):
        arriving[t * neurons : (t + 1) * neurons, t - first] = np.eye(neurons)[:, :, None]
    total = np.zeros((times - first, times, neurons, neurons))
    for end in range(times, 0, -_BLOCK):
        start = max(end - _BLOCK, 0)
        for t in range(end - 1, start - 1, -1):
            rows, outputs = slice(t * neurons, (t + 1) * neurons), slice(max(t - first, 0), None)
            adjoint = np.einsum("ktin,kjn->jtin", arriving[rows, outputs], slopes[t])
            total[outputs, t] = adjoint.sum(axis=-1).transpose(1, 2, 0)
            arriving[rows, outputs] = adjoint
            inside = slice(start * neurons, t * neurons)
            spread = onto_past[inside, rows] @ adjoint.reshape(neurons, -1)
            arriving[inside, outputs] += spread.reshape(-1, *adjoint.shape[1:])
        block, outputs = slice(start * neurons, end * neurons), slice(max(start - first, 0), None)
        later = arriving[block, outputs]
        spread = onto_past[: start * neurons, block] @ later.reshape(len(later), -1)
        arriving[: start * neurons, outputs] += spread.reshape(-1, *later.shape[1:])
    return total


def slope_jumps(problem: Problem) -> bool:
    """Whether the slope of the activation jumps at zero, as that of ReLU does."""
    below, above = side_slopes(problem)
    return abs(above - below) > 1e-6 * (abs(above) + abs(below))


def side_slopes(problem: Problem) -> tuple[float, float]:
    """Slopes of the activation just below and just above zero."""
    slope = jax.grad(problem.activation)
    return float(slope(-1e-9)), float(slope(1e-9))


def check_jump_memory(problem: Problem, samples: int, steps: int) -> None:
    """Raise a ValueError if the trajectories and tangents through a non-differentiable point would not fit."""
    times, neurons = steps + 1, problem.neurons
    needed = 8.0 * samples * times**2 * neurons**2 * 4
    if slope_jumps(problem) and needed > _MOST_BYTES:
        raise ValueError(
            f"responses of an activation that is not differentiable at zero need {needed / 1e9:.1f} GB for {steps} "
            f"steps and {samples} samples, above {_MOST_BYTES / 1e9:.0f} GB: lower samples or steps, or use the solver "
            "Latent, which needs no responses"
        )


class SignalJumps:
    """Tangents and branched trajectories of every sample along training."""

    def __init__(self, problem: Problem, times: int, samples: int):
        neurons = problem.neurons
        self.sides = np.array(side_slopes(problem))
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
                "density of its crossing zero is not defined; use the solver Latent, which needs no responses"
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
            # At the non-differentiable point, approached from one side: the slope of that side.
            readout = float(samples.problem.gradient_readout[neuron])
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
