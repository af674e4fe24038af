"""What a sweep is going to do and what it will cost, before it runs."""

import math
import time
from dataclasses import dataclass
from typing import Literal, get_args

import jax
import numpy as np

from solvable.numerics.cost import in_bytes, in_time
from solvable.sweeps import vectorised
from solvable.sweeps.cells import CellFunction
from solvable.sweeps.design import Design
from solvable.sweeps.execution import core_count
from solvable.sweeps.processes import dumps
from solvable.sweeps.quantities import Naming, Schema, find_schema
from solvable.sweeps.schema import cell_text, error_text, tile_shape

Engine = Literal["auto", "serial", "vmap", "processes", "dask"]
ENGINES = get_args(Engine)

# Cells that are tried before a sweep is refused because none of them works.
_ATTEMPTS = 50
# Below this many seconds of work, compiling a vectorised call, or starting processes that import JAX, does not pay.
_WORTH_COMPILING, _WORTH_PROCESSES = 1.0, 10.0
_FEW_CELLS = 8
# The first call of a cell includes compilation. A call that took longer than this is not repeated to exclude that.
_MAXIMUM_REPEATED = 20.0
# A tile is lost if its worker is killed, and storing it takes a few milliseconds.
_TILE_SECONDS, _TILE_CELLS, _TILE_BYTES = 10.0, 8192, 32 * 2**20
_MINIMUM_VECTORISED = 1024
# At least this many tiles, so that workers do not wait long for the last one.
_TILES_PER_WORKER = 8


@dataclass(frozen=True)
class Plan:
    """What a sweep would do.

    Parameters
    ----------
    model, quantity
        Names of the model and of the quantity.
    sizes
        Number of values along each dimension.
    cells, pending
        Number of all cells, and of those that are still to be computed.
    engine, why
        How cells are computed, and the reason for this choice.
    workers
        Number of processes.
    tile, tiles
        Shape of the tiles in which cells are computed and stored, and their number.
    bytes
        Size of the results.
    seconds_per_cell, seconds
        Time of one cell and of all, from one measured cell; None if none was measured.
    """

    model: str
    quantity: str
    sizes: dict[str, int]
    cells: int
    pending: int
    engine: str
    why: str
    workers: int
    tile: tuple[int, ...]
    tiles: int
    bytes: int
    seconds_per_cell: float | None
    seconds: float | None

    def __str__(self) -> str:
        grid = " x ".join(f"{size} {dim}" for dim, size in self.sizes.items())
        lines = [
            f"{self.quantity} of {self.model} over {grid}: {self.cells} cells, {self.pending} to compute",
            f"engine: {self.engine}{f' on {self.workers} workers' if self.workers > 1 else ''} ({self.why})",
            f"tiles:  {self.tiles} of up to {' x '.join(map(str, self.tile))} cells; {in_bytes(self.bytes)} of results",
        ]
        if self.seconds_per_cell is not None and self.seconds is not None:
            bound = "at most " if self.engine == "vmap" else ""
            lines.append(
                f"cost:   {self.seconds_per_cell:.2g} s per single cell, {bound}{in_time(self.seconds)} in all"
            )
        return "\n".join(lines)


def measure(function: CellFunction, design: Design) -> tuple[Schema, float]:
    """The schema of the results and the seconds per cell, from the first cell that works."""
    first_error = None
    for flat in np.unique(np.linspace(0, design.size - 1, min(design.size, _ATTEMPTS)).astype(int)):
        cell = design.cell(map(int, np.unravel_index(flat, design.shape)))
        labelled = {name: function.as_label(name, value) for name, value in cell.items()}
        begin = time.perf_counter()
        try:
            result = function.evaluate(labelled)
        except Exception as error:
            first_error = first_error or f"{cell_text(cell)}: {error_text(error)}"
            continue
        schema = find_schema(result, Naming.of(function.quantity.name, design))
        seconds = time.perf_counter() - begin
        if seconds < _MAXIMUM_REPEATED and design.size >= 10:
            begin = time.perf_counter()
            function.evaluate(labelled)
            seconds = time.perf_counter() - begin
        return schema, seconds
    raise ValueError(f"no cell that was tried works; the first, {first_error}")


def check_engine(asked: str, has_client: bool) -> None:
    """Raise a ValueError unless the engine exists and takes a client if there is one."""
    if asked not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {asked!r}")
    if has_client and asked not in ("auto", "dask"):
        raise ValueError(f"a client is for engine='dask', not {asked!r}")


def choose_engine(
    asked: str, function: CellFunction, design: Design, pending: int, seconds: float | None, has_client: bool
) -> tuple[str, str]:
    """The engine and the reason for it."""
    if asked in ("serial", "processes", "dask"):
        return asked, "as requested"
    if has_client:
        return "dask", "a client is given"
    total = math.inf if seconds is None else seconds * pending
    if asked == "auto":
        if not pending:
            return "serial", "nothing is left to compute"
        if total < _WORTH_COMPILING:
            return "serial", "it takes less than a second"
        if pending < _FEW_CELLS:
            return "serial", "there are few cells"
    if vectorised.has_common_program(function) and (asked == "vmap" or jax.default_backend() != "cpu"):
        return "vmap", "as requested" if asked == "vmap" else "the model predicts many settings in one program"
    numeric = {name: array.dtype.kind in "if" for axis in design.axes for name, array in axis.coordinates.items()}
    reason = vectorised.obstacle(function, numeric)
    if reason is None:
        return "vmap", "as requested" if asked == "vmap" else "JAX can vectorise it"
    if asked == "vmap":
        raise ValueError(f"engine='vmap' is not possible: {reason}; use 'processes'")
    if total < _WORTH_PROCESSES:
        return "serial", f"it takes a few seconds; {reason}"
    if jax.default_backend() != "cpu":
        return "serial", f"processes would share one accelerator; {reason}"
    if core_count() < 2:
        return "serial", f"there is one core; {reason}"
    try:
        dumps(function)
    except Exception as error:
        return "serial", f"it cannot be sent to another process ({error_text(error)[:80]}); {reason}"
    return "processes", reason


def choose_tile(engine: str, design: Design, schema: Schema, seconds: float | None, workers: int) -> tuple[int, ...]:
    """The shape of the blocks in which cells are computed and stored."""
    count = _TILE_CELLS
    if seconds is not None:
        count = min(count, max(1, int(_TILE_SECONDS / max(seconds, 1e-6))))
    if engine == "vmap":
        # The measured time is that of a single cell; vectorised cells are much faster.
        count = max(count, _MINIMUM_VECTORISED)
    elif engine != "serial":
        count = min(count, -(-design.size // (_TILES_PER_WORKER * workers)))
    count = min(count, max(1, _TILE_BYTES // max(1, schema.bytes_per_cell)))
    return tile_shape(int(count), design.shape)
