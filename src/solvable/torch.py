"""The diagnostics on a PyTorch network: wire it up, stream the loaders, leave it as it was found.

The last linear layer is found by watching one forward pass; what goes into it are the features, what comes out of it
are the outputs. Nothing else about the network needs to be known.

Data are an iterable of batches, such as a ``DataLoader`` or a list, or one pair ``(inputs, targets)`` of whole arrays:
a tuple or list of two arrays is that pair.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sized
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

try:
    import torch
except ImportError as error:
    raise ImportError("solvable.torch needs PyTorch: pip install 'solvable[torch]'") from error
import numpy as np

from solvable import diagnostics
from solvable.diagnostics._torch_layers import Pass, named, passing, weights
from solvable.diagnostics.batches import whole_arrays
from solvable.diagnostics.outputs import Field
from solvable.diagnostics.tracking import History
from solvable.diagnostics.training import NOT_GIVEN, measured_training
from solvable.progress import progress_bar

__all__ = ["Tracker", "collapse", "diagnose", "hugging_face_callback", "lightning_callback", "statistics"]

_TARGET_KEYS = ("labels", "label", "targets", "target")
# What losses in PyTorch and Hugging Face leave out: padded tokens.
_IGNORED = -100

# Points in a batch that is cut from whole arrays, and points on which the training regime is measured.
_BATCH, _MEASURED = 1024, 256

Layer: TypeAlias = str | torch.nn.Module | None


def diagnose(
    model: torch.nn.Module,
    train_loader: Iterable[Any],
    test_loader: Iterable[Any],
    last_layer: Layer = None,
    device: Any = None,
    *,
    initial: Any = None,
    output_field: Field | None = None,
    progress: bool | None = None,
) -> diagnostics.FeatureReport:
    """The report of a network: intensities, quality and utilisation of its features, and which regimes it is in.

    ``train_loader`` and ``test_loader`` give batches ``(inputs, targets)``, or mappings with ``labels`` as Hugging Face
    makes them, or are one pair of whole arrays. The network runs in evaluation mode without gradients; its mode, hooks,
    gradients and buffers, and the random state of the process, are afterwards what they were before. ``device`` is the
    model's own if not given; else the model is moved there for the measurement, and back.

    ``last_layer`` names the linear layer whose input are the features (a module, or its name in
    ``model.named_modules()``); it is found if not given. Where the network returns several arrays, the outputs are its
    ``logits``, or the only one that can be outputs; ``output_field`` chooses by name or place.

    With ``initial``, the network before training (a copy of its ``state_dict()``, or a module), the report also says
    whether training was lazy or rich (:func:`solvable.diagnostics.laziness`), on up to 256 inputs of the test set.

    >>> import torch, solvable.torch
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    >>> batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(4)]
    >>> solvable.torch.diagnose(network, batches, batches).regime
    'extended-feature'
    """
    train, test = (
        statistics(model, loader, last_layer, device, output_field=output_field, progress=progress, what=what)
        for loader, what in ((train_loader, "training set"), (test_loader, "test set"))
    )
    report = diagnostics.features(train, test)
    if initial is None:
        return replace(report, not_measured=NOT_GIVEN)
    with _as_found(model, device) as place, _random_state_kept(test_loader):
        inputs = _some_inputs(_cut(test_loader, model, "test set"), place)
        training, why = measured_training(model, initial, model, inputs, output_field, progress)
    return replace(report, training=training, not_measured=why)


def statistics(
    model: torch.nn.Module,
    loader: Iterable[Any],
    last_layer: Layer = None,
    device: Any = None,
    *,
    output_field: Field | None = None,
    progress: bool | None = None,
    what: str = "data",
) -> diagnostics.FeatureStatistics:
    """One pass over a loader; sums of shards and processes can be added, ``a + b``."""
    gathered = diagnostics.FeatureStatistics()
    with closing(_stream(model, loader, last_layer, device, output_field, progress, what)) as batches:
        for features, outputs, targets in batches:
            gathered.update(features, outputs, targets)
    if not gathered.batches:
        raise ValueError(f"the {what} is empty: the loader gave no batch")
    return gathered


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
    """Neural collapse, NC1 to NC4, of a classifier on a loader (NC4 needs a ``second_pass`` over it)."""
    layer = find_last_layer(model, loader, last_layer, device, output_field=output_field)
    last = weights(layer)
    gathered = statistics(model, loader, layer, device, output_field=output_field, progress=progress)
    if not second_pass:
        return diagnostics.collapse(gathered, *last)
    with closing(_stream(model, loader, layer, device, output_field, progress, "data again")) as batches:
        return diagnostics.collapse(gathered, *last, batches=batches)


def find_last_layer(
    model: torch.nn.Module,
    loader: Iterable[Any],
    last_layer: Layer = None,
    device: Any = None,
    *,
    output_field: Field | None = None,
) -> torch.nn.Module:
    """The final linear layer of a model: the one told, or the one that gives the outputs on the first batch."""
    if last_layer is not None:
        return named(model, last_layer)
    with _as_found(model, device) as place, _random_state_kept(loader):
        for batch in _cut(loader, model, "data"):
            arguments, keywords, targets = _unpack(batch, place)
            return Pass(model, partial(model, *arguments, **keywords), ()).last_layer(_samples(targets), output_field)
    raise ValueError("the loader gave no batch to find the last layer with")


class Tracker(History):
    """The feature measures along training: call it once an epoch.

    ``history`` is a dataset of every measure over epochs, ``plot()`` its picture. With ``collapse=True`` NC1 to NC3 of
    the training set are kept too, from the same pass.

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
        output_field: Field | None = None,
        progress: bool | None = None,
    ) -> None:
        self.model, self._field = model, output_field
        self._train, self._test, self._device = train_loader, test_loader, device
        self._layer, self._collapse, self._progress = last_layer, collapse, progress
        super().__init__()

    def __call__(self, epoch: float | None = None, **numbers: float) -> diagnostics.FeatureReport:
        """Measure now; ``numbers`` such as losses are kept beside the measures."""
        options = {"output_field": self._field}
        layer = self._layer = find_last_layer(self.model, self._train, self._layer, self._device, **options)
        train, test = (
            statistics(self.model, loader, layer, self._device, progress=self._progress, what=what, **options)
            for loader, what in ((self._train, "training set"), (self._test, "test set"))
        )
        report = diagnostics.features(train, test)
        collapsed = diagnostics.collapse(train, *weights(layer)) if self._collapse else None
        self._record(epoch, report, collapsed, **numbers)
        return report


