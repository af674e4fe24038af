"""The diagnostics for a PyTorch network, which is left unchanged.

The last linear layer is found by observing one forward pass; its inputs are the features and its outputs those of the
network.

Data are an iterable of batches, such as a ``DataLoader`` or a list, or one pair ``(inputs, targets)`` of whole arrays:
a tuple or list of two arrays is that pair.
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError("solvable.torch needs PyTorch: pip install 'solvable[torch]'") from error

from solvable import diagnostics
from solvable.diagnostics._torch_batches import batches_of, in_precision_of, random_state_restored, unpack
from solvable.diagnostics._torch_callbacks import hugging_face_callback, lightning_callback
from solvable.diagnostics._torch_layers import ForwardPass, named_layer, weights
from solvable.diagnostics._torch_stream import FeatureLayer, Layer, first_inputs, restored, sample_count, stream
from solvable.diagnostics._torch_tangent import unwrapped
from solvable.diagnostics._torch_transfer import transfer
from solvable.diagnostics.curvature import Loss
from solvable.diagnostics.laziness import INITIAL_NOT_GIVEN, training_regime
from solvable.diagnostics.outputs import Field
from solvable.diagnostics.tracking import History

__all__ = [
    "Tracker",
    "collapse",
    "diagnose",
    "hugging_face_callback",
    "lightning_callback",
    "stability",
    "statistics",
    "transfer",
]


def diagnose(
    model: torch.nn.Module,
    train_loader: Iterable[Any],
    test_loader: Iterable[Any],
    last_layer: Layer = None,
    device: Any = None,
    *,
    initial: Any = None,
    output_field: Field | None = None,
    feature_layer: FeatureLayer = None,
    progress: bool | None = None,
) -> diagnostics.FeatureReport:
    """The report of a network: intensity, quality and utilisation of its features, and the regimes that it is in.

    The network runs in evaluation mode without gradients. Its mode, hooks, gradients and buffers, and the random state
    of the process, are restored afterwards.

    Parameters
    ----------
    model
        The network.
    train_loader, test_loader
        Batches ``(inputs, targets)``, or mappings with ``labels`` as in Hugging Face; or one pair of whole arrays.
    last_layer
        The linear layer whose inputs are the features: a module, or its name in ``model.named_modules()``. It is found
        if not given.
    device
        Where to run; the model is moved there for the measurement, and back. By default where the model is.
    initial
        The network before training: a copy of its ``state_dict()``, or a module. With it, the report also states
        whether training was lazy or rich (:func:`solvable.diagnostics.laziness`), on up to 256 inputs of the test set.
    output_field
        Which field holds the outputs of a network that returns several arrays, by name or position. By default
        ``logits``, or the only array that can be outputs.
    feature_layer
        For networks without a linear last layer: any layer whose outputs are the features, a module or its name; or a
        pair such as ``("head", "inputs")`` for a layer whose inputs are. Features of an input are flattened.
    progress
        Whether to show a progress bar; by default on a terminal.

    >>> import torch, solvable.torch
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    >>> batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(4)]
    >>> solvable.torch.diagnose(network, batches, batches).regime
    'extended-feature'
    """
    chosen: dict[str, Any] = {"output_field": output_field, "feature_layer": feature_layer, "progress": progress}
    train, test = (
        statistics(model, loader, last_layer, device, name=name, **chosen)
        for loader, name in ((train_loader, "training set"), (test_loader, "test set"))
    )
    report = diagnostics.features(train, test)
    if initial is None:
        return replace(report, not_measured=INITIAL_NOT_GIVEN)
    with restored(model, device) as place, random_state_restored(test_loader):
        inputs = first_inputs(batches_of(test_loader, model, "test set"), place)
        training, reason = training_regime(model, initial, model, inputs, output_field, progress)
    return replace(report, training=training, not_measured=reason)


def statistics(
    model: torch.nn.Module,
    loader: Iterable[Any],
    last_layer: Layer = None,
    device: Any = None,
    *,
    output_field: Field | None = None,
    feature_layer: FeatureLayer = None,
    progress: bool | None = None,
    name: str = "data",
) -> diagnostics.FeatureStatistics:
    """Feature statistics from one pass over a loader; those of shards and processes can be added, ``a + b``.

    Parameters
    ----------
    loader
        Batches, or one pair of whole arrays.
    name
        What the data are called in error messages.
    model, last_layer, device, output_field, feature_layer, progress
        As in :func:`diagnose`.
    """
    collected = diagnostics.FeatureStatistics()
    with closing(stream(model, loader, last_layer, device, output_field, progress, name, feature_layer)) as batches:
        for features, outputs, targets in batches:
            collected.update(features, outputs, targets)
    if not collected.batches:
        raise ValueError(f"the {name} is empty: the loader gave no batch")
    return collected


def collapse(
    model: torch.nn.Module,
    loader: Iterable[Any],
    last_layer: Layer = None,
    device: Any = None,
    *,
    second_pass: bool = True,
    output_field: Field | None = None,
    progress: bool | None = None,
) -> diagnostics.CollapseReport:
    """Neural collapse, NC1 to NC4, of a classifier.

    Parameters
    ----------
    loader
        Batches with class labels, or one pair of whole arrays.
    second_pass
        Whether to read the loader a second time, which NC4 needs.
    model, last_layer, device, output_field, progress
        As in :func:`diagnose`.
    """
    layer = find_last_layer(model, loader, last_layer, device, output_field=output_field)
    last = weights(layer)
    collected = statistics(model, loader, layer, device, output_field=output_field, progress=progress)
    if not second_pass:
        return diagnostics.collapse(collected, *last)
    with closing(stream(model, loader, layer, device, output_field, progress, "data again")) as batches:
        return diagnostics.collapse(collected, *last, batches=batches)


def find_last_layer(
    model: torch.nn.Module,
    loader: Iterable[Any],
    last_layer: Layer = None,
    device: Any = None,
    *,
    output_field: Field | None = None,
) -> torch.nn.Module:
    """The last linear layer of a model: the given one, or the one whose outputs on the first batch are the model's.

    Parameters
    ----------
    model
        The network.
    loader
        Batches, of which the first one is used.
    last_layer
        The layer or its name, if it is known; it is then returned.
    device
        Where to run; by default where the model is.
    output_field
        Field of the model's return value that holds the outputs, if it returns several things.
    """
    if isinstance(model, torch.nn.Module):
        model = unwrapped(model)
    if last_layer is not None:
        return named_layer(model, last_layer)
    with restored(model, device) as chosen, random_state_restored(loader):
        for batch in batches_of(loader, model, "data"):
            arguments, keywords, targets = unpack(batch, chosen)
            forward = partial(model, *in_precision_of(model, arguments), **in_precision_of(model, keywords))
            return ForwardPass(model, forward, ()).last_layer(sample_count(targets), output_field)
    raise ValueError("the loader gave no batch to find the last layer with")


def stability(
    model: torch.nn.Module,
    loader: Iterable[Any],
    optimizer: torch.optim.Optimizer | None = None,
    *,
    loss: Loss | None = None,
    device: Any = None,
    output_field: Field | None = None,
    progress: bool | None = None,
    **options: Any,
) -> diagnostics.StabilityReport:
    """How far training is from the edge of stability: :func:`solvable.diagnostics.stability` for a loader.

    The network runs in evaluation mode and is left unchanged, and so is the random state of the process and the loader.

    Parameters
    ----------
    loader
        Batches of the training set, or one pair of whole arrays. Every pass reads the same batches, also of a loader
        that shuffles.
    optimizer
        The ``torch.optim`` optimiser in use: SGD, Adam, AdamW or RMSprop. Its learning rates, momentum, weight decay
        and the preconditioner in its state are read.
    loss
        ``"mse"``, ``"half-mse"``, ``"cross-entropy"`` (the default for class labels), or a function of outputs and
        targets, such as a module of ``torch.nn``.
    **options
        Further options of :func:`solvable.diagnostics.stability`, such as ``learning_rate``, ``budget``, ``density``.
    model, device, output_field, progress
        As in :func:`diagnose`.

    >>> import torch, solvable.torch
    >>> _ = torch.manual_seed(0)
    >>> network = torch.nn.Linear(4, 1)
    >>> data = torch.eye(4), torch.ones(4, 1)
    >>> optimizer = torch.optim.SGD(network.parameters(), lr=0.4)
    >>> report = solvable.torch.stability(network, data, optimizer, loss="mse")
    >>> round(report.sharpness, 3), round(report.edge, 3)
    (2.5, 5.0)
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    given: dict[str, Any] = {"loss": loss, "device": device, "output_field": output_field, "progress": progress}
    return diagnostics.stability(model, loader, optimizer=optimizer, **given, **options)


