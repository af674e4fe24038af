"""The input of all solvers and of the simulation, and the interface of the solvers: what is requested and returned.

========================  =====================  ==================================================================
symbol                    name                   meaning
========================  =====================  ==================================================================
``phi``                   activation             of the hidden units
``sigma``                 teacher                the target, a function of the index fields
``c_i``                   readout                of each neuron
``b_i``                   gradient_readout       factor of each neuron's gradient
``gamma = P / D``         samples_per_dimension  training samples for each input dimension
``C(0)``                  initial_overlap        ``w_i . w_j / D`` at the start, (neuron, neuron)
``A(0)``                  initial_alignment      ``w_i . beta_q / D`` at the start, (neuron, index)
``h_i``                   fields                 ``w_i . x``
``h*_q``                  index_fields           ``beta_q . x``
``g_i``                   signals                ``b_i phi'(h_i) Delta``, which move the weights
``Delta``                 error                  ``sigma - f``
``dt``, ``d``             training               learning rate and weight decay
========================  =====================  ==================================================================
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.activations import Polynomial
from solvable.models.committee.losses import SQUARED, Clusters, Labelling, Loss
from solvable.training import GradientFlow, Training

if TYPE_CHECKING:
    from solvable.coverage import Covers
    from solvable.models.committee.model import Committee

# Tells the progress bar how much more is done, as a fraction of the whole.
Advance = Callable[[float], None]
# The norm of the tangent kernel is exact up to this many samples, and estimated from random probes beyond.
EXACT_SAMPLES, PROBES = 256, 16


class Problem(eqx.Module):
    """``f = sum_i c_i phi(h_i)`` is trained to be ``sigma(h*_1..K)``; fields have the neuron as first axis."""

    activation: Callable[[Array], Array] = eqx.field(static=True)
    teacher: Callable[..., Array] = eqx.field(static=True)
    readout: Float[Array, "*classes neuron"]
    gradient_readout: Float[Array, "*classes neuron"]
    samples_per_dimension: float
    initial_overlap: Float[Array, "neuron neuron"]
    initial_alignment: Float[Array, "neuron index"]
    training: Training
    loss: Loss = eqx.field(default=SQUARED, static=True)
    labelling: Labelling = eqx.field(default=Labelling(), static=True)
    clusters: Clusters | None = None

    @property
    def neurons(self) -> int:
        return self.initial_alignment.shape[0]

    @property
    def indices(self) -> int:
        return self.initial_alignment.shape[1]

    @property
    def task(self) -> Self:
        """The same problem without its training, which compiled functions of single samples do not depend on."""
        return dataclasses.replace(self, training=GradientFlow())

    @property
    def is_plain(self) -> bool:
        """Whether the loss is the squared error, the labels the teacher's outputs, and the inputs Gaussian."""
        return self.loss == SQUARED and self.labelling == Labelling() and self.clusters is None

    @property
    def splits_into_pairs(self) -> bool:
        """Whether the test loss is a sum over pairs of fields: the squared error of the teacher's output."""
        return self.loss == SQUARED and self.labelling.kind == "teacher" and self.clusters is None

    @property
    def is_polynomial(self) -> bool:
        """Whether population averages are closed forms: both functions polynomials, of one index field."""
        both = isinstance(self.activation, Polynomial) and isinstance(self.teacher, Polynomial)
        return both and self.indices == 1

    @property
    def readout_ratio(self) -> np.ndarray:
        """``c_i / b_i``, and zero for neurons that are not trained."""
        readout, gradient_readout = np.asarray(self.readout), np.asarray(self.gradient_readout)
        return np.divide(readout, gradient_readout, out=np.zeros_like(readout), where=gradient_readout != 0)

    def with_dtype(self, dtype: Any) -> Self:
        """The same problem with readouts of another precision."""
        readouts = (jnp.asarray(self.readout, dtype), jnp.asarray(self.gradient_readout, dtype))
        return eqx.tree_at(lambda problem: (problem.readout, problem.gradient_readout), self, readouts)

    def with_readout(self, readout: Array | None) -> Self:
        """The same problem with another readout, which is also that of the gradient; unchanged for None."""
        if readout is None:
            return self
        return eqx.tree_at(lambda problem: (problem.readout, problem.gradient_readout), self, (readout, readout))

    def outputs(self, fields: Float[Array, "neuron *samples"]) -> Float[Array, "*outputs_and_samples"]:
        """``f``, with the class as first axis where there are several outputs."""
        return jnp.tensordot(self.readout, elementwise(self.activation)(fields), axes=1)

    def target(self, index_fields: Float[Array, "index *samples"]) -> Float[Array, "*outputs_and_samples"]:
        """``sigma`` of the index fields, with the class as first axis where there are several outputs."""
        function = vector_teacher(self.teacher, index_fields.shape[0])
        for _ in range(index_fields.ndim - 1):
            function = jax.vmap(function, in_axes=-1, out_axes=-1)
        return function(index_fields)

    def error(
        self, fields: Float[Array, "neuron *samples"], index_fields: Float[Array, "index *samples"]
    ) -> Float[Array, "*samples"]:
        """``Delta = sigma - f``."""
        return self.target(index_fields) - jnp.tensordot(self.readout, elementwise(self.activation)(fields), axes=1)

    def signals(
        self, fields: Float[Array, "neuron *samples"], index_fields: Float[Array, "index *samples"]
    ) -> tuple[Float[Array, "neuron *samples"], Float[Array, "*samples"]]:
        """``g`` and ``Delta``. Only the first derivative of the activation enters: ReLU needs nothing special."""
        values, slopes = jax.jvp(elementwise(self.activation), (fields,), (jnp.ones_like(fields),))
        error = self.target(index_fields) - jnp.tensordot(self.readout, values, axes=1)
        shape = (-1,) + (1,) * (fields.ndim - 1)
        return self.gradient_readout.reshape(shape) * slopes * error, error

    def respond(
        self,
        fields: Float[Array, "neuron sample"],
        index_fields: Float[Array, "index sample"],
        labels: Array | None = None,
        sample_weights: Float[Array, "sample"] | None = None,
        readout: Array | None = None,
    ) -> "Answer":
        """Signals ``g_i = (m/b) b_i phi'(h_i) s`` of every sample, and its loss, which batches do not change.

        ``labels`` None are the teacher's outputs. A given ``readout`` is trained: it stands for both readouts, and its
        own pull ``<(m/b) s phi(h)>`` is given back.
        """
        trained = readout is not None
        problem = self.with_readout(readout)
        if labels is None and not trained:
            signals, error = problem.signals(fields, index_fields)
            losses, readout_pull = error**2, None
        else:
            labels = problem.target(index_fields) if labels is None else labels
            values, slopes = jax.jvp(elementwise(self.activation), (fields,), (jnp.ones_like(fields),))
            outputs = jnp.tensordot(problem.readout, values, axes=1)
            force, losses = self.loss.force(outputs, labels), self.loss.values(outputs, labels)
            signals = slopes * problem.backwards(force)
            weighted = force if sample_weights is None else force * sample_weights
            readout_pull = weighted @ values.T / fields.shape[1] if trained else None
        if sample_weights is not None:
            signals = sample_weights * signals
        return Answer(signals.astype(fields.dtype), losses, readout_pull)

    def judge(
        self,
        fields: Float[Array, "neuron sample"],
        index_fields: Float[Array, "index sample"],
        labels: Array | None,
        readout: Array | None = None,
    ) -> tuple[Float[Array, "sample"], Float[Array, "sample"] | None]:
        """The loss of every sample and, where labels are classes, whether it is misclassified."""
        if labels is None:
            labels = self.target(index_fields)
        outputs = self.with_readout(readout).outputs(fields)
        mistakes = self.loss.mistakes(outputs, labels) if self.labelling.is_class else None
        return self.loss.values(outputs, labels), mistakes

    def clean_labels(
        self, index_fields: Float[Array, "index sample"], classes: Array | None, uniform: Array | None
    ) -> Array:
        """Labels without noise; ``uniform`` decides where labels are drawn with the teacher's probability."""
        targets = index_fields if self.labelling.kind == "cluster" else self.target(index_fields)
        return self.labelling.clean(targets, classes, uniform, self.loss)

    def corrupted(self, labels: Array, flips: Array | None, noise: Array | None) -> Array:
        """Labels flipped and noisy, each by a uniform number per sample."""
        if flips is not None:
            labels = jnp.where(flips < self.labelling.flips, -labels, labels)
        if noise is not None:
            labels = labels + self.labelling.noise * jax.scipy.special.ndtri(noise).astype(labels.dtype)
        return labels

    def backwards(self, force: Float[Array, "*outputs_and_samples"]) -> Float[Array, "neuron *samples"]:
        """``sum_k b_ki s_k``: what the outputs tell each neuron."""
        if self.gradient_readout.ndim == 1:
            return jnp.tensordot(self.gradient_readout, force, axes=0)
        return jnp.tensordot(self.gradient_readout.T, force, axes=1)

    def slopes(self, fields: Float[Array, "neuron *samples"]) -> Float[Array, "neuron *samples"]:
        """``phi'`` of the fields."""
        return jax.jvp(elementwise(self.activation), (fields,), (jnp.ones_like(fields),))[1]

    def curvature_bound(
        self,
        fields: Float[Array, "neuron *samples"],
        index_fields: Float[Array, "index *samples"],
        labels: Array | None = None,
    ) -> Float[Array, "*samples"]:
        """A bound on the matrix norm of ``dg_i / dh_j``: how strongly the signals of a sample respond to its fields.

        ``l'' |b phi'| |c phi'| + |s| max_i |b_i phi''_i|``; infinite for the hinge loss, whose slope jumps.
        """
        ones = jnp.ones_like(fields)

        def slope(values: Array) -> tuple[Array, Array]:
            outputs, slopes = jax.jvp(elementwise(self.activation), (values,), (ones,))
            return slopes, outputs

        slopes, curvatures, outputs = jax.jvp(slope, (fields,), (ones,), has_aux=True)
        labels = self.target(index_fields) if labels is None else labels
        force = self.loss.force(jnp.tensordot(self.readout, outputs, axes=1), labels)
        shape = (-1,) + (1,) * (fields.ndim - 1)
        sizes = (jnp.linalg.norm(jnp.atleast_2d(each), axis=0) for each in (self.gradient_readout, self.readout))
        own, other = (jnp.linalg.norm(size.reshape(shape) * slopes, axis=0) for size in sizes)
        largest = jnp.inf if self.loss.largest_curvature is None else self.loss.largest_curvature
        return largest * own * other + jnp.max(jnp.abs(self.backwards(force) * curvatures), axis=0)

    def kernel_alignment(
        self,
        fields: Float[Array, "neuron sample"],
        target: Float[Array, "sample"],
        inner: Callable[[Array], Array],
        key: Array,
    ) -> Float[Array, ""]:
        """``sqrt(P) y^T K y / (|K|_F |y|^2)`` on the training set, not centred; 0 where there is no kernel.

        ``K(x, x') = sum_i b_i c_i phi'(h_i) phi'(h'_i) x.x'`` is the kernel of ``df/dt = (1/gamma) sum_mu K(x, x_mu)
        Delta_mu``, the tangent kernel of the network where b and c are proportional (delayed-features, sec. 3; its
        prefactor, see docs/errata, drops out), and ``y`` the target. The alignment is the Rayleigh quotient of K at the
        target over the root mean square of its eigenvalues; the factor sqrt(P) makes it converge as D grows.
        ``inner(rows) = rows X X^T``. K itself is never formed: ``|K|_F^2`` is the mean of ``|K z|^2`` over random signs
        z, or exact for few samples.
        """
        slopes, couplings = self.slopes(fields), self.readout * self.gradient_readout
        samples = target.shape[0]

        def times_kernel(rows: Array) -> Array:
            pushed = inner((slopes[:, None] * rows).reshape(-1, samples)).reshape(len(slopes), -1, samples)
            return jnp.tensordot(couplings, slopes[:, None] * pushed, axes=1)

        if samples <= EXACT_SAMPLES:
            square = jnp.sum(times_kernel(jnp.eye(samples, dtype=target.dtype)) ** 2)
        else:
            probes = jax.random.rademacher(key, (PROBES, samples), target.dtype)
            square = jnp.sum(times_kernel(probes) ** 2) / PROBES
        size = jnp.sqrt(square) * jnp.sum(target**2)
        along = jnp.sqrt(float(samples)) * (times_kernel(target[None])[0] @ target)
        return jnp.where(size == 0, 0.0, along / jnp.where(size == 0, 1.0, size)).astype(target.dtype)


