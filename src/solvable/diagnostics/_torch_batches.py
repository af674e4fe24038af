"""Batches for a torch module: how they are read, taken apart, and read again with the same random numbers."""

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map

from solvable.diagnostics.batches import as_batches

_TARGET_KEYS = ("labels", "label", "targets", "target")


def batches_of(loader: Any, model: Any, name: str, dtype: Any = None) -> Iterable[Any]:
    """Batches as they are; a pair of whole arrays as batches of tensors, by default with inputs as the model has."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    dtype = dtype or next((value.dtype for value in model.parameters() if value.is_floating_point()), torch.float32)

    def convert(*arrays: Any) -> tuple[torch.Tensor, ...]:
        # Copies of NumPy arrays: torch warns of read-only memory.
        inputs, targets = (
            array if isinstance(array, torch.Tensor) else torch.tensor(np.asarray(array)) for array in arrays
        )
        return inputs.to(dtype) if inputs.is_floating_point() else inputs, targets

    return as_batches(loader, name, convert)


def unpack(batch: Any, device: Any) -> tuple[list[Any], dict[str, Any], torch.Tensor]:
    """Positional and keyword arguments for the model, and the targets."""

    def moved(value: Any) -> Any:
        return value.to(device) if isinstance(value, torch.Tensor) else value

    if isinstance(batch, Mapping):
        keywords = {name: moved(value) for name, value in batch.items()}
        for name in _TARGET_KEYS:
            if name in keywords:
                return [], keywords, torch.as_tensor(keywords.pop(name), device=device)
        raise ValueError(f"a batch has no targets: its keys are {', '.join(batch)}, none of {', '.join(_TARGET_KEYS)}")
    if isinstance(batch, list | tuple) and len(batch) >= 2:
        *inputs, targets = batch
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            return (
                [],
                {name: moved(value) for name, value in inputs[0].items()},
                torch.as_tensor(targets, device=device),
            )
        if len(inputs) == 1 and isinstance(inputs[0], list | tuple):
            inputs = list(inputs[0])
        return [moved(value) for value in inputs], {}, torch.as_tensor(targets, device=device)
    raise ValueError(f"a batch must be (inputs, targets) or a mapping with labels, not {type(batch).__name__}")


def in_precision_of(model: torch.nn.Module, value: Any) -> Any:
    """Inputs, tensors or structures of them, as the parameters are: float32 data for a model in float64 or half."""
    found = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    if len(found) != 1:
        return value
    (dtype,) = found

    def cast(one: Any) -> Any:
        return one.to(dtype) if isinstance(one, torch.Tensor) and one.is_floating_point() else one

    return tree_map(cast, value)


@contextmanager
def random_state_restored(loader: Any) -> Iterator[None]:
    """Shuffling a loader draws random numbers: a measurement must not change the training that follows."""
    generators = {
        id(generator): generator
        for generator in (getattr(loader, "generator", None), getattr(getattr(loader, "sampler", None), "generator", 0))
        if isinstance(generator, torch.Generator)
    }
    states = {name: generator.get_state() for name, generator in generators.items()}
    # Augmentations in the process of the loader may draw from NumPy or from Python.
    others = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        try:
            yield
        finally:
            np.random.set_state(others[0])
            random.setstate(others[1])
            for name, generator in generators.items():
                generator.set_state(states[name])
