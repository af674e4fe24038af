"""The paper's own scheme: iterate on whole two-time functions, with damping (delayed-features, A.6 and eq. 32).

From the online limit on: draw cavity fields with the covariance of the last iterate, run every sample through time,
estimate ``Cg``, ``Rh`` and ``R*`` (with eq. 21 corrected: see docs/errata), solve the linear equations of the weights
for ``Cw``, ``A`` and ``Rw``, and move every function half the way. Slower and noisier than one pass forward in time
(:mod:`solvable.models.committee.response`, where the symbols are explained); kept as the baseline.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from solvable.checks import check_count
from solvable.divergence import DivergedError
from solvable.models.committee.online import descent_latents
from solvable.models.committee.problem import Problem
from solvable.models.committee.response import TwoTime, TwoTimeSolver, test_losses
from solvable.models.committee.trajectories import Samples, mean_field_responses, slope_jumps


@dataclasses.dataclass(frozen=True)
class FixedPoint(TwoTimeSolver):
    """The paper's damped iteration on two-time functions (appendix A.6, eq. 32): the baseline.

    Parameters
    ----------
    samples
        Pseudo-random samples, drawn anew in every iteration.
    damping
        Fraction of the old iterate that is kept, ``X <- damping X + (1 - damping) X_MC``.
    iterations
        Number of iterations.
    replicates
        Number of independent iterations; their spread is the error.
    """

    samples: int = 8000
    replicates: int = 2
    damping: float = 0.5
    iterations: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("iterations", self.iterations)
        if not 0 <= self.damping < 1:
            raise ValueError(f"damping must be at least 0 and below 1, not {self.damping!r}")

    def two_time(self, problem: Problem, steps: int, key: int) -> TwoTime:
        return self.iterate(problem, steps, key)[0]

    def iterate(
        self, problem: Problem, steps: int, key: int
    ) -> tuple[TwoTime, Float[np.ndarray, "replicate iteration"]]:
        """The last iterate, and how far each iteration moved the weight correlation (largest entry)."""
        if slope_jumps(problem):
            raise ValueError(
                "the fixed-point scheme differentiates the signals and misses the jump at the non-differentiable point "
                f"of {problem.activation}: use the solver Latent or Response"
            )
        runs = [
            _iterate(self, problem, steps, np.random.default_rng((key, replicate)))
            for replicate in range(self.replicates)
        ]
        values = (np.stack(values) for values in zip(*(run[0] for run in runs), strict=True))
        return TwoTime(*values), np.array([run[1] for run in runs])


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


def _iterate(
    solver: FixedPoint, problem: Problem, steps: int, generator: np.random.Generator
) -> tuple[tuple[np.ndarray, ...], list[float]]:
    weights, signals, changes = *_online_start(problem, steps, solver.samples, generator), []
    for iteration in range(solver.iterations):
        drawn, train_loss = _sampled(problem, weights, solver.samples, generator)
        solved = _solved(problem, drawn)
        if not all(np.all(np.isfinite(values)) for values in (*drawn, *solved)):
            raise DivergedError(
                f"the fixed-point iteration diverged in iteration {iteration + 1} with {problem.training!r}: lower the "
                "learning rate or the number of steps, or use the solver Latent",
                step=steps,
                time=float(steps),
            )
        following = Weights(*_mixed(weights, solved, solver.damping))
        signals = Signals(*_mixed(signals, drawn, solver.damping))
        changes.append(float(np.max(np.abs(following.correlation - weights.correlation))))
        weights = following
    test_loss = test_losses(problem, weights.alignment, np.einsum("ttij->tij", weights.correlation))
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


def _online_start(problem: Problem, steps: int, count: int, generator: np.random.Generator) -> tuple[Weights, Signals]:
    """All functions at infinitely many samples, where nothing responds but at once."""
    latents = np.asarray(descent_latents(problem, steps))
    normals = generator.standard_normal((latents.shape[2], count))
    samples = Samples(problem, normals[: problem.indices], steps + 1, memory_step=0.0)
    response = np.zeros((steps + 1, steps + 1, problem.neurons, problem.neurons))
    for t in range(steps + 1):
        here = samples.advance(latents[t] @ normals, response[t, :t])
        response[t, t] = here.slopes.mean(axis=-1)
    signals = Signals(_correlation(samples.signals), response, samples.index_response.mean(axis=-1))
    correlation = np.einsum("tia,sja->tsij", latents, latents)
    propagator = weight_propagator(problem, response)[0]
    return Weights(correlation, latents[:, :, : problem.indices], propagator), signals


def _sampled(
    problem: Problem, weights: Weights, count: int, generator: np.random.Generator
) -> tuple[Signals, np.ndarray]:
    """Run samples through time with the cavity covariance and weight response of an iterate."""
    times, neurons, indices = weights.alignment.shape
    training: Any = problem.training
    covariance = np.eye(indices + times * neurons)
    covariance[indices:, indices:] = weights.correlation.transpose(0, 2, 1, 3).reshape(times * neurons, -1)
    covariance[indices:, :indices] = weights.alignment.reshape(-1, indices)
    covariance[:indices, indices:] = covariance[indices:, :indices].T
    values, vectors = np.linalg.eigh(covariance)
    # Paths are smooth in time, so that most eigenvalues are rounding, of either sign.
    root = vectors * np.sqrt(np.maximum(values, 0))
    fields = root @ generator.standard_normal((len(values), count))
    cavity = fields[indices:].reshape(times, neurons, -1)
    memory_step = training.learning_rate / problem.samples_per_dimension
    samples = Samples(problem, fields[:indices], times, memory_step)
    for t in range(times):
        samples.advance(cavity[t], weights.response[t, :t])
    response = mean_field_responses(samples.slopes, samples.memory_step * weights.response)
    signals = Signals(_correlation(samples.signals), response, samples.index_response.mean(axis=-1))
    return signals, samples.train_loss


def _correlation(signals: np.ndarray) -> np.ndarray:
    times, neurons, samples = signals.shape
    rows = signals.reshape(times * neurons, samples)
    return (rows @ rows.T / samples).reshape(times, neurons, times, neurons).transpose(0, 2, 1, 3)


def _solved(problem: Problem, signals: Signals) -> Weights:
    """The weights are Gaussian: ``Cw = A A^T + P (C0 - A0 A0^T) P^T + dt^2 Rw Cg Rw^T / gamma``."""
    training: Any = problem.training
    rate = training.learning_rate
    overlap, initial_alignment = np.asarray(problem.initial_overlap), np.asarray(problem.initial_alignment)
    response, initial = weight_propagator(problem, signals.field_response)
    times, neurons = initial.shape[:2]
    flat = response.transpose(0, 2, 1, 3).reshape(times * neurons, times * neurons)
    noise = signals.correlation.transpose(0, 2, 1, 3).reshape(times * neurons, times * neurons)
    start = initial.reshape(times * neurons, neurons)
    alignment = start @ initial_alignment
    alignment = alignment + rate * flat @ signals.index_response.reshape(times * neurons, -1)
    correlation = alignment @ alignment.T
    correlation += start @ (overlap - initial_alignment @ initial_alignment.T) @ start.T
    correlation += rate**2 / problem.samples_per_dimension * flat @ noise @ flat.T
    correlation = correlation.reshape(times, neurons, times, neurons).transpose(0, 2, 1, 3)
    return Weights(correlation, alignment.reshape(times, neurons, -1), response)


def weight_propagator(problem: Problem, field_response: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``Rw(t,s)`` and the response ``P(t)`` to the initial weights, from ``Rh``."""
    times, neurons = len(field_response), field_response.shape[-1]
    response, initial = np.zeros_like(field_response), np.zeros((times, neurons, neurons))
    initial[0] = np.eye(neurons)
    training: Any = problem.training
    rate, keep = training.learning_rate, 1 - training.learning_rate * training.weight_decay
    for t in range(times - 1):
        row = field_response[t, : t + 1]
        initial[t + 1] = keep * initial[t] + rate * np.einsum("sij,sjk->ik", row, initial[: t + 1])
        carried = np.einsum("uij,usjk->sik", row, response[: t + 1], optimize=True)
        response[t + 1] = keep * response[t] + rate * carried
        response[t + 1, t] = np.eye(neurons)
    return response, initial
