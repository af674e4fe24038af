"""The diagnostics for an Equinox network, or for any JAX function that ends in an ``equinox.nn.Linear``.

A module is a PyTree, so no hooks are needed: the network without its last linear layer gives the features, and the
layer applied to them gives the outputs. That this is the network is checked on the first batch.

The network runs in the precision of the program that it comes from, and its outputs are summed in float64.
"""

from collections.abc import Callable, Iterator, Sized
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from solvable import diagnostics
from solvable.diagnostics.batches import as_batches, several
from solvable.diagnostics.curvature import Loss
from solvable.diagnostics.last_layer import (
    Apply,
    Where,
    check_layer,
    find_layer,
    outputs_of,
    run_parts,
    split_off,
    vmapped,
)
from solvable.diagnostics.laziness import INITIAL_NOT_GIVEN, training_regime
from solvable.diagnostics.outputs import Field
from solvable.diagnostics.precision import precision_of
from solvable.diagnostics.tracking import History
from solvable.progress import progress_bar

__all__ = ["Tracker", "collapse", "diagnose", "stability", "statistics"]

# Inputs on which the training regime is measured.
_REGIME_INPUTS = 256


def diagnose(
    model: Any,
    train_batches: Any,
    test_batches: Any,
    last_layer: Where | None = None,
    *,
    apply: Apply = vmapped,
    initial: Any = None,
    output_field: Field | None = None,
    progress: bool | None = None,
) -> diagnostics.FeatureReport:
    """The report of a network: intensity, quality and utilisation of its features, and the regimes that it is in.

    The network runs in inference mode.

    Parameters
    ----------
    model
        The network.
    train_batches, test_batches
        Iterables of ``(inputs, targets)``, or one such pair of whole arrays; a tuple or list of two arrays is a pair.
    last_layer
        A function that picks the last linear layer, as in :func:`equinox.tree_at`, for example
        ``lambda network: network.layers[-1]``. It is found if not given.
    apply
        ``apply(model, inputs)`` runs a batch; ``jax.vmap(model)(inputs)`` by default. Networks with state need their
        own.
    initial
        The network before training. With it, the report also states whether training was lazy or rich
        (:func:`solvable.diagnostics.laziness`), on up to 256 inputs of the test set.
    output_field
        Which field holds the outputs of a network that returns several arrays, by name or position. By default
        ``logits``, or the only array that can be outputs.
    progress
        Whether to show a progress bar; by default on a terminal.

    >>> import equinox, jax, solvable.equinox
    >>> network = equinox.nn.MLP(4, 3, 16, depth=1, key=jax.random.key(0))
    >>> data = jax.random.normal(jax.random.key(1), (128, 4)), jax.random.randint(jax.random.key(2), (128,), 0, 3)
    >>> solvable.equinox.diagnose(network, data, data).regime
    'extended-feature'
    """
    train, test = (
        statistics(model, batches, last_layer, apply=apply, output_field=output_field, progress=progress, name=name)
        for batches, name in ((train_batches, "training set"), (test_batches, "test set"))
    )
    report = diagnostics.features(train, test)
    if initial is None:
        return replace(report, not_measured=INITIAL_NOT_GIVEN)
    network: Any = model
    if apply is not vmapped:

        def network(own: Any, inputs: Array) -> Any:
            return apply(eqx.nn.inference_mode(own), inputs)

    inputs = _first_inputs(test_batches, "test set")[:_REGIME_INPUTS]
    training, reason = training_regime(network, initial, model, inputs, output_field, progress)
    return replace(report, training=training, not_measured=reason)


def statistics(
    model: Any,
    batches: Any,
    last_layer: Where | None = None,
    *,
    apply: Apply = vmapped,
    output_field: Field | None = None,
    progress: bool | None = None,
    name: str = "data",
) -> diagnostics.FeatureStatistics:
    """Feature statistics from one pass over batches; those of shards and processes can be added, ``a + b``.

    Parameters
    ----------
    batches
        An iterable of ``(inputs, targets)``, or one such pair of whole arrays.
    name
        What the data are called in error messages.
    model, last_layer, apply, output_field, progress
        As in :func:`diagnose`.
    """
    collected = diagnostics.FeatureStatistics()
    for features, outputs, targets in _stream(model, batches, last_layer, apply, output_field, progress, name):
        collected.update(features, outputs, targets)
    if not collected.batches:
        raise ValueError(f"the {name} is empty: no batch was given")
    return collected


