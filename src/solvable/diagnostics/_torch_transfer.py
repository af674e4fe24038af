"""Transfer of learning rates across widths for networks in PyTorch, by plain training loops."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from solvable.checks import check_count
from solvable.diagnostics._torch_batches import batches_of, random_state_restored, unpack
from solvable.diagnostics._torch_tangent import inference_mode
from solvable.diagnostics.curvature import check_labels
from solvable.diagnostics.losses import checked_values
from solvable.diagnostics.outputs import Field, find_outputs
from solvable.diagnostics.transfer import TransferReport
from solvable.diagnostics.transfer_arguments import ARGUMENTS, check_arguments, check_first_loss, check_sizes
from solvable.diagnostics.transfer_coordinates import coordinate_check, coordinate_rate
from solvable.docstrings import shares_arguments
from solvable.progress import progress_bar

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_PROBES = 32


class _Job(NamedTuple):
    """What is the same for all runs."""

    make_model: Callable[[int], Any]
    data: Any
    test_data: Any
    optimizer: Callable[..., Any]
    steps: int
    coordinate_steps: int
    batch_size: int | None
    loss: Loss | None
    diverged_above: float
    device: Any
    output_field: Field | None


class _Run(NamedTuple):
    """The final loss of a run, NaN if it diverged, and root mean squares of its layers; no changes if it ended soon."""

    loss: float
    initial: dict[str, float]
    change: dict[str, float] | None


@shares_arguments(ARGUMENTS)
def transfer(
    make_model: Callable[[int], Any],
    data: Any,
    *,
    widths: Sequence[int],
    learning_rates: Sequence[float],
    steps: int,
    seeds: int = 8,
    optimizer: Callable[..., Any] = torch.optim.SGD,
    test_data: Any = None,
    batch_size: int | None = None,
    loss: Loss | None = None,
    key: int = 0,
    window: float = 2.0,
    coordinate_steps: int = 3,
    diverged_above: float = 100.0,
    device: Any = None,
    output_field: Field | None = None,
    progress: bool | None = None,
) -> TransferReport:
    """Whether the best learning rate transfers from narrow to wide torch networks, with error bars.

    A network is made and trained for every width, learning rate and seed. Seeds are paired: torch is seeded alike at
    all rates before the network is made and before it is trained, and so is the generator of a loader. The random state
    of the process and of the loader are restored afterwards. The report is that of :func:`solvable.networks.transfer`.

    Parameters
    ----------
    make_model
        A function of the width that returns a new module; or a pair of a module and its parameter groups, mappings with
        ``params`` and ``lr_factor``, the factor that multiplies the learning rate of the group (1 if it is missing).
    data
        Batches ``(inputs, targets)``, such as a ``DataLoader`` that shuffles; or one pair of whole arrays.
    optimizer
        A function ``optimizer(parameters, lr)``, such as a class of ``torch.optim``.
    test_data
        Data on which the final loss is measured; by default those of the training.
    loss
        A function of outputs and targets; by default cross-entropy for whole-number targets and the mean squared error
        for others.
    device
        Where to train; by default where ``make_model`` puts the modules.
    output_field
        Which field holds the outputs of a network that returns several, as in :func:`diagnose`.

    >>> import torch, solvable.torch
    >>> inputs = torch.randn(64, 4)
    >>> def make_model(width):
    ...     return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    ...
    >>> report = solvable.torch.transfer(
    ...     make_model, (inputs, inputs[:, :1].sin()), widths=[4, 8], learning_rates=[0.05, 0.1, 0.2], steps=5, seeds=4
    ... )
    >>> report.losses.shape
    (2, 3, 4)
    """
    numbers, rates, seeds = grid = check_arguments(
        widths=widths,
        learning_rates=learning_rates,
        seeds=seeds,
        steps=steps,
        batch_size=batch_size,
        key=key,
        window=window,
        coordinate_steps=coordinate_steps,
        diverged_above=diverged_above,
    )
    if isinstance(make_model, torch.nn.Module) or not callable(make_model):
        raise TypeError(
            f"make_model must be a function of the width, not {type(make_model).__name__}: such as a lambda"
        )
    job = _Job(
        make_model, data, test_data, optimizer, steps, coordinate_steps, batch_size, loss, diverged_above, device,
        output_field,
    )  # fmt: skip
    shape = grid.shape
    with random_state_restored(data), random_state_restored(test_data):
        parameters = [_made(job, int(width), key)[0] for width in numbers]
        sizes = check_sizes(numbers, [sum(one.numel() for one in model.parameters()) for model in parameters])
        runs: dict[tuple[int, int, int], _Run] = {}
        with progress_bar("training", float(sizes.sum() * len(rates) * seeds), progress) as advance:
            for place in np.ndindex(*shape):
                width, rate, seed = int(numbers[place[0]]), float(rates[place[1]]), 1000 * key + place[2]
                runs[place] = _run(job, width, rate, seed)  # type: ignore[index]
                advance(float(sizes[place[0]]))
    losses = np.array([runs[place].loss for place in np.ndindex(*shape)]).reshape(shape)  # type: ignore[index]
    settings = {
        "network": getattr(make_model, "__name__", type(make_model).__name__),
        "optimiser": getattr(optimizer, "__name__", type(optimizer).__name__),
        "steps": steps,
        "key": key,
        "library": "torch",
    }
    name = "train_loss" if test_data is None else "test_loss"
    coordinates = _coordinates(numbers, rates, runs, losses, coordinate_steps)
    return TransferReport(numbers, rates, losses, sizes, name, settings, float(window), coordinates)


def _made(job: _Job, width: int, seed: int) -> tuple[torch.nn.Module, list[dict[str, Any]]]:
    """A new module and its parameter groups, from a seed."""
    torch.manual_seed(seed)
    made = job.make_model(width)
    model, groups = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"make_model must return a torch.nn.Module, or one and its groups, not {type(model).__name__}")
    if job.device is not None:
        model.to(job.device)
    if groups is None:
        return model, [{"params": list(model.parameters())}]
    found = [{**group, "params": list(group["params"])} for group in groups]
    grouped = [id(one) for group in found for one in group["params"]]
    missing = [name for name, one in model.named_parameters() if one.requires_grad and id(one) not in grouped]
    if missing:
        raise ValueError(f"{missing[0]} is in no parameter group: give every parameter that is trained a group")
    return model, found


def _run(job: _Job, width: int, rate: float, seed: int) -> _Run:
    model, groups = _made(job, width, seed)
    device = next(model.parameters()).device
    for group in groups:
        group["lr"] = rate * float(group.pop("lr_factor", 1.0))
    optimizer = job.optimizer(groups, lr=rate)
    torch.manual_seed(seed)
    batches = _endless(job, model, seed)
    probe = None
    first, initial, change = np.nan, {}, None
    for step, batch in enumerate(itertools.islice(batches, job.steps)):
        arguments, keywords, targets = unpack(batch, device)
        if probe is None:
            probe = ([one[:_PROBES] for one in arguments], {name: one[:_PROBES] for name, one in keywords.items()})
            before = _layer_outputs(model, probe)
            initial = {name: _size(values) for name, values in before.items()}
        model.train()
        optimizer.zero_grad()
        value = _loss(job, model, arguments, keywords, targets)
        number = float(value.detach())
        if step == 0:
            check_first_loss(number, width)
            _check_derivative(value)
            first = number
        value.backward()
        if not number <= job.diverged_above * first:
            return _Run(np.nan, initial, change)
        optimizer.step()
        if step + 1 == job.coordinate_steps:
            after = _layer_outputs(model, probe)
            change = {name: _size(after[name] - values) for name, values in before.items()}
    final = _final_loss(job, model, device)
    return _Run(final if final <= job.diverged_above * first else np.nan, initial, change)


def _check_derivative(value: torch.Tensor) -> None:
    if not value.requires_grad:
        raise ValueError(
            "the loss has no derivative with respect to the parameters: look for detach, no_grad, argmax or NumPy in "
            "the network and in the loss"
        )


def _endless(job: _Job, model: torch.nn.Module, seed: int) -> Iterator[Any]:
    """Batches without end: epochs of a loader, or of whole arrays in a new order each."""
    if not _is_pair(job.data):
        for generator in _generators(job.data):
            generator.manual_seed(seed)
        while True:
            empty = True
            for batch in batches_of(job.data, model, "data"):
                empty = False
                yield batch
            if empty:
                raise ValueError("the data are empty: the loader gave no batch, or can be read once only")
    inputs, targets = _tensors(job.data, model)
    size = len(inputs) if job.batch_size is None else check_count("batch_size", job.batch_size)
    if size > len(inputs):
        raise ValueError(f"batch_size must be at most the {len(inputs)} samples, not {size}")
    order = torch.Generator().manual_seed(seed)
    while True:
        rows = torch.arange(len(inputs)) if size == len(inputs) else torch.randperm(len(inputs), generator=order)
        for begin in range(0, len(inputs) - size + 1, size):
            yield inputs[rows[begin : begin + size]], targets[rows[begin : begin + size]]


def _generators(loader: Any) -> Iterable[torch.Generator]:
    sampler = getattr(loader, "sampler", None)
    found = {id(one): one for one in (getattr(loader, "generator", None), getattr(sampler, "generator", None))}
    return [one for one in found.values() if isinstance(one, torch.Generator)]


def _is_pair(data: Any) -> bool:
    return isinstance(data, tuple | list) and len(data) == 2 and all(hasattr(part, "shape") for part in data)


def _tensors(pair: Any, model: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = next(one.dtype for one in model.parameters() if one.is_floating_point())
    inputs, targets = (one if isinstance(one, torch.Tensor) else torch.tensor(np.asarray(one)) for one in pair)
    if not len(inputs):
        raise ValueError("the data are empty: give at least one sample")
    if len(inputs) != len(targets):
        raise ValueError(f"inputs and targets must have equally many rows, not {len(inputs)} and {len(targets)}")
    converted = [one.to(dtype) if one.is_floating_point() else one for one in (inputs, targets)]
    return converted[0], converted[1]


def _loss(job: _Job, model: Any, arguments: list[Any], keywords: dict[str, Any], targets: torch.Tensor) -> torch.Tensor:
    outputs, _ = find_outputs(model(*arguments, **keywords), job.output_field, samples=len(targets))
    if job.loss is not None:
        # One number for each sample is as good as their mean.
        return torch.as_tensor(checked_values(job.loss(outputs, targets), len(targets))).mean()
    if targets.is_floating_point():
        if outputs.numel() != targets.numel():
            shapes = f"{tuple(outputs.shape)} and {tuple(targets.shape)}"
            raise ValueError(f"outputs and targets have shapes {shapes}: give loss=, a function of both")
        return torch.nn.functional.mse_loss(outputs, targets.reshape(outputs.shape))
    check_labels(targets.cpu().numpy(), outputs.shape[-1])
    return torch.nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def _final_loss(job: _Job, model: torch.nn.Module, device: Any) -> float:
    """The mean loss over all samples, in evaluation mode."""
    data = job.data if job.test_data is None else job.test_data
    if _is_pair(data):
        data = [_tensors(data, model)]
    total, count = 0.0, 0
    with inference_mode(model), torch.no_grad():
        for batch in batches_of(data, model, "test data"):
            arguments, keywords, targets = unpack(batch, device)
            total += len(targets) * float(_loss(job, model, arguments, keywords, targets))
            count += len(targets)
    return total / count if count else np.nan


def _layer_outputs(model: torch.nn.Module, probe: tuple[list[Any], dict[str, Any]]) -> dict[str, torch.Tensor]:
    """The outputs of all modules that have parameters and no modules inside, by name, in evaluation mode."""
    found: dict[str, torch.Tensor] = {}

    def record(name: str) -> Callable[..., None]:
        def hook(_: Any, __: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                found[name] = output.detach().double().cpu()

        return hook

    leaves = [
        (name or "itself", module)
        for name, module in model.named_modules()
        if next(module.parameters(), None) is not None and next(module.children(), None) is None
    ]
    handles = [module.register_forward_hook(record(name)) for name, module in leaves]
    try:
        with inference_mode(model), torch.no_grad():
            model(*probe[0], **probe[1])
    finally:
        for handle in handles:
            handle.remove()
    return found


def _size(values: torch.Tensor) -> float:
    return float(torch.mean(values**2) ** 0.5)


def _coordinates(
    widths: np.ndarray, rates: np.ndarray, runs: dict[tuple[int, int, int], _Run], losses: np.ndarray, steps: int
) -> Any:
    """The coordinate check at one rate, the same at all widths; None if layers differ or did not get that far."""
    moved = np.array([runs[place].change is not None for place in np.ndindex(*losses.shape)])  # type: ignore[index]
    finite = np.asarray(moved.reshape(losses.shape).all(axis=2))
    chosen = coordinate_rate(rates, losses, finite)
    layers = list(runs[0, chosen, 0].initial)
    seeds = range(losses.shape[2])
    if not layers or not finite[:, chosen].all():
        return None
    found = [[runs[width, chosen, seed] for seed in seeds] for width in range(len(widths))]
    if any(list(run.initial) != layers for row in found for run in row):
        return None
    initial = np.array([[[run.initial[name] for run in row] for name in layers] for row in found])
    change = np.array([[[(run.change or {})[name] for run in row] for name in layers] for row in found])
    return coordinate_check(widths, layers, initial, change, float(rates[chosen]), steps)