class Answer(NamedTuple):
    """What samples answer to their fields: signals, the loss of each, and the pull on a trained readout."""

    signals: Float[Array, "neuron sample"]
    losses: Float[Array, "sample"]
    readout_pull: Array | None


def elementwise(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A scalar function, applied to every entry of an array."""

    def applied(values: Array) -> Array:
        return jax.vmap(function)(values.reshape(-1)).reshape(values.shape)

    return applied


def vector_teacher(teacher: Callable[..., Any], indices: int) -> Callable[[Array], Array]:
    """The teacher as a function of one vector of index fields.

    A teacher may take its fields one by one, ``sigma(h1, h2)``, or as one vector, ``sigma(h)``.
    """
    if _takes_vector(teacher, indices):
        return lambda fields: jnp.asarray(teacher(fields))
    return lambda fields: jnp.asarray(teacher(*[fields[k] for k in range(indices)]))


def _takes_vector(teacher: Callable[..., Any], indices: int) -> bool:
    """Whether the teacher wants its fields as one vector: it does not accept that many scalars, or fails on them.

    One that gives several numbers for scalars may be either; it takes a vector where it can.
    """
    scalars = [jax.ShapeDtypeStruct((), float)] * indices
    try:
        inspect.signature(teacher).bind(*scalars)
        if jax.eval_shape(teacher, *scalars).shape == ():
            return False
    except (TypeError, ValueError, IndexError):
        return True
    try:
        jax.eval_shape(teacher, jax.ShapeDtypeStruct((indices,), float))
    except (TypeError, ValueError, IndexError):
        return False
    return True


def problem_of(model: "Committee", training: Training) -> Problem:
    """The problem of a committee and its training, with the default readouts ``c_i = alpha / N``, ``b_i = 1``."""
    neurons = model.initial_overlap.shape[0]
    readout = np.full(neurons, model.output_scale / neurons) if model.readout is None else model.readout
    gradient_readout = np.ones(neurons) if model.gradient_readout is None else model.gradient_readout
    if model.class_readout is not None:
        readout = gradient_readout = model.class_readout
    clusters = None
    if model.cluster_means is not None:
        count = len(model.cluster_means)
        weights = np.full(count, 1 / count) if model.cluster_weights is None else model.cluster_weights
        clusters = Clusters(jnp.asarray(model.cluster_means), jnp.asarray(weights / np.sum(weights)))
    return Problem(
        model.activation,
        model.teacher,
        jnp.asarray(readout),
        jnp.asarray(gradient_readout),
        model.samples_per_dimension,
        jnp.asarray(model.initial_overlap),
        jnp.asarray(model.initial_alignment),
        training,
        model.loss_function,
        model.labelling,
        clusters,
    )


@dataclasses.dataclass(frozen=True)
class OutputRequest:
    """What is wanted beside losses, alignment and overlap."""

    correlations: bool = False
    responses: bool = False
    loss_gap: bool = False
    kernel_alignment: bool = False


class Solution(NamedTuple):
    """Order parameters of independent runs, and what is known of their errors.

    ``values`` maps names to arrays (run, time, ...). ``bias`` holds for some names half the distance between two
    conventions that err to opposite sides, ``time_error`` an estimate of the error of the time steps; both without the
    run axis. ``diverged_at`` is the time of divergence, in the units of the training, and ``stable_learning_rate`` an
    estimate of the learning rate below which training is stable there.
    """

    values: Mapping[str, np.ndarray]
    bias: Mapping[str, np.ndarray] = {}
    time_error: Mapping[str, np.ndarray] = {}
    notes: Mapping[str, float] = {}
    diverged_at: float | None = None
    stable_learning_rate: float | None = None


class Solver(Protocol):
    """A method that solves the theory: its settings, the trainings that it covers, and :meth:`solve`."""

    covers: ClassVar["tuple[Covers, ...]"]

    def check_cost(self, problem: Problem, times: np.ndarray) -> None:
        """Raise a ValueError with an estimate where :meth:`solve` would take too long or too much memory."""
        ...

    def solve(
        self, problem: Problem, times: np.ndarray, request: OutputRequest, key: int, advance: Advance
    ) -> Solution:
        """Order parameters at the times, which are in the units of the training."""
        ...
