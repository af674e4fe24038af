"""Fig. 4.3: learning curves over compute for several basis sizes, and the optimal compute law that bounds them."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.timegrid import log_times

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXPONENTS = (0.3, 0.6, 0.9)


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Learning curves of several basis sizes, and the optimum for each compute budget and over its last decade."""
    sizes = np.unique(np.round(np.geomspace(10, 1e4, 7 if scale == "quick" else 13)))
    budgets = log_times(1e2, 1e9, 15 if scale == "quick" else 43)
    data = {}
    for alpha in EXPONENTS:
        model = SkillModel(alpha, skills=math.inf)
        fixed = [model.losses(budgets / size, [size]).test_loss.values[:, 0] for size in sizes]
        best = model.compute_optimal(budgets).assign_coords(fixed_basis=sizes)
        best["fixed_basis_loss"] = variable(("fixed_basis", "budget"), fixed, "expected test loss of one basis size")
        data[f"curves-{alpha:g}"] = model.losses(log_times(1, 1e8, 120), sizes)
        data[f"optimum-{alpha:g}"] = best
        data[f"optimum-{alpha:g}-decade"] = model.compute_optimal([1e8, 1e9])
    return data


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The exponents of the optimum, and that no other basis size is better."""
    made = []
    for alpha in EXPONENTS:
        best = data[f"optimum-{alpha:g}"]
        made += _exponent_claims(alpha, data[f"optimum-{alpha:g}-decade"])
        made.append(
            Claim(
                f"α = {alpha:g}: smallest loss of any N shown, over the best for the same compute, if below 1",
                min(float((best.fixed_basis_loss / best.test_loss).min()), 1.0),
                1.0,
                1e-12,
                "rounding: the search must find what no other basis beats",
            )
        )
    return made


def _exponent_claims(alpha: float, decade: xr.Dataset) -> list[Claim]:
    slopes = {name: float(np.log10(values[1] / values[0])) for name, values in decade.items()}
    whole = "the basis is a whole number near a flat minimum, and small at a small budget"
    return [
        Claim(
            f"α = {alpha:g}: exponent of the loss in compute",
            -slopes["test_loss"],
            alpha / (alpha + 2),
            2e-3,
            "corrections of order 1/N",
        ),
        Claim(f"α = {alpha:g}: best basis over compute", slopes["basis"], 1 / (alpha + 2), 5e-3, whole),
        Claim(f"α = {alpha:g}: best time over compute", slopes["time"], (alpha + 1) / (alpha + 2), 5e-3, whole),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The loss over compute, one panel per exponent."""
    figure, panels = new_figure(3)
    for panel, colour, alpha in zip(panels, COLOURS, EXPONENTS, strict=False):
        _draw(panel, colour, alpha, data[f"curves-{alpha:g}"].test_loss, data[f"optimum-{alpha:g}"])
    panels[0].legend(loc="lower left")
    return figure


def _draw(panel: "Axes", colour: str, alpha: float, loss: xr.DataArray, best: xr.Dataset) -> None:
    budgets = best.budget.values
    for size in loss.basis.values:
        spent = loss.time.values * size
        inside = (spent >= budgets[0]) & (spent <= budgets[-1])
        panel.plot(spent[inside], loss.sel(basis=size)[inside], color=colour, linewidth=0.9, alpha=0.7)
    panel.plot([], [], color=colour, label="N = 10 to 10⁴")
    panel.plot(budgets, best.test_loss, color="black", linewidth=1.6, label="best N")
    model = SkillModel(alpha, skills=math.inf)
    law = float(model.prefactors().budget) * budgets ** -float(model.exponents().budget)
    label = "power law with its prefactor"
    panel.plot(budgets, law, color=COLOURS[3], linestyle=":", linewidth=2.4, zorder=3, label=label)
    panel.set_title(f"α = {alpha:g}")
    set_axis(panel, "x", best.budget, log=True)
    set_axis(panel, "y", best.test_loss, log=True)
    panel.set_ylabel("expected test loss, L")
