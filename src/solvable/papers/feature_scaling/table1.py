"""Table 1: exponents of the compute-optimal loss, lazy and rich, from the envelope of theory's curves."""

import math
from typing import TYPE_CHECKING

import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._shared import CAPACITY, fitted, noisy_envelope
from solvable.plotting import COLOURS, new_figure
from solvable.timegrid import log_times

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A source in each phase; batch noise decides the last one only.
TASKS = {"hard": 0.5, "easy": 1.2, "super-easy": 1.75}
RICHNESS = {"lazy": 0.0, "rich": 1.0}
NOISE = 0.2
FIRST, LAST = 1e7, 1e9


def reproduce(scale: Scale) -> Reproduction:
    figure, (loss_panel, size_panel) = new_figure(2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for colour, (task, source) in zip(COLOURS, TASKS.items(), strict=False):
        for regime, richness in RICHNESS.items():
            budgets = log_times(FIRST, LAST, 3 if scale == "quick" else 9)
            per_decade = 8 if scale == "quick" else 16
            model = FeatureScaling(CAPACITY, source, richness=richness, modes=math.inf)
            if task == "super-easy":
                best = noisy_envelope(model, budgets, NOISE, per_decade)
            else:
                best = model.compute_optimal(budgets, per_decade=per_decade, progress=False)
            datasets[f"{task}-{regime}"] = best
            loss, size = tabulated(source, richness > 0)
            claims += _claims(f"{task}, β = {source:g}, {regime}", best, loss, size)
            style = "-" if richness else "--"
            label = f"{task}, {regime}: $C^{{-{loss:.3f}}}$"
            _draw(loss_panel, best.test_loss, style, colour, label)
            _draw(size_panel, best.features, style, colour, f"{task}, {regime}: $C^{{{size:.3f}}}$")
    for panel, name in ((loss_panel, "least test loss"), (size_panel, "best number of features, $N^*$")):
        panel.set(xscale="log", yscale="log", xlabel="compute, C = N t", ylabel=name)
        panel.legend(fontsize="small", loc="upper left" if panel is size_panel else "best")
    size_panel.set_ylim(top=3e6)
    return Reproduction(datasets, figure, claims)


def tabulated(source: float, rich: bool) -> tuple[float, float]:
    """The table's exponent of the loss, and that of the number of features that the same balance implies."""
    if source < 1:
        time = 2 * source / (1 + source) if rich else source
        return CAPACITY * source * time / (CAPACITY * source + time), time / (CAPACITY * source + time)
    if source < 2 - 1 / CAPACITY:
        loss = CAPACITY * source / (CAPACITY * source + 1)
        return loss, 1 - loss / source
    return 1 - 1 / (2 * CAPACITY), 0.5


def _draw(panel: "Axes", values: xr.DataArray, style: str, colour: str, label: str) -> None:
    panel.plot(values.budget, values, style, marker="o", markersize=3.5, color=colour, label=label)


def _claims(name: str, best: xr.Dataset, loss: float, size: float) -> list[Claim]:
    span = f"over C = {FIRST:.0e} ... {LAST:.0e}"
    because = "the approach at these budgets"
    return [
        Claim(f"{name}: compute exponent {span}", fitted(best.test_loss, FIRST, LAST, "budget"), loss, 0.01, because),
        Claim(
            f"{name}: exponent of the best number of features {span}",
            -fitted(best.features, FIRST, LAST, "budget"),
            size,
            0.03,
            because + "; the minimum is flat, so that its place is known worse than its depth",
        ),
    ]
