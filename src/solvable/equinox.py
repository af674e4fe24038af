"""The diagnostics on an Equinox network, or on any JAX function that ends in an ``equinox.nn.Linear``.

A module is a PyTree, so no hooks are needed: the network without its last linear layer gives the features, and the
layer applied to them gives the outputs. That this is the network is checked on the first batch.

The network runs in the precision of the program that it comes from, and what it gives is added up in float64.
"""

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable import diagnostics
from solvable.diagnostics.batches import whole_arrays
from solvable.diagnostics.outputs import Field, chosen, find_outputs
from solvable.diagnostics.tracking import History
from solvable.diagnostics.training import NOT_GIVEN, measured_training
from solvable.diagnostics.users_precision import precision_of
from solvable.progress import progress_bar

__all__ = ["Tracker", "collapse", "diagnose", "statistics"]

Apply = Callable[[Any, Array], Array]
Where = Callable[[Any], eqx.nn.Linear]
# Whole arrays are cut into batches of this many points; the training regime is measured on this many.
_BATCH, _MEASURED = 1024, 256
# This many points tell whether a layer is the last.
_FEW = 8


def _vmapped(model: Any, inputs: Array) -> Array:
    return jax.vmap(model)(inputs)


def diagnose(
    model: Any,
    train_batches: Any,
    test_batches: Any,
    last_layer: Where | None = None,
    *,
    apply: Apply = _vmapped,
    initial: Any = None,
    output_field: Field | None = None,
    progress: bool | None = None,
) -> diagnostics.FeatureReport:
    """The report of a network: intensities, quality and utilisation of its features, and which regimes it is in.

    ``train_batches`` and ``test_batches`` are iterables of ``(inputs, targets)``, or one such pair of whole arrays (a
    tuple or list of two arrays is that pair). The network runs in inference mode. ``last_layer`` picks the linear layer
    as in :func:`equinox.tree_at`, for example ``lambda network: network.layers[-1]``; it is found if not given.
    ``apply(model, inputs)`` runs a batch and is ``jax.vmap(model)(inputs)`` if not given: write your own for networks
    with state. Where the network returns several arrays, the outputs are its ``logits``, or the only one that can be
    outputs; ``output_field`` chooses by name or place.

    With ``initial``, the network before training, the report also says whether training was lazy or rich
    (:func:`solvable.diagnostics.laziness`), on up to 256 inputs of the test set.

    >>> import equinox, jax, solvable.equinox
    >>> network = equinox.nn.MLP(4, 3, 16, depth=1, key=jax.random.key(0))
    >>> data = jax.random.normal(jax.random.key(1), (128, 4)), jax.random.randint(jax.random.key(2), (128,), 0, 3)
    >>> solvable.equinox.diagnose(network, data, data).regime
    'extended-feature'
    """
    train, test = (
        statistics(model, batches, last_layer, apply=apply, output_field=output_field, progress=progress, what=what)
        for batches, what in ((train_batches, "training set"), (test_batches, "test set"))
    )
    report = diagnostics.features(train, test)
    if initial is None:
        return replace(report, not_measured=NOT_GIVEN)
    network: Any = model
    if apply is not _vmapped:

        def network(own: Any, inputs: Array) -> Any:
            return apply(eqx.nn.inference_mode(own), inputs)

    inputs = _first(test_batches, "test set")[:_MEASURED]
    training, why = measured_training(network, initial, model, inputs, output_field, progress)
    return replace(report, training=training, not_measured=why)


def statistics(
    model: Any,
    batches: Any,
    last_layer: Where | None = None,
    *,
    apply: Apply = _vmapped,
    output_field: Field | None = None,
    progress: bool | None = None,
    what: str = "data",
) -> diagnostics.FeatureStatistics:
    """One pass over batches; sums of shards and processes can be added, ``a + b``."""
    gathered = diagnostics.FeatureStatistics()
    for features, outputs, targets in _stream(model, batches, last_layer, apply, output_field, progress, what):
        gathered.update(features, outputs, targets)
    if not gathered.batches:
        raise ValueError(f"the {what} is empty: no batch was given")
    return gathered


