"""Table 4.1: the exponents of the loss in time, data, parameters and compute."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.fits import power_law
from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPONENTS = {"quick": (0.3, 0.6, 0.9), "full": tuple(np.linspace(0.2, 1.1, 10).tolist())}
TOLERANCES = {
    "time": (1e-4, "the sum over skills differs from its integral by exponentially little"),
    "samples": (1e-4, "corrections of order 1/D, D = 1e5"),
    "basis": (1e-3, "N + 1/2 stands where the law has N; of order 1/N, N = 1e3"),
    "budget": (2e-3, "corrections of order 1/N, N from 200 to 3000 at the optimum"),
}
NAMES = {"time": "time T", "samples": "data D", "basis": "parameters N", "budget": "compute C"}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The printed exponents, and the exact loss over a decade: T and D from 1e5, N from 1e3, C from 1e8."""
    large, medium, budgets = np.geomspace(1e5, 1e6, 5), np.geomspace(1e3, 1e4, 5), np.geomspace(1e8, 1e9, 5)
    data: dict[str, xr.Dataset] = {}
    for alpha in EXPONENTS[scale]:
        model = SkillModel(alpha, skills=math.inf)
        curves = {
            "time": model.predict(large),
            "samples": model.data_emergence(np.round(large)),
            "basis": model.parameter_emergence(np.round(medium)),
            "budget": model.compute_optimal(budgets),
        }
        data |= {f"{name}-{alpha:.3g}": curve[["test_loss"]] for name, curve in curves.items()}
        data[f"exponents-{alpha:.3g}"] = SkillModel(alpha).exponents()
    return data


def fitted_exponents(data: Mapping[str, xr.Dataset], alpha: float) -> dict[str, float]:
    """Exponents of the loss in each resource, by least squares over a decade."""
    return {name: float(power_law(data[f"{name}-{alpha:.3g}"].test_loss, name, resamples=0).exponent) for name in NAMES}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The exponents that are fitted to exact sums are those of the table."""
    made = []
    for alpha in EXPONENTS[scale_of(data)]:
        expected = data[f"exponents-{alpha:.3g}"]
        for name, exponent in fitted_exponents(data, alpha).items():
            label = f"α = {alpha:.3g}: exponent of {NAMES[name]}"
            made.append(Claim(label, exponent, float(expected[name]), *TOLERANCES[name]))
    return made


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The table's formulas as lines over α, and fitted exponents as points."""
    figure, (panel,) = new_figure(1)
    alphas = np.linspace(0.1, 1.2, 60)
    lines = {
        "time T and data D: α/(α+1)": alphas / (alphas + 1),
        "parameters N: α": alphas,
        "compute C: α/(α+2)": alphas / (alphas + 2),
    }
    for colour, (label, line) in zip(COLOURS, lines.items(), strict=False):
        panel.plot(alphas, line, color=colour, label=label)
    filled = {"marker": "o", "markersize": 5}
    hollow = {"marker": "s", "markersize": 9, "markerfacecolor": "none"}
    styles = {
        "time": {"color": COLOURS[0], **filled},
        "samples": {"color": COLOURS[0], **hollow},
        "basis": {"color": COLOURS[1], **filled},
        "budget": {"color": COLOURS[2], **filled},
    }
    for alpha in EXPONENTS[scale_of(data)]:
        for name, exponent in fitted_exponents(data, alpha).items():
            panel.plot(alpha, exponent, **styles[name])
    panel.plot([], [], "ko", markersize=5, label="fitted to exact sums")
    panel.plot([], [], "ks", markersize=8, markerfacecolor="none", label="fitted to exact sums, data")
    panel.set_xlabel("exponent of the skills' frequencies minus one, α")
    panel.set_ylabel("exponent with which the loss falls")
    panel.legend(fontsize="small")
    return figure
