"""Estimates of what a command will cost, before the work: from the sizes and, if these are large, from a pilot run."""

import math
import time
from collections.abc import Callable

import numpy as np
import xarray as xr

from solvable.cli.streams import print_stderr
from solvable.numerics.cost import DAY, check_cost, in_time

# Below these sizes the work itself is short, and no pilot run is needed.
_MANY_TIMES, _MANY_SEEDS, _MANY_CELLS = 100_000, 20_000, 100_000
_PILOT_TIMES, _PILOT_SEEDS, _PILOT_SIDE = 1000, 16, 8
# A plane of grokking times has three numbers and two booleans per cell, and takes about 0.1 ms per cell on one core
# (measured on planes of 150 x 150 and 300 x 300 cells).
_CELL_BYTES, _CELL_SECONDS = 26, 1e-4
# Work that takes longer than this many seconds is announced.
_WORTH_ANNOUNCING = 60.0


def check_times_cost(predict: Callable[[np.ndarray], xr.Dataset], times: np.ndarray) -> None:
    """Refuse a prediction at too many times, from the cost of a prediction at a thousand of them."""
    if times.size > _MANY_TIMES:
        few = times[np.linspace(0, times.size - 1, _PILOT_TIMES).astype(int)]
        what = f"a prediction at {times.size} times"
        _extrapolate(what, "ask for fewer times", lambda: predict(few), times.size / few.size)


def check_seeds_cost(simulate: Callable[[int], xr.Dataset], seeds: int, times: int) -> None:
    """Refuse too many runs: first by the size of their curves, then from the cost of a few runs."""
    what = f"a simulation of {seeds} seeds at {times} times"
    check_cost(what, memory=8.0 * seeds * times, remedy="ask for fewer seeds or times")
    if seeds > _MANY_SEEDS:
        what, factor = f"a simulation of {seeds} seeds", seeds / _PILOT_SEEDS
        _extrapolate(what, "ask for fewer seeds", lambda: simulate(_PILOT_SEEDS), factor)


def check_plane_cost(compute: Callable[[dict[str, np.ndarray]], xr.Dataset], grids: dict[str, np.ndarray]) -> None:
    """Refuse a plane of too many cells: first by its size, then from the cost of a small plane."""
    cells = math.prod(float(grid.size) for grid in grids.values())
    grid = " x ".join(f"{grid.size} {name}" for name, grid in grids.items())
    what, remedy = f"a plane of {cells:.4g} cells ({grid})", "ask for fewer points, or use 'solvable sweep --store'"
    check_cost(what, memory=_CELL_BYTES * cells, seconds=_CELL_SECONDS * cells, remedy=remedy)
    if cells > _MANY_CELLS:
        pilot = {
            name: grid[np.unique(np.linspace(0, grid.size - 1, _PILOT_SIDE).astype(int))]
            for name, grid in grids.items()
        }
        _extrapolate(what, remedy, lambda: compute(pilot), cells / math.prod(grid.size for grid in pilot.values()))


def check_grid_cost(sizes: dict[str, int]) -> None:
    """Refuse a sweep of too many cells by their number alone, at the least that a cell can take."""
    cells = math.prod(float(size) for size in sizes.values())
    grid = " x ".join(f"{size} {name}" for name, size in sizes.items() if size > 1)
    what = f"a sweep of {cells:.4g} cells ({grid or '1 cell'}), at one number and 0.1 ms per cell,"
    remedy = "ask for fewer cells"
    check_cost(what, memory=8 * cells, seconds=_CELL_SECONDS * cells, remedy=remedy, longest=365 * DAY)


def _extrapolate(what: str, remedy: str, pilot: Callable[[], xr.Dataset], factor: float) -> None:
    """Refuse work that is ``factor`` times a pilot run, or announce it if it takes long."""
    # The first run compiles.
    pilot()
    begin = time.perf_counter()
    found = pilot()
    seconds = factor * (time.perf_counter() - begin)
    check_cost(what, memory=found.nbytes * factor, seconds=seconds, remedy=remedy)
    if seconds > _WORTH_ANNOUNCING:
        print_stderr(f"note: {what} will take about {in_time(seconds)}")
