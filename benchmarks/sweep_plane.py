"""A vectorised plane by ``sweep`` compared with the method of the model, and the overhead per cheap cell."""

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.timing import Result, seconds
from solvable import LinearEstimator, ScalarNetwork
from solvable.sweeps import sweep

MODEL = LinearEstimator(aspect_ratio=0.9)
AXES = {"weight_decay": np.geomspace(1e-6, 1e-1, 200), "aspect_ratio": np.linspace(0.05, 3, 200)}


def run() -> list[Result]:
    return [*_planes(), *_cheap_cells()]


def _planes() -> list[Result]:
    """Alternating, best of five each, so that a busy machine slows both."""
    bare = MODEL.phase_diagram(**AXES)
    with tempfile.TemporaryDirectory() as folder:
        ways = {
            "bare phase_diagram": lambda: MODEL.phase_diagram(**AXES),
            "sweep in memory": lambda: sweep(MODEL, AXES, "grokking_time", progress=False),
            "sweep into a store": lambda: sweep(
                MODEL, AXES, "grokking_time", store=Path(folder) / "plane.zarr", overwrite=True, progress=False
            ),
        }
        swept = [way() for way in ways.values()][1:]
        times = dict.fromkeys(ways, np.inf)
        for _ in range(5):
            for name, way in ways.items():
                begin = time.perf_counter()
                way()
                times[name] = min(times[name], time.perf_counter() - begin)
    worst = max(_largest_difference(plane, bare) for plane in swept)
    best = times["bare phase_diagram"]
    results = [Result(f"200 x 200 grokking plane, {name}", took, "s") for name, took in times.items()]
    results += [
        Result(f"ratio of {name} to the bare call", times[name] / best, "x", at_most=1.3) for name in list(ways)[1:]
    ]
    return [*results, Result("largest relative difference of a time", worst, "", at_most=1e-9)]


def _largest_difference(plane: "object", bare: "object") -> float:
    difference = 0.0
    for name in ("train_time", "test_time"):
        one, other = plane[name].values, bare[name].values  # type: ignore[index]
        if not (np.isnan(one) == np.isnan(other)).all():
            return np.inf
        both = np.isfinite(other)
        difference = max(difference, float(np.max(np.abs(one[both] / other[both] - 1))))
    return difference


def _cheap_cells() -> list[Result]:
    """Overhead of a sweep over a property that takes a few microseconds, in this process."""
    network = ScalarNetwork(initial_first=[0.1], initial_second=[0.2], target=1.0)
    results = []
    for count in (1000, 10_000):
        over = {"target": np.linspace(0.5, 2, count)}

        def one_by_one(over: dict = over) -> object:
            return [network.replace(target=float(value)).initial_output for value in over["target"]]

        def swept(over: dict = over) -> object:
            return sweep(network, over, "initial_output", engine="serial", progress=False)

        alone, together = seconds(one_by_one, repeats=2), seconds(swept, repeats=2)
        name = f"added to each of {count} cheap cells in this process"
        results.append(Result(name, (together - alone) / count * 1e3, "ms", at_most=2.0))
    return results
