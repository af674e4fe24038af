"""The last layer of a torch module, found or checked by observing one forward pass. Imported only for torch modules."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from solvable.diagnostics.outputs import Field, find_outputs


def input_and_output(layer: torch.nn.Module, forward: Callable[[], Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The input and the output of a layer in one forward pass."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def record(_: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not (inputs and isinstance(inputs[0], torch.Tensor) and isinstance(output, torch.Tensor)):
            raise ValueError(f"the last layer {describe(layer)} must take one tensor and return one tensor")
        seen.append((inputs[0].detach(), output.detach()))

    handle = layer.register_forward_hook(record)
    try:
        forward()
    finally:
        handle.remove()
    if len(seen) != 1:
        raise ValueError(f"the last layer {describe(layer)} ran {len(seen)} times in a forward pass; it must run once")
    return seen[0]


def feature_place(model: torch.nn.Module, layer: Any) -> tuple[torch.nn.Module, str]:
    """The layer, and whether its ``"inputs"`` or its ``"outputs"`` are the features."""
    layer, side = layer if isinstance(layer, tuple) else (layer, "outputs")
    if side not in ("inputs", "outputs"):
        raise ValueError(f"feature_layer takes the 'inputs' or 'outputs' of a layer, not its {side!r}")
    return named_layer(model, layer), side


def features_at(
    layer: torch.nn.Module, side: str, forward: Callable[[], Any], samples: int, field: Field | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The flattened inputs or outputs of a layer in one forward pass, and the outputs of the network."""
    seen: list[Any] = []
    handle = layer.register_forward_hook(
        lambda _, inputs, output: seen.append(inputs[0] if side == "inputs" and inputs else output)
    )
    try:
        returned = forward()
    finally:
        handle.remove()
    if len(seen) != 1 or not isinstance(seen[0], torch.Tensor):
        raise ValueError(
            f"feature_layer {describe(layer)} ran {len(seen)} times in a forward pass, or has several {side}; it must "
            "run once, on one tensor"
        )
    outputs = find_outputs(returned, field, samples=samples)[0].detach()
    if len(seen[0]) != samples or outputs.ndim != 2:
        raise ValueError(
            f"feature_layer {describe(layer)} has {side} of shape {tuple(seen[0].shape)}, and the network outputs of "
            f"shape {tuple(outputs.shape)}: both need one row for each of the {samples} targets"
        )
    return seen[0].detach().flatten(1), outputs


