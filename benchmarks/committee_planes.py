"""A plane of committees in one program, beside single predictions of some of its cells.

``python -m benchmarks.committee_planes FILE`` computes the plane of the figure ``delay-planes`` over γ × α (24 x 24
settings of 800 steps on an accelerator, 4 x 4 of 80 steps on a CPU), twice, and two of its cells one by one. It prints
seconds, the largest relative difference between a cell of the plane and the same cell alone, and the share of the
memory's speed that the plane reaches; everything is written to FILE as JSON.

Bytes are counted as three readings of the latent rows in use per step and set of samples: for the fields, for the part
outside of the basis, and for the velocity. The rank grows along the way; its mean over the steps is taken as half of
what it is at the end.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable import Committee, GradientDescent, solvers, sweep
from solvable.papers.delayed_features._shared import paper_task, steps_near
from solvable.precision import in_float64
from solvable.timegrid import log_times

ON_CPU = jax.default_backend() == "cpu"
COUNT, LAST_TIME, SAMPLES = (4, 20.0, 2048) if ON_CPU else (24, 200.0, 8192)
REPLICATES, LEARNING_RATE = 4, 0.25
GAMMAS, ALPHAS = np.geomspace(3.0, 16.0, COUNT), np.geomspace(0.125, 1.25, COUNT)
TIMES = np.append(0.0, steps_near(log_times(1, LAST_TIME, 40), LEARNING_RATE))
SOLVER = solvers.Latent(samples=SAMPLES, replicates=REPLICATES)
TRAINING = GradientDescent(LEARNING_RATE)


def plane(engine: str) -> Any:
    """All cells, from the smallest γ and α on."""
    return sweep(
        paper_task(GAMMAS[0], ALPHAS[0], 0.2),
        {"samples_per_dimension": GAMMAS, "output_scale": ALPHAS},
        "predict",
        options={"times": TIMES, "solver": SOLVER},
        training=TRAINING,
        engine=engine,
        progress=False,
    )


def model(gamma: float, alpha: float) -> Committee:
    """One cell."""
    return paper_task(gamma, alpha, 0.2)


def copy_rate() -> float:
    """Bytes per second of a copy in the device's memory, read and written."""
    array = jnp.ones(2**24 if ON_CPU else 2**29)
    copied = jax.jit(lambda values: values + 1.0)
    copied(array).block_until_ready()
    begin = time.perf_counter()
    for _ in range(5):
        array = copied(array)
    array.block_until_ready()
    return 5 * 2 * array.nbytes / (time.perf_counter() - begin)


@in_float64
def main(path: str) -> None:
    """Time the plane and some of its cells."""
    found: dict[str, Any] = {"device": str(jax.devices()[0].device_kind), "jax": jax.__version__, "cells": COUNT**2}
    rate, curves = copy_rate(), None
    for name in ("first", "again"):
        begin = time.perf_counter()
        curves = plane("vmap")
        found[f"seconds_{name}"] = time.perf_counter() - begin
        print(
            f"plane of {COUNT} x {COUNT}, {int(TIMES[-1])} steps, {name}: {found[f'seconds_{name}']:.1f} s", flush=True
        )
    different, alone, ranks = 0.0, [], []
    for row, column in ((0, 0), (-1, -1)):
        begin = time.perf_counter()
        cell = model(GAMMAS[row], ALPHAS[column]).predict(TIMES, TRAINING, solver=SOLVER, progress=False)
        alone.append(time.perf_counter() - begin)
        ranks.append(json.loads(cell.attrs["solver"])["rank"])
        for loss in ("train_loss", "test_loss"):
            same = curves[loss].isel(samples_per_dimension=row, output_scale=column)
            different = max(different, float(np.abs(same / cell[loss].values - 1).max()))
    runs = COUNT**2 * (REPLICATES + 1)
    moved = TIMES[-1] * runs * 3 * 8 * SAMPLES * np.mean(ranks) / 2
    found |= {
        "seconds_of_single_cells": alone,
        "ranks": ranks,
        "largest_relative_difference": different,
        "copy_bytes_per_second": rate,
        "bytes_of_the_plane": moved,
        "share_of_memory_speed": moved / found["seconds_again"] / rate,
    }
    for name in list(found)[4:]:
        print(name, found[name], flush=True)
    Path(path).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
