"""Fields, signals and their responses along training, per sample: what both response-based solvers share.

Given the weight response ``Rw`` and a draw of the cavity fields ``u``, each sample follows

    h(t) = u(t) + (dt/gamma) sum_{s<t} Rw(t,s) g(s)                               (delayed-features, eq. 7)

and the signals respond to the cavity field by ``dg/du = (1 - G K)^-1 G`` with ``G = dg/dh`` at each time and
``K = (dt/gamma) Rw`` (eq. 21; corrected: see docs/errata). A row of its average costs one backward pass per sample.
Arrays have the time first and the sample last.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.models.committee.task import Task, each

# Samples that pass backwards together: their adjoints stay in the cache of one core.
_CHUNK = 1024
# Steps that a backward pass takes before it carries them on to the earlier times in one matrix product.
_BLOCK = 8


class Local(NamedTuple):
    """Signals, errors and slopes of the signals at one time."""

    signals: np.ndarray  # (neuron, sample)
    errors: np.ndarray  # (sample,)
    slopes: np.ndarray  # G = dg_i/dh_j, (neuron, neuron, sample)
    teacher_slopes: np.ndarray  # dg_i/dh*_q at fixed h, (neuron, index, sample)


class Samples:
    """The samples of one scramble along training; ``advance`` adds a time."""

    def __init__(self, task: Task, index_fields: np.ndarray, times: int, memory_step: float):
        neurons, (indices, count) = task.readout.size, index_fields.shape
        self.task, self.memory_step, self.time = task, memory_step, 0
        self.local = local_signals(task, index_fields)
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


def memory(weight_response: np.ndarray, past: np.ndarray) -> np.ndarray:
    """``sum_s R(t,s) x(s)`` of a row of responses (time, neuron, neuron) and a past (time, neuron, ...)."""
    times, neurons = weight_response.shape[:2]
    rows = weight_response.transpose(1, 0, 2).reshape(neurons, times * neurons)
    columns = past.reshape(times * neurons, math.prod(past.shape[2:]))
    return (rows @ columns).reshape(past.shape[1:])


def local_signals(task: Task, index_fields: np.ndarray) -> Callable[[np.ndarray], Local]:
    """Everything about one time that depends on the fields there alone."""
    target, target_slopes = _targets(task, jnp.asarray(index_fields))

    def local(fields: np.ndarray) -> Local:
        return Local(*(np.asarray(value) for value in _local(task, target, target_slopes, jnp.asarray(fields))))

    return local


@eqx.filter_jit
def _targets(task: Task, index_fields: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.vmap(jax.value_and_grad(task.target), in_axes=-1, out_axes=-1)(index_fields)


@eqx.filter_jit
def _local(task: Task, target: jax.Array, target_slopes: jax.Array, fields: jax.Array) -> tuple[jax.Array, ...]:
    phi = task.activation
    values, slopes, curvatures = (each(f)(fields) for f in (phi, jax.grad(phi), jax.grad(jax.grad(phi))))
    errors = target - task.readout @ values
    scaled = task.gradient_readout[:, None] * slopes
    own = task.gradient_readout[:, None] * curvatures * errors
    others = scaled[:, None] * (task.readout[:, None] * slopes)
    response = jnp.eye(len(slopes))[:, :, None] * own[:, None] - others
    return scaled * errors, errors, response, scaled[:, None] * target_slopes


def mean_field_response(slopes: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """``<dg(t)/du(s)>`` for the last time of ``slopes`` and every s up to it, (time, neuron, neuron).

    Backward in s per sample: ``mu(s) = [sum_{t'>s} mu(t') K(t',s)] G(s)`` from ``mu(t) = G(t)``. ``slopes`` are G
    (time, neuron, neuron, sample) and ``kernel`` is K (time, time, neuron, neuron).
    """
    times, neurons, _, samples = slopes.shape
    # K as a matrix from the later times' adjoints (columns) to the earlier times' (rows).
    onto_past = np.ascontiguousarray(kernel[:times, :times].transpose(1, 3, 0, 2))
    onto_past = onto_past.reshape(times * neurons, times * neurons)
    total = np.zeros((times, neurons, neurons))
    for start in range(0, samples, _CHUNK):
        total += _backward(slopes[..., start : start + _CHUNK], onto_past)
    return total / samples


def _backward(slopes: np.ndarray, onto_past: np.ndarray) -> np.ndarray:
    times, neurons, _, samples = slopes.shape
    arriving = np.zeros((times * neurons, neurons * samples))
    arriving.reshape(times, neurons, neurons, samples)[-1] = np.eye(neurons)[:, :, None]
    total = np.zeros((times, neurons, neurons))
    for end in range(times, 0, -_BLOCK):
        start = max(end - _BLOCK, 0)
        for t in range(end - 1, start - 1, -1):
            rows = slice(t * neurons, (t + 1) * neurons)
            adjoint = arriving[rows].reshape(neurons, neurons, samples)
            adjoint = np.einsum("kin,kjn->jin", adjoint, slopes[t])
            total[t] = adjoint.sum(axis=-1).T
            arriving[rows] = adjoint.reshape(neurons, -1)
            inside = slice(start * neurons, t * neurons)
            arriving[inside] += onto_past[inside, rows] @ arriving[rows]
        block = slice(start * neurons, end * neurons)
        arriving[: start * neurons] += onto_past[: start * neurons, block] @ arriving[block]
    return total


def mean_field_responses(slopes: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """``<dg(t)/du(s)>`` for all t and s at once, (time, time, neuron, neuron): where the whole kernel is known."""
    times, neurons, _, samples = slopes.shape
    onto_past = np.ascontiguousarray(kernel.transpose(1, 3, 0, 2)).reshape(times * neurons, times * neurons)
    total = np.zeros((times, times, neurons, neurons))
    # Every time is an output now, so that fewer samples fill the cache.
    chunk = max(4 * _CHUNK // times, 8)
    for start in range(0, samples, chunk):
        total += _backward_from_all(slopes[..., start : start + chunk], onto_past)
    return total / samples


def _backward_from_all(slopes: np.ndarray, onto_past: np.ndarray) -> np.ndarray:
    times, neurons, _, samples = slopes.shape
    # (time and neuron acted on, output time, output neuron, sample)
    arriving = np.zeros((times * neurons, times, neurons, samples))
    for t in range(times):
        arriving[t * neurons : (t + 1) * neurons, t] = np.eye(neurons)[:, :, None]
    total = np.zeros((times, times, neurons, neurons))
    for end in range(times, 0, -_BLOCK):
        start = max(end - _BLOCK, 0)
        for t in range(end - 1, start - 1, -1):
            rows = slice(t * neurons, (t + 1) * neurons)
            adjoint = np.einsum("ktin,kjn->jtin", arriving[rows, t:], slopes[t])
            total[t:, t] = adjoint.sum(axis=-1).transpose(1, 2, 0)
            arriving[rows, t:] = adjoint
            inside = slice(start * neurons, t * neurons)
            spread = onto_past[inside, rows] @ adjoint.reshape(neurons, -1)
            arriving[inside, t:] += spread.reshape(-1, *adjoint.shape[1:])
        block = slice(start * neurons, end * neurons)
        later = arriving[block, start:]
        spread = onto_past[: start * neurons, block] @ later.reshape(len(later), -1)
        arriving[: start * neurons, start:] += spread.reshape(-1, *later.shape[1:])
    return total
