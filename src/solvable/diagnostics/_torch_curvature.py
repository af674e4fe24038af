"""Gradients and curvature products of a torch module. Imported only for torch modules.

Products of the Hessian are computed by double backward: forward mode over backward multiplies as often, and fewer
layers support it. Products of the Gauss-Newton matrix need one derivative along a direction, by forward mode where all
layers have it. Double backward would take half as much again for convolutions, all of whose second derivatives torch
computes at once.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from solvable.diagnostics._torch_batches import batches_of, random_state_restored, unpack
from solvable.diagnostics._torch_tangent import inference_mode, state_of, unwrapped
from solvable.diagnostics.curvature import (
    FORWARD,
    IGNORED,
    REVERSE,
    Kind,
    check_labels,
    check_loss,
    check_shapes,
    check_sums,
    chosen_loss,
    name_of,
    no_second_derivative,
)
from solvable.diagnostics.losses import checked_values
from solvable.diagnostics.outputs import Field, find_outputs

# The network on a batch, as a function of its trained parameters.
Call = Callable[[dict[str, torch.Tensor]], torch.Tensor]
# A Hessian product of a convolutional network: no more operations than of others, but they take more processor time.
_CONVOLUTIONS = 3.5
_HALF = (torch.float16, torch.bfloat16)


class TorchCurvature:
    """The loss of a torch module, which is called by :func:`torch.func.functional_call` and never changed."""

    library = "torch"

    def __init__(
        self,
        model: torch.nn.Module,
        parameters: Any,
        data: Any,
        loss: Any,
        dtype: str | None,
        output_field: Field | None,
        held: set[int] | None = None,
        device: Any = None,
    ) -> None:
        check_loss(loss)
        check_sums(loss)
        if isinstance(model, torch.nn.Module):
            model = unwrapped(model)
        self._model, self._loss, self._field = model, loss, output_field
        self._loader = batches_of(data, model, "training data", torch.float64)
        if isinstance(self._loader, Iterator):
            raise ValueError(
                "the training data are read several times: give a list or a loader, not an iterator that runs out"
            )
        own = dict(model.named_parameters())
        if held is not None and not held & {id(value) for value in own.values()}:
            raise ValueError("the optimizer holds no parameter of this model: give the optimizer that trains it")
        self._own = {
            name: value for name, value in own.items() if value.requires_grad and (held is None or id(value) in held)
        }
        if not self._own:
            raise ValueError("the module has no parameters that require gradients: call requires_grad_(True) on some")
        given = next(iter(self._own.values())).dtype
        self._dtype = getattr(torch, dtype) if dtype else torch.float32 if given in _HALF else given
        self.converted_from = str(given).removeprefix("torch.") if given in _HALF else ""
        self.precision = str(self._dtype).removeprefix("torch.")
        self.dtype = np.dtype(self.precision)
        self._device = next(iter(self._own.values())).device if device is None else torch.device(device)
        cast = {
            name: value.to(self._device, self._dtype) if value.is_floating_point() else value.to(self._device)
            for name, value in state_of(model, parameters).items()
        }
        self._trained = {name: cast[name].detach().clone().requires_grad_(True) for name in self._own}
        if any(value.is_complex() for value in self._trained.values()):
            raise ValueError("complex parameters have no real Hessian: give their real and imaginary parts")
        self._rest = {name: value for name, value in cast.items() if name not in self._trained}
        self.names = tuple(self._trained)
        self.size = sum(value.numel() for value in self._trained.values())
        self.loss_name = "" if loss is None else name_of(loss)
        self._forward = True
        self._convolutions = any(isinstance(layer, torch.nn.modules.conv._ConvNd) for layer in model.modules())

    @property
    def costs(self) -> Mapping[str, float]:
        found = FORWARD if self._forward else REVERSE
        return {**found, "hessian": _CONVOLUTIONS} if self._convolutions else found

    def gradient(self) -> Iterator[tuple[float, float, np.ndarray]]:
        def run(call: Call, targets: torch.Tensor) -> tuple[float, float, np.ndarray]:
            outputs = call(self._trained)
            total, count = self._total(outputs, targets)
            if not total.requires_grad:
                raise ValueError(
                    "the loss has no derivative with respect to the parameters: look for detach, no_grad, argmax or "
                    "NumPy in the network and in the loss"
                )
            return count, float(total.detach()), self._flat(self._slopes(total))

        yield from self._over_batches(run)

    def product(self, kind: Kind, vector: np.ndarray) -> Iterator[np.ndarray]:
        direction = self._like(vector)
        one = self._hessian if kind == "hessian" else self._gauss_newton

        def run(call: Call, targets: torch.Tensor) -> np.ndarray:
            try:
                return self._flat(one(call, targets, direction))
            except (RuntimeError, NotImplementedError) as error:
                raise no_second_derivative(error) from error

        yield from self._over_batches(run)

    def _hessian(self, call: Call, targets: torch.Tensor, direction: list[torch.Tensor]) -> Any:
        slopes = self._slopes(self._total(call(self._trained), targets)[0], create_graph=True)
        pairs = [(a, b) for a, b in zip(slopes, direction, strict=True) if a is not None and a.requires_grad]
        if not pairs:
            return [None] * len(direction)
        return self._slopes([a for a, _ in pairs], [b for _, b in pairs])

    def _gauss_newton(self, call: Call, targets: torch.Tensor, direction: list[torch.Tensor]) -> Any:
        outputs, along = self._pushed_forward(call, direction)
        if along is None:
            return [None] * len(direction)
        found = outputs.detach().requires_grad_(True)
        slope = torch.autograd.grad(self._total(found, targets)[0], found, create_graph=True)[0]
        if not slope.requires_grad:
            return [None] * len(direction)
        return self._slopes(outputs, torch.autograd.grad(slope, found, along)[0])

    def _pushed_forward(self, call: Call, direction: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Outputs with their graph, and their derivative along a direction of the parameters if they have one."""
        if self._forward:
            try:
                # On first use torch compiles some rules by means that it has deprecated itself.
                with forward_ad.dual_level(), warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                    pairs = zip(self._trained.items(), direction, strict=True)
                    outputs = call({name: forward_ad.make_dual(value, part) for (name, value), part in pairs})
                    primal, along = forward_ad.unpack_dual(outputs)
                if along is not None:
                    return primal, along.detach()
            except (RuntimeError, NotImplementedError):
                pass  # a layer without forward mode
            self._forward = False
        outputs = call(self._trained)
        # The pullback is linear in its weights, so that its own pullback is the Jacobian-vector product.
        weights = torch.zeros_like(outputs, requires_grad=True)
        pulled = [
            (a, b)
            for a, b in zip(self._slopes(outputs, weights, create_graph=True), direction, strict=True)
            if a is not None and a.requires_grad
        ]
        if not pulled:
            return outputs, None
        return outputs, torch.autograd.grad([a for a, _ in pulled], weights, [b for _, b in pulled])[0]

    def _slopes(self, of: Any, weights: Any = None, create_graph: bool = False) -> tuple[Any, ...]:
        return torch.autograd.grad(
            of, list(self._trained.values()), weights, create_graph=create_graph, retain_graph=True, allow_unused=True
        )

    def _over_batches(self, run: Callable[[Call, torch.Tensor], Any]) -> Iterator[Any]:
        """Run a function of network and targets on every batch; the same batches in every pass, also of a shuffle.

        The network is given as a function of the trained parameters that returns the outputs.
        """
        empty = True
        # Fused attention has no second derivative.
        with (
            random_state_restored(self._loader),
            inference_mode(self._model),
            torch.enable_grad(),
            sdpa_kernel(SDPBackend.MATH),
        ):
            for batch in self._loader:
                empty = False
                arguments, keywords, targets = unpack(batch, self._device)
                integers = not targets.is_floating_point()
                if not self.loss_name:
                    self._loss = chosen_loss(self._loss, integers)
                    self.loss_name = name_of(self._loss)
                call = partial(self._outputs, arguments, keywords, targets)
                yield run(call, targets if integers else targets.to(self._dtype))
        if empty:
            raise ValueError("the training data are empty: the loader gave no batch")

    def _outputs(
        self, arguments: list[Any], keywords: dict[str, Any], targets: torch.Tensor, trained: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        def cast(value: Any) -> Any:
            value = torch.as_tensor(value, device=self._device) if isinstance(value, np.ndarray) else value
            return value.to(self._dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

        # Buffers are copied: a module may change them in place.
        state = {name: value.clone() for name, value in self._rest.items()}
        returned = functional_call(
            self._model,
            {**state, **trained},
            tuple(map(cast, arguments)),
            {name: cast(value) for name, value in keywords.items()},
        )
        samples = len(targets) if targets.ndim else None
        return find_outputs(returned, self._field, samples=samples)[0]

    def _total(self, outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, float]:
        """The summed loss of a batch, and its number of samples."""
        if isinstance(self._loss, str):
            return _named(self._loss, outputs, targets)
        samples = len(targets) if targets.ndim else 1
        found = torch.as_tensor(checked_values(self._loss(outputs, targets), samples))
        if found.is_complex():
            raise ValueError("loss must return real numbers, not complex ones: give their absolute value")
        if found.ndim == 0:
            return found * samples, float(samples)
        return found.reshape(samples, -1).mean(dim=1).sum(), float(samples)

    def _flat(self, slopes: Any) -> np.ndarray:
        parts = [
            torch.zeros_like(value) if slope is None else slope
            for slope, value in zip(slopes, self._trained.values(), strict=True)
        ]
        return torch.cat([part.detach().reshape(-1) for part in parts]).cpu().numpy()

    def _like(self, vector: np.ndarray) -> list[torch.Tensor]:
        whole = torch.tensor(vector, dtype=self._dtype, device=self._device)
        sizes = [value.numel() for value in self._trained.values()]
        parts = zip(torch.split(whole, sizes), self._trained.values(), strict=True)
        return [part.reshape(value.shape) for part, value in parts]

    def flatten(self, tree: Any) -> np.ndarray:
        """Arrays by parameter (as in the rule of a torch optimiser), by name, or in order, as one vector."""
        found = []
        for place, (name, value) in enumerate(self._own.items()):
            if isinstance(tree, Mapping):
                part = tree.get(value, tree.get(name)) if _by_parameter(tree) else tree.get(name)
            else:
                part = list(tree)[place] if place < len(tree) else None
            if part is None:
                raise ValueError(f"the scale of the optimizer lacks {name!r}: give one for each trained parameter")
            part = part.detach().cpu().double().numpy() if isinstance(part, torch.Tensor) else np.asarray(part, float)
            if part.shape not in ((), tuple(value.shape)):
                raise ValueError(
                    f"the scale of the optimizer has shape {part.shape} for {name!r}, which has {tuple(value.shape)}"
                )
            found.append(np.broadcast_to(part, tuple(value.shape)).ravel())
        return np.concatenate(found)


def _by_parameter(tree: Mapping[Any, Any]) -> bool:
    return any(isinstance(key, torch.Tensor) for key in tree)


def _named(loss: str, outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, float]:
    integers = not targets.is_floating_point()
    check_shapes(loss, tuple(outputs.shape), tuple(targets.shape), integers)
    if loss == "cross-entropy":
        rows = outputs.reshape(-1, outputs.shape[-1])
        if not integers:
            logarithms = torch.log_softmax(rows, dim=1)
            return -(targets.reshape(rows.shape) * logarithms).sum(), float(len(rows))
        labels = targets.reshape(-1).long()
        check_labels(labels.cpu().numpy(), rows.shape[1])
        total = torch.nn.functional.cross_entropy(rows, labels, ignore_index=IGNORED, reduction="sum")
        return total, float((labels != IGNORED).sum())
    rows = outputs.reshape(len(outputs), -1)
    squares = ((rows - targets.reshape(rows.shape).to(rows.dtype)) ** 2).sum()
    return (squares / rows.shape[1] if loss == "mse" else squares / 2), float(len(rows))
