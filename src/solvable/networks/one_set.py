"""What the feature record needs of one set of samples: statistics of its features, its mean loss and accuracy, NC4.

On an accelerator all of it is dispatched at once and read once: the forward pass piece by piece, then one program for
the sums, so that the device never waits for the host, and the host works on one set while the device is at the next.
In host memory the sums are those of NumPy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable import diagnostics
from solvable.diagnostics.batches import Batch, library_of
from solvable.diagnostics.moments import Moments, compiled_sums
from solvable.diagnostics.precision import examined_rows
from solvable.networks.losses import SampleLoss, correct, is_classification
from solvable.networks.sources import equal_batch_size
from solvable.numerics.determinism import jit

# Number of inputs that are evaluated at once.
BATCH_SIZE = 1000

Run = Callable[[Any], tuple[Array, Array]]


class Measured(NamedTuple):
    """Statistics of a set, its mean loss and accuracy, and its NC4, or else its features in ``batches`` to find it."""

    statistics: diagnostics.FeatureStatistics
    numbers: dict[str, float]
    nearest_class: float | None = None
    batches: list[Array] | None = None


class OneSet:
    """The measurement of one set, begun when it is made; :meth:`finish` waits for the result.

    Parameters
    ----------
    run
        A function of a batch of inputs that returns features and outputs.
    layer
        The last linear layer.
    inputs, targets
        The samples.
    loss
        The loss per sample.
    """

    def __init__(self, run: Run, layer: Any, inputs: Any, targets: Any, loss: SampleLoss) -> None:
        step = equal_batch_size(len(inputs), BATCH_SIZE)
        self._pieces = [run(inputs[first : first + step]) for first in range(0, len(inputs), step)]
        self._targets, self._loss = jnp.asarray(targets), loss
        features, outputs = self._pieces[0]
        self._labelled = is_classification(outputs.shape[1], self._targets)
        self._found = None
        if library_of(features) == "jax" and self._countable(outputs.shape[1]):
            rows = _rows(layer, features.shape[1], outputs.shape[1])
            self._found = _summarise(self._pieces, self._targets, rows, loss, self._labelled)

    def _countable(self, outputs: int) -> bool:
        """Whether targets are labels or as many real numbers as outputs. Others are left to the checks on the host."""
        real = jnp.issubdtype(self._targets.dtype, jnp.floating)
        return self._labelled or (bool(real) and self._targets[0].size == outputs)

    def finish(self) -> Measured:
        if self._found is None:
            return self._on_host()
        found = jax.device_get(self._found)
        classes = max(2, self._pieces[0][1].shape[1]) if self._labelled else None
        low, high = found["range"]
        if not found["finite"] or (classes and not 0 <= low <= high < classes):
            # The same sums once more, by the functions that name what is wrong.
            return self._on_host()
        moments = Moments("numpy", *found["sums"]).on_host()
        return Measured(
            diagnostics.FeatureStatistics.of_moments(moments, classes, *found["first_rows"]),
            {name: float(found[name]) for name in ("loss", "accuracy") if name in found},
            int(found["differ"]) / len(self._targets) if "differ" in found else None,
            [features for features, _ in self._pieces],
        )

    def _on_host(self) -> Measured:
        features, outputs = (jnp.concatenate(parts) for parts in zip(*self._pieces, strict=True))
        numbers = {name: float(value) for name, value in _numbers(outputs, self._targets, self._loss).items()}
        labels = _labels(self._targets) if self._labelled else self._targets
        statistics = diagnostics.FeatureStatistics().update(features, outputs, labels)
        return Measured(statistics, numbers, None, [features for features, _ in self._pieces])


def _rows(layer: Any, features: int, outputs: int) -> tuple[Array, Array] | None:
    """Rows of the classifier and their biases, two for one output; None if they do not fit."""
    weights = jnp.asarray(layer.weight)
    bias = jnp.zeros(outputs, weights.dtype) if layer.bias is None else jnp.asarray(layer.bias)
    if weights.shape != (outputs, features) or bias.shape != (outputs,):
        return None
    if outputs == 1:
        weights, bias = jnp.concatenate([-weights, weights]) / 2, jnp.concatenate([-bias, bias]) / 2
    return weights, bias


def _labels(targets: Array) -> Array:
    return jnp.argmax(targets, axis=1) if targets.ndim == 2 else targets


def _numbers(outputs: Array, targets: Array, loss: SampleLoss) -> dict[str, Array]:
    found = {"loss": jnp.mean(loss(outputs, targets), dtype=jnp.float64)}
    if is_classification(outputs.shape[1], targets):
        found["accuracy"] = jnp.mean(correct(outputs, targets), dtype=jnp.float64)
    return found


@jit
def _summarise(
    pieces: list[tuple[Array, Array]],
    targets: Array,
    rows: tuple[Array, Array] | None,
    loss: SampleLoss,
    labelled: bool,
) -> dict[str, Any]:
    """All that the host needs, from features and outputs in pieces: no array of the size of the set."""
    features, outputs = (jnp.concatenate(parts) for parts in zip(*pieces, strict=True))
    found: dict[str, Any] = dict(_numbers(outputs, targets, loss))
    labels = _labels(targets) if labelled else targets.reshape(len(targets), -1)
    classes = max(2, outputs.shape[1]) if labelled else labels.shape[1]
    sums, found["finite"] = compiled_sums(Batch("jax", features, outputs, labels, labelled), classes)
    found["sums"] = sums
    found["range"] = (jnp.min(labels), jnp.max(labels))
    found["first_rows"] = tuple(array[: examined_rows(array)] for array in (features, outputs, labels))
    if labelled and rows is not None:
        found["differ"] = _differ(features, sums, rows, outputs.shape[1])
    return found


def _differ(features: Array, sums: tuple[Array, ...], rows: tuple[Array, Array], outputs: int) -> Array:
    """Number of samples whose nearest class mean is not the class that the classifier chooses (eq. D.9)."""
    shift, _, _, cross, side = sums
    offset = cross[:, -1] / side[-1, -1]
    offsets = (cross[:, outputs:-1] / side[outputs:-1, -1]).T - offset
    x = features.astype(jnp.float64)
    nearest = jnp.argmax((x - (shift + offset)) @ offsets.T - jnp.sum(offsets**2, axis=1) / 2, axis=1)
    weights, bias = (array.astype(jnp.float64) for array in rows)
    return jnp.sum(nearest != jnp.argmax(x @ weights.T + bias, axis=1))
