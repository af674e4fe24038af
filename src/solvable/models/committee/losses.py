"""Losses of single samples, and where their labels come from.

A loss ``l(f, y)`` acts on the weights through the force ``s = -dl/df`` only, and is reported as it is written here. The
squared error is the exception: it is reported without the factor 1/2 that makes its force ``y - f``.

==========  ======================================  ====================================  =======================
loss        reported                                force s                               labels
==========  ======================================  ====================================  =======================
squared     (y - f)^2                               y - f                                 any number
huber       r^2/2, or d (|r| - d/2) beyond d        r clipped at +-d,  r = y - f          any number
logistic    log(1 + exp(-y f))                      y sigmoid(-y f)                       +1 or -1
hinge       max(0, 1 - y f)                         y where y f < 1, else 0               +1 or -1
softmax     -log softmax_y(f)                       1[k = y] - softmax_k(f)               number of a class
==========  ======================================  ====================================  =======================
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LOSSES = ("squared", "huber", "logistic", "hinge", "softmax")
LABELS = ("teacher", "sign", "sigmoid", "cluster", "argmax")
# The labels that each loss can be computed with.
_FITTING = {
    "squared": ("teacher", "sign", "sigmoid", "cluster"),
    "huber": ("teacher", "sign", "sigmoid", "cluster"),
    "logistic": ("sign", "sigmoid", "cluster"),
    "hinge": ("sign", "sigmoid", "cluster"),
    "softmax": ("cluster", "argmax"),
}


@dataclasses.dataclass(frozen=True)
class Loss:
    """One of :data:`LOSSES`; ``width`` is the error beyond which Huber's loss is linear."""

    kind: str = "squared"
    width: float = 1.0

    def values(self, outputs: Float[Array, "*outputs_and_samples"], labels: Array) -> Float[Array, "*samples"]:
        """The loss of each sample, as it is reported."""
        if self.kind == "squared":
            return (labels - outputs) ** 2
        if self.kind == "huber":
            size = jnp.abs(labels - outputs)
            return jnp.where(size < self.width, size**2 / 2, self.width * (size - self.width / 2))
        if self.kind == "logistic":
            return jnp.logaddexp(0.0, -labels * outputs)
        if self.kind == "hinge":
            return jnp.maximum(0.0, 1 - labels * outputs)
        chosen = jax.nn.one_hot(labels, outputs.shape[0], dtype=outputs.dtype, axis=0)
        return jax.nn.logsumexp(outputs, axis=0) - jnp.sum(chosen * outputs, axis=0)

    def force(
        self, outputs: Float[Array, "*outputs_and_samples"], labels: Array
    ) -> Float[Array, "*outputs_and_samples"]:
        """``s = -dl/df``. At the margin of the hinge loss itself, ``y f = 1``, it is zero."""
        if self.kind == "squared":
            return labels - outputs
        if self.kind == "huber":
            return jnp.clip(labels - outputs, -self.width, self.width)
        if self.kind == "logistic":
            return labels * jax.nn.sigmoid(-labels * outputs)
        if self.kind == "hinge":
            return jnp.where(labels * outputs < 1, labels, 0.0)
        chosen = jax.nn.one_hot(labels, outputs.shape[0], dtype=outputs.dtype, axis=0)
        return chosen - jax.nn.softmax(outputs, axis=0)

    @property
    def largest_curvature(self) -> float | None:
        """Largest second derivative by the outputs; None for the hinge loss, whose slope jumps."""
        return {"squared": 1.0, "huber": 1.0, "logistic": 0.25, "softmax": 0.5}.get(self.kind)

    def mistakes(self, outputs: Float[Array, "*outputs_and_samples"], labels: Array) -> Float[Array, "*samples"]:
        """1 where the sample is misclassified, 0 where not; where outputs are tied, the mean of breaking the tie."""
        if self.kind != "softmax":
            return jnp.where(outputs == 0, 0.5, (labels * outputs < 0).astype(outputs.dtype))
        largest = outputs == jnp.max(outputs, axis=0)
        chosen = jax.nn.one_hot(labels, outputs.shape[0], dtype=outputs.dtype, axis=0)
        return 1 - jnp.sum(chosen * largest, axis=0) / jnp.sum(largest, axis=0)