def collapse(
    model: Any,
    batches: Any,
    last_layer: Where | None = None,
    *,
    apply: Apply = _vmapped,
    second_pass: bool = True,
    output_field: Field | None = None,
    progress: bool | None = None,
) -> diagnostics.CollapseReport:
    """Neural collapse, NC1 to NC4, of a classifier (NC4 needs a ``second_pass`` over the batches)."""
    where = last_layer or _find(model, _first(batches), apply, output_field)
    layer = where(model)
    gathered = statistics(model, batches, where, apply=apply, output_field=output_field, progress=progress)
    again = _stream(model, batches, where, apply, output_field, progress, "data again") if second_pass else None
    return diagnostics.collapse(gathered, layer.weight, layer.bias, batches=again)


class Tracker(History):
    """The feature measures along training: call it once an epoch with the network of that epoch.

    ``history`` is a dataset of every measure over epochs, ``plot()`` its picture. With ``collapse=True`` NC1 to NC3 of
    the training set are kept too, from the same pass.
    """

    def __init__(
        self,
        train_batches: Any,
        test_batches: Any,
        last_layer: Where | None = None,
        *,
        apply: Apply = _vmapped,
        collapse: bool = False,
        output_field: Field | None = None,
        progress: bool | None = None,
    ) -> None:
        self._field = output_field
        self._train, self._test, self._apply = train_batches, test_batches, apply
        self._where, self._collapse, self._progress = last_layer, collapse, progress
        super().__init__()

    def __call__(self, model: Any, epoch: float | None = None, **numbers: float) -> diagnostics.FeatureReport:
        """Measure now; ``numbers`` such as losses are kept beside the measures."""
        if self._where is None:
            self._where = _find(model, _first(self._train), self._apply, self._field)
        options: dict[str, Any] = {"apply": self._apply, "output_field": self._field, "progress": self._progress}
        train, test = (
            statistics(model, batches, self._where, what=what, **options)
            for batches, what in ((self._train, "training set"), (self._test, "test set"))
        )
        report = diagnostics.features(train, test)
        layer = self._where(model)
        collapsed = diagnostics.collapse(train, layer.weight, layer.bias) if self._collapse else None
        self._record(epoch, report, collapsed, **numbers)
        return report


def _stream(
    model: Any,
    batches: Any,
    last_layer: Where | None,
    apply: Apply,
    output_field: Field | None,
    progress: bool | None,
    what: str,
) -> Iterator[tuple[Array, Array, Array]]:
    """Features, outputs and targets, batch by batch."""
    parts = None
    cut, total = _cut(batches, what)
    with progress_bar(f"measuring the {what}", total, False if total == 0 else progress) as advance:
        for number, batch in enumerate(cut, start=1):
            inputs, targets = _pair(batch, number)
            if parts is None:
                if last_layer is not None:
                    _check(model, last_layer, inputs, apply, output_field)
                parts = _split(model, last_layer or _find(model, inputs, apply, output_field))
                field = _outputs(model, inputs, apply, output_field)[1]
            with precision_of(parts, inputs, targets):
                features, outputs = _run(*parts, apply, jnp.asarray(inputs), field=field)
                targets = jnp.asarray(targets)
            yield features, outputs, targets
            advance()


def _pair(batch: Any, number: int) -> tuple[Any, Any]:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        many = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise ValueError(f"batch {number} must be a pair (inputs, targets), not {type(batch).__name__}{many}")
    return batch[0], batch[1]


def features_and_outputs(
    model: Any, last_layer: Where, *, precision: str = "highest"
) -> Callable[[Array], tuple[Array, Array]]:
    """A function of a batch: what goes into a layer that is known to be the last, and what comes out; compiled once.

    With ``precision="default"`` an accelerator may shorten the products below that layer (as in training); the layer
    itself is computed in full, so that outputs are what the layer makes of these features.
    """
    parts = _split(model, last_layer)

    def run(inputs: Array) -> tuple[Array, Array]:
        with precision_of(parts, inputs):
            return _run(*parts, _vmapped, inputs, precision)

    return run


def find_last_layer(model: Any, inputs: Any) -> Where:
    """A function that picks a network's last linear layer, found by trying them on a few inputs."""
    return _find(model, inputs, _vmapped)


def _cut(batches: Any, what: str = "data") -> tuple[Iterable[Any], int]:
    """Batches as they are; a pair of whole arrays in pieces. And how many there are, 0 if that is not known."""
    pair = whole_arrays(batches, what)
    if pair is not None:
        inputs, targets = pair
        starts = range(0, len(inputs), _BATCH)
        return ((inputs[i : i + _BATCH], targets[i : i + _BATCH]) for i in starts), len(starts)
    if not isinstance(batches, Iterable):
        raise ValueError(
            f"the {what} must be batches (inputs, targets), or one pair of whole arrays, not {type(batches).__name__}"
        )
    return batches, len(batches) if isinstance(batches, Sized) else 0


