"""What a command will cost, estimated before the work: from the sizes asked for and, where these are large, a pilot."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from solvable.cli.streams import tell
from solvable.numerics.cost import DAY, check_cost, in_time

# Above these sizes a pilot is worth its seconds; below them the work itself is short.
_MANY_TIMES, _MANY_SEEDS, _MANY_CELLS = 100_000, 20_000, 100_000
_PILOT_TIMES, _PILOT_SEEDS, _PILOT_SIDE = 1000, 16, 8
# A plane of grokking times: three numbers and two truth values a cell, and about 0.1 ms on one core (measured on
# planes of 150 x 150 and 300 x 300 cells). Good enough to refuse what does not fit anyway; the rest has its pilot.
_CELL_BYTES, _CELL_SECONDS = 26, 1e-4
# Work that takes longer than this is announced.
_WORTH_SAYING = 60.0


def check_times_cost(predict: Callable[[np.ndarray], xr.Dataset], times: np.ndarray) -> None:
    """Refuse a prediction at too many times, from the cost of one at a thousand of them."""
    if times.size <= _MANY_TIMES:
        return
    few = times[np.linspace(0, times.size - 1, _PILOT_TIMES).astype(int)]
    found, seconds = _timed(lambda: predict(few))
    _judge(
        f"a prediction at {times.size} times",
        "ask for fewer times",
        found.nbytes * times.size / few.size,
        seconds * times.size / few.size,
    )


def check_seeds_cost(simulate: Callable[[int], xr.Dataset], seeds: int, times: int) -> None:
    """Refuse too many runs: first by the size of the curves alone, then from the cost of a few runs."""
    what = f"a simulation of {seeds} seeds at {times} times"
    check_cost(what, memory=8.0 * seeds * times, remedy="ask for fewer seeds or times")
    if seeds <= _MANY_SEEDS:
        return
    found, seconds = _timed(lambda: simulate(_PILOT_SEEDS))
    share = seeds / _PILOT_SEEDS
    _judge(f"a simulation of {seeds} seeds", "ask for fewer seeds", found.nbytes * share, seconds * share)


def check_plane_cost(compute: Callable[[dict[str, np.ndarray]], xr.Dataset], grids: dict[str, np.ndarray]) -> None:
    """Refuse a plane of too many cells: first by its size alone, then from the cost of a small one."""
    cells = math.prod(float(grid.size) for grid in grids.values())
    grid = " x ".join(f"{grid.size} {name}" for name, grid in grids.items())
    what, remedy = f"a plane of {cells:.4g} cells ({grid})", "ask for fewer points, or use 'solvable sweep --store'"
    check_cost(what, memory=_CELL_BYTES * cells, seconds=_CELL_SECONDS * cells, remedy=remedy)
    if cells <= _MANY_CELLS:
        return
    corner = {
        name: grid[np.unique(np.linspace(0, grid.size - 1, _PILOT_SIDE).astype(int))] for name, grid in grids.items()
    }
    found, seconds = _timed(lambda: compute(corner))
    share = cells / float(np.prod([values.size for values in corner.values()]))
    _judge(what, remedy, found.nbytes * share, seconds * share)


def check_grid_cost(sizes: dict[str, int]) -> None:
    """Refuse a sweep of too many cells by their number alone, at the least that a cell can take."""
    cells = math.prod(float(size) for size in sizes.values())
    grid = " x ".join(f"{size} {name}" for name, size in sizes.items() if size > 1)
    what = f"a sweep of {cells:.4g} cells ({grid or '1 cell'}), at one number and 0.1 ms a cell,"
    remedy = "ask for fewer cells"
    check_cost(what, memory=8 * cells, seconds=_CELL_SECONDS * cells, remedy=remedy, longest=365 * DAY)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result and the seconds of a second go: the first one compiles."""
    work()
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin


def _judge(what: str, remedy: str, memory: float, seconds: float) -> None:
    check_cost(what, memory=memory, seconds=seconds, remedy=remedy)
    if seconds > _WORTH_SAYING:
        tell(f"note: {what} will take about {in_time(seconds)}")
