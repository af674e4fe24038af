"""Arguments of a transfer of learning rates, described and checked in one place for networks in JAX and in PyTorch."""

from typing import Any, NamedTuple

import numpy as np

from solvable.checks import check_count

LEAST_SEEDS = 4

ARGUMENTS = {
    "widths": "widths, best by factors of two",
    "learning_rates": "the grid of rates, best by factors of two or less",
    "steps": "number of training steps; fixed data are passed as often as this takes",
    "seeds": "number of paired seeds, four or more",
    "batch_size": "samples per step; by default all, which is for data that are whole arrays",
    "key": "whole number from which the seeds are derived",
    "window": (
        "octaves on each side of the grid's minimum whose rates the parabola uses; the two neighbours in any case"
    ),
    "coordinate_steps": "steps of the coordinate check: how far the outputs of each layer have moved by then",
    "diverged_above": (
        "a run has diverged if its loss is not finite, or exceeds its first loss by this factor, which is above 1"
    ),
    "progress": "whether to show a progress bar; by default on a terminal",
}


class Grid(NamedTuple):
    """Widths and rates in ascending order, and the number of seeds."""

    widths: np.ndarray
    learning_rates: np.ndarray
    seeds: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many there are of each."""
        return len(self.widths), len(self.learning_rates), self.seeds


def check_arguments(
    *,
    widths: Any,
    learning_rates: Any,
    seeds: Any,
    steps: Any,
    batch_size: Any,
    key: Any,
    window: Any,
    coordinate_steps: Any,
    diverged_above: Any,
) -> Grid:
    """The grid of a transfer; a ValueError if an argument has no meaning, or the grid cannot decide anything."""
    grid = check_grid(widths, learning_rates, seeds)
    check_count("steps", steps)
    check_count("coordinate_steps", coordinate_steps)
    if coordinate_steps > steps:
        raise ValueError(
            f"coordinate_steps must be at most the {steps} steps, not {coordinate_steps}: lower it, or "
            "train for more steps"
        )
    if batch_size is not None:
        check_count("batch_size", batch_size)
    check_count("key", key, least=0)
    if not window > 0:
        raise ValueError(f"window must be a positive number of octaves, not {window!r}")
    if not diverged_above > 1:
        raise ValueError(f"diverged_above must be above 1, how far a loss may grow, not {diverged_above!r}")
    return grid


def check_grid(widths: Any, learning_rates: Any, seeds: Any) -> Grid:
    """Widths and rates in ascending order, and the number of seeds; a ValueError if they cannot decide anything."""
    numbers = np.atleast_1d(np.asarray(widths))
    if numbers.dtype.kind not in "iu" or (numbers < 1).any():
        raise ValueError(f"widths must be whole numbers, 1 or more, not {widths!r}")
    numbers = np.unique(numbers)
    if numbers.size < 2:
        raise ValueError(f"a drift needs two widths or more, not {widths!r}: add widths, best by factors of two")
    try:
        rates = np.atleast_1d(np.asarray(learning_rates, float))
    except (TypeError, ValueError):
        rates = np.array([np.nan])
    if not (rates.ndim == 1 and np.isfinite(rates).all() and (rates > 0).all()):
        raise ValueError(f"learning_rates must be a list of positive finite numbers, not {learning_rates!r}")
    rates = np.unique(rates)
    if rates.size < 3:
        raise ValueError(
            f"an optimum needs three learning rates or more, not {rates.size}: give a grid, such as "
            f"{rates[0]:.3g} * 2.0 ** numpy.arange(-3, 4)"
        )
    if check_count("seeds", seeds) < LEAST_SEEDS:
        raise ValueError(f"an interval needs {LEAST_SEEDS} seeds or more, not {seeds!r}: 8 are a good start")
    return Grid(numbers, rates, int(seeds))


def check_first_loss(losses: Any, width: int) -> None:
    """Raise a ValueError unless all losses before training are finite: no rate can mend those."""
    if not np.isfinite(losses).all():
        raise ValueError(
            f"the loss of width {width} is not finite before training: look for NaN in the data, in the network and in "
            "the loss"
        )


def check_sizes(widths: np.ndarray, parameters: list[int]) -> np.ndarray:
    """The numbers of parameters, or a ValueError if two widths make networks of the same size."""
    if not all(parameters):
        raise ValueError(
            f"the network of width {widths[parameters.index(0)]} has no parameters to train: return a network from the "
            "function that makes it"
        )
    for index in range(1, len(parameters)):
        if parameters[index] == parameters[index - 1]:
            raise ValueError(
                f"widths {widths[index - 1]} and {widths[index]} make networks of the same {parameters[index]} "
                "parameters: use the width when making the network"
            )
    return np.array(parameters)