def _first(batches: Any, what: str = "data") -> Any:
    cut, _ = _cut(batches, what)
    if iter(batches) is batches:
        raise ValueError("batches are read more than once here: give a list or a loader, not an iterator that runs out")
    for batch in cut:
        return _pair(batch, 1)[0]
    raise ValueError("no batch was given to find the last layer with")


def _outputs(model: Any, inputs: Any, apply: Apply, field: Field | None) -> tuple[Array, Field | None]:
    """The network's outputs on a few points, and the field of what it returns that holds them."""
    if not callable(model) and apply is _vmapped:
        raise ValueError(f"model must be an Equinox module, not {type(model).__name__}")
    with precision_of(model, inputs), jax.default_matmul_precision("highest"):
        few = jnp.asarray(inputs)[:_FEW]
        returned = apply(eqx.nn.inference_mode(model), few)
        return find_outputs(returned, field, samples=len(few))


def _split(model: Any, where: Where) -> tuple[Any, eqx.nn.Linear]:
    """The network without its last layer, and the layer."""
    inference = eqx.nn.inference_mode(model)
    return eqx.tree_at(where, inference, eqx.nn.Identity()), where(inference)


@eqx.filter_jit
def _run(
    body: Any,
    layer: eqx.nn.Linear,
    apply: Apply,
    inputs: Array,
    precision: str = "highest",
    field: Field | None = None,
) -> tuple[Array, Array]:
    # Accelerators round factors of float32 products to ten bits unless told otherwise: too coarse to measure with.
    with jax.default_matmul_precision(precision):
        features = chosen(apply(body, inputs), field)
    with jax.default_matmul_precision("highest"):
        return features, jax.vmap(layer)(features)


def _linear_layers(model: Any) -> list[Where]:
    """A picker for each linear layer, the last first."""

    def layers(tree: Any) -> list[Any]:
        leaves = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, eqx.nn.Linear))
        return [leaf for leaf in leaves if isinstance(leaf, eqx.nn.Linear)]

    count = len(layers(model))
    return [lambda tree, i=i: layers(tree)[i] for i in reversed(range(count))]  # type: ignore[misc]


def _find(model: Any, inputs: Any, apply: Apply, field: Field | None = None) -> Where:
    outputs = _outputs(model, inputs, apply, field)
    for where in _linear_layers(model):
        if _is_last(model, where, inputs, apply, *outputs):
            return where
    raise ValueError(
        f"{type(model).__name__} does not end in an equinox.nn.Linear: end it there (a softmax belongs to the loss), "
        "or give features, outputs and targets to solvable.diagnostics.FeatureStatistics yourself"
    )


def _check(model: Any, where: Where, inputs: Any, apply: Apply, field: Field | None) -> None:
    if not callable(where):
        raise ValueError(
            "last_layer must be a function that picks a layer, such as lambda network: network.layers[-1], not "
            f"{where!r}"
        )
    layer = where(model)
    if not isinstance(layer, eqx.nn.Linear):
        raise ValueError(f"last_layer must pick an equinox.nn.Linear, not {type(layer).__name__}")
    outputs = _outputs(model, inputs, apply, field)
    if not _is_last(model, where, inputs, apply, *outputs):
        raise ValueError(
            f"the layer picked by last_layer ({layer.in_features} to {layer.out_features}) is not the last step of "
            f"{type(model).__name__}: its outputs are not the network's {outputs[0].shape[-1]}"
        )


def _is_last(model: Any, where: Where, inputs: Any, apply: Apply, outputs: Array, field: Field | None) -> bool:
    """Whether the network is its own body, followed by this layer: seen on a few points."""
    try:
        with precision_of(model, inputs):
            few = jnp.asarray(inputs)[:_FEW]
            _, found = _run(*_split(model, where), apply, few, field=field)
    except (TypeError, ValueError):  # the rest of the network cannot take the features: the layer is inside
        return False
    whole = np.asarray(outputs)
    if whole.shape != found.shape:
        return False
    # What is not finite is named where the batch is added up; it says nothing about the layer.
    finite = np.isfinite(whole)
    size = np.abs(whole[finite]).max(initial=0.0)
    return np.allclose(whole[finite], np.asarray(found)[finite], rtol=1e-4, atol=1e-5 * size)
