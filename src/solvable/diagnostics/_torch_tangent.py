"""A torch module as a function of its trainable parameters, by torch.func. Imported only for torch modules."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import tree_map

from solvable.diagnostics.batches import SeveralInputs
from solvable.diagnostics.linear_layers import (
    NotAnOuterProductError,
    OuterProducts,
    inner_products,
    squared_norms,
    worthwhile,
)
from solvable.diagnostics.outputs import Field, find_outputs, only_row


class TorchNetwork:
    """A torch module, called by :func:`torch.func.functional_call` and never changed.

    Buffers, such as the running means of batch normalisation, are held fixed.
    """

    library = "torch"

    def __init__(
        self, model: torch.nn.Module, parameters: Any, dtype: str | None, output_field: Field | None = None
    ) -> None:
        model = unwrapped(model)
        self._model, self._field = model, output_field
        self._layers: dict[str, torch.nn.Linear] | None = None
        target = None if dtype is None else getattr(torch, dtype)
        trainable = [name for name, value in model.named_parameters() if value.requires_grad]
        if not trainable:
            raise ValueError("the module has no parameters that require gradients: call requires_grad_(True) on some")
        state = state_of(model, parameters)
        cast = {name: value.to(target) if value.is_floating_point() else value for name, value in state.items()}
        self._trained = {name: cast[name] for name in trainable}
        self._rest = {name: value for name, value in cast.items() if name not in self._trained}
        if any(value.is_complex() for value in self._trained.values()):
            raise ValueError("complex parameters have no real tangent kernel: give their real and imaginary parts")
        first = next(iter(self._trained.values()))
        self._device, self._dtype = first.device, first.dtype
        self.names = tuple(trainable)
        self.size = sum(value.numel() for value in self._trained.values())
        self.precision = str(self._dtype).removeprefix("torch.")

    def outputs(self, inputs: Any) -> np.ndarray:
        return _numpy(self._values(self._cast(inputs)))

    def _values(self, rows: Any) -> torch.Tensor:
        with torch.no_grad(), inference_mode(self._model):
            return vmap(lambda x: self._single(self._trained, x))(rows)

    def gradients(self, inputs: Any, weights: np.ndarray) -> list[Any]:
        rows = self._cast(inputs)
        return self._gradients(rows, weights, self._outer_products(rows))

    def gradient_size(self, inputs: Any) -> int:
        layers = self._outer_products(self._cast(inputs[:1])).values()
        inside = sum(value.numel() for layer in layers for value in layer.parameters())
        return self.size - inside + sum(sum(layer.weight.shape) + 1 for layer in layers)

    def _gradients(self, rows: Any, weights: np.ndarray, layers: Mapping[str, torch.nn.Linear]) -> list[Any]:
        """Arrays for the parameters outside these linear layers, outer products for those inside."""
        combinations = torch.as_tensor(weights, dtype=self._dtype, device=self._device)
        names = {f"{name}.{part}".lstrip(".") for name in layers for part in ("weight", "bias")}
        plain = {name: value for name, value in self._trained.items() if name not in names}
        inside = {name: value for name, value in self._trained.items() if name in names}
        zeros = {name: torch.zeros_like(layer.weight[:, 0], dtype=self._dtype) for name, layer in layers.items()}

        def gradients(x: Any) -> tuple[Any, Any, Any]:
            def run(own: dict[str, torch.Tensor], offsets: dict[str, torch.Tensor]) -> tuple[Any, Any]:
                with _tapped(layers, offsets) as below:
                    values = self._single({**inside, **own}, x)
                return values, _layer_inputs(below, layers)

            result: Any = vjp(run, plain, zeros, has_aux=True)
            _, pullback, below = result
            return *vmap(pullback)(combinations), below

        with inference_mode(self._model):
            found, slopes, below = vmap(gradients)(rows)
        arrays = [_widened(value.reshape(*value.shape[:2], -1)) for value in found.values()]
        return [*arrays, *(OuterProducts(_widened(slopes[name]), _widened(below[name])) for name in layers)]

    def _outer_products(self, rows: Any) -> dict[str, torch.nn.Linear]:
        """The linear layers whose gradients are outer products, found by comparison with gradients on one input."""
        if self._layers is None:
            self._layers = self._find_outer_products(tree_map(lambda x: x[:1], rows)) if worthwhile(self.size) else {}
        return self._layers

    def _find_outer_products(self, row: Any) -> dict[str, torch.nn.Linear]:
        layers = _candidates(self._model, self._trained)
        weights = np.random.default_rng(0).normal(size=(1, self._values(row).shape[1]))
        full = dict(zip(self._trained, self._gradients(row, weights, {}), strict=True)) if layers else {}
        while layers:
            try:
                products = self._gradients(row, weights, layers)[-len(layers) :]
            except NotAnOuterProductError as error:
                layers = {name: layer for name, layer in layers.items() if name != error.layer}
                continue
            found = zip(layers.items(), products, strict=True)
            return {name: layer for (name, layer), part in found if _agree(full, name, layer, part)}
        return {}

    def contract(self, left: Sequence[Any], right: Sequence[Any], pairs: bool) -> np.ndarray:
        return _numpy(inner_products(left, right, pairs))

    def squared_norms(self, gradients: Sequence[Any]) -> np.ndarray:
        return _numpy(squared_norms(gradients))

    def tangent(self, inputs: Any, direction: Sequence[np.ndarray]) -> np.ndarray:
        along = {
            name: torch.as_tensor(part, dtype=value.dtype, device=self._device).reshape(value.shape)
            for (name, value), part in zip(self._trained.items(), direction, strict=True)
        }
        rows = self._cast(inputs)
        with inference_mode(self._model):
            call = vmap(self._single, in_dims=(None, 0))
            outputs, pullback = vjp(lambda trained: call(trained, rows), self._trained)[:2]
            # The pullback is linear, so its own vector-Jacobian product is a Jacobian-vector product. More layers
            # support a second reverse-mode derivative than forward mode, which torch also compiles on first use.
            pushforward = vjp(lambda weights: pullback(weights)[0], torch.zeros_like(outputs))[1]
            return _numpy(pushforward(along)[0])

    def arrays(self) -> list[np.ndarray]:
        return [_numpy(self._trained[name]) for name in self.names]

    def _single(self, trained: Mapping[str, torch.Tensor], x: Any) -> torch.Tensor:
        x = tree_map(lambda one: one[None], x)
        arguments, keywords = ((), x) if isinstance(x, dict) else (x if isinstance(x, tuple) else (x,), {})
        returned = functional_call(self._model, {**self._rest, **trained}, arguments, keywords)
        return only_row(find_outputs(returned, self._field, samples=1)[0]).reshape(-1)

    def _cast(self, inputs: Any) -> Any:
        if isinstance(inputs, SeveralInputs):
            return inputs.map(self._cast)
        rows = torch.as_tensor(inputs if isinstance(inputs, torch.Tensor) else np.array(inputs), device=self._device)
        return rows.detach().to(self._dtype) if rows.is_floating_point() else rows


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The module inside ``torch.compile`` or a data-parallel wrapper, in which parameters have other names.

    Hooks do not run in a compiled module, and copies on several devices have no tangent kernel.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError(
            "a ScriptModule hides its layers and its derivatives: give the module that it was made from, with "
            "load_state_dict(scripted.state_dict())"
        )
    # Not imported for this: whoever has compiled a module has imported it.
    dynamo: Any = sys.modules.get("torch._dynamo")
    if dynamo and isinstance(model, dynamo.OptimizedModule):
        return unwrapped(model._orig_mod)  # type: ignore[arg-type]
    if isinstance(model, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        return unwrapped(model.module)
    return model


def _unwrapped_names(state: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    """A state dict with the names that parameters have outside of wrappers, where those are the names of the model."""
    for prefix in ("_orig_mod.", "module."):
        if state and all(name.startswith(prefix) for name in state) and not set(state) & set(own):
            return _unwrapped_names({name.removeprefix(prefix): value for name, value in state.items()}, own)
    return state


@contextmanager
def inference_mode(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode, without dropout and with running statistics; the mode of every submodule is restored."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _candidates(model: torch.nn.Module, trained: Mapping[str, Any]) -> dict[str, torch.nn.Linear]:
    """Linear layers that are not subclassed, are trained entirely, and share no parameter with anything else."""
    uses: dict[int, int] = {}
    for _, value in model.named_parameters(remove_duplicate=False):
        uses[id(value)] = uses.get(id(value), 0) + 1
    return {
        name: layer
        for name, layer in model.named_modules()
        if type(layer) is torch.nn.Linear
        and all(uses[id(value)] == 1 for value in layer.parameters())
        and all(f"{name}.{part}".lstrip(".") in trained for part, _ in layer.named_parameters())
    }


@contextmanager
def _tapped(
    layers: Mapping[str, torch.nn.Linear], offsets: Mapping[str, torch.Tensor]
) -> Iterator[dict[str, list[torch.Tensor]]]:
    """Add offsets to the outputs of the layers, and record their inputs."""
    below: dict[str, list[torch.Tensor]] = {name: [] for name in layers}

    def hook(name: str) -> Any:
        def tap(_: torch.nn.Module, inputs: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
            below[name].append(inputs[0])
            return output + offsets[name]

        return tap

    handles = [layer.register_forward_hook(hook(name), prepend=True) for name, layer in layers.items()]
    try:
        yield below
    finally:
        for handle in handles:
            handle.remove()


def _layer_inputs(
    below: dict[str, list[torch.Tensor]], layers: Mapping[str, torch.nn.Linear]
) -> dict[str, torch.Tensor]:
    """The input of each layer, with a one for its bias."""
    for name, inputs in below.items():
        if len(inputs) != 1 or inputs[0].numel() != layers[name].in_features:
            raise NotAnOuterProductError(name)
    rows = {name: inputs[0].reshape(-1) for name, inputs in below.items()}
    return {
        name: row if layers[name].bias is None else torch.cat([row, torch.ones_like(row[:1])])
        for name, row in rows.items()
    }


def _agree(full: Mapping[str, torch.Tensor], name: str, layer: torch.nn.Linear, part: OuterProducts) -> bool:
    """Whether the outer product is the gradient of the layer's weights and bias."""
    gradient = full[f"{name}.weight".lstrip(".")].reshape(layer.weight.shape)
    if layer.bias is not None:
        gradient = torch.cat([gradient, full[f"{name}.bias".lstrip(".")].reshape(-1, 1)], 1)
    product = torch.outer(part.slopes[0, 0], part.below[0])
    tolerance = 1000 * torch.finfo(layer.weight.dtype).eps
    return bool((product - gradient).abs().max() <= tolerance * gradient.abs().max())