def lightning_callback(tracker: Tracker, every: int = 1) -> Any:
    """A Lightning callback that calls the tracker after every ``every``-th training epoch."""
    try:
        from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError as error:
            raise ImportError("a Lightning callback needs Lightning: pip install lightning") from error

    class TrackFeatures(Callback):  # type: ignore[misc, valid-type]
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch % every == 0:
                tracker(trainer.current_epoch, **_numbers(trainer.callback_metrics))

    return TrackFeatures()


def hugging_face_callback(tracker: Tracker, every: int = 1) -> Any:
    """A Hugging Face ``TrainerCallback`` that calls the tracker after every ``every``-th epoch."""
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise ImportError("a Trainer callback needs Hugging Face Transformers: pip install transformers") from error

    class TrackFeatures(TrainerCallback):  # type: ignore[misc, valid-type]
        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if round(state.epoch) % every == 0:
                tracker(state.epoch)

    return TrackFeatures()


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name.replace("/", "_"): float(value) for name, value in metrics.items()}


def _stream(
    model: torch.nn.Module,
    loader: Iterable[Any],
    last_layer: Layer,
    device: Any,
    output_field: Field | None,
    progress: bool | None,
    what: str,
) -> Generator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Features, outputs and targets, batch by batch; tokens of a sequence are points of their own."""
    layer = None if last_layer is None else named(model, last_layer)
    loader = _cut(loader, model, what)
    total = len(loader) if isinstance(loader, Sized) else 0
    with (
        _as_found(model, device) as place,
        _random_state_kept(loader),
        progress_bar(f"measuring the {what}", total, False if total == 0 else progress) as advance,
    ):
        for number, batch in enumerate(loader):
            arguments, keywords, targets = _unpack(batch, place)
            forward = partial(model, *arguments, **keywords)
            if layer is None:
                layer = Pass(model, forward, ()).last_layer(_samples(targets), output_field)
            elif number == 0:
                Pass(model, forward, (layer,)).check(layer, _samples(targets), output_field)
            features, outputs = passing(layer, forward)
            yield _as_rows(features, outputs, targets)
            advance()


class _Pieces:
    """A pair of whole arrays as batches of tensors, with floats in the precision of the model."""

    def __init__(self, inputs: Any, targets: Any, model: torch.nn.Module) -> None:
        self._inputs, self._targets = inputs, targets
        parameters = (value.dtype for value in model.parameters() if value.is_floating_point())
        self._dtype = next(parameters, torch.float32)

    def __len__(self) -> int:
        return -(-len(self._inputs) // _BATCH)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for begin in range(0, len(self._inputs), _BATCH):
            inputs, targets = (_tensor(array[begin : begin + _BATCH]) for array in (self._inputs, self._targets))
            yield inputs.to(self._dtype) if inputs.is_floating_point() else inputs, targets


def _tensor(array: Any) -> torch.Tensor:
    # A copy of what is not a tensor: torch warns of read-only memory.
    return array if isinstance(array, torch.Tensor) else torch.tensor(np.asarray(array))


def _cut(loader: Any, model: Any, what: str) -> Iterable[Any]:
    """Batches as they are; a pair of whole arrays in pieces."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    pair = whole_arrays(loader, what)
    if pair is not None:
        return _Pieces(*pair, model)
    if not isinstance(loader, Iterable):
        raise ValueError(
            f"the {what} must be batches (inputs, targets), or one pair of whole arrays, not {type(loader).__name__}"
        )
    return loader


