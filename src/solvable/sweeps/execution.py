"""Running a sweep: pending tiles go out to an engine, results come back in any order and are written as they come.

Only a bounded number of tiles is ever on the way, so memory does not grow with the number of cells.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from solvable.precision import in_float64
from solvable.sweeps.grid import Tile
from solvable.sweeps.schema import Output

Cells = list[dict[str, Any]]
Values = Mapping[str, Any]
Compute = Callable[[Cells], tuple[Values, Sequence[str | None]]]
"""Given the parameters of some cells: per output an array with one row per cell, and per cell an error text or None."""

Backend = Literal["serial", "processes", "dask"]


class Target(Protocol):
    """What a sweep writes to: :class:`~solvable.sweeps.store.Store` or something that behaves like it."""

    def pending_tiles(self, retry_failed: bool = True) -> Iterator[Tile]: ...
    def columns(self, tile: Tile) -> dict[str, np.ndarray]: ...
    def write(self, tile: Tile, values: Values, errors: Sequence[str | None]) -> None: ...
    def counts(self) -> dict[str, int]: ...
    @property
    def outputs(self) -> list[Output]: ...
    @property
    def name(self) -> str: ...


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; the message says what is stored and how to go on."""


@dataclass(frozen=True)
class Report:
    """What a run did: cells computed now, and what the store holds after it."""

    computed: int
    failed: int
    seconds: float
    counts: dict[str, int]


@dataclass(frozen=True)
class Outcome:
    """A tile that came back: values and errors, or the reason why the whole tile failed."""

    tile: Tile
    values: Values | None
    errors: Sequence[str | None]


def run(
    store: Target,
    compute: Compute,
    *,
    engine: Backend = "serial",
    workers: int | None = None,
    window: int | None = None,
    progress: bool | None = None,
    client: Any = None,
    retry_failed: bool = True,
    label: str = "sweep",
) -> Report:
    """Compute every pending cell of a store.

    ``engine="serial"`` computes here, ``"processes"`` in ``workers`` processes of this machine, ``"dask"`` on
    ``client`` or else on a local cluster. ``window`` bounds the tiles on the way. A cell that raises is stored as
    failed with its message, and tried again the next time unless ``retry_failed`` is False.
    """
    begin = time.monotonic()
    counts = store.counts()
    waiting = counts["pending"] + (counts["failed"] if retry_failed else 0)
    computed = failed = 0
    tiles = store.pending_tiles(retry_failed)
    jobs = ((tile, store.columns(tile)) for tile in tiles)
    try:
        with _bar(label, waiting, progress) as advance, _engine(engine, compute, workers, window, client) as outcomes:
            for outcome in outcomes(jobs):
                values = outcome.values if outcome.values is not None else _blank(store.outputs, len(outcome.tile))
                store.write(outcome.tile, values, outcome.errors)
                computed += len(outcome.tile)
                failed += sum(error is not None for error in outcome.errors)
                advance(len(outcome.tile))
    except KeyboardInterrupt as stop:
        counts = store.counts()
        raise SweepInterrupted(
            f"interrupted: {counts['done']} of {counts['total']} cells are stored in {store.name}; "
            "run the same sweep again to compute the rest"
        ) from stop
    return Report(computed, failed, time.monotonic() - begin, store.counts())


def _blank(outputs: Sequence[Output], count: int) -> dict[str, np.ndarray]:
    return {output.name: np.full((count, *output.shape), output.fill, output.dtype) for output in outputs}


@contextlib.contextmanager
def _bar(label: str, total: int, show: bool | None) -> Iterator[Callable[[float], None]]:
    if show is False:
        yield lambda amount: None
        return
    from solvable.progress import progress_bar

    with progress_bar(label, total, show, unit="cells") as advance:
        yield advance


Job = tuple[Tile, dict[str, np.ndarray]]
Jobs = Iterator[Job]


@contextlib.contextmanager
def _engine(
    engine: Backend, compute: Compute, workers: int | None, window: int | None, client: Any
) -> Iterator[Callable[[Jobs], Iterator[Outcome]]]:
    """A function from jobs to outcomes; on leaving, whatever it started is ended."""
    if engine == "serial":
        yield lambda jobs: _serial(compute, jobs)
    elif engine == "processes":
        from solvable.sweeps.processes import pool

        with pool(compute, workers, window) as outcomes:
            yield outcomes
    elif engine == "dask":
        from solvable.sweeps.cluster import on_cluster

        with on_cluster(compute, workers, window, client) as outcomes:
            yield outcomes
    else:
        raise ValueError(f"engine {engine!r} is not one of 'serial', 'processes', 'dask'")


def _serial(compute: Compute, jobs: Jobs) -> Iterator[Outcome]:
    for tile, columns in jobs:
        values, errors = evaluate(compute, columns)
        yield Outcome(tile, values, errors)


@in_float64
def evaluate(compute: Compute, columns: Mapping[str, np.ndarray]) -> tuple[Values | None, list[str | None]]:
    """Compute one tile's cells; if that raises, one at a time, so that only the guilty ones fail."""
    names = list(columns)
    rows = zip(*(columns[name].tolist() for name in names), strict=True)
    cells = [dict(zip(names, row, strict=True)) for row in rows]
    try:
        values, errors = compute(cells)
        return {name: np.asarray(value) for name, value in values.items()}, list(errors)
    except Exception as error:
        if len(cells) == 1:
            return None, [describe(error)]
    return _one_by_one(compute, cells)


def _one_by_one(compute: Compute, cells: Cells) -> tuple[Values | None, list[str | None]]:
    results: list[Values | None] = []
    errors: list[str | None] = []
    for cell in cells:
        try:
            values, (text,) = compute([cell])
            results.append({name: np.asarray(value) for name, value in values.items()})
            errors.append(text)
        except Exception as error:
            results.append(None)
            errors.append(describe(error))
    return stack_rows(results), errors


def stack_rows(results: Sequence[Values | None]) -> Values | None:
    """One-cell results as one array per output; None if there is no result at all."""
    example = next((result for result in results if result is not None), None)
    if example is None:
        return None
    blank = {name: np.zeros_like(value) for name, value in example.items()}
    return {name: np.concatenate([(result or blank)[name] for result in results]) for name in example}


def core_count() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