def state_of(model: torch.nn.Module, parameters: Any) -> dict[str, torch.Tensor]:
    for name, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise ValueError(f"parameter {name!r} has no shape yet: run the model on a batch once, which makes it")
    own = {name: value.detach() for name, value in (*model.named_parameters(), *model.named_buffers())}
    if parameters is None:
        return own
    if isinstance(parameters, torch.nn.Module):
        parameters = unwrapped(parameters)
        parameters = dict((*parameters.named_parameters(), *parameters.named_buffers()))
    if not isinstance(parameters, Mapping):
        raise ValueError(
            f"the parameters of a torch module are a module or a state dict, not {type(parameters).__name__}"
        )
    parameters = _unwrapped_names(parameters, own)
    missing = [name for name, _ in model.named_parameters() if name not in parameters]
    if missing:
        raise ValueError(f"the parameters lack {missing[0]!r}, which the model has: pass its whole state_dict()")
    for name, value in own.items():
        if name in parameters and parameters[name].shape != value.shape:
            found, expected = tuple(parameters[name].shape), tuple(value.shape)
            raise ValueError(
                f"parameter {name!r} has shape {found} where the model has {expected}: pass those of this model"
            )
    return {
        name: parameters[name].detach().to(value.device) if name in parameters else value for name, value in own.items()
    }


def _widened(part: torch.Tensor) -> torch.Tensor:
    return part.float() if part.dtype in (torch.float16, torch.bfloat16) else part


def _numpy(value: Any) -> np.ndarray:
    value = value.detach().cpu()
    return _widened(value).numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
