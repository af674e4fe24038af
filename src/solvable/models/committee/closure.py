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
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from solvable.models.committee.batches import batches_of
from solvable.models.committee.columns import Columns, Private
from solvable.models.committee.problem import Answer, Problem
from solvable.models.committee.protocol import Gradient, System, Weights

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


_PLAIN = PerSample(None, None)


class LatentClosure(System):
    """A growing latent basis of one set of samples: the back end of training algorithms in the limit of large D.

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
        self.problem, self.samples, self.evaluations = problem.task, samples, 0
        self._memory_limit = memory_limit
        self._ratio, self._tolerance = float(problem.samples_per_dimension), float(tolerance)
        self._shrunk = float(shrunk)
        self._fixed, self._indices, self._neurons = neurons + indices, indices, neurons
        self._batches = batches_of(problem.training)
        self._columns = Columns(samples, key, self._fixed, neurons, self._private())
        capacity = self._fixed + max(_FIRST_CAPACITY, 2 * neurons)
        self._check_memory(capacity)
        latents = self._columns.normals(0, capacity)
        self._clean, self.labels = None, None
        if not problem.is_plain:
            latents = self._label(latents)
        self._basis = Basis(latents, jnp.zeros((samples, capacity - self._fixed)), jnp.asarray(self._fixed, dtype=int))
        # The count lives on the device; this bound on it saves waiting for it at every step.
        self._most = self._fixed
        start = np.concatenate([alignment, _square_root(overlap - alignment @ alignment.T)], axis=1)
        self.start = Weights(jnp.pad(jnp.asarray(start), ((0, 0), (0, capacity - self._fixed))))
        self._seen: tuple[Array, Evaluation] | None = None

    def _private(self) -> Private:
        """The uniform numbers that labels and batches need."""
        labelling, batches = self.problem.labelling, self._batches
        labels = len(labelling.draws) + (self.problem.clusters is not None)
        fresh = int(labelling.noise > 0 and labelling.fresh)
        if batches is None:
            return Private(labels, 0, fresh)
        if batches.sampling == "cyclic":
            # One slot for the whole run.
            return Private(labels, 1, fresh, 2**40)
        in_epochs = batches.sampling == "epochs"
        return Private(labels, int(in_epochs), fresh + (not in_epochs), batches.per_epoch)

    def _label(self, latents: Array) -> Array:
        """Draw clusters and labels. Index fields move to the means of their clusters."""
        problem, classes = self.problem, None
        names = list(problem.labelling.draws)
        uniforms = {name: self._columns.of_label(place) for place, name in enumerate(names)}
        if problem.clusters is not None:
            classes = problem.clusters.choose(self._columns.of_label(len(names)))
            latents = latents.at[:, : self._indices].add(problem.clusters.means[classes])
        self._clean = problem.clean_labels(latents[:, : self._indices].T, classes, uniforms.get("sigmoid"))
        self.labels = problem.corrupted(self._clean, uniforms.get("flips"), uniforms.get("noise"))
        return latents

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

    @property
    def index_fields(self) -> Float[Array, "index sample"]:  # type: ignore[override]
        """``h*`` of every sample."""
        return self._basis.latents[:, : self._indices].T

    def fields(self, weights: Weights) -> Float[Array, "neuron sample"]:
        """``h = U . Y``."""
        return (self._basis.latents @ self.widen(weights.coordinates).T).T

    def pull(self, signals: Float[Array, "neuron sample"]) -> Weights:
        """``<v Y>``; directions of the signals that are new join the basis."""
        self._reserve()
        velocity, self._basis = _pull(self._basis, signals.T, **self._settings())
        return Weights(velocity)

    def overlap(self, weights: Weights) -> Float[Array, "neuron neuron"]:
        """``U U^T``: the coordinates are orthonormal."""
        return weights.coordinates @ weights.coordinates.T

    def alignment(self, weights: Weights) -> Float[Array, "neuron index"]:
        """``U`` along the index fields."""
        return weights.coordinates[:, : self._indices]

    def batch(self, count: int) -> Float[Array, "sample"] | None:
        """Weights of the samples at a step."""
        return None if self._batches is None else self._batches.weights(self._columns, count)

    def noise(self, count: int) -> Weights:
        """Normals on coordinates of their own, to which no sample contributes."""
        self._reserve()
        used = self._basis.used
        self._basis = self._basis._replace(used=used + self._neurons)
        return Weights(
            jax.lax.dynamic_update_slice(jnp.zeros((self._neurons, self.width)), jnp.eye(self._neurons), (0, used))
        )

    def fresh_labels(self, count: int) -> Array | None:
        """Labels of a step, with new noise where it is drawn afresh."""
        labelling = self.problem.labelling
        if not (labelling.fresh and labelling.noise):
            return self.labels
        place = int(self._batches is not None and self._batches.sampling in ("subsets", "replacement"))
        return self.problem.corrupted(self._clean, None, self._columns.of_step(count, place))

    def gradient(
        self,
        weights: Weights,
        labels: Array | None = None,
        sample_weights: Float[Array, "sample"] | None = None,
        readout: Array | None = None,
    ) -> Gradient:
        """``<(m/b) g Y>`` in one pass over the latents."""
        found = self.evaluate(weights.coordinates, PerSample(labels, sample_weights), readout)
        self.remember(weights.coordinates, found)
        return Gradient(Weights(found.velocity), found.readout_pull)

    def loss(self, weights: Weights, readout: Array | None = None) -> tuple[Array, Array | None]:
        """Training loss over all samples, and misclassification rate where labels are classes; no new directions."""
        plain = self.problem.is_plain and readout is None
        if plain and self._seen is not None and self._seen[0] is weights.coordinates:
            return self._seen[1].loss, None
        wide = self.widen(weights.coordinates)
        return _losses(self.problem, self._basis, wide, self.labels, readout, self._indices, _chunk_size(self.samples))

    def remember(self, weights: Float[Array, "neuron column"], evaluation: Evaluation) -> None:
        """Keep the evaluation of these weights for :meth:`loss` and :meth:`evaluation`."""
        self._seen = weights, evaluation

    def evaluation(self, weights: Weights) -> Evaluation:
        """The evaluation of these weights on all samples: that of the last step, if it was taken from them."""
        if self._seen is not None and self._seen[0] is weights.coordinates:
            return self._seen[1]
        return self.evaluate(weights.coordinates, PerSample(self.labels, None))

    def evaluate(
        self,
        weights: Float[Array, "neuron column"],
        samples: PerSample = _PLAIN,
        readout: Array | None = None,
    ) -> Evaluation:
        """The velocity of these weights; directions of their signals that are new join the basis."""
        self._reserve()
        self.evaluations += 1
        evaluation, self._basis = _evaluate(
            self.problem,
            self._basis,
            self.widen(weights),
            samples,
            readout,
            indices=self._indices,
            **self._settings(),
        )
        return evaluation

    def _settings(self) -> dict[str, Any]:
        return {
            "ratio": self._ratio,
            "tolerance": self._tolerance,
            "shrunk": self._shrunk,
            "chunk": _chunk_size(self.samples),
        }

    def widen(self, weights: Float[Array, "neuron column"]) -> Float[Array, "neuron wider"]:
        """Weights from before the basis grew, in its present coordinates."""
        missing = self._basis.latents.shape[1] - weights.shape[1]
        return jnp.pad(weights, ((0, 0), (0, missing))) if missing else weights

    def squared_pull(self, values: Float[Array, "row sample"]) -> Float[Array, "row"]:
        """``|(1/gamma) sum_mu v^mu x^mu|^2 / D`` for functions ``v`` of the samples."""
        return _squared_pull(self._basis, values, self._ratio)

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
        fresh = self._columns.normals(latents.shape[1], capacity)
        wider = jnp.zeros((self.samples, capacity - self._fixed - directions.shape[1]))
        self._basis = Basis(jnp.concatenate([latents, fresh], 1), jnp.concatenate([directions, wider], 1), count)

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
    samples: PerSample,
    readout: Array | None,
    *,
    ratio: Array | float,
    tolerance: Array | float,
    shrunk: Array | float,
    indices: int,
    chunk: int,
) -> tuple[Evaluation, Basis]:
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
    twice = samples.sample_weights is None
    velocity, projections, basis = _open(basis, unused, moving, sums, ratio, tolerance, shrunk, chunk, twice)
    count_samples = latents.shape[0]
    pull = None if readout_pull is None else readout_pull / count_samples
    return Evaluation(velocity, projections, loss / count_samples, pull), basis


def _times(answer: Answer, count: int) -> Array | None:
    """The pull on the readout as a sum over the samples."""
    return None if answer.readout_pull is None else answer.readout_pull * count


@partial(jax.jit, static_argnames=("chunk",), donate_argnames=("basis",))
def _pull(
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
        # A batch is mostly outside of what is known, so that once is enough.
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
def _losses(
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