class ForwardPass:
    """One forward pass: the modules with parameters in the order in which they started, and the output of each."""

    def __init__(self, model: torch.nn.Module, forward: Callable[[], Any], watched: Iterable[torch.nn.Module]) -> None:
        self.model, self.order = model, list[torch.nn.Module]()
        self.outputs_of: dict[torch.nn.Module, Any] = {}
        self._names = {module: name for name, module in model.named_modules()}
        # Recorded when a module starts: a block with parameters of its own comes before the layers inside it.
        watched = set(watched) | {
            module for module in model.modules() if next(module.parameters(recurse=False), None) is not None
        }
        handles = [module.register_forward_pre_hook(lambda module, _: self.order.append(module)) for module in watched]
        handles += [
            module.register_forward_hook(lambda module, _, output: self.outputs_of.update({module: output}))
            for module in watched
        ]
        try:
            self.returned = forward()
        finally:
            for handle in handles:
                handle.remove()

    def name(self, module: torch.nn.Module) -> str:
        return self._names[module] or "itself"

    def outputs(self, samples: int, field: Field | None) -> torch.Tensor:
        return find_outputs(self.returned, field, samples=samples)[0]

    def last_layer(self, samples: int, field: Field | None) -> torch.nn.Module:
        """The linear layer whose output is that of the network, or else the last module with parameters that ran."""
        outputs = self.outputs(samples, field)
        linear = [module for module in self.order if isinstance(module, torch.nn.Linear)]
        for module in reversed(linear):
            if _equal(self.outputs_of[module], outputs):
                return module
        last = self.order[-1] if self.order else None
        if isinstance(last, torch.nn.Linear) and _same_count(self.outputs_of[last], outputs):
            return last
        ending = "runs no layer with parameters"
        if last is not None:
            sizes = f", and {_sizes(self.outputs_of[last], outputs)}" if isinstance(last, torch.nn.Linear) else ""
            ending = f"ends in {self.name(last)} ({describe(last)}){sizes}"
        possible = [self.name(module) for module in linear if _same_count(self.outputs_of[module], outputs)]
        hint = f"name it, such as last_layer={possible[-1]!r}, or " if possible else ""
        raise ValueError(
            f"{type(self.model).__name__} has no linear last layer: it {ending}; {hint}name any layer whose "
            "outputs are the features, feature_layer=..., or collect features, outputs and targets yourself in "
            "solvable.diagnostics.FeatureStatistics"
        )

    def check(self, layer: torch.nn.Module, samples: int, field: Field | None) -> None:
        """Reject a named layer that is not the last: its outputs would be taken for those of the network."""
        if layer not in self.outputs_of:
            return  # input_and_output() reports how often it ran
        try:
            outputs = self.outputs(samples, field)
        except ValueError:
            if field is not None:
                raise
            return  # several outputs, or unknown ones: the named layer decides which are meant
        position = max(i for i, module in enumerate(self.order) if module is layer)
        inside = set(layer.modules())
        after = [module for module in self.order[position + 1 :] if module not in inside]
        mixing = [module for module in after if any(part.ndim > 1 for part in module.parameters(recurse=False))]
        found = self.outputs_of[layer]
        if _equal(found, outputs) or (_same_count(found, outputs) and not mixing):
            return
        later = "more operations follow it"
        if mixing:
            later = f"{self.name(mixing[-1])!r} ({describe(mixing[-1])}) runs after it"
        raise ValueError(
            f"last_layer {self.name(layer)!r} ({describe(layer)}) is not the last step of {type(self.model).__name__}: "
            f"{later}, and {_sizes(found, outputs)}; leave last_layer out, or name the layer that gives the outputs"
        )


def named_layer(model: torch.nn.Module, layer: Any) -> torch.nn.Module:
    """A layer of a model, given by its name or as a module."""
    modules = dict(model.named_modules())
    if isinstance(layer, str):
        if layer not in modules:
            names = ", ".join(name for name in modules if name)
            raise ValueError(f"{type(model).__name__} has no layer {layer!r}; it has {names}")
        return modules[layer]
    if not any(layer is module for module in modules.values()):
        raise ValueError(f"last_layer {describe(layer)} is not a part of this {type(model).__name__}")
    return layer


def weights(layer: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weights and bias of a linear layer."""
    if not isinstance(layer, torch.nn.Linear):
        raise ValueError(
            f"neural collapse compares class means with the rows of a torch.nn.Linear, not {describe(layer)}"
        )
    return layer.weight.detach(), None if layer.bias is None else layer.bias.detach()


def describe(layer: Any) -> str:
    """A layer in error messages, on one line."""
    text = repr(layer) if isinstance(layer, torch.nn.Module) else type(layer).__name__
    return text if "\n" not in text else type(layer).__name__


def _equal(found: Any, outputs: torch.Tensor) -> bool:
    if not isinstance(found, torch.Tensor) or found.shape != outputs.shape:
        return False
    # Entries that are not finite are reported when the batch is summed; they do not disqualify the layer.
    one, other = torch.nan_to_num(found.detach().float()), torch.nan_to_num(outputs.detach().float())
    return torch.allclose(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()) if other.numel() else 0.0)


def _same_count(found: Any, outputs: torch.Tensor) -> bool:
    return isinstance(found, torch.Tensor) and found.numel() == outputs.numel()


def _sizes(found: Any, outputs: torch.Tensor) -> str:
    if isinstance(found, torch.Tensor) and found.shape[-1:] != outputs.shape[-1:] and found.ndim and outputs.ndim:
        return f"its {found.shape[-1]} outputs are not the network's {outputs.shape[-1]}"
    return "its outputs are not the network's"
