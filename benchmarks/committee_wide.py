"""A hundred neurons through the grokking transition: theory by two routes and simulation beside it.

``python -m benchmarks.committee_wide FILE [PART ...]`` runs its parts one after the other and writes the results so far
to FILE, as JSON, after every run. No part begins once ``WIDE_LIMIT`` seconds (default 420) have passed since the start;
a run that has begun is finished. Sizes are those of an accelerator; ``WIDE_SCALE=cpu`` takes fewer samples and smaller
simulations, for all parts but ``late`` and ``single`` on a CPU, and ``WIDE_SCALE=tiny`` tries all parts in seconds.

==================  ===================================================================================================
part                what
==================  ===================================================================================================
``exchangeable``    aligned start, closure of exchangeable neurons, growing samples, both conventions and half way
``sim-aligned``     gradient descent from the aligned start in two dimensions, with two learning rates each
``predict``         the whole prediction from the aligned start, with its stated error, compilation included
``random``          the same from random alignments, which a rotation of the neurons makes exchangeable
``sim-random``      gradient descent from the random start
``late``            gradient flow of four neurons to 1e4 and 1e6, and the whole prediction to 1e4
``single``          aligned start, closure of single neurons, which knows nothing of the exchange
==================  ===================================================================================================

Simulations of learning rates dt and dt/2 on the same datasets are extrapolated to flow, ``2 f(dt/2) - f(dt)``, and
those of two dimensions to infinity by a line in 1/D; ``extrapolated`` has the result with its standard error, and
``difference`` how far theory is from it, relative and in standard errors.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from solvable import Committee, GradientDescent, GradientFlow, activations, solvers
from solvable.extrapolation import inverse_size_weights
from solvable.models.committee import latent
from solvable.models.committee.problem import OutputRequest, problem_of
from solvable.precision import in_float64

SCALE = os.environ.get("WIDE_SCALE", "accelerator")
TINY = SCALE == "tiny"
LIMIT = float(os.environ.get("WIDE_LIMIT", "420"))
NEURONS, LAST = (6, 12.0) if TINY else (100, 600.0)
DIMENSIONS = {"tiny": (40, 80), "cpu": (500, 1000), "accelerator": (1000, 2000)}[SCALE]
SEEDS = {"tiny": (3, 2), "cpu": (8, 4), "accelerator": (20, 10)}[SCALE]
SAMPLES = {
    "tiny": {"exchangeable": (256, 512), "single": (512,), "random": (256, 512)},
    "cpu": {"exchangeable": (8192, 32768), "single": (8192,), "random": (8192, 32768)},
    "accelerator": {"exchangeable": (16384, 65536), "single": (262144,), "random": (16384, 65536)},
}[SCALE]
LEARNING_RATE = 0.25
RATIO, ALIGNMENT = 1.2, 0.2
CONVENTIONS = {"half way": 0.5, "open": 0.0, "shrunk": 1.0}
# Whole steps, so that theory and simulations are measured at the same times.
TIMES = np.unique(np.round(np.geomspace(2, LAST, 12) / LEARNING_RATE)) * LEARNING_RATE


def committee(alignment: np.ndarray, neurons: int) -> Committee:
    """The paper's task, with weights that are orthonormal beside their alignments."""
    return Committee(
        samples_per_dimension=4.5,
        output_scale=0.5,
        activation=activations.quadratic(0.05),
        initial_overlap=np.eye(neurons) + np.outer(alignment, alignment),
        initial_alignment=alignment[:, None],
    )