class Tracker(History):
    """The feature metrics during training: call it once per epoch.

    ``history`` is a dataset of every metric over epochs, and ``plot()`` draws it.

    Parameters
    ----------
    collapse
        Whether to measure NC1 to NC3 of the training set as well, in the same pass.
    stability
        Whether to measure the edge of stability as well: True, options of :func:`stability` such as
        ``{"optimizer": optimizer}``, or a function that returns such options, called at each
        measurement. Adds ``sharpness``, ``edge_fraction`` and the like to the history.
    log
        Where to write the numbers of each measurement as well: a path that ends in ``.csv``, a folder for TensorBoard
        event files, or a Weights & Biases run.
    model, train_loader, test_loader, last_layer, device, output_field, progress
        As in :func:`diagnose`.

    >>> import torch, solvable.torch
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    >>> batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(4)]
    >>> tracker = solvable.torch.Tracker(network, batches, batches)
    >>> for epoch in range(2):
    ...     report = tracker(epoch, train_loss=1.1 - epoch)
    >>> tracker.history["mp_distance"].dims
    ('epoch',)
    """

    def __init__(
        self,
        model: torch.nn.Module,
        train_loader: Iterable[Any],
        test_loader: Iterable[Any],
        last_layer: Layer = None,
        device: Any = None,
        *,
        collapse: bool = False,
        stability: Any = None,
        log: Any = None,
        output_field: Field | None = None,
        progress: bool | None = None,
    ) -> None:
        super().__init__(stability, log)
        self.model, self._layer, self._device, self._collapse = model, last_layer, device, collapse
        self._loaders = {"training set": train_loader, "test set": test_loader}
        self._output_field, self._progress = output_field, progress

    def __call__(self, epoch: float | None = None, **numbers: float) -> diagnostics.FeatureReport:
        """Measure now.

        Parameters
        ----------
        epoch
            The epoch; by default measurements are counted from 0.
        **numbers
            Further numbers to store with the metrics, such as losses.
        """
        field: dict[str, Any] = {"output_field": self._output_field}
        loader = self._loaders["training set"]
        self._layer = layer = find_last_layer(self.model, loader, self._layer, self._device, **field)
        train, test = (
            statistics(self.model, loader, layer, self._device, progress=self._progress, name=name, **field)
            for name, loader in self._loaders.items()
        )
        options: dict[str, Any] = {"device": self._device, "progress": self._progress, **field}
        curvature = self._measure_stability(partial(stability, self.model, loader, **options))
        return self._record(epoch, train, test, weights(layer) if self._collapse else None, numbers, curvature)