def collapse(
    model: Any,
    batches: Any,
    last_layer: Where | None = None,
    *,
    apply: Apply = vmapped,
    second_pass: bool = True,
    output_field: Field | None = None,
    progress: bool | None = None,
) -> diagnostics.CollapseReport:
    """Neural collapse, NC1 to NC4, of a classifier.

    Parameters
    ----------
    batches
        An iterable of ``(inputs, labels)``, or one such pair of whole arrays.
    second_pass
        Whether to read the batches a second time, which NC4 needs.
    model, last_layer, apply, output_field, progress
        As in :func:`diagnose`.
    """
    where = last_layer or find_layer(model, _first_inputs(batches), apply, output_field)
    layer = where(model)
    collected = statistics(model, batches, where, apply=apply, output_field=output_field, progress=progress)
    again = _stream(model, batches, where, apply, output_field, progress, "data again") if second_pass else None
    return diagnostics.collapse(collected, layer.weight, layer.bias, batches=again)


def stability(
    model: Any,
    batches: Any,
    optimizer: Any = None,
    *,
    loss: Loss | None = None,
    apply: Apply = vmapped,
    output_field: Field | None = None,
    progress: bool | None = None,
    **options: Any,
) -> diagnostics.StabilityReport:
    """How far training is from the edge of stability: :func:`solvable.diagnostics.stability` for a module.

    The network runs in inference mode.

    Parameters
    ----------
    batches
        Batches ``(inputs, targets)`` of the training set, or one such pair of whole arrays.
    optimizer
        A :class:`solvable.GradientDescent`, the state of Optax's Adam (with ``learning_rate=``), or an
        :class:`solvable.diagnostics.UpdateRule`.
    loss
        ``"mse"``, ``"half-mse"``, ``"cross-entropy"`` (the default for class labels), or a function of outputs and
        targets.
    **options
        Further options of :func:`solvable.diagnostics.stability`, such as ``learning_rate`` or ``density``.
    model, apply, output_field, progress
        As in :func:`diagnose`.

    >>> import equinox, jax, solvable, solvable.equinox
    >>> network = equinox.nn.Linear(4, 1, key=jax.random.key(0))
    >>> data = jax.numpy.eye(4), jax.numpy.ones((4, 1))
    >>> solvable.equinox.stability(network, data, solvable.GradientDescent(0.4), loss="mse").regime
    'stable'
    """

    if not callable(model) and apply is vmapped:
        raise ValueError(f"model must be an Equinox module, not {type(model).__name__}")

    def run(own: Any, inputs: Array) -> Any:
        return apply(eqx.nn.inference_mode(own), inputs)

    given: dict[str, Any] = {"loss": loss, "output_field": output_field, "progress": progress}
    return diagnostics.stability(run, batches, optimizer=optimizer, **{"parameters": model, **given, **options})


