"""Exponents of real networks from their training curves at three widths, beside those of their own kernel.

Networks with two hidden layers learn functions on the circle (the task and the network of fig. 5 of feature-scaling) at
widths 32, 64 and 128, richly and lazily. ``solvable.infer`` is given the mean curves over three seeds: once with the
widths as the numbers of features, once without. The tangent kernel of the infinitely wide network gives the exponents
that a solvable model would have: the capacity from its eigenvalues, the source from the target's coefficients.

Run as ``python docs/results/make/inference_networks.py``, about four minutes on one core; it writes the ledger
``inference-networks.json``.
"""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import solvable
from solvable.inference import Run
from solvable.networks.tasks.circle import fourier_decay
from solvable.papers.feature_scaling._circle import spectrum, trained

DOCS = Path(__file__).parents[2]
WIDTHS, POINTS, UNTIL, SEEDS = (32, 64, 128), 256, 640.0, 3
POWER, SOURCE = 0.9, 0.6
# Records from here on: before, the waves 1 to 3 are learned, whose eigenvalues are not on the power law yet.
FIRST_TIME = 5.0
# Law and richness.
CASES = {"rich": ("feature-scaling", 1.0), "lazy": ("feature-scaling-lazy", 0.03)}


def measured_capacity() -> float:
    """The exponent of the kernel's eigenvalues over the waves that are learned while the curves are recorded."""
    eigenvalues = spectrum(POWER, 2**13)
    first, last = (int(np.argmax(eigenvalues[1:] < 1 / t)) + 1 for t in (FIRST_TIME, UNTIL))
    waves = np.arange(first, max(last, first + 4))
    return -float(np.polyfit(np.log(waves), np.log(eigenvalues[waves]), 1)[0])


def described(report: Any) -> dict[str, Any]:
    """Estimates with intervals, and what the report says of itself."""
    rows = {}
    for label in report.parameters.parameter.values.tolist():
        one = report.parameters.sel(parameter=label)
        numbers = {name: float(one[name]) for name in ("estimate", "low95", "high95")}
        rows[label] = numbers | {"identified": str(one.identified.values)}
    return {
        "parameters": rows,
        "noise": report.noise.scale,
        "correlation": report.noise.correlation,
        "misfit": report.misfit.chance,
        "warnings": list(report.warnings),
    }


def main() -> None:
    decay = float(fourier_decay(SOURCE, 2 * POWER))
    content: dict[str, Any] = {}
    for name, (law, richness) in CASES.items():
        begin, curves = time.process_time(), []
        for width in WIDTHS:
            settings = {"width": width, "points": POINTS, "until": UNTIL, "seeds": SEEDS, "richness": richness}
            losses = trained([decay], [POWER], **settings).isel(task=0)
            kept = losses.sel(time=slice(FIRST_TIME, None))
            curves.append((width, kept.time.values, kept.mean("seed").values))
        content[name] = {"training_cpu_seconds": round(time.process_time() - begin, 1)}
        for how in ("widths given", "widths not given"):
            runs = [
                Run(f"N = {width}", times, loss, sizes={"width": width} if how == "widths given" else {}, group="all")
                for width, times, loss in curves
            ]
            runs = runs if how == "widths given" else runs[-1:]
            content[name][how] = described(solvable.infer(runs, law, backtest=False))
    content["kernel"] = {"capacity": 2 * POWER, "capacity of the waves learned": measured_capacity(), "source": SOURCE}
    content["made"] = {
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "version": solvable.__version__,
        "command": "python docs/results/make/inference_networks.py",
        "widths": WIDTHS,
        "points": POINTS,
        "until": UNTIL,
        "seeds": SEEDS,
        "activation": f"max(0, h)^{POWER}",
    }
    folder = Path(os.environ.get("OUT", DOCS / "results" / "ledgers"))
    (folder / "inference-networks.json").write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
