"""Sweeps: the cost of the store, of processes, and the memory of a large grid.

``python -m benchmarks.sweeps large`` prints the table in docs/sweeps/large.md (up to 10^6 cells, some minutes).
"""

import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks._peak import cheap, grid
from benchmarks.timing import Result
from solvable.sweeps.execution import run as compute_all
from solvable.sweeps.grid import MemoryStore
from solvable.sweeps.schema import Axis, Output
from solvable.sweeps.store import Store, open_store


def busy(cells):
    """A cell of pure Python that keeps one core busy for some ten milliseconds."""
    return {"f": np.array([float(sum(range(1_000_000))) for _ in cells])}, [None] * len(cells)


def timed(function):
    begin = time.perf_counter()
    value = function()
    return time.perf_counter() - begin, value


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        return [*_store(folder), *_processes(folder), *_workers(folder), *_memory()]


def _store(folder) -> list[Result]:
    with grid(100_000, folder) as store:
        write, _ = timed(lambda: compute_all(store, cheap, progress=False))
        path = store.path

    def resume():
        with grid(100_000, folder) as again:
            return compute_all(again, cheap, progress=False).computed

    reopen, left = timed(resume)
    assert left == 0
    read, dataset = timed(lambda: open_store(path))
    assert (dataset.f == dataset.x + dataset.y).all()
    return [
        Result("10^5 cells computed and stored, tiles of 1000", write, "s", at_most=10),
        Result("10^5 cells: open again and find nothing to do", reopen, "s", at_most=5),
        Result("10^5 cells: read as a dataset", read, "s", at_most=5),
    ]


def _processes(folder) -> list[Result]:
    """The difference of two runs, without the time in which workers start."""
    with grid(2_000, folder, tile=100) as store:
        start, _ = timed(lambda: compute_all(store, cheap, engine="processes", workers=2, progress=False))
    with grid(40_000, folder, tile=100) as store:
        whole, _ = timed(lambda: compute_all(store, cheap, engine="processes", workers=2, progress=False))
    cost = 1e3 * max(whole - start, 0.0) / 38_000
    return [Result("overhead per cheap cell in two processes, tiles of 100", cost, "ms", at_most=2)]


def _workers(folder) -> list[Result]:
    def seconds(workers, cells):
        store = MemoryStore([Axis("x", {"x": np.arange(cells)})], [Output("f")], tile=4)
        return timed(lambda: compute_all(store, busy, engine="processes", workers=workers, progress=False))[0]

    # The difference of two lengths excludes the time in which workers start.
    one = seconds(1, 400) - seconds(1, 16)
    two = seconds(2, 400) - seconds(2, 16)
    return [Result("CPU-bound cells: two workers against one", one / two, "x", at_least=1.7)]


def _memory() -> list[Result]:
    """Peak memory of a process that computes and stores a grid, compared with a grid of a tenth of the size."""
    small, large = peak_megabytes(10_000), peak_megabytes(100_000)
    return [
        Result("peak memory of a coordinator, 10^4 cells", small, "MB"),
        Result("peak memory, 10^5 cells against 10^4", large / small, "x", at_most=1.1),
    ]


def peak_megabytes(cells) -> float:
    command = [sys.executable, "-m", "benchmarks._peak", str(cells)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def cost(function):
    """Wall time and processor time of a call in milliseconds; the latter hardly depends on other processes."""
    begin = time.perf_counter(), time.process_time()
    function()
    return 1e3 * (time.perf_counter() - begin[0]), 1e3 * (time.process_time() - begin[1])


def _print_large() -> None:
    """Writing, scanning, verifying and reading tiles at 10^4 to 10^6 cells, and the memory that takes."""
    print("Milliseconds per tile, wall (processor)\n")
    print("| cells | cells a tile | tiles | compute and write | find pending | verify | read | files | MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for cells, tile in ((10_000, 1000), (100_000, 100), (100_000, 1000), (1_000_000, 1000), (1_000_000, 10_000)):
        with tempfile.TemporaryDirectory() as folder:
            print(_large_row(cells, tile, folder), flush=True)
    peaks = ", ".join(f"{cells:,} cells {peak_megabytes(cells):.1f} MB" for cells in (10_000, 100_000, 1_000_000))
    print(f"\npeak memory of the coordinator: {peaks}")


def _large_row(cells, tile, folder) -> str:
    with grid(cells, folder, tile) as store:
        tiles = sum(1 for _ in store.tiles())
        costs = [cost(lambda: compute_all(store, cheap, progress=False)), cost(lambda: list(store.pending_tiles()))]
        path, axes, outputs = store.path, store.axes, store.outputs
    costs.append(cost(lambda: Store.create_or_open(path, axes, outputs, {}, {}, verify=True).close()))
    costs.append(cost(lambda: open_store(path)))
    found = [file for file in path.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in found) / 1e6
    per_tile = " | ".join(f"{wall / tiles:.2f} ({processor / tiles:.2f})" for wall, processor in costs)
    return f"| {cells:,} | {tile:,} | {tiles:,} | {per_tile} | {len(found):,} | {size:.1f} |"


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if sys.argv[1:2] == ["large"]:
        _print_large()