SQUARED = Loss()


@dataclasses.dataclass(frozen=True)
class Labelling:
    """How samples get their labels: one of :data:`LABELS`, and what corrupts them."""

    kind: str = "teacher"
    noise: float = 0.0
    flips: float = 0.0
    fresh: bool = False

    @property
    def is_class(self) -> bool:
        """Whether labels are classes, so that there is a misclassification rate."""
        return self.kind != "teacher"

    @property
    def draws(self) -> tuple[str, ...]:
        """The random numbers that a sample draws once for its label."""
        names = {"sigmoid": self.kind == "sigmoid", "flips": self.flips > 0, "noise": self.noise > 0 and not self.fresh}
        return tuple(name for name, used in names.items() if used)

    def clean(self, targets: Array, classes: Any, uniform: Any, loss: Loss) -> Array:
        """Labels without corruption: of the teacher's outputs, the clusters, and a uniform number for ``sigmoid``."""
        if self.kind == "sign":
            return jnp.where(targets >= 0, 1.0, -1.0)
        if self.kind == "sigmoid":
            return jnp.where(uniform < jax.nn.sigmoid(targets), 1.0, -1.0)
        if self.kind == "cluster":
            return classes if loss.kind == "softmax" else jnp.where(classes == 0, 1.0, -1.0)
        return jnp.argmax(targets, axis=0) if self.kind == "argmax" else targets


class Clusters(eqx.Module):
    """A Gaussian mixture: index fields are normal around the ``means`` of the sample's cluster."""

    means: Float[Array, "cluster index"]
    probabilities: Float[Array, "cluster"]

    def choose(self, uniform: Float[Array, "sample"]) -> Array:
        """The cluster of each sample, counted from 0, from a uniform number."""
        edges = jnp.cumsum(self.probabilities)[:-1]
        return jnp.searchsorted(edges, uniform, side="right")


def check_labels(loss: Loss, labelling: Labelling, clusters: Any, outputs: int | None) -> None:
    """Raise a ValueError unless the labels fit the loss; ``outputs`` is None for a network with one output."""
    fitting = _FITTING[loss.kind]
    if labelling.kind not in fitting:
        values = {"teacher": "any number", "argmax": "the number of a class"}.get(labelling.kind, "+1 or -1")
        wanted = {"softmax": "classes", "squared": "numbers", "huber": "numbers"}.get(loss.kind, "labels +1 and -1")
        raise ValueError(
            f"the loss {loss.kind!r} needs {wanted}, but labels = {labelling.kind!r} gives {values}: use labels = "
            f"{' or '.join(map(repr, fitting))}"
        )
    if labelling.kind == "cluster" and clusters is None:
        raise ValueError("labels = 'cluster' needs cluster_means, one row per cluster: give them")
    if labelling.noise and labelling.kind != "teacher":
        raise ValueError(
            f"label_noise is added to numbers, but labels = {labelling.kind!r} are classes: use label_flips"
        )
    if labelling.flips and (labelling.kind == "teacher" or loss.kind == "softmax"):
        raise ValueError("label_flips changes the sign of labels that are +1 or -1: use labels = 'sign' or 'sigmoid'")
    if (outputs is not None) != (loss.kind == "softmax"):
        have = (
            "one output: give readout a row for each class" if outputs is None else f"{outputs} outputs: use 'softmax'"
        )
        raise ValueError(f"the loss {loss.kind!r} does not fit a network with {have}")
    count = None if clusters is None else len(clusters)
    if labelling.kind == "cluster" and count != (outputs or 2):
        raise ValueError(
            f"cluster_means has {count} rows, but the labels of a {loss.kind} loss are {outputs or 2} classes"
        )
