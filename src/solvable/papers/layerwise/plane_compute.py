"""The compute plane: loss over basis size and time, and the path of best compute by its envelope.

The loss ``L(N, T)`` of the skill model is computed on a grid; its lower envelope over all ``N T = C`` knows nothing of
the model's own search for the optimum, with which it is compared.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.fits import envelope, power_law
from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.plotting import COLOURS, draw_plane, new_figure, set_axis
from solvable.timegrid import log_times

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXPONENTS = {"quick": (0.6,), "full": (0.3, 0.6, 0.9)}
# Basis sizes and times of the grid.
GRID = {"quick": (41, 61), "full": (121, 121)}
FIRST, LAST = 1e5, 1e9


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The loss over basis size and time, its lower envelope over budgets, and the optimum by the model's own search."""
    data = {}
    sizes, times = GRID[scale]
    budgets = log_times(FIRST, LAST, 25)
    for alpha in EXPONENTS[scale]:
        model = SkillModel(alpha, skills=math.inf)
        plane = model.losses(log_times(1e2, 1e7, times), np.unique(np.round(np.geomspace(10, 1e4, sizes))))
        data[f"plane-{alpha:g}"] = plane
        data[f"envelope-{alpha:g}"] = envelope(plane.time * plane.basis, plane.test_loss, budgets)
        data[f"optimum-{alpha:g}"] = model.compute_optimal(budgets)
    return data


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The envelope is the model's own optimum, and follows the power laws of the optimum."""
    return [
        claim
        for alpha in EXPONENTS[scale_of(data)]
        for claim in _claims(alpha, data[f"envelope-{alpha:g}"], data[f"optimum-{alpha:g}"])
    ]


def _claims(alpha: float, found: xr.Dataset, best: xr.Dataset) -> list[Claim]:
    off = abs(found.test_loss - best.test_loss)
    name = f"α = {alpha:g}"
    grid = "the minimum bends within one step of the grid of sizes"
    made = [
        Claim(
            f"{name}: share of budgets with the best size inside of the grid", found.bracketed.mean(), 1, 0, "a share"
        ),
        Claim(
            f"{name}: envelope against the model's own optimum, largest relative distance",
            float((off / best.test_loss).max()),
            0.0,
            float((found.test_loss_error / best.test_loss).max()),
            "the envelope's own estimate of its error, at its largest",
        ),
    ]
    slopes = {
        "loss": (found.test_loss, -alpha / (alpha + 2), 2e-3, "corrections of order 1/N, N ≥ 40"),
        "best basis": (found.optimal_basis, 1 / (alpha + 2), 0.01, grid),
        "best time": (found.optimal_time, (alpha + 1) / (alpha + 2), 0.01, grid),
    }
    for quantity, (values, expected, tolerance, because) in slopes.items():
        fit = power_law(values, "budget", resamples=0)
        made.append(Claim(f"{name}: power of the {quantity} in compute", -fit.exponent, expected, tolerance, because))
    return made


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The plane with the path of best compute, and the loss over compute; one row per exponent."""
    exponents = EXPONENTS[scale_of(data)]
    figure, panels = new_figure(2, rows=len(exponents), width=5.8)
    for (plane_panel, loss_panel), alpha in zip(np.reshape(panels, (-1, 2)), exponents, strict=True):
        loss = data[f"plane-{alpha:g}"].test_loss
        found, best = data[f"envelope-{alpha:g}"], data[f"optimum-{alpha:g}"]
        draw_plane(figure, plane_panel, loss, "basis", "time", ("basis", "time"), contours=12)
        _draw_path(plane_panel, found, best)
        plane_panel.set_title(f"α = {alpha:g}; dotted: equal compute N T", fontsize="medium")
        _draw_envelope(loss_panel, loss, found, best, alpha / (alpha + 2))
    return figure


def _draw_path(panel: "Axes", found: xr.Dataset, best: xr.Dataset) -> None:
    limits = panel.get_xlim(), panel.get_ylim()
    for budget in (1e4, 1e6, 1e8, 1e10):
        line = np.array([1e-2, 1e12])
        panel.plot(line, budget / line, color="white", linestyle=":", linewidth=1)
    panel.plot(best.basis, best.time, color=COLOURS[1], linewidth=2, label="model's own search")
    panel.plot(found.optimal_basis, found.optimal_time, "o", markersize=4, color="white", markeredgecolor="black",
               label="envelope of the plane")  # fmt: skip
    panel.set(xlim=limits[0], ylim=limits[1])
    panel.legend(fontsize="small", loc="upper left")


def _draw_envelope(panel: "Axes", loss: xr.DataArray, found: xr.Dataset, best: xr.Dataset, exponent: float) -> None:
    for size in loss.basis.values[::4]:
        budget = loss.time * size
        inside = (budget > FIRST / 10) & (budget < LAST * 10)
        panel.plot(budget[inside], loss.sel(basis=size)[inside], color="0.75", linewidth=0.8)
    panel.plot([], [], color="0.75", label="runs of one size")
    panel.plot(best.budget, best.test_loss, color=COLOURS[1], linewidth=2, label="model's own search")
    panel.errorbar(
        found.budget, found.test_loss, yerr=found.test_loss_error, fmt="o", markersize=4, color="white",
        markeredgecolor="black", ecolor="black", capsize=2, zorder=3, label="envelope of the plane",
    )  # fmt: skip
    panel.plot(
        best.budget,
        1.25 * float(best.test_loss[-1]) * (best.budget / LAST) ** -exponent,
        "k:",
        label=f"$C^{{-{exponent:.3f}}}$",
    )
    set_axis(panel, "x", best.budget, log=True)
    panel.set(yscale="log", ylabel="expected test loss, L")
    panel.legend(fontsize="small")
