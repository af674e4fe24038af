"""The basis of the latent closure, and the passes over its samples: see :mod:`solvable.models.committee.closure`."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from solvable.models.committee.problem import Answer, Problem

_ONE_BY_ONE = 8


class Basis(NamedTuple):
    """The latent coordinates of every sample. Columns of ``latents`` from ``used`` on are normals not yet used."""

    latents: Float[Array, "sample column"]
    directions: Float[Array, "sample direction"]
    used: Int[Array, ""]


class Evaluation(NamedTuple):
    """What the samples say of weights ``U``: ``velocity = <g Y>``, ``projections = <g e>``, and the mean loss.

    ``readout_pull`` moves a trained readout.
    """

    velocity: Float[Array, "neuron column"]
    projections: Float[Array, "neuron direction"]
    loss: Float[Array, ""]
    readout_pull: Array | None = None


class PerSample(NamedTuple):
    """What a sample brings to a step: its label, and its weight in the batch; None for the plain ones."""

    labels: Array | None
    sample_weights: Float[Array, "sample"] | None


PLAIN = PerSample(None, None)


@partial(jax.jit, static_argnames=("indices", "chunk", "twice"), donate_argnames=("basis",))
def evaluate_signals(
    problem: Problem,
    basis: Basis,
    weights: Array,
    samples: PerSample,
    readout: Array | None,
    *,
    ratio: Array | float,
    tolerance: Array | float,
    shrunk: Array | float,
    indices: int,
    chunk: int,
    twice: bool,
) -> tuple[Evaluation, Basis]:
    """Fields, signals and their pull in one pass over the latents; new directions join the basis."""
    latents, directions, count = basis
    unused = jax.lax.dynamic_slice(latents, (0, count), (latents.shape[0], weights.shape[0]))

    # Samples come first, and are taken in chunks that stay in a CPU's cache, so that the arrays are read from memory
    # once per pass: the passes dominate the cost.
    def signal(rows: tuple[Array, Array, Array, PerSample]) -> tuple[tuple[Any, ...], tuple[Array]]:
        latent, direction, fresh, own = rows
        fields, index_fields = (latent @ weights.T).T, latent[:, :indices].T
        answer = problem.respond(fields, index_fields, own.labels, own.sample_weights, readout)
        sums = _sums(answer.signals, latent, direction, fresh)
        return (sums, jnp.sum(answer.losses), _times(answer, latent.shape[0])), (answer.signals.T,)

    (sums, loss, readout_pull), (moving,) = _pass(signal, chunk, (latents, directions, unused, samples))
    velocity, projections, basis = _open(basis, unused, moving, sums, ratio, tolerance, shrunk, chunk, twice)
    count_samples = latents.shape[0]
    pull = None if readout_pull is None else readout_pull / count_samples
    return Evaluation(velocity, projections, loss / count_samples, pull), basis


def _times(answer: Answer, count: int) -> Array | None:
    """The pull on the readout as a sum over the samples."""
    return None if answer.readout_pull is None else answer.readout_pull * count


@partial(jax.jit, static_argnames=("chunk",), donate_argnames=("basis",))
def pull_signals(
    basis: Basis,
    moving: Float[Array, "sample neuron"],
    *,
    ratio: Array | float,
    tolerance: Array | float,
    shrunk: Array | float,
    chunk: int,
) -> tuple[Array, Basis]:
    latents, directions, count = basis
    unused = jax.lax.dynamic_slice(latents, (0, count), moving.shape)

    def add_up(rows: tuple[Array, ...]) -> tuple[tuple[Array, ...], tuple[()]]:
        latent, direction, fresh, signals = rows
        return _sums(signals.T, latent, direction, fresh), ()

    sums, _ = _pass(add_up, chunk, (latents, directions, unused, moving))
    velocity, _, basis = _open(basis, unused, moving, sums, ratio, tolerance, shrunk, chunk, True)
    return velocity, basis


def _sums(signals: Array, latent: Array, direction: Array, fresh: Array) -> tuple[Array, Array, Array]:
    """Sums over samples: signals and unused normals times directions, signals times latents, signals squared."""
    both = jnp.concatenate([signals.T, fresh], axis=1)
    return both.T @ direction, signals @ latent, jnp.sum(signals**2, axis=1)


def _open(
    basis: Basis,
    unused: Float[Array, "sample neuron"],
    moving: Float[Array, "sample neuron"],
    sums: tuple[Array, ...],
    ratio: Array | float,
    tolerance: Array | float,
    shrunk: Array | float,
    chunk: int,
    twice: bool,
) -> tuple[Array, Array, Basis]:
    """Velocity ``<v Y>`` and projections ``<v e>`` of signals, and the basis with their new directions."""
    latents, directions, count = basis
    samples, capacity = latents.shape
    neurons, fixed = moving.shape[1], capacity - directions.shape[1]
    known, velocity, square = (total / samples for total in sums)
    size = jnp.sqrt(square)
    known = known.at[:neurons].divide(jnp.where(size > 0, size, 1.0)[:, None])

    def project(rows: tuple[Array, Array, Array]) -> tuple[tuple[Array], tuple[Array, Array]]:
        direction, moving, fresh = rows
        scaled = moving / jnp.where(size > 0, size, 1.0)
        both = jnp.concatenate([scaled, fresh], axis=1) - direction @ known.T
        rest = both[:, :neurons]
        return (rest.T @ (direction if twice else rest),), (rest, both[:, neurons:])

    # Gram-Schmidt twice: after one pass the directions would lose a factor `tolerance` of orthogonality each.
    def project_again(rows: tuple[Array, Array]) -> tuple[tuple[Array], tuple[Array]]:
        rest = rows[1] - rows[0] @ again.T
        return (rest.T @ rest,), (rest,)

    (again,), (rest, normals) = _pass(project, chunk, (directions, moving, unused))
    known = known[:neurons]
    if twice:
        again = again / samples
        known = known + again
        (spread,), (rest,) = _pass(project_again, chunk, (directions, rest))
    else:
        # What is mostly outside of the known directions is orthogonal to them after one pass.
        spread = again
    turn, kept = _orthonormal(spread / samples, tolerance)
    new = rest @ turn
    normals = normals - new @ (new.T @ normals / samples)
    taken = shrunk * (count + jnp.arange(neurons)) * ratio / samples
    step = jnp.sqrt(jnp.maximum(1 - taken, 0.0) / ratio)
    opened = jnp.where(kept, normals + new * step, unused)
    latents = jax.lax.dynamic_update_slice(latents, opened, (0, count))
    directions = jax.lax.dynamic_update_slice(directions, new, (0, count - fixed))
    # <scaled e_new> = spread . turn, since what was taken off is orthogonal to the new directions.
    projections = jax.lax.dynamic_update_slice(known, spread @ turn / samples, (0, count - fixed))
    velocity = jax.lax.dynamic_update_slice(velocity, moving.T @ opened / samples, (0, count))
    count = count + kept.sum()
    velocity = jnp.where(jnp.arange(capacity) < count, velocity, 0.0)
    return velocity, projections * size[:, None], Basis(latents, directions, count)


@partial(jax.jit, static_argnames=("indices", "chunk"))
def mean_losses(
    problem: Problem,
    basis: Basis,
    weights: Array,
    labels: Array | None,
    readout: Array | None,
    indices: int,
    chunk: int,
) -> tuple[Array, Array | None]:
    """Mean loss over all samples, and misclassification rate where labels are classes."""

    def add_up(rows: tuple[Array, Array | None]) -> tuple[tuple[Array, Array | None], tuple[()]]:
        latent, own = rows
        losses, mistakes = problem.judge((latent @ weights.T).T, latent[:, :indices].T, own, readout)
        return (jnp.sum(losses), None if mistakes is None else jnp.sum(mistakes)), ()

    sums, _ = _pass(add_up, chunk, (basis.latents, labels))
    return jax.tree.map(lambda total: total / basis.latents.shape[0], sums)


def _orthonormal(gram: Array, tolerance: Array | float) -> tuple[Array, Array]:
    """Combinations (columns) of vectors with these inner products that are orthonormal, and which of them are kept.

    Those shorter than ``tolerance`` are zero, and come last. A few vectors are taken one by one, which unlike an
    eigensolver costs an accelerator next to nothing; many by eigenvectors.
    """
    size = gram.shape[0]
    if size > _ONE_BY_ONE:
        strength, turn = jnp.linalg.eigh(gram)
        kept = strength[::-1] > tolerance**2
        return jnp.where(kept, turn[:, ::-1] / jnp.sqrt(jnp.where(kept, strength[::-1], 1.0)), 0.0), kept
    columns: list[Array] = []
    flags: list[Array] = []
    for unit in jnp.eye(size, dtype=gram.dtype):
        rest = unit
        # Twice, as everywhere: the vectors may be nearly parallel.
        for _ in range(2):
            for column in columns:
                rest = rest - column * (column @ gram @ rest)
        square = rest @ gram @ rest
        flags.append(square > tolerance**2)
        columns.append(jnp.where(flags[-1], rest / jnp.sqrt(jnp.where(flags[-1], square, 1.0)), 0.0))
    kept = jnp.stack(flags)
    order = jnp.argsort(~kept, stable=True)
    return jnp.stack(columns, axis=1)[:, order], kept[order]


def _pass(function: Callable[[Any], tuple[Any, Any]], chunk: int, arrays: tuple[Any, ...]) -> tuple[Any, Any]:
    """The function over chunks of rows: its first outputs summed, its second ones put together again."""
    samples = arrays[0].shape[0]
    if chunk >= samples:
        return function(arrays)
    chunks = jax.tree.map(lambda array: array.reshape(-1, chunk, *array.shape[1:]), arrays)
    zeros = jax.tree.map(lambda out: jnp.zeros(out.shape, out.dtype), jax.eval_shape(function, _first(chunks))[0])

    def body(total: Any, rows: Any) -> tuple[Any, Any]:
        sums, outputs = function(rows)
        return jax.tree.map(jnp.add, total, sums), outputs

    sums, outputs = jax.lax.scan(body, zeros, chunks)
    return sums, jax.tree.map(lambda array: array.reshape(samples, *array.shape[2:]), outputs)


def _first(chunks: Any) -> Any:
    return jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape[1:], array.dtype), chunks)


@jax.jit
def squared_pull(basis: Basis, values: Array, ratio: Array | float) -> Array:
    """Along directions that are there by the latents; what lies outside all of them is noise of weight 1/gamma."""
    latents, directions, count = basis
    samples, capacity = latents.shape
    pull = jnp.where(jnp.arange(capacity) < count, values @ latents / samples, 0.0)
    inside = values @ directions / samples
    outside = jnp.maximum(jnp.mean(values**2, axis=1) - jnp.sum(inside**2, axis=1), 0.0)
    return jnp.sum(pull**2, axis=1) + outside / ratio


def largest_rate(bounds: Float[Array, "sample"], ratio: Array | float) -> Float[Array, ""]:
    """Upper edge of the spectrum of ``(1/gamma) sum_mu a_mu x^mu x^mu^T``, for positive weights ``a`` of the samples.

    The edge of a weighted Wishart matrix, ``min over y > max a of y/gamma + y <a / (y - a)>``; for a = 1 it is
    ``(1 + 1/sqrt gamma)^2``. It bounds how fast anything can relax, hence which learning rate is stable.
    """
    top = jnp.maximum(jnp.max(bounds), 1e-300)
    candidates = top * (1 + jnp.geomspace(1e-3, 1e3, 61))

    def edge(_: None, candidate: Array) -> tuple[None, Array]:
        return None, candidate / ratio + candidate * jnp.mean(bounds / (candidate - bounds))

    return jnp.min(jax.lax.scan(edge, None, candidates)[1])
