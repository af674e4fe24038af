"""Batches of torch tensors from loaders and arrays, and the random state around them. Imported only for torch."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from solvable.diagnostics.batches import as_batches

_TARGET_KEYS = ("labels", "label", "targets", "target")


def batches_of(loader: Any, model: Any, name: str) -> Iterable[Any]:
    """Batches as they are; a pair of whole arrays as batches of tensors, with inputs in the precision of the model."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    dtype = next((value.dtype for value in model.parameters() if value.is_floating_point()), torch.float32)

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
        return [moved(value) for value in inputs], {}, torch.as_tensor(targets, device=device)
    raise ValueError(f"a batch must be (inputs, targets) or a mapping with labels, not {type(batch).__name__}")


@contextmanager
def random_state_restored(loader: Any) -> Iterator[None]:
    """Shuffling a loader draws random numbers: a measurement must not change the training that follows."""
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
