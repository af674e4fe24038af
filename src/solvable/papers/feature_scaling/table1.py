"""Table 1: exponents of the compute-optimal loss, lazy and rich, from the envelope of theory's curves."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Scale
from solvable.papers.feature_scaling._shared import CAPACITY, compute_exponents, fitted, noisy_envelope
from solvable.plotting import COLOURS, new_figure
from solvable.timegrid import log_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A source in each phase; batch noise decides the last one only.
TASKS = {"hard": 0.5, "easy": 1.2, "super-easy": 1.75}
RICHNESS = {"lazy": 0.0, "rich": 1.0}
NOISE = 0.2
FIRST, LAST = 1e7, 1e9


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The least loss and the best number of features at each compute budget."""
    data: dict[str, xr.Dataset] = {}
    budgets, per_decade = log_times(FIRST, LAST, 3 if scale == "quick" else 9), 8 if scale == "quick" else 16
    for task, source in TASKS.items():
        for regime, richness in RICHNESS.items():
            model = FeatureScaling(CAPACITY, source, richness=richness, modes=math.inf)
            data[f"{task}-{regime}"] = (
                noisy_envelope(model, budgets, NOISE, per_decade)
                if task == "super-easy"
                else model.compute_optimal(budgets, per_decade=per_decade, progress=False)
            )
    return data


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Fitted exponents of the loss and of the number of features against those of the table."""
    made: list[Claim] = []
    span, because = f"over C = {FIRST:.0e} ... {LAST:.0e}", "the approach at these budgets"
    for task, source in TASKS.items():
        for regime in RICHNESS:
            name, best = f"{task}, β = {source:g}, {regime}", data[f"{task}-{regime}"]
            loss, size = compute_exponents(source, regime == "rich")
            found = fitted(best.test_loss, FIRST, LAST, "budget")
            made += [
                Claim(f"{name}: compute exponent {span}", found, loss, 0.01, because),
                Claim(
                    f"{name}: exponent of the best number of features {span}",
                    -fitted(best.features, FIRST, LAST, "budget"),
                    size,
                    0.03,
                    because + "; the minimum is flat, so that its place is known worse than its depth",
                ),
            ]
    return made


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The least loss and the best number of features over compute."""
    figure, (loss_panel, size_panel) = new_figure(2)
    for colour, (task, source) in zip(COLOURS, TASKS.items(), strict=False):
        for regime, line in (("lazy", "--"), ("rich", "-")):
            best, (loss, size) = data[f"{task}-{regime}"], compute_exponents(source, regime == "rich")
            style = {"linestyle": line, "marker": "o", "markersize": 3.5, "color": colour}
            loss_panel.plot(best.budget, best.test_loss, label=f"{task}, {regime}: $C^{{-{loss:.3f}}}$", **style)
            size_panel.plot(best.budget, best.features, label=f"{task}, {regime}: $C^{{{size:.3f}}}$", **style)
    for panel, name in ((loss_panel, "least test loss"), (size_panel, "best number of features, $N^*$")):
        panel.set(xscale="log", yscale="log", xlabel="compute, C = N t", ylabel=name)
        panel.legend(fontsize="small", loc="upper left" if panel is size_panel else "best")
    size_panel.set_ylim(top=3e6)
    return figure
