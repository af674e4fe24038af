"""Picture of docs/numerics/causal-dmft.md: error against cost of the latent closure, late and for wide networks.

Its points are those of ``python -m benchmarks.committee_late``, kept in ``docs/results/ledgers/committee-cost.json``.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from solvable.plotting import COLOURS, new_figure

FIGURES = Path(__file__).parents[1]
LEDGER = FIGURES.parent / "results" / "ledgers" / "committee-cost.json"
LABELS = {
    "exchangeable": "exchangeable neurons",
    "explicit": "exchangeable, explicit steps only",
    "single": "single neurons",
}


def largest_error(rows: list[dict[str, Any]], exact: np.ndarray) -> float:
    """Root mean square over sets of the deviation of the test loss, at the time where it is largest."""
    away = np.array([row["test_loss"] for row in rows]) / exact - 1
    return float(np.sqrt((away**2).mean(axis=0)).max())


def panel(axis: Any, rows: list[dict[str, Any]]) -> None:
    exact = np.array(next(row["test_loss"] for row in rows if row["label"] == "reference"))
    for colour, (label, words) in zip(COLOURS, LABELS.items(), strict=False):
        found = [row for row in rows if row["label"] == label]
        points, brackets = [], []
        for samples in sorted({row["samples"] for row in found}):
            some = [row for row in found if row["samples"] == samples]
            middle = [row for row in some if row["convention"] == "half way"]
            # The first run of all compiles.
            seconds = min(row["processor_seconds"] for row in middle)
            points.append((seconds, largest_error(middle, exact), samples))
            ends = {row["convention"]: np.array(row["test_loss"]) for row in some if row["convention"] != "half way"}
            if ends:
                brackets.append((seconds, float((abs(ends["open"] - ends["shrunk"]) / 2 / exact).max())))
        if not points:
            continue
        axis.loglog([x for x, *_ in points], [y for _, y, _ in points], "o-", color=colour, label=words)
        if brackets:
            axis.loglog(*zip(*brackets, strict=True), "--", color=colour, label="half the distance of the conventions")
        if label != "explicit":
            for x, y, samples in points:
                axis.annotate(f"{samples}", (x, y), textcoords="offset points", xytext=(4, 4), fontsize=7)


def main() -> None:
    rows = json.loads(LEDGER.read_text("utf-8"))["rows"]
    figure, (left, right) = new_figure(2, width=4.8)
    panel(left, [row for row in rows if row["part"] == "late"])
    panel(right, [row for row in rows if row["part"] == "wide"])
    left.set(title="four neurons to t = 10⁴", ylabel="largest relative error of the test loss")
    right.set(title="twenty neurons to t = 600")
    whole = next(row for row in rows if row["part"] == "prediction" and row["last"] == 1e4)
    exact = np.array(next(row["test_loss"] for row in rows if row["part"] == "late" and row["label"] == "reference"))
    true = float(np.abs(np.array(whole["test_loss"]) / exact - 1).max())
    x, stated = whole["processor_seconds"], whole["stated_error"]
    left.plot([x, x], [true, stated], ":", color="black", linewidth=1)
    left.plot(x, true, "D", color="black", markersize=5, label="whole prediction")
    left.plot(x, stated, "_", color="black", markersize=10, label="whole prediction, stated error")
    left.set(xlabel="processor seconds of one run", ylim=(5e-3, None))
    left.legend(fontsize="x-small", loc="lower left")
    right.set(xlabel="processor seconds of one run")
    right.legend(fontsize="x-small")
    figure.savefig(FIGURES / "numerics-committee-cost.png", dpi=90)


if __name__ == "__main__":
    main()
