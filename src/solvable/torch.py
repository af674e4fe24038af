"""The diagnostics on a PyTorch network: wire it up, stream the loaders, leave it as it was found.

The last linear layer is found by watching one forward pass; what goes into it are the features, what comes out of it
are the outputs. Nothing else about the network needs to be known.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sized
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError("solvable.torch needs PyTorch: pip install 'solvable[torch]'") from error

from solvable import diagnostics
from solvable.diagnostics.tracking import History
from solvable.engines.progress import progress_bar

__all__ = ["Tracker", "collapse", "diagnose", "hugging_face_callback", "lightning_callback", "statistics"]

_TARGET_KEYS = ("labels", "label", "targets", "target")
# What losses in PyTorch and Hugging Face leave out: padded tokens.
_IGNORED = -100

Layer = str | torch.nn.Module | None


def diagnose(
    model: torch.nn.Module,
    train_loader: Iterable[Any],
    test_loader: Iterable[Any],
    last_layer: Layer = None,
    device: Any = None,
    *,
    progress: bool | None = None,
) -> diagnostics.FeatureReport:
    """The feature report of a network: intensities, quality, utilisation, and which regime it is in.

    ``train_loader`` and ``test_loader`` give batches ``(inputs, targets)``, or mappings with ``labels`` as Hugging Face
    makes them. The network runs in evaluation mode without gradients; its mode, hooks, gradients and buffers, and the
    random state of the process, are afterwards what they were before. ``last_layer`` names the linear layer whose input
    are the features (a module, or its name in ``model.named_modules()``); it is found if not given. ``device`` is the
    model's own if not given; else the model is moved there for the measurement, and back.

    >>> import torch, solvable.torch
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    >>> batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(4)]
    >>> solvable.torch.diagnose(network, batches, batches).regime
    'extended-feature'
    """
    train = statistics(model, train_loader, last_layer, device, progress=progress, what="training set")
    test = statistics(model, test_loader, last_layer, device, progress=progress, what="test set")
    return diagnostics.features(train, test)


def statistics(
    model: torch.nn.Module,
    loader: Iterable[Any],
    last_layer: Layer = None,
    device: Any = None,
    *,
    progress: bool | None = None,
    what: str = "data",
) -> diagnostics.FeatureStatistics:
    """One pass over a loader; sums of shards and processes can be added, ``a + b``."""
    gathered = diagnostics.FeatureStatistics()
    with closing(_stream(model, loader, last_layer, device, progress, what)) as batches:
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
    progress: bool | None = None,
) -> diagnostics.CollapseReport:
    """Neural collapse, NC1 to NC4, of a classifier on a loader (NC4 needs a ``second_pass`` over it)."""
    layer = find_last_layer(model, loader, last_layer, device)
    weights, bias = _weights(layer)
    gathered = statistics(model, loader, layer, device, progress=progress)
    if not second_pass:
        return diagnostics.collapse(gathered, weights, bias)
    with closing(_stream(model, loader, layer, device, progress, "data again")) as batches:
        return diagnostics.collapse(gathered, weights, bias, batches=batches)


def find_last_layer(
    model: torch.nn.Module, loader: Iterable[Any], last_layer: Layer = None, device: Any = None
) -> torch.nn.Module:
    """The final linear layer of a model: the one told, or the last to run on the first batch."""
    if last_layer is not None:
        return _named(model, last_layer)
    with _as_found(model, device) as place, _random_state_kept(loader):
        for batch in loader:
            arguments, keywords, _ = _unpack(batch, place)
            return _last_to_run(model, partial(model, *arguments, **keywords))
    raise ValueError("the loader gave no batch to find the last layer with")


class Tracker:
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
        progress: bool | None = None,
    ) -> None:
        self.model = model
        self._train, self._test, self._device = train_loader, test_loader, device
        self._layer, self._collapse, self._progress = last_layer, collapse, progress
        self._history = History()

    def __call__(self, epoch: float | None = None, **numbers: float) -> diagnostics.FeatureReport:
        """Measure now; ``numbers`` such as losses are kept beside the measures."""
        layer = self._layer = find_last_layer(self.model, self._train, self._layer, self._device)
        train, test = (
            statistics(self.model, loader, layer, self._device, progress=self._progress, what=what)
            for loader, what in ((self._train, "training set"), (self._test, "test set"))
        )
        report = diagnostics.features(train, test)
        collapsed = diagnostics.collapse(train, *_weights(layer)) if self._collapse else None
        self._history.record(epoch, report, collapsed, **numbers)
        return report

    @property
    def history(self) -> Any:
        """All measurements so far, as an :class:`xarray.Dataset` over ``epoch``."""
        return self._history.to_dataset()

    def plot(self) -> Any:
        """Effective dimensions, distance from minimum features, and the numbers given, over epochs."""
        return self._history.plot()


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
    model: torch.nn.Module, loader: Iterable[Any], last_layer: Layer, device: Any, progress: bool | None, what: str
) -> Generator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Features, outputs and targets, batch by batch; tokens of a sequence are points of their own."""
    layer = None if last_layer is None else _named(model, last_layer)
    total = len(loader) if isinstance(loader, Sized) else 0
    with (
        _as_found(model, device) as place,
        _random_state_kept(loader),
        progress_bar(f"measuring the {what}", total, False if total == 0 else progress) as advance,
    ):
        for batch in loader:
            arguments, keywords, targets = _unpack(batch, place)
            forward = partial(model, *arguments, **keywords)
            if layer is None:
                layer = _last_to_run(model, forward)
            features, outputs = _passing(layer, forward)
            yield _as_rows(features, outputs, targets)
            advance()


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
    # Half precision is for training: sums of its squares would not even hold their size.
    if features.dtype in (torch.float16, torch.bfloat16):
        features, outputs = features.float(), outputs.float()
    if not targets.is_floating_point() and targets.ndim == 1:
        kept = targets != _IGNORED
        if not bool(kept.all()):
            features, outputs, targets = features[kept], outputs[kept], targets[kept]
    return features, outputs, targets


