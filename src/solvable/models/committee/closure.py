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
their difference an estimate of the bias. Half the shortening gives about their middle in one run.

==========  =================  ================================================
symbol      name               shape
==========  =================  ================================================
``Y_a``     latents            (column, sample); column = index, neuron, then one for each direction
``e_a``     directions         (direction, sample)
``U``       weights            (neuron, column)
``<g Y>``   velocity           (neuron, column)
``<g e>``   projections        (neuron, direction)
==========  =================  ================================================
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.committee.basis import Basis, bound_weakly
from solvable.models.committee.batches import batches_of
from solvable.models.committee.columns import Columns, Private
from solvable.models.committee.gaussian import derivative
from solvable.models.committee.problem import Problem
from solvable.models.committee.protocol import AnyArray, Gradient, System, Weights


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
        How much to shorten the steps into new directions: 0 for "open", 1 for "shrunk".
    key
        Random seeds of the samples.
    memory_limit
        Most bytes to use.
    namespace
        ``numpy`` or ``jax.numpy``; chosen by the device if None.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        samples: int,
        tolerance: float,
        shrunk: float,
        key: tuple[int, ...],
        memory_limit: float,
        namespace: Any = None,
    ) -> None:
        neurons, indices = problem.initial_alignment.shape
        self.problem, self.samples, self.evaluations = problem.task, samples, 0
        self._memory_limit, self._indices, self._neurons = memory_limit, indices, neurons
        self._batches = batches_of(problem.training)
        self._on_device = namespace is jnp or (namespace is None and jax.default_backend() != "cpu")
        self._columns = Columns(samples, key, neurons + indices, neurons, self._private(), self._on_device)
        first = self._columns.normals(0, neurons + indices)
        self._clean: Any = None
        self._fresh_noise = bool(problem.labelling.fresh and problem.labelling.noise)
        self.labels = None
        if not problem.is_plain:
            first = self._label(first)
        self.index_fields = jnp.asarray(first[:indices])
        plain = problem.is_plain and problem.is_polynomial and namespace in (None, np)
        self._polynomial = _Polynomials(problem, first[0]) if plain and jax.default_backend() == "cpu" else None
        self.start = self._begin(problem, first, float(tolerance), float(shrunk), namespace)
        # The fields of the weights they were last asked for.
        self._last: tuple[Any, Any] = (None, None)

    def _begin(self, problem: Problem, first: np.ndarray, tolerance: float, shrunk: float, namespace: Any) -> Weights:
        """Make the basis, of which ``first`` are the coordinates at the start, and return the initial weights."""
        self.basis = Basis(
            first,
            self._columns.normals,
            ratio=float(problem.samples_per_dimension),
            tolerance=tolerance,
            shrunk=shrunk,
            check_memory=bound_weakly(self._check_memory),
            namespace=namespace,
        )
        return Weights(start_coordinates(problem))

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

    def _label(self, first: np.ndarray) -> np.ndarray:
        """Draw clusters and labels. Index fields move to the means of their clusters."""
        problem, classes = self.problem, None
        names = list(problem.labelling.draws)
        uniforms = {name: jnp.asarray(self._columns.of_label(place)) for place, name in enumerate(names)}
        if problem.clusters is not None:
            classes = problem.clusters.choose(jnp.asarray(self._columns.of_label(len(names))))
            first = first.copy()
            first[: self._indices] += np.asarray(problem.clusters.means[classes].T)
        self._clean = problem.clean_labels(jnp.asarray(first[: self._indices]), classes, uniforms.get("sigmoid"))
        self.labels = problem.corrupted(self._clean, uniforms.get("flips"), uniforms.get("noise"))
        return first

    @property
    def rank(self) -> int:
        """Number of directions the signals have opened so far."""
        return self.basis.used - self.basis.fixed

    @property
    def width(self) -> int:
        """Number of columns that weights have now."""
        return self.basis.used

    @property
    def fixed(self) -> int:
        """Number of coordinates there from the start: the index fields, and one for each neuron."""
        return self.basis.fixed

    def fields(self, weights: Weights) -> Float[Array, "neuron sample"]:
        """``h = U . Y``."""
        return jnp.asarray(self._fields(weights))

    def _fields(self, weights: Weights) -> Any:
        if self._last[0] is not weights.coordinates:
            self._last = weights.coordinates, self._compute_fields(np.asarray(weights.coordinates))
        return self._last[1]

    def _compute_fields(self, weights: Float[np.ndarray, "neuron column"]) -> Any:
        return self.basis.fields(weights)

    def pull(self, signals: Float[AnyArray, "neuron sample"]) -> Weights:
        """``<v Y>``; directions of the signals that are new join the basis."""
        self.evaluations += 1
        return Weights(self.basis.pull(signals))

    def overlap(self, weights: Weights) -> Float[AnyArray, "neuron neuron"]:
        """``U U^T``: the coordinates are orthonormal."""
        return weights.coordinates @ weights.coordinates.T

    def alignment(self, weights: Weights) -> Float[AnyArray, "neuron index"]:
        """``U`` along the index fields."""
        return weights.coordinates[:, : self._indices]

    def batch(self, count: int) -> Float[np.ndarray, "sample"] | None:
        """Weights of the samples at a step."""
        return None if self._batches is None else self._batches.weights(self._columns, count)

    def noise(self, count: int) -> Weights:
        """Normals on coordinates of their own, to which no sample contributes."""
        first = self.basis.open_noise(self._neurons)
        return Weights(np.eye(self._neurons, self.width, first))

    def fresh_labels(self, count: int) -> Array | None:
        """Labels of a step, with new noise where it is drawn afresh."""
        if not self._fresh_noise:
            return self.labels
        # The batch of the step draws first where batches are new at each step.
        place = int(self._batches is not None and self._batches.sampling in ("subsets", "replacement"))
        return self.problem.corrupted(self._clean, None, jnp.asarray(self._columns.of_step(count, place)))

    def signals(
        self, fields: Float[AnyArray, "neuron sample"], labels: Array | None = None, readout: Array | None = None
    ) -> Float[Array, "neuron sample"]:
        """``g_i = b_i phi'(h_i) s``."""
        return jnp.asarray(self._respond(fields, labels, None, readout)[0])

    def gradient(
        self,
        weights: Weights,
        labels: Array | None = None,
        sample_weights: Float[AnyArray, "sample"] | None = None,
        readout: Array | None = None,
    ) -> Gradient:
        """``<(m/b) g Y>``, and the pull on a trained readout."""
        signals, readout_pull = self._respond(self._fields(weights), labels, sample_weights, readout)
        return Gradient(self.pull(signals), readout_pull)

    def _respond(self, fields: Any, labels: Any, sample_weights: Any, readout: Any) -> tuple[Any, Array | None]:
        """Signals, and the pull on a trained readout."""
        labels = self.labels if labels is None else labels
        if self._polynomial is not None and labels is None and readout is None:
            signals = self._polynomial.signals(np.asarray(fields))
            return signals if sample_weights is None else sample_weights * signals, None
        return _respond(self.problem, fields, self.index_fields, labels, sample_weights, readout)

    def velocity(self, weights: Float[np.ndarray, "neuron column"]) -> Float[np.ndarray, "neuron wider"]:
        """``<g Y>`` of all samples; directions of their signals that are new join the basis."""
        return self.gradient(Weights(weights)).weights.coordinates

    def loss(self, weights: Weights, readout: Array | None = None) -> tuple[float, float | None]:
        """Training loss over all samples, and misclassification rate where labels are classes; no new directions."""
        if self._polynomial is not None and readout is None:
            return float(np.mean(self._polynomial.error(self._fields(weights)) ** 2)), None
        loss, mistakes = _judge(self.problem, self._fields(weights), self.index_fields, self.labels, readout)
        return float(loss), None if mistakes is None else float(mistakes)

    def projections(self, weights: Weights) -> Float[np.ndarray, "neuron direction"]:
        """``<g e>`` of these weights on all samples; directions of their signals that are new join the basis."""
        signals = self._respond(self._fields(weights), None, None, None)[0]
        self.basis.extend(signals)
        return self.basis.projections(signals)

    def squared_pull(self, values: Float[AnyArray, "row sample"]) -> Float[np.ndarray, "row"]:
        """``|(1/gamma) sum_mu v^mu x^mu|^2 / D`` for functions ``v`` of the samples."""
        return self.basis.squared_pull(values)

    def memory(self) -> float:
        """Bytes the basis and its work space take now."""
        return self._bytes(self.basis.used)

    def _bytes(self, rows: int) -> float:
        return 8.0 * self.samples * (3 * rows + 8 * self._neurons)

    @property
    def unknowns(self) -> int:
        """Number of rows that the Jacobian of the flow has."""
        return self._neurons * self.width

    @property
    def extent(self) -> tuple[int, ...]:
        """Number of coordinates of each basis."""
        return (self.width,)

    def jacobian_worth(self) -> float:
        """How many evaluations of a velocity take as long as one Jacobian of the flow, roughly."""
        return self.basis.evaluations_worth(self._neurons)

    def jacobian(self, slopes: Float[AnyArray, "neuron neuron2 sample"], known: Any, since: tuple[int, ...]) -> Any:
        """The Jacobian of the flow, without weight decay, for :meth:`factorise`.

        Parameters
        ----------
        slopes
            ``dg_i / dh_j`` of every sample.
        known
            The Jacobian of the first coordinates with the same slopes, or None.
        since
            What :attr:`extent` was then.
        """
        return self.basis.moments(slopes, known, since[0] if since else 0)

    def factorise(self, jacobian: Any, factor: float, diagonal: float) -> Any:
        """The LU decomposition of ``diagonal 1 - factor J``."""
        return self.basis.factorise(jacobian, factor, diagonal)

    def solve(self, factors: Any, right: Float[np.ndarray, "neuron column"]) -> Float[np.ndarray, "neuron column"]:
        """The solution of a linear system that :meth:`factorise` has decomposed."""
        return self.basis.solve(factors, right)

    def _check_memory(self, rows: int) -> None:
        self._require(self._bytes(rows), rows)

    def _require(self, needed: float, rows: int) -> None:
        if needed > self._memory_limit:
            raise MemoryError(
                f"{self.samples} samples with {rows} latent coordinates need {needed / 2**30:.3g} GiB, but the "
                f"limit is {self._memory_limit / 2**30:.3g} GiB: lower samples or the number of neurons, or raise "
                "tolerance or memory_limit"
            )


