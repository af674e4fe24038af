"""Fig. 4.3: learning curves over compute for several basis sizes, and the optimal compute law that bounds them."""

import math

import numpy as np
import xarray as xr

from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.timegrid import log_times

EXPONENTS = (0.3, 0.6, 0.9)


def reproduce(scale: Scale) -> Reproduction:
    sizes = np.unique(np.round(np.geomspace(10, 1e4, 7 if scale == "quick" else 13)))
    budgets = log_times(1e2, 1e9, 15 if scale == "quick" else 43)
    figure, panels = new_figure(3)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for panel, colour, alpha in zip(panels, COLOURS, EXPONENTS, strict=False):
        model = SkillModel(alpha, skills=math.inf)
        exponents, prefactors = model.exponents(), model.prefactors()
        best = model.compute_optimal(budgets)
        times = log_times(1, 1e8, 120)
        curves = model.losses(times, sizes)
        for size in sizes:
            compute = times * size
            inside = (compute >= budgets[0]) & (compute <= budgets[-1])
            panel.plot(
                compute[inside], curves.test_loss.sel(basis=size)[inside], color=colour, linewidth=0.9, alpha=0.7
            )
        panel.plot([], [], color=colour, label="N = 10 to 10⁴")
        panel.plot(best.budget, best.test_loss, color="black", linewidth=1.6, label="best N")
        law = float(prefactors.budget) * budgets ** -float(exponents.budget)
        panel.plot(
            budgets, law, color=COLOURS[3], linestyle=":", linewidth=2.4, zorder=3, label="power law with its prefactor"
        )
        panel.set_title(f"α = {alpha:g}")
        set_axis(panel, "x", best.budget, log=True)
        set_axis(panel, "y", best.test_loss, log=True)
        panel.set_ylabel("expected test loss, L")
        datasets |= {f"curves-{alpha:g}": curves, f"optimum-{alpha:g}": best}
        claims += _claims(model, alpha)
        others = [model.losses(budgets / size, [size]).test_loss.values[:, 0] for size in sizes]
        claims.append(
            Claim(
                f"α = {alpha:g}: smallest loss of any N shown, over the best for the same compute, if below 1",
                min(float(np.min(np.array(others) / best.test_loss.values)), 1.0),
                1.0,
                1e-12,
                "rounding: the search must find what no other basis beats",
            )
        )
    panels[0].legend(loc="lower left")
    return Reproduction(datasets, figure, claims)


def _claims(model: SkillModel, alpha: float) -> list[Claim]:
    best = model.compute_optimal([1e8, 1e9])
    slopes = {name: float(np.log10(values[1] / values[0])) for name, values in best.items()}
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
