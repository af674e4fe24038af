"""The start of a committee and its functions: whether they can be what they are, and weights with given overlaps."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from solvable.activations import Polynomial, erf, relu, tanh
from solvable.models.committee.problem import vector_teacher
from solvable.precision import in_float64

# Relative to the largest overlap, how far below zero an eigenvalue may be and still count as rounding.
_ROUNDING = 1e-10
# Fields beyond this many standard deviations have no weight.
_REACH = 8.0


def check_start(overlap: np.ndarray, alignment: np.ndarray) -> None:
    """Raise a ValueError unless there are weights with these overlaps and alignments."""
    neurons = overlap.shape[0]
    if overlap.shape != (neurons, neurons):
        raise ValueError(f"initial_overlap must be square, one row per neuron, not of shape {overlap.shape}")
    if alignment.shape[0] != neurons:
        raise ValueError(
            f"initial_alignment must have one row per neuron: initial_overlap is for {neurons}, "
            f"initial_alignment for {alignment.shape[0]}"
        )
    scale = max(float(np.abs(overlap).max()), np.finfo(float).tiny)
    if np.abs(overlap - overlap.T).max() > _ROUNDING * scale:
        raise ValueError("initial_overlap must be symmetric: overlaps are scalar products")
    least = float(np.linalg.eigvalsh(overlap)[0])
    if least < -_ROUNDING * scale:
        raise ValueError(
            f"initial_overlap must be positive semidefinite, but has the eigenvalue {least:.3g}: no weight vectors "
            "have these scalar products; lower the entries off the diagonal"
        )
    least = float(np.linalg.eigvalsh(overlap - alignment @ alignment.T)[0])
    if least < -_ROUNDING * scale:
        raise ValueError(
            "initial_overlap - initial_alignment initial_alignment^T must be positive semidefinite, but has the "
            f"eigenvalue {least:.3g}: the weights are shorter than their part along the index directions; lower "
            "initial_alignment or raise the diagonal of initial_overlap"
        )


def initial_weights(
    overlap: Float[np.ndarray, "neuron neuron"], alignment: Float[np.ndarray, "neuron index"], dimension: int
) -> Float[np.ndarray, "neuron dimension"]:
    """Weights over ``sqrt(D)``: ``A`` on the first axes, a root of ``C - A A^T`` on the next, nothing else.

    Where a root of full rank does not fit (as many neurons as dimensions), one of lower rank is taken if there is one.
    """
    values, vectors = np.linalg.eigh((overlap + overlap.T) / 2 - alignment @ alignment.T)
    rounding = _ROUNDING * max(np.abs(overlap).max(), np.finfo(float).tiny)
    neurons, indices = alignment.shape
    # The least eigenvalues come first: those that do not fit must be nothing but rounding.
    free = dimension - indices
    if free < 0 or (neurons > free and values[neurons - free - 1] > rounding):
        needed = indices + int((values > rounding).sum())
        raise ValueError(
            f"dimension = {dimension} is too small for {indices} index vectors and the weights of {neurons} neurons: "
            f"at least {needed} are needed"
        )
    kept = slice(max(neurons - free, 0), None)
    root = vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0))
    weights = np.zeros((neurons, dimension))
    weights[:, :indices] = alignment
    weights[:, indices : indices + root.shape[1]] = root
    return weights


def check_readout(name: str, values: np.ndarray | None, neurons: int) -> None:
    """Raise a ValueError unless there is one number per neuron."""
    if values is not None and values.shape != (neurons,):
        raise ValueError(f"{name} must have one number per neuron, {neurons} in all, not {values.shape[0]}")


@in_float64
def check_activation(activation: Callable[..., Any]) -> None:
    """Raise a ValueError unless the activation is a scalar function of a scalar, finite and continuous."""
    try:
        out = jax.eval_shape(activation, jax.ShapeDtypeStruct((), float))
    except Exception as error:
        raise ValueError(f"activation must be a JAX function of one number; it failed with: {error}") from error
    if getattr(out, "shape", None) != () or not jnp.issubdtype(out.dtype, jnp.floating):
        raise ValueError(f"activation must give one number for one number, not {out}")
    if isinstance(activation, Polynomial) or any(activation is known for known in (relu, tanh, erf)):
        return
    try:
        jump = _jump_of(activation)
    except TypeError:  # A function that cannot be hashed is examined every time.
        jump = _jump_of.__wrapped__(activation)
    if jump is not None:
        raise ValueError(
            f"activation must be continuous, but jumps near {jump:.6g}: its derivative there would be infinite; "
            "use a steep continuous function instead"
        )


@in_float64
def check_teacher(teacher: Callable[..., Any], indices: int, outputs: int | None = None) -> None:
    """Raise a ValueError unless the teacher gives one number, or ``outputs`` numbers, for the index fields."""
    try:
        out = jax.eval_shape(vector_teacher(teacher, indices), jax.ShapeDtypeStruct((indices,), float))
    except Exception as error:
        raise ValueError(
            f"teacher must be a JAX function of {indices} index field{'s' * (indices > 1)} (the columns of "
            f"initial_alignment); it failed with: {error}"
        ) from error
    if outputs is not None:
        if out.shape != (outputs,):
            raise ValueError(f"teacher must give {outputs} numbers, one per class, not the shape {out.shape}")
        return
    if out.shape != ():
        raise ValueError(f"teacher must give one number for its {indices} index fields, not the shape {out.shape}")


# Sweeps and ``replace`` build many models with the same activation, which is examined once.
@functools.lru_cache(maxsize=64)
def _jump_of(activation: Callable[..., Any]) -> float | None:
    return find_jump(lambda fields: np.asarray(jax.vmap(activation)(jnp.asarray(fields))))


def find_jump(function: Callable[[np.ndarray], np.ndarray]) -> float | None:
    """Where a function jumps within reach of a Gaussian field, or None: its steepest intervals are bisected."""
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
    # The intervals are now 1e-13 wide: a slope of 1e6 makes a difference of 1e-7, a jump all of it.
    jumps = np.abs(function(high) - function(low)) > 1e-6 * scale
    return float(low[np.argmax(jumps)]) if jumps.any() else None
