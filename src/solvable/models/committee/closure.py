"""Dynamical mean-field theory by latent closure: gradient descent on a few hundred coordinates, averaged over samples.

A linear layer ``h = w . x`` on D-dimensional Gaussian inputs, trained on ``P = gamma D`` fixed samples by
``dw/dt = (1/gamma) sum_mu g(h^mu) x^mu``, has as D grows a description in a few coordinates. Whatever enters the
weights is the start, the index directions, and the directions ``sum_mu e_a^mu x^mu`` of the signals ``g`` seen so far,
with ``e_a`` orthonormal under the sample mean. Along each of them an input has the latent coordinate

    Y_a = xi_a + e_a / sqrt(gamma),        xi_a a fresh standard normal,

and with the weights ``U`` in these coordinates

    h = U . Y,        dU/dt = <g(h) Y>,        overlaps = U U^T,        <g_i(t) g_j(s)> = c_i(t) . c_j(s),  c = <g e>.

No response function appears: the memory term ``(1/gamma) int R_w g`` is the part of ``U . Y`` along ``e``, and by
Stein's lemma ``<g xi_a>`` is what the field responses would give. Only ``g`` itself is evaluated, so that an activation
that is not differentiable everywhere, such as ReLU, needs nothing special.

With S samples in place of the average the estimate ``<g xi_a>`` acts back on its own sample: a bias of order
``rank * gamma / S``. New normals are made orthogonal to all directions up to theirs, which removes most of it
("open"); the other convention ("shrunk") also shortens the step into each new direction by ``sqrt(1 - n/D)``, D = S /
gamma, as in a system of that finite size. The two err to opposite sides, so that their middle is the better value and
their difference an estimate of the bias.

==========  =================  ================================================
symbol      name               shape
==========  =================  ================================================
``Y_a``     latents            (sample, column); column = index, neuron, then one for each direction
``e_a``     directions         (sample, direction)
``U``       weights            (neuron, column)
``<g Y>``   velocity           (neuron, column)
``<g e>``   projections        (neuron, direction)
==========  =================  ================================================
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from solvable.models.committee.problem import Problem
from solvable.numerics.sobol import sobol_normals

_BLOCK = 128
_EVEN_BLOCKS = 2
_FIRST_CAPACITY = 32
_GROWTH = 1.5
_CHUNK = 2048
_ONE_BY_ONE = 8


class Basis(NamedTuple):
    """The latent coordinates of every sample. Columns of ``latents`` from ``used`` on are normals not yet used."""

    latents: Float[Array, "sample column"]
    directions: Float[Array, "sample direction"]
    used: Int[Array, ""]


class Evaluation(NamedTuple):
    """What the samples say of weights ``U``: ``velocity = <g Y>``, ``projections = <g e>``, ``loss = <error^2>``."""

    velocity: Float[Array, "neuron column"]
    projections: Float[Array, "neuron direction"]
    loss: Float[Array, ""]


class LatentClosure:
    """A growing latent basis of one set of samples, and the velocity of weights in it.

    Parameters
    ----------
    problem
        Network, target, start and samples per dimension.
    samples
        Number of samples that stand for the average.
    tolerance
        Fraction of a signal that must lie outside the basis for the basis to grow.
    shrunk
        Which of the two conventions for new directions to follow.
    key
        Random seeds of the samples.
    memory_limit
        Most bytes to use.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        samples: int,
        tolerance: float,
        shrunk: bool,
        key: tuple[int, ...],
        memory_limit: float,
    ) -> None:
        alignment, overlap = np.asarray(problem.initial_alignment), np.asarray(problem.initial_overlap)
        neurons, indices = alignment.shape
        self.samples, self.evaluations = samples, 0
        self._problem, self._key, self._memory_limit = problem, key, memory_limit
        self._ratio, self._tolerance = float(problem.samples_per_dimension), float(tolerance)
        self._shrunk = float(shrunk)
        self._fixed, self._indices, self._neurons = neurons + indices, indices, neurons
        self._blocks: dict[int, Array] = {}
        capacity = self._fixed + max(_FIRST_CAPACITY, 2 * neurons)
        self._check_memory(capacity)
        self._basis = Basis(
            self._normals(0, capacity),
            jnp.zeros((samples, capacity - self._fixed)),
            jnp.asarray(self._fixed, dtype=int),
        )
        # The count lives on the device; this bound on it saves waiting for it at every step.
        self._most = self._fixed
        start = np.concatenate([alignment, _square_root(overlap - alignment @ alignment.T)], axis=1)
        self.start = jnp.pad(jnp.asarray(start), ((0, 0), (0, capacity - self._fixed)))

    @property
    def rank(self) -> int:
        """Number of directions the signals have opened so far."""
        return int(self._basis.used) - self._fixed

    @property
    def width(self) -> int:
        """Number of columns that weights have now, unused ones included."""
        return self._basis.latents.shape[1]

    @property
    def fixed(self) -> int:
        """Number of coordinates there from the start: the index fields, and one for each neuron."""
        return self._fixed

    def evaluate(self, weights: Float[Array, "neuron column"]) -> Evaluation:
        """The velocity of these weights; directions of their signals that are new join the basis."""
        self._reserve()
        self.evaluations += 1
        evaluation, self._basis = _evaluate(
            self._problem,
            self._basis,
            self.widen(weights),
            ratio=self._ratio,
            tolerance=self._tolerance,
            shrunk=self._shrunk,
            indices=self._indices,
            chunk=_chunk_size(self.samples),
        )
        return evaluation

    def widen(self, weights: Float[Array, "neuron column"]) -> Float[Array, "neuron wider"]:
        """Weights from before the basis grew, in its present coordinates."""
        missing = self._basis.latents.shape[1] - weights.shape[1]
        return jnp.pad(weights, ((0, 0), (0, missing))) if missing else weights

    def squared_pull(self, values: Float[Array, "row sample"]) -> Float[Array, "row"]:
        """``|(1/gamma) sum_mu v^mu x^mu|^2 / D`` for functions ``v`` of the samples."""
        return _squared_pull(self._basis, values, self._ratio)

    def fields(
        self, weights: Float[Array, "neuron column"]
    ) -> tuple[Float[Array, "neuron sample"], Float[Array, "index sample"]]:
        """The fields of every sample, and its index fields."""
        latents = self._basis.latents
        return (latents @ self.widen(weights).T).T, latents[:, : self._indices].T

    def memory(self) -> float:
        """Bytes the basis and its work space take now."""
        return self._bytes(self._basis.latents.shape[1])

    def _reserve(self) -> None:
        capacity = self._basis.latents.shape[1]
        if self._most + self._neurons > capacity:
            self._most = int(self._basis.used)
        if self._most + self._neurons > capacity:
            self._grow(max(_rounded(_GROWTH * capacity), capacity + 2 * self._neurons))
        self._most += self._neurons

    def _grow(self, capacity: int) -> None:
        self._check_memory(capacity)
        latents, directions, count = self._basis
        fresh = self._normals(latents.shape[1], capacity)
        wider = jnp.zeros((self.samples, capacity - self._fixed - directions.shape[1]))
        self._basis = Basis(jnp.concatenate([latents, fresh], 1), jnp.concatenate([directions, wider], 1), count)

    def _normals(self, begin: int, end: int) -> Array:
        """Columns of normals: evenly spread points for the first ones, which matter most, and random ones after."""
        parts = []
        for block in range(begin // _BLOCK, -(-end // _BLOCK)):
            low = block * _BLOCK
            if block not in self._blocks:
                self._blocks = {block: self._block(block)}
            parts.append(self._blocks[block][:, max(begin - low, 0) : end - low])
        return jnp.concatenate(parts, axis=1)

    def _block(self, block: int) -> Array:
        if block >= _EVEN_BLOCKS:
            seed = int(np.random.default_rng((*self._key, block)).integers(2**31))
            return jax.random.normal(jax.random.key(seed), (self.samples, _BLOCK))
        columns = sobol_normals(self.samples, _BLOCK, (*self._key, block))
        if block:
            # Randomisations of the same points are not independent of each other; shuffled ones are.
            columns = np.random.default_rng((*self._key, block, 1)).permutation(columns)
        return jnp.asarray(columns)

    def _bytes(self, capacity: int) -> float:
        return 8.0 * self.samples * (4 * capacity + 8 * self._neurons)

    def _check_memory(self, capacity: int) -> None:
        needed = self._bytes(capacity)
        if needed > self._memory_limit:
            raise MemoryError(
                f"{self.samples} samples with {capacity} latent coordinates need {needed / 2**30:.3g} GiB, but the "
                f"limit is {self._memory_limit / 2**30:.3g} GiB: lower samples or the number of neurons, or raise "
                "tolerance or memory_limit"
            )


@partial(jax.jit, static_argnames=("indices", "chunk"), donate_argnames=("basis",))
def _evaluate(
    problem: Problem,
    basis: Basis,
    weights: Array,
    *,
    ratio: Array | float,
    tolerance: Array | float,
    shrunk: Array | float,
    indices: int,
    chunk: int,
) -> tuple[Evaluation, Basis]:
    latents, directions, count = basis
    samples, capacity = latents.shape
    neurons, fixed = weights.shape[0], capacity - directions.shape[1]
    unused = jax.lax.dynamic_slice(latents, (0, count), (samples, neurons))

    # Samples come first, and are taken in chunks that stay in a CPU's cache, so that the arrays are read from memory
    # once per pass: the passes dominate the cost.
    def signal(rows: tuple[Array, Array, Array]) -> tuple[tuple[Array, ...], tuple[Array]]:
        latent, direction, fresh = rows
        moving, error = problem.signals((latent @ weights.T).T, latent[:, :indices].T)
        both = jnp.concatenate([moving.T, fresh], axis=1)
        return (both.T @ direction, moving @ latent, jnp.sum(moving**2, axis=1), jnp.sum(error**2)), (moving.T,)

    sums, (moving,) = _pass(signal, chunk, (latents, directions, unused))
    known, velocity, square, loss = (total / samples for total in sums)
    size = jnp.sqrt(square)
    known = known.at[:neurons].divide(jnp.where(size > 0, size, 1.0)[:, None])

    def project(rows: tuple[Array, Array, Array]) -> tuple[tuple[Array], tuple[Array, Array]]:
        direction, moving, fresh = rows
        scaled = moving / jnp.where(size > 0, size, 1.0)
        both = jnp.concatenate([scaled, fresh], axis=1) - direction @ known.T
        return (both[:, :neurons].T @ direction,), (both[:, :neurons], both[:, neurons:])

    (again,), (rest, normals) = _pass(project, chunk, (directions, moving, unused))
    again = again / samples

    # Gram-Schmidt twice: after one pass the directions would lose a factor `tolerance` of orthogonality each.
    def project_again(rows: tuple[Array, Array]) -> tuple[tuple[Array], tuple[Array]]:
        rest = rows[1] - rows[0] @ again.T
        return (rest.T @ rest,), (rest,)

    (spread,), (rest,) = _pass(project_again, chunk, (directions, rest))
    turn, kept = _orthonormal(spread / samples, tolerance)
    new = rest @ turn
    normals = normals - new @ (new.T @ normals / samples)
    taken = shrunk * (count + jnp.arange(neurons)) * ratio / samples
    step = jnp.sqrt(jnp.maximum(1 - taken, 0.0) / ratio)
    opened = jnp.where(kept, normals + new * step, unused)
    latents = jax.lax.dynamic_update_slice(latents, opened, (0, count))
    directions = jax.lax.dynamic_update_slice(directions, new, (0, count - fixed))
    known = known[:neurons] + again
    # <scaled e_new> = spread . turn, since what was taken off is orthogonal to the new directions.
    projections = jax.lax.dynamic_update_slice(known, spread @ turn / samples, (0, count - fixed))
    velocity = jax.lax.dynamic_update_slice(velocity, moving.T @ opened / samples, (0, count))
    count = count + kept.sum()
    velocity = jnp.where(jnp.arange(capacity) < count, velocity, 0.0)
    return Evaluation(velocity, projections * size[:, None], loss), Basis(latents, directions, count)


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


def _pass(
    function: Callable[[Any], tuple[Any, Any]], chunk: int, arrays: tuple[Array, ...]
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
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


def _chunk_size(samples: int) -> int:
    """Rows that fit a cache, as a divisor of the number of samples; accelerators take all at once."""
    if jax.default_backend() != "cpu":
        return samples
    return math.gcd(samples, _CHUNK)


@jax.jit
def _squared_pull(basis: Basis, values: Array, ratio: Array | float) -> Array:
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


def _square_root(matrix: np.ndarray) -> np.ndarray:
    """Lower-triangular where positive definite, else the symmetric root: only its square matters."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        return vectors * np.sqrt(np.maximum(values, 0.0))


def _rounded(columns: float) -> int:
    return -(-int(columns) // 16) * 16


def combine(weights: Sequence[float], arrays: Sequence[Array]) -> Array:
    """``sum_i weights[i] arrays[i]``, narrower arrays padded with zeros."""
    widest = max(array.shape[-1] for array in arrays)
    padded = [
        array if array.shape[-1] == widest else jnp.pad(array, ((0, 0), (0, widest - array.shape[-1])))
        for array in arrays
    ]
    return _combine(np.asarray(weights, dtype=float), padded)


@jax.jit
def _combine(weights: Array, arrays: list[Array]) -> Array:
    return sum(weights[i] * array for i, array in enumerate(arrays))  # type: ignore[return-value]
