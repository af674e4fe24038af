"""What a sweep is going to do and what it will cost, before anything runs."""

import math
import time
from dataclasses import dataclass
from typing import Literal, get_args

import jax
import numpy as np

from solvable.numerics.cost import in_bytes, in_time
from solvable.sweeps import vectorised
from solvable.sweeps.cells import Cells, error_text
from solvable.sweeps.design import Design
from solvable.sweeps.execution import core_count
from solvable.sweeps.processes import dumps
from solvable.sweeps.results import Naming, Schema, find_schema
from solvable.sweeps.schema import tile_shape

Engine = Literal["auto", "serial", "vmap", "processes", "dask"]
ENGINES = get_args(Engine)

# Cells tried before a sweep is given up because none of them works.
_ATTEMPTS = 50
# Below this many seconds in all, compiling a vectorised call, or starting processes that load JAX, costs more than it
# saves.
_WORTH_COMPILING, _WORTH_PROCESSES = 1.0, 10.0
_FEW = 8
# The first call compiles; one that took longer than this is believed, not repeated.
_WORTH_REPEATING = 20.0
# A tile is lost if a worker is killed, and costs a few milliseconds to store.
_TILE_SECONDS, _TILE_CELLS, _TILE_BYTES = 10.0, 8192, 32 * 2**20
_LEAST_TOGETHER = 1024
# So that no worker waits long for the last tile.
_TILES_PER_WORKER = 8


@dataclass(frozen=True)
class Plan:
    """What a sweep would do. ``seconds`` is an estimate from one measured cell; None if nothing was measured."""

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
            faster = "at most " if self.engine == "vmap" else ""
            lines.append(
                f"cost:   {self.seconds_per_cell:.2g} s a cell by itself, {faster}{in_time(self.seconds)} in all"
            )
        return "\n".join(lines)


def first_result(cells: Cells, design: Design) -> tuple[Schema, float]:
    """The shape of the results and the seconds that a cell takes, from the first cell that works."""
    first_error = None
    for flat in np.unique(np.linspace(0, design.size - 1, min(design.size, _ATTEMPTS)).astype(int)):
        cell = design.cell(map(int, np.unravel_index(flat, design.shape)))
        labelled = {name: cells.as_label(name, value) for name, value in cell.items()}
        begin = time.perf_counter()
        try:
            result = cells.evaluate(labelled)
        except Exception as error:
            first_error = first_error or (cell, error)
            continue
        schema = find_schema(result, Naming.of(cells.quantity.name, design))
        seconds = time.perf_counter() - begin
        if seconds < _WORTH_REPEATING and design.size >= 10:
            # Once more, without compilation.
            begin = time.perf_counter()
            cells.evaluate(labelled)
            seconds = time.perf_counter() - begin
        return schema, seconds
    assert first_error is not None
    where = ", ".join(f"{name} = {value!r}" for name, value in first_error[0].items())
    raise ValueError(f"no cell that was tried works; the first, {where}: {error_text(first_error[1])}")


def check_engine(asked: str, has_client: bool) -> None:
    """Before anything is computed."""
    if asked not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {asked!r}")
    if has_client and asked not in ("auto", "dask"):
        raise ValueError(f"a client is for engine='dask', not {asked!r}")


def choose_engine(
    asked: str, cells: Cells, design: Design, pending: int, seconds: float | None, has_client: bool
) -> tuple[str, str]:
    """The engine and why."""
    if asked in ("serial", "processes", "dask"):
        return asked, "as asked"
    if has_client:
        return "dask", "a client is given"
    if asked == "auto" and not pending:
        return "serial", "nothing is left to compute"
    in_all = math.inf if seconds is None else seconds * pending
    if asked == "auto" and in_all < _WORTH_COMPILING:
        return "serial", "it takes a moment"
    if asked == "auto" and pending < _FEW:
        return "serial", "there are few cells"
    numeric = {name: array.dtype.kind in "if" for axis in design.axes for name, array in axis.coordinates().items()}
    reason = vectorised.why_not(cells, numeric)
    if reason is None:
        return "vmap", "as asked" if asked == "vmap" else "JAX can vectorise it"
    if asked == "vmap":
        raise ValueError(f"engine='vmap' is not possible: {reason}; use 'processes'")
    if in_all < _WORTH_PROCESSES:
        return "serial", f"it is short; {reason}"
    if jax.default_backend() != "cpu":
        return "serial", f"processes would share one accelerator; {reason}"
    if core_count() < 2:
        return "serial", f"there is one processor; {reason}"
    try:
        dumps(cells)
    except Exception as error:
        return "serial", f"it cannot be sent to another process ({error_text(error)[:80]}); {reason}"
    return "processes", reason


def choose_tile(engine: str, design: Design, schema: Schema, seconds: float | None, workers: int) -> tuple[int, ...]:
    """How many cells are computed and stored at once, along each axis."""
    count = _TILE_CELLS
    if seconds is not None:
        count = min(count, max(1, int(_TILE_SECONDS / max(seconds, 1e-6))))
    if engine == "vmap":
        # A cell by itself is what was measured; together they are much faster.
        count = max(count, _LEAST_TOGETHER)
    elif engine != "serial":
        count = min(count, -(-design.size // (_TILES_PER_WORKER * workers)))
    count = min(count, max(1, _TILE_BYTES // max(1, schema.bytes_per_cell)))
    return tile_shape(int(count), design.shape)


def make_plan(
    cells: Cells,
    design: Design,
    schema: Schema,
    pending: int,
    engine: tuple[str, str],
    tile: tuple[int, ...],
    seconds: float | None,
    workers: int,
) -> Plan:
    total = None if seconds is None else seconds * pending / workers
    return Plan(
        model=cells.kind.name,
        quantity=cells.quantity.name,
        sizes=dict(zip(design.dims, design.shape, strict=True)),
        cells=design.size,
        pending=pending,
        engine=engine[0],
        why=engine[1],
        workers=workers,
        tile=tile,
        tiles=math.prod(-(-size // length) for size, length in zip(design.shape, tile, strict=True)),
        bytes=design.size * schema.bytes_per_cell,
        seconds_per_cell=seconds,
        seconds=total,
    )
