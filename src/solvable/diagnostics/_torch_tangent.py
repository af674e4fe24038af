"""A torch module as a function of its trainable parameters, by torch.func. Imported only for torch modules."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, jvp, vjp, vmap

from solvable.diagnostics.tangent import inner_products


class TorchNetwork:
    """The module is called by :func:`torch.func.functional_call` and never changed.

    Buffers, such as the running means of a batch norm, come with the parameters and are held fixed.
    """

    library = "torch"

    def __init__(self, model: torch.nn.Module, parameters: Any, dtype: str | None) -> None:
        self._model = model
        wanted = None if dtype is None else getattr(torch, dtype)
        trainable = [name for name, value in model.named_parameters() if value.requires_grad]
        if not trainable:
            raise ValueError("the module has no parameters that require gradients: call requires_grad_(True) on some")
        state = _state(model, parameters)
        cast = {name: value.to(wanted) if value.is_floating_point() else value for name, value in state.items()}
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
        with torch.no_grad(), inferring(self._model):
            return _numpy(vmap(lambda one: self._single(self._trained, one))(self._cast(inputs)))

    def gradients(self, inputs: Any, weights: np.ndarray) -> list[Any]:
        chosen = torch.as_tensor(weights, dtype=self._dtype, device=self._device)

        def of_one(one: torch.Tensor) -> dict[str, torch.Tensor]:
            _, pull = vjp(lambda trained: self._single(trained, one), self._trained)
            return vmap(lambda weight: pull(weight)[0])(chosen)

        with inferring(self._model):
            found = vmap(of_one)(self._cast(inputs))
        return [_wide(found[name].reshape(*found[name].shape[:2], -1)) for name in self.names]

    def contract(self, left: Sequence[Any], right: Sequence[Any], pairs: bool) -> np.ndarray:
        return _numpy(inner_products(left, right, pairs))

    def squared_norms(self, gradients: Sequence[Any]) -> np.ndarray:
        return _numpy(sum((part**2).sum((1, 2)) for part in gradients))

    def tangent(self, inputs: Any, direction: Sequence[np.ndarray]) -> np.ndarray:
        along = {
            name: torch.as_tensor(part, dtype=value.dtype, device=self._device).reshape(value.shape)
            for (name, value), part in zip(self._trained.items(), direction, strict=True)
        }
        rows = self._cast(inputs)
        with torch.no_grad(), inferring(self._model):
            call = vmap(self._single, in_dims=(None, 0))
            return _numpy(jvp(lambda trained: call(trained, rows), (self._trained,), (along,))[1])

    def arrays(self) -> list[np.ndarray]:
        return [_numpy(self._trained[name]) for name in self.names]

    def _single(self, trained: Mapping[str, torch.Tensor], one: torch.Tensor) -> torch.Tensor:
        return functional_call(self._model, {**self._rest, **trained}, (one[None],))[0].reshape(-1)

    def _cast(self, inputs: Any) -> torch.Tensor:
        rows = torch.as_tensor(inputs if isinstance(inputs, torch.Tensor) else np.array(inputs), device=self._device)
        return rows.detach().to(self._dtype) if rows.is_floating_point() else rows


@contextmanager
def inferring(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout and with the running statistics; every submodule's mode is put back."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _state(model: torch.nn.Module, parameters: Any) -> dict[str, torch.Tensor]:
    own = {name: value.detach() for name, value in (*model.named_parameters(), *model.named_buffers())}
    if parameters is None:
        return own
    if isinstance(parameters, torch.nn.Module):
        parameters = dict((*parameters.named_parameters(), *parameters.named_buffers()))
    if not isinstance(parameters, Mapping):
        raise ValueError(
            f"the parameters of a torch module are a module or a state dict, not {type(parameters).__name__}"
        )
    missing = [name for name, _ in model.named_parameters() if name not in parameters]
    if missing:
        raise ValueError(f"the parameters lack {missing[0]!r}, which the model has: pass its whole state_dict()")
    for name, value in own.items():
        if name in parameters and parameters[name].shape != value.shape:
            found, wanted = tuple(parameters[name].shape), tuple(value.shape)
            raise ValueError(
                f"parameter {name!r} has shape {found} where the model has {wanted}: pass the same model's"
            )
    return {
        name: parameters[name].detach().to(value.device) if name in parameters else value for name, value in own.items()
    }


def _wide(part: torch.Tensor) -> torch.Tensor:
    return part.float() if part.dtype in (torch.float16, torch.bfloat16) else part


def _numpy(value: Any) -> np.ndarray:
    value = value.detach().cpu()
    return _wide(value).numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
