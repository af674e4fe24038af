"""The Jacobian of the flow in the latent coordinates, for implicit steps: its matrix of moments, and solving with it.

The signals of neuron i pull the weight of coordinate a, and the weight of coordinate b moves the field of neuron j, so
that the Jacobian is a matrix of second moments of the coordinates, ``<w_ij Y_a Y_b>`` with ``w_ij = dg_i / dh_j``
(:mod:`solvable.models.committee.implicit`). Its rows are (i, a) and its columns (j, b). It grows with the basis: given
the matrix of the first coordinates, only the rows and columns of later ones are computed.

On a CPU everything is NumPy's and SciPy's. On an accelerator the matrix has rows for all coordinates that there is room
for (:mod:`solvable.models.committee.basis`).
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

# Samples whose moments are added at a time, and rows that are computed at a time on an accelerator.
_PART, _FEW_ROWS = 4096, 32


def moments(
    weights: Float[np.ndarray, "neuron neuron2 sample"],
    latents: Float[np.ndarray, "row sample"],
    known: Float[np.ndarray, "known known"] | None,
    since: int,
) -> Float[np.ndarray, "all all"]:
    """``<w_ij Y_a Y_b>`` on a CPU.

    Parameters
    ----------
    weights
        Weights of every sample.
    latents
        The coordinates in use.
    known
        The matrix of the first ``since`` coordinates, or None.
    since
        How many coordinates it has.
    """
    neurons, rows = len(weights), len(latents)
    blocks = np.zeros((neurons, rows, neurons, rows))
    if known is not None:
        blocks[:, :since, :, :since] = known.reshape(neurons, since, neurons, since)
    _add_moments(blocks, weights, latents, since)
    return blocks.reshape(neurons * rows, neurons * rows)


def _add_moments(blocks: np.ndarray, weights: np.ndarray, latents: np.ndarray, since: int) -> None:
    """Add ``<w_ij Y_a Y_b>`` to all blocks (i, a, j, b) where a or b is at least ``since``."""
    neurons, samples = len(weights), latents.shape[1]
    for begin in range(0, samples, _PART):
        part = slice(begin, begin + _PART)
        rows = latents[:, part]
        for i in range(neurons):
            for j in range(neurons):
                late = (rows[since:] * weights[i, j, part]) @ rows.T / samples
                blocks[i, since:, j, :] += late
                blocks[i, :since, j, since:] += late[:, :since].T


def moments_on_device(weights: Any, latents: Array, known: Array | None, since: int, used: int) -> Array:
    """``<w_ij Y_a Y_b>`` on an accelerator, with rows of zeros beyond the coordinates in use.

    Parameters
    ----------
    weights
        Weights of every sample, (neuron, neuron, sample).
    latents
        The coordinates, (row, sample), zero beyond those in use.
    known
        A matrix that has the first ``since`` coordinates, or None.
    since
        How many coordinates it has.
    used
        How many coordinates are in use.
    """
    known_rows = 0 if known is None else known.shape[0] // len(weights)
    if known is None or known_rows < len(latents) or used - since > _FEW_ROWS:
        return _all_moments(weights, latents)
    return _late_moments(known, weights, latents, since)


@jax.jit
def _all_moments(weights: Array, latents: Array) -> Array:
    neurons, (rows, samples) = weights.shape[0], latents.shape
    parts = samples // math.gcd(samples, _PART)

    def add(total: Array, one: tuple[Array, Array]) -> tuple[Array, None]:
        weight, latent = one
        weighted = (weight[:, :, None] * latent).reshape(neurons * neurons * rows, -1)
        return total + weighted @ latent.T, None

    each = (
        jnp.moveaxis(weights.reshape(neurons, neurons, parts, -1), 2, 0),
        jnp.moveaxis(latents.reshape(rows, parts, -1), 1, 0),
    )
    total = jax.lax.scan(add, jnp.zeros((neurons * neurons * rows, rows)), each)[0] / samples
    return total.reshape(neurons, neurons, rows, rows).transpose(0, 2, 1, 3).reshape(neurons * rows, neurons * rows)


@jax.jit
def _late_moments(known: Array, weights: Array, latents: Array, since: int) -> Array:
    """The matrix with the rows and columns of the ``_FEW_ROWS`` coordinates from ``since`` on computed anew."""
    neurons, (rows, samples) = weights.shape[0], latents.shape
    begin = jnp.minimum(since, rows - _FEW_ROWS)
    late = jax.lax.dynamic_slice(latents, (begin, 0), (_FEW_ROWS, samples))
    blocks = known.reshape(neurons, rows, neurons, rows)
    for i in range(neurons):
        for j in range(neurons):
            block = (late * weights[i, j]) @ latents.T / samples
            blocks = jax.lax.dynamic_update_slice(blocks, block[None, :, None, :], (i, begin, j, 0))
            blocks = jax.lax.dynamic_update_slice(blocks, block.T[None, :, None, :], (i, 0, j, begin))
    return blocks.reshape(known.shape)


def factorised(matrix: Float[np.ndarray, "all all"], factor: float, diagonal: float) -> tuple[np.ndarray, np.ndarray]:
    """The LU decomposition of ``diagonal 1 - factor matrix`` on a CPU."""
    return scipy.linalg.lu_factor(diagonal * np.eye(len(matrix)) - factor * matrix, overwrite_a=True)


@jax.jit
def factorised_on_device(matrix: Array, factor: float, diagonal: float) -> tuple[Array, Array]:
    """The LU decomposition of ``diagonal 1 - factor matrix`` on an accelerator."""
    return jax.scipy.linalg.lu_factor(diagonal * jnp.eye(matrix.shape[0]) - factor * matrix)


def solution(
    factors: tuple[np.ndarray, np.ndarray], right: Float[np.ndarray, "neuron column"]
) -> Float[np.ndarray, "neuron column"]:
    """The solution of a linear system with the matrix of these factors, on a CPU."""
    return scipy.linalg.lu_solve(factors, right.ravel()).reshape(right.shape)


def solution_on_device(
    factors: tuple[Array, Array], right: Float[np.ndarray, "neuron column"]
) -> Float[np.ndarray, "neuron column"]:
    """The solution on an accelerator, whose matrix may have more coordinates than the right-hand side has columns."""
    neurons, width = right.shape
    padded = np.pad(right, ((0, 0), (0, factors[0].shape[0] // neurons - width)))
    return np.asarray(_solved(factors, padded.ravel())).reshape(neurons, -1)[:, :width]


@jax.jit
def _solved(factors: tuple[Array, Array], right: Array) -> Array:
    return jax.scipy.linalg.lu_solve(factors, right)
