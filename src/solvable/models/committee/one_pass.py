"""One-pass stochastic gradient descent of finite-size committees: a fresh input at every step, none is reused.

With ``X = sqrt(D) x`` and ``W = w / sqrt(D)`` the step ``w <- (1 - eta d / D) w + eta g x`` is
``W <- (1 - eta d / D) W + (eta / D) g X^T``. D of them pass a flow time of eta (Saad and Solla's scaling).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import check_choice, check_count
from solvable.divergence import DivergedError
from solvable.models.committee.gaussian import test_loss
from solvable.models.committee.problem import Problem
from solvable.models.committee.simulation import initial_weights, product
from solvable.numerics.ensemble import trajectories


class OnePass(NamedTuple):
    """The weights over ``sqrt(D)``, and the random key of the inputs."""

    weights: Float[Array, "neuron dimension"]
    key: Array


def simulate_one_pass(
    problem: Problem,
    times: list[int],
    *,
    dimension: int,
    seeds: int,
    key: int,
    dtype: str,
    devices: Any = None,
    memory_limit: float | None = None,
    progress: bool | None = None,
) -> dict[str, np.ndarray]:
    """Test loss, alignment and overlap, each (seed, time, ...); times count D steps."""
    dimension = check_count("dimension", dimension)
    check_choice("dtype", dtype, ("float32", "float64"))
    weights = initial_weights(np.asarray(problem.initial_overlap), np.asarray(problem.initial_alignment), dimension)
    problem = problem.with_dtype(dtype)
    return trajectories(
        lambda run_key: OnePass(jnp.asarray(weights, dtype), run_key),
        partial(_pass, problem, dimension),
        partial(_measure, problem),
        times,
        seeds=check_count("seeds", seeds),
        key=check_count("key", key, 0),
        # The inputs of D steps are drawn together.
        bytes_per_run=8.0 * 3 * dimension**2,
        devices=devices,
        memory_limit=memory_limit,
        progress=progress,
        label="simulating committee",
    )


def _pass(problem: Problem, dimension: int, run: OnePass, count: Array) -> OnePass:
    """D steps."""
    training: Any = problem.training
    rate, decay = training.learning_rate / dimension, training.weight_decay
    inputs = jax.random.normal(jax.random.fold_in(run.key, count), (dimension, dimension)).astype(run.weights.dtype)

    def step(weights: Array, example: Array) -> tuple[Array, None]:
        signals, _ = problem.signals(product(weights, example[:, None]), example[: problem.indices, None])
        moved = (1 - rate * decay) * weights + rate * signals * example
        return moved.astype(weights.dtype), None

    return OnePass(jax.lax.scan(step, run.weights, inputs)[0], run.key)


def _measure(problem: Problem, run: OnePass) -> dict[str, Array]:
    alignment, overlap = run.weights[:, : problem.indices], product(run.weights, run.weights.T)
    return {"test_loss": test_loss(problem, alignment, overlap), "alignment": alignment, "overlap": overlap}


def one_pass_divergence(problem: Problem, times: np.ndarray, test_losses: np.ndarray) -> DivergedError | None:
    """The error that says when runs diverged, if any did; ``test_losses`` are (seed, time)."""
    finite = np.isfinite(test_losses)
    if finite.all():
        return None
    time = float(times[np.argmin(finite.all(axis=0))])
    return DivergedError(
        f"{int((~finite.all(axis=1)).sum())} of {finite.shape[0]} runs diverged, the first by time {time:g} with "
        f"{problem.training!r}: lower the learning rate, or pass on_divergence='keep' for the results up to there",
        step=None,
        time=time,
    )
