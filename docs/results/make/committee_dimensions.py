"""A hundred neurons through the grokking transition: theory against simulations of three dimensions up to 2000.

Gradient descent of the wide network of ``delayed-features wide`` (γ = 4.5, α = 0.5, ε = 0.05, alternating alignments),
learning rate 0.25, to flow time 600. Theory is that of the same whole steps, so that nothing is extrapolated but the
dimension. Datasets are simulated two at a time and kept under ``--folder``, so that the same command resumes.

Run as ``python docs/results/make/committee_dimensions.py``, about forty minutes of one core; it writes the ledger
``committee-dimensions.json`` and prints its verdicts.
"""

import argparse
import json
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import xarray as xr

import solvable
from solvable import GradientDescent, solvers
from solvable.papers.delayed_features._shared import paper_task
from solvable.papers.delayed_features.wide import ALPHA, EPSILON, GAMMA, LEARNING_RATE, start

DOCS = Path(__file__).parents[2]
NEURONS, LAST = 100, 600.0
# Datasets of each dimension, simulated some at a time.
DATASETS, TOGETHER = {500: 24, 1000: 8, 2000: 4}, 2
STEPS = np.unique(np.round(np.geomspace(2, LAST, 16) / LEARNING_RATE))
SAMPLES = 32768
LOSSES = ("train_loss", "test_loss")


def simulated(model: solvable.Committee, dimension: int, folder: Path) -> tuple[xr.Dataset, float]:
    """All datasets of one dimension, and the processor seconds that they took."""
    parts, seconds = [], 0.0
    for key in range(DATASETS[dimension] // TOGETHER):
        path = folder / f"{dimension}-{key}.nc"
        if not path.exists():
            begin = time.process_time()
            runs = model.simulate(
                STEPS,
                GradientDescent(LEARNING_RATE),
                dimension=dimension,
                seeds=TOGETHER,
                key=1000 * dimension + key,
                progress=False,
            )
            runs.attrs["processor_seconds"] = time.process_time() - begin
            solvable.save(runs[list(LOSSES)], path)
            print(
                f"D = {dimension}, datasets {len(parts) * TOGETHER} ...: {runs.attrs['processor_seconds']:.0f} s",
                flush=True,
            )
        parts.append(solvable.load(path))
        seconds += parts[-1].attrs["processor_seconds"]
    found = xr.concat([part.drop_vars("seed", errors="ignore") for part in parts], "seed", combine_attrs="override")
    return found, seconds


def rows(comparison: xr.Dataset) -> dict[str, dict[str, list[float]]]:
    """Every statistic of the losses along time."""
    return {
        name: {
            str(statistic): comparison[name].sel(statistic=statistic).values.tolist()
            for statistic in comparison.statistic.values
        }
        for name in LOSSES
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=DOCS.parent / "report" / "committee-dimensions")
    parser.add_argument("--ledger", type=Path, default=DOCS / "results" / "ledgers" / "committee-dimensions.json")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True, cwd=DOCS).strip()
    model = paper_task(GAMMA, ALPHA, EPSILON, *start(NEURONS))
    begin = time.process_time()
    solver = solvers.Latent(samples=SAMPLES, replicates=2)
    theory = model.predict(STEPS, GradientDescent(LEARNING_RATE), solver=solver, progress=False)
    seconds = {"theory": time.process_time() - begin}
    print(f"theory: {seconds['theory']:.0f} s, stated error {theory.attrs['numerical_error']:.2g}", flush=True)
    simulations = []
    for dimension in DATASETS:
        runs, seconds[f"D = {dimension}"] = simulated(model, dimension, options.folder)
        simulations.append(runs)
    limit = solvable.compare(theory, simulations, extrapolate="dimension")
    each = {dimension: solvable.compare(theory, runs) for dimension, runs in zip(DATASETS, simulations, strict=True)}
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": "one CPU core",
        "commit": commit,
        "command": "python docs/results/make/committee_dimensions.py",
        "datasets": {str(dimension): count for dimension, count in DATASETS.items()},
        "samples_of_theory": SAMPLES,
        "processor_seconds": {name: round(value) for name, value in seconds.items()},
        "flow_time": (STEPS * LEARNING_RATE).tolist(),
        "stated_error_of_theory": {name: theory[f"{name}_error"].values.tolist() for name in LOSSES},
        "extrapolated": {"verdict": limit.attrs["verdict"], **rows(limit)},
        **{f"D = {dimension}": {"verdict": one.attrs["verdict"], **rows(one)} for dimension, one in each.items()},
    }
    options.ledger.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    for name in ("extrapolated", *(f"D = {dimension}" for dimension in DATASETS)):
        print(name, content[name]["verdict"], sep=": ")


if __name__ == "__main__":
    main()
