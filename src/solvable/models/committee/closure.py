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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.committee.basis import (
    PLAIN,
    Basis,
    Evaluation,
    PerSample,
    evaluate_signals,
    mean_losses,
    pull_signals,
    squared_pull,
)
from solvable.models.committee.batches import batches_of
from solvable.models.committee.columns import Columns, Private
from solvable.models.committee.problem import Problem
from solvable.models.committee.protocol import Gradient, System, Weights

_FIRST_CAPACITY = 32
_GROWTH = 1.5
_CHUNK = 2048


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
        # Batches that know nothing of earlier ones are mostly outside of all known directions.
        self._independent = self._batches is not None and self._batches.sampling in ("subsets", "replacement")
        self._columns = Columns(samples, key, self._fixed, neurons, self._private())
        capacity = self._fixed + max(_FIRST_CAPACITY, 2 * neurons)
        self._check_memory(capacity)
        latents = self._columns.normals(0, capacity)
        self._clean: Any = None
        self.labels = None
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
        velocity, self._basis = pull_signals(self._basis, signals.T, **self._settings())
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
        place = int(self._independent)
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
        return mean_losses(
            self.problem, self._basis, wide, self.labels, readout, self._indices, _chunk_size(self.samples)
        )

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
        samples: PerSample = PLAIN,
        readout: Array | None = None,
    ) -> Evaluation:
        """The velocity of these weights; directions of their signals that are new join the basis."""
        self._reserve()
        self.evaluations += 1
        evaluation, self._basis = evaluate_signals(
            self.problem,
            self._basis,
            self.widen(weights),
            samples,
            readout,
            indices=self._indices,
            twice=samples.sample_weights is None or not self._independent,
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
        return squared_pull(self._basis, values, self._ratio)

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


def _chunk_size(samples: int) -> int:
    """Rows that fit a cache, as a divisor of the number of samples; accelerators take all at once."""
    if jax.default_backend() != "cpu":
        return samples
    return math.gcd(samples, _CHUNK)


def _square_root(matrix: np.ndarray) -> np.ndarray:
    """Lower-triangular where positive definite, else the symmetric root: only its square matters."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        return vectors * np.sqrt(np.maximum(values, 0.0))


def _rounded(columns: float) -> int:
    return -(-int(columns) // 16) * 16