class _Polynomials:
    """Signals and errors of samples where they are polynomials of the fields: so cheap that calling JAX costs more."""

    def __init__(self, problem: Any, index_field: Float[np.ndarray, "sample"]) -> None:
        self._activation, self._slope = problem.activation.coefficients, derivative(problem.activation.coefficients)
        self._target = _polynomial(problem.teacher.coefficients, index_field)
        self._readout, self._gradient_readout = np.asarray(problem.readout), np.asarray(problem.gradient_readout)

    def error(self, fields: Float[np.ndarray, "neuron sample"]) -> Float[np.ndarray, "sample"]:
        """``Delta``."""
        return self._target - self._readout @ _polynomial(self._activation, fields)

    def signals(self, fields: Float[np.ndarray, "neuron sample"]) -> Float[np.ndarray, "neuron sample"]:
        """``g``."""
        return _polynomial(self._slope, fields) * self.error(fields) * self._gradient_readout[:, None]


def _polynomial(coefficients: tuple[float, ...], fields: np.ndarray) -> np.ndarray:
    if len(coefficients) == 1:
        return np.full_like(fields, coefficients[0])
    total = coefficients[-1] * fields
    for coefficient in coefficients[-2:0:-1]:
        total += coefficient
        total *= fields
    total += coefficients[0]
    return total


@jax.jit
def _respond(problem: Problem, *of_samples: Any) -> tuple[Array, Array | None]:
    answer = problem.respond(*of_samples)
    return answer.signals, answer.readout_pull


@jax.jit
def _judge(problem: Problem, *of_samples: Any) -> tuple[Array, Array | None]:
    """Mean loss, and misclassification rate where labels are classes."""
    return jax.tree.map(jnp.mean, problem.judge(*of_samples))


def start_coordinates(problem: Problem) -> Float[np.ndarray, "neuron column"]:
    """The initial weights along the index fields and along one coordinate for each neuron."""
    alignment, overlap = np.asarray(problem.initial_alignment), np.asarray(problem.initial_overlap)
    return np.concatenate([alignment, square_root(overlap - alignment @ alignment.T)], axis=1)


def square_root(matrix: Float[np.ndarray, "row row"]) -> Float[np.ndarray, "row row"]:
    """A root of a positive semidefinite matrix: lower-triangular where it is definite, else the symmetric one."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        return vectors * np.sqrt(np.maximum(values, 0.0))