class Tracker(History):
    """The feature metrics during training: call it once per epoch with the network of that epoch.

    ``history`` is a dataset of every metric over epochs, and ``plot()`` draws it.

    Parameters
    ----------
    collapse
        Whether to measure NC1 to NC3 of the training set as well, in the same pass.
    stability
        Whether to measure the edge of stability as well: True, options of :func:`stability` such as
        ``{"learning_rate": 0.1}``, or a function that returns such options, called at each
        measurement. Adds ``sharpness``, ``edge_fraction`` and the like to the history.
    log
        Where to write the numbers of each measurement as well: a path that ends in ``.csv``, a folder for TensorBoard
        event files, or a Weights & Biases run.
    train_batches, test_batches, last_layer, apply, output_field, progress
        As in :func:`diagnose`.
    """

    def __init__(
        self,
        train_batches: Any,
        test_batches: Any,
        last_layer: Where | None = None,
        *,
        apply: Apply = vmapped,
        collapse: bool = False,
        stability: Any = None,
        log: Any = None,
        output_field: Field | None = None,
        progress: bool | None = None,
    ) -> None:
        super().__init__(stability, log)
        self._batches = {"training set": train_batches, "test set": test_batches}
        self._where, self._collapse = last_layer, collapse
        self._options: dict[str, Any] = {"apply": apply, "output_field": output_field, "progress": progress}

    def __call__(self, model: Any, epoch: float | None = None, **numbers: float) -> diagnostics.FeatureReport:
        """Measure now.

        Parameters
        ----------
        model
            The network.
        epoch
            The epoch; by default measurements are counted from 0.
        **numbers
            Further numbers to store with the metrics, such as losses.
        """
        if self._where is None:
            inputs = _first_inputs(self._batches["training set"])
            self._where = find_layer(model, inputs, self._options["apply"], self._options["output_field"])
        train, test = (
            statistics(model, batches, self._where, name=name, **self._options)
            for name, batches in self._batches.items()
        )
        layer = self._where(model)
        curvature = self._measure_stability(partial(stability, model, self._batches["training set"], **self._options))
        last = (layer.weight, layer.bias) if self._collapse else None
        return self._record(epoch, train, test, last, numbers, curvature)


def _stream(
    model: Any,
    batches: Any,
    last_layer: Where | None,
    apply: Apply,
    output_field: Field | None,
    progress: bool | None,
    name: str,
) -> Iterator[tuple[Array, Array, Array]]:
    """Features, outputs and targets, batch by batch."""
    parts = None
    batches = as_batches(batches, name)
    total = len(batches) if isinstance(batches, Sized) else 0
    with progress_bar(f"measuring the {name}", total, False if total == 0 else progress) as advance:
        for number, batch in enumerate(batches, start=1):
            inputs, targets = _pair(batch, number)
            if parts is None:
                if last_layer is not None:
                    check_layer(model, last_layer, inputs, apply, output_field)
                parts = split_off(model, last_layer or find_layer(model, inputs, apply, output_field))
                field = outputs_of(model, inputs, apply, output_field)[1]
            with precision_of(parts, inputs, targets):
                features, outputs = run_parts(*parts, apply, jnp.asarray(inputs), field=field)
                targets = jnp.asarray(targets)
            yield features, outputs, targets
            advance()


def _pair(batch: Any, number: int) -> tuple[Any, Any]:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        length = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise ValueError(
            f"batch {number} must be a pair (inputs, targets) with one array of inputs, not "
            f"{type(batch).__name__}{length}"
        )
    if several(batch[0]):
        raise ValueError(
            f"batch {number} has {len(batch[0])} inputs, and this takes one array of inputs: give a module of one "
            "array, or collect features, outputs and targets in solvable.diagnostics.FeatureStatistics"
        )
    return batch[0], batch[1]


def features_and_outputs(
    model: Any, last_layer: Where, *, precision: str = "highest"
) -> Callable[[Array], tuple[Array, Array]]:
    """A function of a batch that returns the inputs and outputs of a layer that is known to be the last; compiled once.

    Parameters
    ----------
    model
        The network.
    last_layer
        A function that picks its last linear layer.
    precision
        Of matrix products. With ``"default"`` an accelerator may shorten the products below the last layer, as in
        training; the layer itself is computed in full precision, so that the outputs are those of these features.
    """
    parts = split_off(model, last_layer)

    def run(inputs: Array) -> tuple[Array, Array]:
        with precision_of(parts, inputs):
            return run_parts(*parts, vmapped, inputs, precision)

    return run


def find_last_layer(model: Any, inputs: Any) -> Where:
    """A function that picks the last linear layer of a network, found by trying each of them on a few inputs.

    Parameters
    ----------
    model
        The network.
    inputs
        A batch of inputs, of which a few are used.
    """
    return find_layer(model, inputs, vmapped)


def _first_inputs(batches: Any, name: str = "data") -> Any:
    again = as_batches(batches, name)
    if iter(batches) is batches:
        raise ValueError("batches are read more than once here: give a list or a loader, not an iterator that runs out")
    for batch in again:
        return _pair(batch, 1)[0]
    raise ValueError("no batch was given to find the last layer with")
