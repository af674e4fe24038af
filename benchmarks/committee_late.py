"""Error against cost of the committee's closure, late in training and for wide networks, on a CPU.

``python -m benchmarks.committee_late FILE [PART ...]`` runs its parts one after the other and writes the results so far
to FILE, as JSON, after every run. Costs are processor seconds, which other programs change less than those on the
clock; every run is of one set of samples. Errors are left to the reader of FILE, which ``committee_cost.py`` beside
the figures draws: those of the runs against the part's reference, which has more samples of its own and shorter steps.

===============  ======================================================================================================
part             what
===============  ======================================================================================================
``late``         four neurons to t = 1e4: exchangeable (rotated) neurons with implicit steps where they are cheaper and
                 with explicit ones alone, and single neurons
``wide``         twenty neurons from an aligned start to t = 600, exchangeable and single
``reference``    more samples and shorter steps for all, and for four neurons to 1e6
``predictions``  the whole prediction of four neurons to 1e4, with the error that it states
``latest``       the same to 1e6
``decades``      one set of samples of four neurons to 1e2, 1e3, ..., 1e6
===============  ======================================================================================================
"""

import datetime
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.committee_wide import ALIGNMENT, FOUR, committee
from solvable import Committee, GradientFlow, solvers
from solvable.models.committee import latent
from solvable.models.committee.problem import OutputRequest, problem_of
from solvable.precision import in_float64

TWENTY = committee(ALIGNMENT * np.tile([1.0, -1.0], 10), 20)
TASKS = {
    "late": (FOUR, np.geomspace(1, 1e4, 9)),
    "latest": (FOUR, np.geomspace(1, 1e6, 13)),
    "wide": (TWENTY, np.geomspace(6, 600, 9)),
}
# Samples of a set, and how many sets there are: errors of small sets vary most.
SETS = {2048: 3, 8192: 2, 32768: 1}
CONVENTIONS = {"half way": 0.5, "open": 0.0, "shrunk": 1.0}
REFERENCE = {"samples": 131072, "ratio": 1.1, "memory_limit": 2.0**33}
# A set of samples that no other run has.
REFERENCE_SET = 100


class Ledger:
    """Rows of results, written to a file as they come."""

    def __init__(self, path: Path) -> None:
        self._path, self.rows = path, list[dict[str, Any]]()
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        self._about = {
            "date": datetime.date.today().isoformat(),
            "device": f"one core, {jax.devices()[0].device_kind}, shared by other work",
            "commit": commit,
            "command": "python -m benchmarks.committee_late FILE",
            "jax": jax.__version__,
        }

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        self._path.write_text(json.dumps({"about": self._about, "rows": self.rows}, indent=1) + "\n", "utf-8")
        print({name: value for name, value in row.items() if not isinstance(value, list)}, flush=True)


def run(ledger: Ledger, part: str, label: str, number: int, convention: str, **settings: Any) -> None:
    """One set of samples with one convention for new directions."""
    model, times = TASKS[part]
    symmetry, problem = latent.symmetry_of, problem_of(model, GradientFlow())
    if label == "single":
        latent.symmetry_of = lambda problem: None  # type: ignore[assignment]
    try:
        solver, begin = solvers.Flow(**settings), time.process_time()
        one = solver.run(problem, times, OutputRequest(), number, CONVENTIONS[convention], 0, lambda part: None)
    finally:
        latent.symmetry_of = symmetry
    found = one.arrays(times.size)
    ledger.add(
        part=part,
        label=label,
        samples=settings["samples"],
        set=number,
        convention=convention,
        processor_seconds=time.process_time() - begin,
        rank=one.rank,
        evaluations=one.evaluations,
        times=times.tolist(),
        test_loss=found["test_loss"].tolist(),
        train_loss=found["train_loss"].tolist(),
    )


def curves(ledger: Ledger, part: str, labels: dict[str, dict[str, Any]]) -> None:
    """All sets of all sizes; of exchangeable neurons both conventions on the first set beside the middle one."""
    model, times = TASKS[part]
    for label in labels:
        # Compile what does not depend on the samples.
        solvers.Flow(samples=64, tolerance=0.5).run(
            problem_of(model, GradientFlow()), times[:2], OutputRequest(), 0, 0.5, 0, lambda part: None
        )
        for samples, sets in SETS.items():
            for number in range(sets):
                run(ledger, part, label, number, "half way", samples=samples, **labels[label])
            for convention in ("open", "shrunk") if label == "exchangeable" else ():
                run(ledger, part, label, 0, convention, samples=samples, **labels[label])


def reference(ledger: Ledger) -> None:
    for part in TASKS:
        run(ledger, part, "reference", REFERENCE_SET, "half way", **REFERENCE)


def prediction(ledger: Ledger, last: float, samples: int = 32768) -> None:
    """The public call, with its error of the time steps and all compilation."""
    times, begin = np.geomspace(1, last, 2 * round(np.log10(last)) + 1), time.process_time()
    solver = solvers.Flow(samples=samples, replicates=2, memory_limit=2.0**33)
    found = FOUR.predict(times, GradientFlow(), solver=solver, key=1, progress=False)
    error = found.test_loss_error / found.test_loss
    ledger.add(
        part="prediction",
        last=last,
        samples=samples,
        replicates=2,
        processor_seconds=time.process_time() - begin,
        stated_error=float(error.max()),
        times=times.tolist(),
        each=error.values.tolist(),
        test_loss=found.test_loss.values.tolist(),
        train_loss=found.train_loss.values.tolist(),
    )


def decades(ledger: Ledger, model: Committee = FOUR) -> None:
    """Cost of every decade: one set of 8192 samples to the end of each."""
    problem = problem_of(model, GradientFlow())
    for last in (1e2, 1e3, 1e4, 1e5, 1e6):
        solver, begin = solvers.Flow(samples=8192), time.process_time()
        one = solver.run(problem, np.array([1.0, last]), OutputRequest(), 0, 0.5, 0, lambda part: None)
        taken = time.process_time() - begin
        row = {"processor_seconds": taken, "rank": one.rank, "evaluations": one.evaluations}
        ledger.add(part="decades", last=last, samples=8192, **row)


PARTS: dict[str, Callable[[Ledger], None]] = {
    "late": lambda ledger: curves(ledger, "late", {"exchangeable": {}, "explicit": {"implicit": False}, "single": {}}),
    "wide": lambda ledger: curves(ledger, "wide", {"exchangeable": {}, "single": {}}),
    "reference": reference,
    "predictions": lambda ledger: prediction(ledger, 1e4),
    "latest": lambda ledger: prediction(ledger, 1e6),
    "decades": decades,
}


@in_float64
def main(path: str, *parts: str) -> None:
    """Run the parts."""
    ledger = Ledger(Path(path))
    for name in parts or PARTS:
        PARTS[name](ledger)


if __name__ == "__main__":
    main(*sys.argv[1:])
