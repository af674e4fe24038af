"""Exponents recovered from training curves at three widths, beside those with which the curves were made.

Feature scaling with 3000 modes is trained at widths 32, 64 and 128 (``simulate``, gradient descent, 16 seeds), with
lazy and with rich features, and ``solvable.infer`` is given the mean curves and the widths: not the exponents, nor the
units of time and loss.

Run as ``python docs/results/make/inference_recovery.py``, about two minutes on one core; it writes the ledger
``inference-recovery.json``.
"""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import solvable
from solvable.inference import run_of_dataset

DOCS = Path(__file__).parents[2]
WIDTHS, SEEDS, MODES, RATE, STEPS = (32, 64, 128), 16, 3000, 0.05, 4000
# Law, capacity, source and richness.
CASES = {
    "rich": ("feature-scaling", 1.5, 0.8, 1.0),
    "lazy": ("feature-scaling-lazy", 1.5, 0.8, 0.0),
}


def recovered(law: str, capacity: float, source: float, richness: float) -> dict[str, Any]:
    """Estimates with intervals, beside the truth."""
    times = np.unique(np.round(np.geomspace(20, STEPS, 40)))
    model = solvable.FeatureScaling(capacity=capacity, source=source, richness=richness, modes=MODES)
    training = solvable.GradientDescent(learning_rate=RATE)
    begin = time.process_time()
    runs = [
        run_of_dataset(
            model.replace(features=width).simulate(times, training, seeds=SEEDS, progress=False), f"N = {width}"
        )
        for width in WIDTHS
    ]
    trained = time.process_time() - begin
    report = solvable.infer(runs, law, backtest=False)
    truth = {"capacity": capacity, "source": source, "richness": richness, "time_unit": RATE, "unit": 1.0, "floor": 0.0}
    found = {}
    for label in report.parameters.parameter.values.tolist():
        one = report.parameters.sel(parameter=label)
        found[label] = {
            "truth": truth[label],
            **{name: float(one[name]) for name in ("estimate", "low95", "high95")},
            "identified": str(one.identified.values),
        }
    return {
        "parameters": found,
        "noise": report.noise.scale,
        "correlation": report.noise.correlation,
        "misfit": report.misfit.chance,
        "warnings": list(report.warnings),
        "simulation_cpu_seconds": round(trained, 1),
        "inference_cpu_seconds": round(time.process_time() - begin - trained, 1),
    }


def main() -> None:
    content: dict[str, Any] = {name: recovered(*case) for name, case in CASES.items()}
    content["made"] = {
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "version": solvable.__version__,
        "widths": WIDTHS,
        "seeds": SEEDS,
        "modes": MODES,
        "learning_rate": RATE,
        "steps": STEPS,
    }
    folder = Path(os.environ.get("OUT", DOCS / "results" / "ledgers"))
    (folder / "inference-recovery.json").write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
