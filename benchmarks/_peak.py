"""``python -m benchmarks._peak CELLS`` prints the peak memory (MB) of a process that stores a grid of cheap cells.

A module of its own, because the memory that JAX takes would hide what is looked for.
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
    """A cell that costs nothing: what is left is overhead."""
    return {"f": np.array([cell["x"] + cell["y"] for cell in cells])}, [None] * len(cells)


def grid(cells, folder, tile=TILE):
    side = round(cells**0.5)
    axes = [Axis("x", {"x": np.arange(cells // side) / 2}), Axis("y", {"y": np.arange(side) / 3})]
    return Store.create_or_open(Path(folder) / f"{cells}-{tile}.zarr", axes, [Output("f")], {}, {}, tile)


def peak_megabytes():
    status = Path("/proc/self/status")
    if status.exists():
        # What getrusage tells of a child on Linux starts at the size of its parent.
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, grid(int(sys.argv[1]), folder) as store:
        run(store, cheap, progress=False)
    print(peak_megabytes())