def _some_inputs(loader: Iterable[Any], device: Any) -> torch.Tensor | None:
    """The first inputs of a loader; None if a batch has several, or names for them."""
    found: list[torch.Tensor] = []
    for batch in loader:
        if isinstance(batch, Mapping) or len(batch) != 2 or not isinstance(batch[0], torch.Tensor):
            return None
        found.append(batch[0].to(device))
        if sum(map(len, found)) >= _MEASURED:
            break
    return torch.cat(found)[:_MEASURED]


def _samples(targets: torch.Tensor) -> int:
    return len(targets) if targets.ndim else 0


def _unpack(batch: Any, device: Any) -> tuple[list[Any], dict[str, Any], torch.Tensor]:
    """What goes to the model and what it should say."""

    def placed(value: Any) -> Any:
        return value.to(device) if isinstance(value, torch.Tensor) else value

    if isinstance(batch, Mapping):
        keywords = {name: placed(value) for name, value in batch.items()}
        for name in _TARGET_KEYS:
            if name in keywords:
                return [], keywords, torch.as_tensor(keywords.pop(name), device=device)
        raise ValueError(f"a batch has no targets: its keys are {', '.join(batch)}, none of {', '.join(_TARGET_KEYS)}")
    if isinstance(batch, list | tuple) and len(batch) >= 2:
        *inputs, targets = batch
        return [placed(value) for value in inputs], {}, torch.as_tensor(targets, device=device)
    raise ValueError(f"a batch must be (inputs, targets) or a mapping with labels, not {type(batch).__name__}")


def _as_rows(
    features: torch.Tensor, outputs: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if features.ndim > 2:
        positions = features.shape[:-1]
        features, outputs = features.reshape(-1, features.shape[-1]), outputs.reshape(-1, outputs.shape[-1])
        if targets.shape[: len(positions)] != positions:
            raise ValueError(
                f"the last layer sees {tuple(positions)} points but there are {tuple(targets.shape)} targets: "
                "give a target for every position, or name a last_layer that sees one point per example"
            )
        targets = targets.reshape(-1, *targets.shape[len(positions) :])
    if features.device.type == "mps":  # which has no float64
        features, outputs, targets = features.cpu(), outputs.cpu(), targets.cpu()
    if not targets.is_floating_point() and targets.ndim == 1:
        kept = targets != _IGNORED
        if not bool(kept.all()):
            features, outputs, targets = features[kept], outputs[kept], targets[kept]
    return features, outputs, targets


@contextmanager
def _as_found(model: torch.nn.Module, device: Any) -> Iterator[torch.device]:
    """Evaluation mode without gradients, and afterwards everything as it was."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    home = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    place = home if device is None else torch.device(device)
    modes = {module: module.training for module in model.modules()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        if place != home:
            model.to(place)
        model.eval()
        with torch.no_grad():
            yield place
    finally:
        for module, mode in modes.items():
            module.training = mode
        if place != home:
            model.to(home)
        # Evaluation mode keeps most buffers still; counters of somebody's own may move all the same.
        for name, buffer in model.named_buffers():
            if name in buffers and not torch.equal(buffer, buffers[name]):
                buffer.copy_(buffers[name])


@contextmanager
def _random_state_kept(loader: Any) -> Iterator[None]:
    """Shuffling a loader draws random numbers: measuring must not change the training that follows."""
    generators = {
        id(generator): generator
        for generator in (getattr(loader, "generator", None), getattr(getattr(loader, "sampler", None), "generator", 0))
        if isinstance(generator, torch.Generator)
    }
    states = {name: generator.get_state() for name, generator in generators.items()}
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        try:
            yield
        finally:
            for name, generator in generators.items():
                generator.set_state(states[name])
