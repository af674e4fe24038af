"""``python -m benchmarks._peak CELLS`` prints the peak memory (MB) of a process that stores a grid of cheap cells.

This is a separate process, because other benchmarks use much more memory.
"""

import resource
import sys
import tempfile
from pathlib import Path

import numpy as np

from solvable.sweeps.execution import run
from solvable.sweeps.store import Axis, Output, Store

TILE = 1000


def cheap(cells):
    """A cell that costs nothing, so that only overhead is measured."""
    return {"f": np.array([cell["x"] + cell["y"] for cell in cells])}, [None] * len(cells)


def grid(cells, folder, tile=TILE):
    side = round(cells**0.5)
    axes = [Axis("x", {"x": np.arange(cells // side) / 2}), Axis("y", {"y": np.arange(side) / 3})]
    return Store.create_or_open(Path(folder) / f"{cells}-{tile}.zarr", axes, [Output("f")], {}, {}, tile)


def peak_megabytes():
    status = Path("/proc/self/status")
    if status.exists():
        # On Linux, the value of getrusage for a child process starts at the size of its parent.
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, grid(int(sys.argv[1]), folder) as store:
        run(store, cheap, progress=False)
    print(peak_megabytes())
