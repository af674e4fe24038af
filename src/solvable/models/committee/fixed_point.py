"""The paper's own scheme: iterate on whole two-time functions, with damping (delayed-features, A.6 and eq. 32).

From the online limit on: draw cavity fields with the covariance of the last iterate, run every sample through time,
estimate ``Cg``, ``Rh`` and ``R*`` (with eq. 21 corrected: see docs/errata), solve the linear equations of the weights
for ``Cw``, ``A`` and ``Rw``, and move every function half the way. Slower and noisier than marching in time
(:mod:`solvable.models.committee.response`); kept as the baseline.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.committee.jumps import kink
from solvable.models.committee.online import descent_latents
from solvable.models.committee.response import TwoTime, test_losses
from solvable.models.committee.task import Task
from solvable.models.committee.trajectories import Samples, mean_field_responses


class FixedPoint(NamedTuple):
    """The last iterate, and how far each iteration moved the weight correlation (largest entry)."""

    order_parameters: TwoTime
    changes: Float[np.ndarray, "scramble iteration"]


class Weights(NamedTuple):
    """What the equations of the weights give from ``Cg``, ``Rh``, ``R*``; two-time functions as (t, s, i, j)."""

    correlation: np.ndarray
    alignment: np.ndarray
    response: np.ndarray


class Signals(NamedTuple):
    """What the samples give from ``Cw``, ``A``, ``Rw``."""

    correlation: np.ndarray
    field_response: np.ndarray
    index_response: np.ndarray


class Setting(NamedTuple):
    """The parameters that do not change along the iteration."""

    task: Task
    samples_per_dimension: float
    overlap: np.ndarray
    alignment: np.ndarray
    step: float
    weight_decay: float
    steps: int
    samples: int


def solve_fixed_point(
    task: Task,
    *,
    samples_per_dimension: float,
    initial_overlap: Float[Array, "neuron neuron"],
    initial_alignment: Float[Array, "neuron index"],
    step: float,
    weight_decay: float = 0.0,
    steps: int,
    samples: int = 8000,
    damping: float = 0.5,
    iterations: int = 30,
    scrambles: int = 1,
    key: int = 0,
) -> FixedPoint:
    """Iterate ``X <- damping X + (1 - damping) X_MC`` with fresh pseudo-random samples each time."""
    if kink(task):
        raise ValueError(
            f"the fixed-point scheme differentiates the signals and misses the jump at the kink of {task.activation}: "
            "use the latent or the response solver"
        )
    if not 0 <= damping < 1 or iterations < 1:
        raise ValueError(f"damping must be in [0, 1) and iterations at least 1, not {damping} and {iterations}")
    overlap, alignment = np.asarray(initial_overlap), np.asarray(initial_alignment)
    setting = Setting(task, samples_per_dimension, overlap, alignment, step, weight_decay, steps, samples)
    runs = [_iterate(setting, damping, iterations, np.random.default_rng((key, k))) for k in range(scrambles)]
    values = (np.stack(values) for values in zip(*(run[0] for run in runs), strict=True))
    return FixedPoint(TwoTime(*values), np.array([run[1] for run in runs]))


def _iterate(
    setting: Setting, damping: float, iterations: int, generator: np.random.Generator
) -> tuple[tuple[np.ndarray, ...], list[float]]:
    weights, signals, changes = *_online_start(setting, generator), []
    for iteration in range(iterations):
        drawn, train_loss = _sampled(setting, weights, generator)
        solved = _solved(setting, drawn)
        if not all(np.all(np.isfinite(values)) for values in (*drawn, *solved)):
            raise ValueError(
                f"the fixed-point iteration diverged in iteration {iteration + 1} with step = {setting.step:g}: lower "
                "the step or the number of steps, or use the latent solver"
            )
        following = Weights(*_mixed(weights, solved, damping))
        signals = Signals(*_mixed(signals, drawn, damping))
        changes.append(float(np.max(np.abs(following.correlation - weights.correlation))))
        weights = following
    test_loss = test_losses(setting.task, weights.alignment, np.einsum("ttij->tij", weights.correlation))
    result = (
        train_loss,
        test_loss,
        weights.alignment,
        weights.correlation,
        signals.correlation,
        weights.response,
        signals.field_response,
        signals.index_response,
    )
    return result, changes


def _mixed(old: tuple[np.ndarray, ...], new: tuple[np.ndarray, ...], damping: float) -> list[np.ndarray]:
    return [damping * before + (1 - damping) * after for before, after in zip(old, new, strict=True)]


def _online_start(setting: Setting, generator: np.random.Generator) -> tuple[Weights, Signals]:
    """All functions at infinitely many samples, where nothing responds but at once."""
    latents = np.asarray(
        descent_latents(
            setting.task,
            jnp.asarray(setting.alignment),
            jnp.asarray(setting.overlap),
            step=setting.step,
            steps=setting.steps,
            weight_decay=setting.weight_decay,
        )
    )
    normals = generator.standard_normal((latents.shape[2], setting.samples))
    indices = setting.alignment.shape[1]
    samples = Samples(setting.task, normals[:indices], setting.steps + 1, memory_step=0.0)
    response = np.zeros((setting.steps + 1, setting.steps + 1, *setting.overlap.shape))
    for t in range(setting.steps + 1):
        here = samples.advance(latents[t] @ normals, response[t, :t])
        response[t, t] = here.slopes.mean(axis=-1)
    signals = Signals(_correlation(samples.signals), response, samples.index_response.mean(axis=-1))
    correlation = np.einsum("tia,sja->tsij", latents, latents)
    return Weights(correlation, latents[:, :, :indices], weight_propagator(setting, response)[0]), signals


def _sampled(setting: Setting, weights: Weights, generator: np.random.Generator) -> tuple[Signals, np.ndarray]:
    """Run samples through time with the cavity covariance and weight response of an iterate."""
    times, neurons, indices = weights.alignment.shape
    covariance = np.eye(indices + times * neurons)
    covariance[indices:, indices:] = weights.correlation.transpose(0, 2, 1, 3).reshape(times * neurons, -1)
    covariance[indices:, :indices] = weights.alignment.reshape(-1, indices)
    covariance[:indices, indices:] = covariance[indices:, :indices].T
    values, vectors = np.linalg.eigh(covariance)
    # Paths are smooth in time, so that most eigenvalues are rounding, of either sign.
    root = vectors * np.sqrt(np.maximum(values, 0))
    fields = root @ generator.standard_normal((len(values), setting.samples))
    cavity = fields[indices:].reshape(times, neurons, -1)
    samples = Samples(setting.task, fields[:indices], times, setting.step / setting.samples_per_dimension)
    for t in range(times):
        samples.advance(cavity[t], weights.response[t, :t])
    response = mean_field_responses(samples.slopes, samples.memory_step * weights.response)
    signals = Signals(_correlation(samples.signals), response, samples.index_response.mean(axis=-1))
    return signals, samples.train_loss


def _correlation(signals: np.ndarray) -> np.ndarray:
    times, neurons, samples = signals.shape
    rows = signals.reshape(times * neurons, samples)
    return (rows @ rows.T / samples).reshape(times, neurons, times, neurons).transpose(0, 2, 1, 3)


def _solved(setting: Setting, signals: Signals) -> Weights:
    """The weights are Gaussian: ``Cw = A A^T + P (C0 - A0 A0^T) P^T + dt^2 Rw Cg Rw^T / gamma``."""
    response, initial = weight_propagator(setting, signals.field_response)
    times, neurons = initial.shape[:2]
    flat = response.transpose(0, 2, 1, 3).reshape(times * neurons, times * neurons)
    noise = signals.correlation.transpose(0, 2, 1, 3).reshape(times * neurons, times * neurons)
    start = initial.reshape(times * neurons, neurons)
    alignment = start @ setting.alignment
    alignment = alignment + setting.step * flat @ signals.index_response.reshape(times * neurons, -1)
    correlation = alignment @ alignment.T
    correlation += start @ (setting.overlap - setting.alignment @ setting.alignment.T) @ start.T
    correlation += setting.step**2 / setting.samples_per_dimension * flat @ noise @ flat.T
    correlation = correlation.reshape(times, neurons, times, neurons).transpose(0, 2, 1, 3)
    return Weights(correlation, alignment.reshape(times, neurons, -1), response)


def weight_propagator(setting: Setting, field_response: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``Rw(t,s)`` and the response ``P(t)`` to the initial weights, from ``Rh``."""
    times, neurons = len(field_response), field_response.shape[-1]
    response, initial = np.zeros_like(field_response), np.zeros((times, neurons, neurons))
    initial[0] = np.eye(neurons)
    keep = 1 - setting.step * setting.weight_decay
    for t in range(times - 1):
        row = field_response[t, : t + 1]
        initial[t + 1] = keep * initial[t] + setting.step * np.einsum("sij,sjk->ik", row, initial[: t + 1])
        carried = np.einsum("uij,usjk->sik", row, response[: t + 1], optimize=True)
        response[t + 1] = keep * response[t] + setting.step * carried
        response[t + 1, t] = np.eye(neurons)
    return response, initial