ALIGNED = committee(ALIGNMENT * np.tile([1.0, -1.0], NEURONS // 2), NEURONS)
RANDOM = committee(ALIGNMENT * np.random.default_rng(0).normal(size=NEURONS), NEURONS)
FOUR = committee(0.1 * np.array([1.0, -1.0, 1.0, -1.0]), 4)


class Ledger:
    """Rows of results, written to a file as they come."""

    def __init__(self, path: Path) -> None:
        self._path, self._begin, self.rows = path, time.perf_counter(), list[dict[str, Any]]()

    def left(self) -> float:
        return LIMIT - (time.perf_counter() - self._begin)

    def add(self, **row: Any) -> None:
        row["at"] = round(time.perf_counter() - self._begin, 1)
        self.rows.append(row)
        device = str(jax.devices()[0].device_kind)
        about = {"device": device, "jax": jax.__version__, "neurons": NEURONS, "scale": SCALE}
        self._path.write_text(json.dumps({"about": about, "rows": self.rows}, indent=1))
        print({name: value for name, value in row.items() if not isinstance(value, list)}, flush=True)

    def find(self, part: str, **wanted: Any) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["part"] == part and all(row.get(k) == v for k, v in wanted.items())]


def theory(ledger: Ledger, part: str, model: Committee, exchangeable: bool) -> None:
    """One set of samples for each size and convention, and a second set at the largest size."""
    symmetry, problem = latent.symmetry_of, problem_of(model, GradientFlow())
    latent.symmetry_of = symmetry if exchangeable else lambda problem: None  # type: ignore[assignment]
    try:
        for samples in SAMPLES[part]:
            solver = solvers.Flow(samples=samples, ratio=RATIO)
            runs = [(0, name) for name in CONVENTIONS] + [(1, "half way")]
            for replicate, name in runs:
                if ledger.left() <= 0:
                    return
                begin, worked = time.perf_counter(), time.process_time()
                run = solver.run(problem, TIMES, OutputRequest(), replicate, CONVENTIONS[name], 0, lambda part: None)
                found = run.arrays(TIMES.size)
                ledger.add(
                    part=part,
                    samples=samples,
                    replicate=replicate,
                    convention=name,
                    seconds=time.perf_counter() - begin,
                    cpu_seconds=time.process_time() - worked,
                    rank=run.rank,
                    evaluations=run.evaluations,
                    times=TIMES.tolist(),
                    test_loss=found["test_loss"].tolist(),
                    train_loss=found["train_loss"].tolist(),
                )
            ends = {
                name: ledger.find(part, samples=samples, replicate=0, convention=name)[0]["test_loss"]
                for name in CONVENTIONS
            }
            bracket = abs(np.array(ends["open"]) - ends["shrunk"]) / 2 / np.array(ends["half way"])
            ledger.add(part=f"bracket of {part}", samples=samples, largest=float(bracket.max()), each=bracket.tolist())
    finally:
        latent.symmetry_of = symmetry


def simulation(ledger: Ledger, part: str, model: Committee, theories: tuple[str, ...]) -> None:
    """Both learning rates in both dimensions, extrapolated, and how far theory is from that."""
    means, errors = [], []
    for dimension, seeds in zip(DIMENSIONS, SEEDS, strict=True):
        found = []
        for halvings in (0, 1):
            if ledger.left() <= 0:
                return
            rate = LEARNING_RATE / 2**halvings
            begin = time.perf_counter()
            runs = model.simulate(
                TIMES / rate, GradientDescent(rate), dimension=dimension, seeds=seeds, key=10, progress=False
            )
            ledger.add(
                part=part,
                dimension=dimension,
                seeds=seeds,
                learning_rate=rate,
                seconds=time.perf_counter() - begin,
                times=TIMES.tolist(),
                test_loss=runs.test_loss.mean("seed").values.tolist(),
                test_loss_error=(runs.test_loss.std("seed", ddof=1) / np.sqrt(seeds)).values.tolist(),
                train_loss=runs.train_loss.mean("seed").values.tolist(),
            )
            found.append(runs.test_loss.values)
        each = 2 * found[1] - found[0]
        means.append(each.mean(axis=0))
        errors.append(each.std(axis=0, ddof=1) / np.sqrt(seeds))
    weights, _ = inverse_size_weights(DIMENSIONS, errors)
    mean = (weights * means).sum(axis=0)
    error = np.sqrt(((weights * errors) ** 2).sum(axis=0))
    row = {"times": TIMES.tolist(), "test_loss": mean.tolist(), "test_loss_error": error.tolist()}
    ledger.add(part=f"extrapolated {part}", **row)
    for name in theories:
        for one in ledger.find(name, replicate=0, convention="half way"):
            away = np.array(one["test_loss"]) - mean
            ledger.add(
                part=f"difference of {name} and {part}",
                samples=one["samples"],
                largest=float(np.abs(away / mean).max()),
                largest_in_errors=float(np.abs(away / error).max()),
                each=(away / mean).tolist(),
                in_errors=(away / error).tolist(),
            )


def predict(ledger: Ledger) -> None:
    """The public call, twice: with compilation, and with another set of samples."""
    solver = solvers.Flow(samples=SAMPLES["exchangeable"][-1], replicates=2, ratio=RATIO)
    for key in (1, 2):
        begin = time.perf_counter()
        found = ALIGNED.predict(TIMES, GradientFlow(), solver=solver, key=key, progress=False)
        error = (found.test_loss_error / found.test_loss).values
        ledger.add(
            part="predict",
            key=key,
            samples=solver.samples,
            seconds=time.perf_counter() - begin,
            stated_error=float(error.max()),
            each=error.tolist(),
            test_loss=found.test_loss.values.tolist(),
        )


def late(ledger: Ledger) -> None:
    """Four neurons to 1e4 and 1e6, whole predictions, and runs with more samples and with explicit steps alone."""
    problem, sizes = problem_of(FOUR, GradientFlow()), (512, 1024) if TINY else (65536, 262144)
    ends = (20.0, 30.0) if TINY else (1e4, 1e6)

    def run(label: str, last: float, samples: int, shrunk: float, implicit: bool | None = None) -> np.ndarray:
        times, begin = np.geomspace(1, last, 9), time.perf_counter()
        solver = solvers.Flow(samples=samples, implicit=implicit)
        one = solver.run(problem, times, OutputRequest(), 0, shrunk, 0, lambda part: None)
        found = one.arrays(9)["test_loss"]
        ledger.add(
            part="late",
            label=label,
            last=last,
            samples=samples,
            seconds=time.perf_counter() - begin,
            rank=one.rank,
            evaluations=one.evaluations,
            test_loss=found.tolist(),
        )
        return found

    for last in ends:
        begin = time.perf_counter()
        solver = solvers.Flow(samples=sizes[0], replicates=2)
        found = FOUR.predict(np.geomspace(1, last, 9), GradientFlow(), solver=solver, key=1, progress=False)
        error = (found.test_loss_error / found.test_loss).values
        row = {"seconds": time.perf_counter() - begin, "stated_error": float(error.max()), "each": error.tolist()}
        ledger.add(
            part="late prediction", last=last, samples=sizes[0], test_loss=found.test_loss.values.tolist(), **row
        )
    fewer, more = run("half way", ends[1], sizes[0], 0.5), run("half way", ends[1], sizes[1], 0.5)
    ledger.add(part="late against more samples", last=ends[1], each=(fewer / more - 1).tolist())
    if ledger.left() > 0:
        run("explicit", ends[0], sizes[0], 0.5, implicit=False)


PARTS: dict[str, Callable[[Ledger], None]] = {
    "exchangeable": lambda ledger: theory(ledger, "exchangeable", ALIGNED, True),
    "sim-aligned": lambda ledger: simulation(ledger, "sim-aligned", ALIGNED, ("exchangeable",)),
    "predict": predict,
    "random": lambda ledger: theory(ledger, "random", RANDOM, True),
    "sim-random": lambda ledger: simulation(ledger, "sim-random", RANDOM, ("random",)),
    "late": late,
    "single": lambda ledger: theory(ledger, "single", ALIGNED, False),
}


@in_float64
def main(path: str, *parts: str) -> None:
    """Run the parts."""
    ledger = Ledger(Path(path))
    for name in parts or PARTS:
        if ledger.left() > 0:
            PARTS[name](ledger)


if __name__ == "__main__":
    main(*sys.argv[1:])