def _passing(layer: torch.nn.Module, forward: Callable[[], Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """What went into the layer and what came out of it in one forward pass."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def keep(_: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not (inputs and isinstance(inputs[0], torch.Tensor) and isinstance(output, torch.Tensor)):
            raise ValueError(f"the last layer {_kind(layer)} must take one tensor and give one tensor")
        seen.append((inputs[0].detach(), output.detach()))

    handle = layer.register_forward_hook(keep)
    try:
        forward()
    finally:
        handle.remove()
    if len(seen) != 1:
        raise ValueError(f"the last layer {_kind(layer)} ran {len(seen)} times in a forward pass; it must run once")
    return seen[0]


def _last_to_run(model: torch.nn.Module, forward: Callable[[], Any]) -> torch.nn.Module:
    """The linear layer after which nothing with parameters runs."""
    order: list[torch.nn.Module] = []
    # Before the forward pass of each: a block with parameters of its own counts before the layers inside it.
    handles = [
        module.register_forward_pre_hook(lambda module, _: order.append(module))
        for module in model.modules()
        if next(module.parameters(recurse=False), None) is not None
    ]
    try:
        forward()
    finally:
        for handle in handles:
            handle.remove()
    if order and isinstance(order[-1], torch.nn.Linear):
        return order[-1]
    names = {module: name for name, module in model.named_modules()}
    linear = [names[module] for module in order if isinstance(module, torch.nn.Linear)]
    ends = f"ends in {names[order[-1]] or 'itself'} ({_kind(order[-1])})" if order else "runs no layer with parameters"
    hint = f"name one, such as last_layer={linear[-1]!r}" if linear else "name the layer whose input are the features"
    raise ValueError(f"{type(model).__name__} has no linear last layer: it {ends}; {hint} (last_layer=...)")


def _named(model: torch.nn.Module, layer: Any) -> torch.nn.Module:
    modules = dict(model.named_modules())
    if isinstance(layer, str):
        if layer not in modules:
            near = ", ".join(name for name in modules if name)
            raise ValueError(f"{type(model).__name__} has no layer {layer!r}; it has {near}")
        return modules[layer]
    if not any(layer is module for module in modules.values()):
        raise ValueError(f"last_layer {_kind(layer)} is not a part of this {type(model).__name__}")
    return layer


def _weights(layer: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor | None]:
    if not isinstance(layer, torch.nn.Linear):
        raise ValueError(f"neural collapse compares class means with the rows of a torch.nn.Linear, not {_kind(layer)}")
    return layer.weight.detach(), None if layer.bias is None else layer.bias.detach()


def _kind(layer: Any) -> str:
    return repr(layer) if isinstance(layer, torch.nn.Module) else type(layer).__name__


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
