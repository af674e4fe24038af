"""What the parameters of a committee must be, beyond one number at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.models.committee.problem import Problem
from solvable.models.committee.task import elementwise_teacher
from solvable.numerics.cost import STEP, check_cost

_ROUNDING = 1e-10
# Fields beyond this many standard deviations have no weight.
_REACH = 8.0
# Directions that a latent basis has grown to on long runs, and what it costs to start one evaluation from Python.
_USUAL_RANK, _CALL = 64, 1e6


def check_start(overlap: np.ndarray, alignment: np.ndarray) -> None:
    """Whether vectors with these overlaps and alignments exist."""
    neurons = overlap.shape[0]
    if overlap.shape != (neurons, neurons):
        raise ValueError(f"initial_overlap must be square, one row a neuron, not of shape {overlap.shape}")
    if alignment.shape[0] != neurons:
        raise ValueError(
            f"initial_alignment must have one row a neuron: initial_overlap is for {neurons}, "
            f"initial_alignment for {alignment.shape[0]}"
        )
    scale = max(float(np.abs(overlap).max()), np.finfo(float).tiny)
    if np.abs(overlap - overlap.T).max() > _ROUNDING * scale:
        raise ValueError("initial_overlap must be symmetric: overlaps are scalar products")
    least = float(np.linalg.eigvalsh(overlap)[0])
    if least < -_ROUNDING * scale:
        raise ValueError(
            f"initial_overlap must be positive definite, but has the eigenvalue {least:.3g}: no weight vectors have "
            "these scalar products; lower the entries off the diagonal"
        )
    least = float(np.linalg.eigvalsh(overlap - alignment @ alignment.T)[0])
    if least < -_ROUNDING * scale:
        raise ValueError(
            f"initial_overlap - initial_alignment initial_alignment^T must not be negative, but has the eigenvalue "
            f"{least:.3g}: the weights are shorter than their part along the index directions; lower initial_alignment "
            "or raise the diagonal of initial_overlap"
        )


def check_readout(name: str, values: np.ndarray | None, neurons: int) -> None:
    """One number a neuron."""
    if values is not None and values.shape != (neurons,):
        raise ValueError(f"{name} must have one number a neuron, {neurons} in all, not {values.shape[0]}")


def check_activation(activation: Callable[..., Any]) -> None:
    """A scalar function of a scalar, with no jump that can be seen."""
    try:
        out = jax.eval_shape(activation, jax.ShapeDtypeStruct((), float))
    except Exception as error:
        raise ValueError(f"activation must be a JAX function of one number; it failed with: {error}") from error
    if getattr(out, "shape", None) != () or not jnp.issubdtype(out.dtype, jnp.floating):
        raise ValueError(f"activation must give one number for one number, not {out}")
    jump = find_jump(lambda fields: np.asarray(jax.vmap(activation)(jnp.asarray(fields))))
    if jump is not None:
        raise ValueError(
            f"activation must be continuous, but jumps near {jump:.6g}: its derivative there would be infinite; "
            "use a steep continuous function instead"
        )


def check_teacher(teacher: Callable[..., Any], indices: int) -> None:
    """A scalar function of the index fields."""
    try:
        out = jax.eval_shape(elementwise_teacher(teacher, indices), jax.ShapeDtypeStruct((indices,), float))
    except Exception as error:
        raise ValueError(
            f"teacher must be a JAX function of {indices} index field{'s' * (indices > 1)} (the columns of "
            f"initial_alignment); it failed with: {error}"
        ) from error
    if out.shape != ():
        raise ValueError(f"teacher must give one number for its {indices} index fields, not the shape {out.shape}")


def check_solver_cost(solver: Any, problem: Problem, times: np.ndarray) -> None:
    """Refuse whole steps beyond what can be waited for, or stored; the flow reaches late times in few steps."""
    if not solver.whole_steps:
        return
    steps, neurons = float(times[-1]) / problem.step, problem.overlap.shape[0]
    samples, scrambles = getattr(solver, "samples", 0), getattr(solver, "scrambles", 1)
    name = type(solver).__name__
    if name == "Latent":
        operations = steps * 2 * scrambles * (4.0 * samples * neurons * _USUAL_RANK + _CALL)
        memory = 0.0
    elif name == "Online":
        operations, memory = steps * STEP * neurons**2, 16.0 * steps * (neurons + 2) ** 2
    else:
        # All two-time functions of every scramble, and averages over samples at each pair of times.
        operations = scrambles * steps**2 * neurons**2 * (2.0 * samples + steps * neurons)
        memory = 8.0 * scrambles * 6 * (steps * neurons) ** 2
    check_cost(
        f"{name}() for {steps:.3g} steps of {problem.step:g}",
        operations=operations,
        memory=memory,
        remedy="ask for earlier times, or for gradient flow, solver=Flow() (Online(flow=True) where gamma is infinite)",
    )


def find_jump(function: Callable[[np.ndarray], np.ndarray]) -> float | None:
    """Where a function jumps within reach of a Gaussian field, or None: its steepest intervals are halved again."""
    grid = np.linspace(-_REACH, _REACH, 4097) + 1e-7 * np.sqrt(2)
    values = function(grid)
    if not np.isfinite(values).all():
        place = float(grid[np.argmin(np.isfinite(values))])
        raise ValueError(f"activation must be finite, but is not at {place:.6g}")
    scale = max(float(np.ptp(values)), 1e-300)
    steepest = np.argsort(-np.abs(np.diff(values)))[:8]
    low, high = grid[steepest], grid[steepest + 1]
    for _ in range(36):
        middle = (low + high) / 2
        left = np.abs(function(middle) - function(low)) > np.abs(function(high) - function(middle))
        low, high = np.where(left, low, middle), np.where(left, middle, high)
    # The intervals are now 1e-13 wide: a slope of 1e6 makes 1e-7 of a difference, a jump all of it.
    jumps = np.abs(function(high) - function(low)) > 1e-6 * scale
    return float(low[np.argmax(jumps)]) if jumps.any() else None
