"""Running a sweep: pending tiles are sent to an engine, and results are written in the order in which they come back.

Only a bounded number of tiles is in flight, so memory does not grow with the number of cells.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from solvable.precision import in_float64
from solvable.progress import progress_bar
from solvable.sweeps.grid import Grid, Tile
from solvable.sweeps.schema import error_text

CellList = list[dict[str, Any]]
Values = Mapping[str, Any]
Compute = Callable[[CellList], tuple[Values, Sequence[str | None]]]
"""From the parameters of cells to an array per output, with one row per cell, and an error message or None per cell."""

# What a worker process sends when it has started.
READY = "ready"

Backend = Literal["serial", "processes", "dask"]
Job = tuple[Tile, dict[str, np.ndarray]]
Jobs = Iterator[Job]


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; the message says what is stored and how to continue."""


@dataclass(frozen=True)
class Report:
    """Number of cells that a run computed, number of those that failed, and the counts of the store after it."""

    computed: int
    failed: int
    counts: dict[str, int]


@dataclass(frozen=True)
class Outcome:
    """The values and errors of a computed tile; no values if none of its cells has a result."""

    tile: Tile
    values: Values | None
    errors: Sequence[str | None]


def run(
    store: Grid,
    compute: Compute,
    *,
    engine: Backend = "serial",
    workers: int | None = None,
    progress: bool | None = None,
    client: Any = None,
    retry_failed: bool = True,
    label: str = "sweep",
) -> Report:
    """Compute every pending cell of a store. A cell that raises is stored as failed, with its message.

    ``engine="serial"`` computes in this process, ``"processes"`` in ``workers`` processes of this machine, and
    ``"dask"`` on a client, a scheduler given by its address, or else a local cluster. Cells that failed before are
    computed again unless ``retry_failed`` is False.
    """
    counts = store.counts()
    waiting = counts["pending"] + (counts["failed"] if retry_failed else 0)
    computed = failed = 0
    jobs = ((tile, store.columns(tile)) for tile in store.pending_tiles(retry_failed))
    try:
        with (
            progress_bar(label, waiting, progress, unit="cells") as advance,
            _engine(engine, compute, workers, client) as outcomes,
        ):
            for outcome in outcomes(jobs):
                count = len(outcome.tile)
                values = outcome.values or {output.name: output.empty([count]) for output in store.outputs}
                store.write(outcome.tile, values, outcome.errors)
                computed += count
                failed += sum(error is not None for error in outcome.errors)
                advance(count)
    except KeyboardInterrupt as stop:
        counts = store.counts()
        raise SweepInterrupted(
            f"interrupted: {counts['done']} of {counts['total']} cells are stored in {store.name}; "
            "run the same sweep again to compute the rest"
        ) from stop
    return Report(computed, failed, store.counts())


@contextlib.contextmanager
def _engine(
    engine: Backend, compute: Compute, workers: int | None, client: Any
) -> Iterator[Callable[[Jobs], Iterator[Outcome]]]:
    """A function from jobs to outcomes. Processes that it started are ended at the end."""
    if engine == "serial":
        yield lambda jobs: (Outcome(tile, *evaluate(compute, columns)) for tile, columns in jobs)
    elif engine == "processes":
        from solvable.sweeps.processes import pool

        with pool(compute, workers) as outcomes:
            yield outcomes
    elif engine == "dask":
        from solvable.sweeps.cluster import on_cluster

        with on_cluster(compute, workers, client) as outcomes:
            yield outcomes
    else:
        raise ValueError(f"engine {engine!r} is not one of 'serial', 'processes', 'dask'")


@in_float64
def evaluate(compute: Compute, columns: Mapping[str, np.ndarray]) -> tuple[Values | None, list[str | None]]:
    """Compute the cells of one tile together or, if that raises, one by one, so that only the faulty ones fail."""
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    cells = [dict(zip(columns, row, strict=True)) for row in rows]
    try:
        values, errors = compute(cells)
        return {name: np.asarray(value) for name, value in values.items()}, list(errors)
    except Exception as error:
        if len(cells) == 1:
            return None, [error_text(error)]
    single = [evaluate(compute, {name: np.array([cell[name]]) for name in cell}) for cell in cells]
    return stack_rows([values for values, _ in single]), [text for _, (text,) in single]


def stack_rows(results: Sequence[Values | None]) -> Values | None:
    """Join results of single cells to one array per output; None if there is no result at all."""
    example = next((result for result in results if result is not None), None)
    if example is None:
        return None
    blank = {name: np.zeros_like(value) for name, value in example.items()}
    return {name: np.concatenate([(result or blank)[name] for result in results]) for name in example}


def core_count() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
