"""The last layer of a torch module, found or checked by watching one forward pass. Imported only for torch modules."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from solvable.diagnostics.outputs import Field, find_outputs


def passing(layer: torch.nn.Module, forward: Callable[[], Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """What went into the layer and what came out of it in one forward pass."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def keep(_: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not (inputs and isinstance(inputs[0], torch.Tensor) and isinstance(output, torch.Tensor)):
            raise ValueError(f"the last layer {kind(layer)} must take one tensor and give one tensor")
        seen.append((inputs[0].detach(), output.detach()))

    handle = layer.register_forward_hook(keep)
    try:
        forward()
    finally:
        handle.remove()
    if len(seen) != 1:
        raise ValueError(f"the last layer {kind(layer)} ran {len(seen)} times in a forward pass; it must run once")
    return seen[0]


class Pass:
    """One forward pass: the modules with parameters in the order in which they began, and what each gave."""

    def __init__(self, model: torch.nn.Module, forward: Callable[[], Any], watched: Iterable[torch.nn.Module]) -> None:
        self.model, self.order = model, list[torch.nn.Module]()
        self.given: dict[torch.nn.Module, Any] = {}
        self._names = {module: name for name, module in model.named_modules()}
        # Before the forward pass of each: a block with parameters of its own counts before the layers inside it.
        watched = set(watched) | {
            module for module in model.modules() if next(module.parameters(recurse=False), None) is not None
        }
        handles = [module.register_forward_pre_hook(lambda module, _: self.order.append(module)) for module in watched]
        handles += [
            module.register_forward_hook(lambda module, _, output: self.given.update({module: output}))
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
        """The linear layer that gives the outputs, or else the last to run with no parameters after it."""
        outputs = self.outputs(samples, field)
        linear = [module for module in self.order if isinstance(module, torch.nn.Linear)]
        for module in reversed(linear):
            if _same(self.given[module], outputs):
                return module
        last = self.order[-1] if self.order else None
        if isinstance(last, torch.nn.Linear) and _as_many(self.given[last], outputs):
            return last
        ends = "runs no layer with parameters"
        if last is not None:
            found = f", and {_sizes(self.given[last], outputs)}" if isinstance(last, torch.nn.Linear) else ""
            ends = f"ends in {self.name(last)} ({kind(last)}){found}"
        alike = [self.name(module) for module in linear if _as_many(self.given[module], outputs)]
        hint = f"name it, such as last_layer={alike[-1]!r}, or gather" if alike else "gather"
        raise ValueError(
            f"{type(self.model).__name__} has no linear last layer: it {ends}; {hint} features, outputs and targets "
            "yourself in solvable.diagnostics.FeatureStatistics"
        )

    def check(self, layer: torch.nn.Module, samples: int, field: Field | None) -> None:
        """Refuse a layer that was named and is not the last: its outputs would be taken for the network's."""
        if layer not in self.given:
            return  # passing() says how often it ran
        try:
            outputs = self.outputs(samples, field)
        except ValueError:
            if field is not None:
                raise
            return  # several outputs, or unknown ones: the layer that was named says which are meant
        own = set(layer.modules())
        after = [module for module in self.order[_last_place(self.order, layer) + 1 :] if module not in own]
        mixing = [module for module in after if any(part.ndim > 1 for part in module.parameters(recurse=False))]
        given = self.given[layer]
        if _same(given, outputs) or (_as_many(given, outputs) and not mixing):
            return
        later = f"{self.name(mixing[-1])!r} ({kind(mixing[-1])}) runs after it" if mixing else "more follows it"
        found = _sizes(given, outputs)
        raise ValueError(
            f"last_layer {self.name(layer)!r} ({kind(layer)}) is not the last step of {type(self.model).__name__}: "
            f"{later}, and {found}; leave last_layer out, or name the layer that gives the outputs"
        )


def named(model: torch.nn.Module, layer: Any) -> torch.nn.Module:
    """The module that is meant, by its name or itself."""
    modules = dict(model.named_modules())
    if isinstance(layer, str):
        if layer not in modules:
            near = ", ".join(name for name in modules if name)
            raise ValueError(f"{type(model).__name__} has no layer {layer!r}; it has {near}")
        return modules[layer]
    if not any(layer is module for module in modules.values()):
        raise ValueError(f"last_layer {kind(layer)} is not a part of this {type(model).__name__}")
    return layer


def weights(layer: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weights and bias of a linear layer."""
    if not isinstance(layer, torch.nn.Linear):
        raise ValueError(f"neural collapse compares class means with the rows of a torch.nn.Linear, not {kind(layer)}")
    return layer.weight.detach(), None if layer.bias is None else layer.bias.detach()


def kind(layer: Any) -> str:
    """What a layer is called in errors, on one line."""
    text = repr(layer) if isinstance(layer, torch.nn.Module) else type(layer).__name__
    return text if "\n" not in text else type(layer).__name__


def _last_place(order: list[torch.nn.Module], layer: torch.nn.Module) -> int:
    return max(place for place, module in enumerate(order) if module is layer)


def _same(given: Any, outputs: torch.Tensor) -> bool:
    if not isinstance(given, torch.Tensor) or given.shape != outputs.shape:
        return False
    # What is not finite is named where the batch is added up; it says nothing about the layer.
    one, other = torch.nan_to_num(given.detach().float()), torch.nan_to_num(outputs.detach().float())
    return torch.allclose(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()) if other.numel() else 0.0)


def _as_many(given: Any, outputs: torch.Tensor) -> bool:
    return isinstance(given, torch.Tensor) and given.numel() == outputs.numel()


def _sizes(given: Any, outputs: torch.Tensor) -> str:
    if isinstance(given, torch.Tensor) and given.shape[-1:] != outputs.shape[-1:] and given.ndim and outputs.ndim:
        return f"its {given.shape[-1]} outputs are not the network's {outputs.shape[-1]}"
    return "its outputs are not the network's"
