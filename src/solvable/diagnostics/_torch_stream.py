"""One pass of a torch module over batches: features, outputs and targets; the module is left as it was.

Imported only for torch modules.
"""

from collections.abc import Generator, Iterable, Iterator, Sized
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_leaves, tree_map

from solvable.diagnostics._torch_batches import batches_of, in_precision_of, random_state_restored, unpack
from solvable.diagnostics._torch_layers import ForwardPass, feature_place, features_at, input_and_output, named_layer
from solvable.diagnostics._torch_tangent import inference_mode, unwrapped
from solvable.diagnostics.outputs import Field
from solvable.progress import progress_bar

# The label that losses in PyTorch and Hugging Face ignore: padded tokens.
_IGNORED = -100
# Inputs on which the training regime is measured.
_REGIME_INPUTS = 256

Layer: TypeAlias = str | torch.nn.Module | None
FeatureLayer: TypeAlias = Layer | tuple[str | torch.nn.Module, str]


def stream(
    model: torch.nn.Module,
    loader: Iterable[Any],
    last_layer: Layer,
    device: Any,
    output_field: Field | None,
    progress: bool | None,
    name: str,
    feature_layer: FeatureLayer = None,
) -> Generator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Features, outputs and targets, batch by batch; every token of a sequence is a sample."""
    if isinstance(model, torch.nn.Module):
        model = unwrapped(model)
    if last_layer is not None and feature_layer is not None:
        raise ValueError("give last_layer or feature_layer, not both: each says where the features are")
    layer = None if last_layer is None else named_layer(model, last_layer)
    watched = None if feature_layer is None else feature_place(model, feature_layer)
    loader = batches_of(loader, model, name)
    total = len(loader) if isinstance(loader, Sized) else 0
    with (
        restored(model, device) as chosen,
        random_state_restored(loader),
        progress_bar(f"measuring the {name}", total, False if total == 0 else progress) as advance,
    ):
        for number, batch in enumerate(loader):
            arguments, keywords, targets = unpack(batch, chosen)
            forward = partial(model, *in_precision_of(model, arguments), **in_precision_of(model, keywords))
            if watched is not None:
                yield *features_at(*watched, forward, sample_count(targets), output_field), targets
                advance()
                continue
            if layer is None:
                layer = ForwardPass(model, forward, ()).last_layer(sample_count(targets), output_field)
            elif number == 0:
                ForwardPass(model, forward, (layer,)).check(layer, sample_count(targets), output_field)
            yield _as_rows(*input_and_output(layer, forward), targets)
            advance()


def first_inputs(loader: Iterable[Any], device: Any) -> Any:
    """The first inputs of a loader, a tensor or several; None if some are no tensors with a row for each target."""
    found: list[Any] = []
    for batch in loader:
        arguments, keywords, targets = unpack(batch, device)
        inputs = keywords or tuple(arguments)
        if not all(isinstance(value, torch.Tensor) and len(value) == len(targets) for value in tree_leaves(inputs)):
            return None
        found.append(inputs)
        if sum(len(tree_leaves(one)[0]) for one in found) >= _REGIME_INPUTS:
            break
    if not found:
        return None
    joined: Any = tree_map(lambda *parts: torch.cat(parts)[:_REGIME_INPUTS], *found)
    return joined[0] if isinstance(joined, tuple) and len(joined) == 1 else joined


def sample_count(targets: torch.Tensor) -> int:
    return len(targets) if targets.ndim else 0


def _as_rows(
    features: torch.Tensor, outputs: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if features.ndim > 2:
        positions = features.shape[:-1]
        features, outputs = features.reshape(-1, features.shape[-1]), outputs.reshape(-1, outputs.shape[-1])
        if targets.shape[: len(positions)] != positions:
            raise ValueError(
                f"the last layer runs at {tuple(positions)} positions but there are {tuple(targets.shape)} targets: "
                "give a target for every position, or name a last_layer that runs at one position per example"
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
def restored(model: torch.nn.Module, device: Any) -> Iterator[torch.device]:
    """Evaluation mode without gradients on a device; afterwards the model is restored."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    home = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    chosen = home if device is None else torch.device(device)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        if chosen != home:
            model.to(chosen)
        with inference_mode(model), torch.no_grad():
            yield chosen
    finally:
        if chosen != home:
            model.to(home)
        # Evaluation mode leaves most buffers unchanged; counters in custom modules may change all the same.
        for name, buffer in model.named_buffers():
            if name in buffers and not torch.equal(buffer, buffers[name]):
                buffer.copy_(buffers[name])
