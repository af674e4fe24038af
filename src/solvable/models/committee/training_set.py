"""Training sets of finite dimension: the literal back end of training algorithms, in two forms.

``Primal`` keeps the weights themselves, ``Dual`` their coefficients on the initial weights and on the inputs: see
:mod:`solvable.models.committee.simulation`.
"""

from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from solvable.models.committee.batches import Batches, batches_of
from solvable.models.committee.problem import Problem
from solvable.models.committee.protocol import System, Weights

# What a sample may draw for its label, each from a key of its own.
_DRAWS = ("sigmoid", "flips", "noise")


def product(left: Array, right: Array) -> Array:
    """A matrix product in the precision of its arguments: GPUs would compute float32 products in less."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def draw_inputs(key: Array, samples: int, dimension: int, dtype: Any) -> Float[Array, "sample dimension"]:
    """Standard normal inputs ``sqrt(D) x``; drawn in float64, so that a seed means the same data in either dtype."""
    return jax.random.normal(key, (samples, dimension)).astype(dtype)


class TrainingSet(eqx.Module, System):
    """The samples of one run, in one of the two forms; ``keys`` draw batches, label noise and Langevin noise."""

    problem: Problem
    matrix: Float[Array, "row column"]
    index_fields: Float[Array, "index sample"]
    initial: Float[Array, "neuron dimension"]
    labels: Array | None
    clean: Array | None
    keys: Array
    batches: Batches | None = eqx.field(static=True)
    name: ClassVar[str]

    @classmethod
    def of(cls, problem: Problem, inputs: Float[Array, "sample dimension"], weights: Array, key: Array) -> Self:
        """The training set of given inputs ``sqrt(D) x``."""
        keys = jax.random.split(key, 4)
        labels, clean, moved, batches = None, None, inputs, batches_of(problem.training)
        if not problem.is_plain:
            moved, clean, labels = labelled(problem, inputs, keys[0])
        index_fields = moved[:, : problem.indices].T
        return cls(problem.task, cls._matrix(moved, weights), index_fields, weights, labels, clean, keys[1:], batches)

    @classmethod
    def _matrix(cls, inputs: Array, weights: Array) -> Array:
        raise NotImplementedError

    @property
    def samples(self) -> int:
        return self.index_fields.shape[1]

    def batch(self, count: Array) -> Float[Array, "sample"] | None:
        if self.batches is None:
            return None
        return self.batches.drawn(self.keys[0], self.samples, count).astype(self.matrix.dtype)

    def fresh_labels(self, count: Array) -> Array | None:
        labelling = self.problem.labelling
        if self.clean is None or not (labelling.fresh and labelling.noise):
            return self.labels
        uniform = _uniform(jax.random.fold_in(self.keys[1], count), self.samples)
        return self.problem.corrupted(self.clean, None, uniform)

    def inner(self, rows: Float[Array, "row sample"]) -> Float[Array, "row sample"]:
        """``rows X X^T``."""
        raise NotImplementedError

    def alignment(self, weights: Weights) -> Float[Array, "neuron index"]:
        """``A``."""
        raise NotImplementedError

    def rounded(self, tree: Any) -> Any:
        """A state in the precision of the data, in which steps of another precision end."""
        return jax.tree.map(lambda array: array.astype(self.matrix.dtype), tree)


class Primal(TrainingSet):
    """Weights are themselves, over ``sqrt(D)``; the matrix holds the inputs, transposed."""

    name: ClassVar[str] = "primal"

    @classmethod
    def _matrix(cls, inputs: Array, weights: Array) -> Array:
        return inputs

    @property
    def start(self) -> Weights:  # type: ignore[override]
        return Weights(self.initial)

    def fields(self, weights: Weights) -> Float[Array, "neuron sample"]:
        return product(weights.coordinates, self.matrix.T)

    def pull(self, signals: Float[Array, "neuron sample"]) -> Weights:
        return Weights(product(signals, self.matrix) / self.samples)

    def inner(self, rows: Float[Array, "row sample"]) -> Float[Array, "row sample"]:
        return product(product(rows, self.matrix), self.matrix.T)

    def alignment(self, weights: Weights) -> Float[Array, "neuron index"]:
        return weights.coordinates[:, : self.problem.indices]

    def overlap(self, weights: Weights) -> Float[Array, "neuron neuron"]:
        return product(weights.coordinates, weights.coordinates.T)

    def noise(self, count: Array) -> Weights:
        normals = jax.random.normal(jax.random.fold_in(self.keys[2], count), self.initial.shape, self.matrix.dtype)
        return Weights(normals / self.initial.shape[1] ** 0.5)


class Dual(TrainingSet):
    """Weights are ``W = R W(0) + S X`` with coordinates (R, S); the matrix holds ``W(0) X^T`` above ``X X^T``."""

    name: ClassVar[str] = "dual"

    @classmethod
    def _matrix(cls, inputs: Array, weights: Array) -> Array:
        return product(jnp.concatenate([weights, inputs]), inputs.T)

    @property
    def start(self) -> Weights:  # type: ignore[override]
        neurons = self.initial.shape[0]
        return Weights(jnp.eye(neurons, neurons + self.samples, dtype=self.matrix.dtype))

    def fields(self, weights: Weights) -> Float[Array, "neuron sample"]:
        return product(weights.coordinates, self.matrix)

    def pull(self, signals: Float[Array, "neuron sample"]) -> Weights:
        return Weights(jnp.pad(signals / self.samples, ((0, 0), (signals.shape[0], 0))))

    def inner(self, rows: Float[Array, "row sample"]) -> Float[Array, "row sample"]:
        return product(rows, self.matrix[self.initial.shape[0] :])

    def alignment(self, weights: Weights) -> Float[Array, "neuron index"]:
        begin = self.initial[:, : self.problem.indices]
        return product(weights.coordinates, jnp.concatenate([begin, self.index_fields.T]))

    def overlap(self, weights: Weights) -> Float[Array, "neuron neuron"]:
        neurons = self.initial.shape[0]
        start = product(self.initial, self.initial.T)
        onto_start = product(weights.coordinates, jnp.concatenate([start, self.matrix[:neurons].T]))
        both = jnp.concatenate([onto_start, self.fields(weights)], axis=1)
        return product(both, weights.coordinates.T)


def labelled(problem: Problem, inputs: Array, key: Array, fresh: bool = False) -> tuple[Array, Array, Array]:
    """Inputs moved to the means of their clusters, clean labels, and labels with flips and noise.

    Noise that is drawn afresh at each step is left out, unless ``fresh``.
    """
    samples, labelling = inputs.shape[0], problem.labelling
    uniforms = [_uniform(each, samples) for each in jax.random.split(key, 4)]
    draws = {name: uniforms[place] for place, name in enumerate(_DRAWS) if name in labelling.draws}
    if fresh and labelling.noise:
        draws["noise"] = uniforms[2]
    classes = None
    if problem.clusters is not None:
        classes = problem.clusters.choose(uniforms[3])
        inputs = inputs.at[:, : problem.indices].add(problem.clusters.means[classes].astype(inputs.dtype))
    clean = problem.clean_labels(inputs[:, : problem.indices].T, classes, draws.get("sigmoid"))
    clean = clean if problem.loss.kind == "softmax" else clean.astype(inputs.dtype)
    return inputs, clean, problem.corrupted(clean, draws.get("flips"), draws.get("noise"))


def _uniform(key: Array, samples: int) -> Float[Array, "sample"]:
    return jax.random.uniform(key, (samples,), minval=jnp.finfo(float).tiny)


Form = Primal | Dual
FORMS: dict[str, type[Form]] = {form.name: form for form in (Primal, Dual)}
