"""Eqs. 5 and 18: the gap between the losses to leading order in 1/γ, right where it is small and too small elsewhere.

The paper reads the onset of grokking off this formula. Its constant is right, as the ratio of the true gap to it shows
by going to 1 as γ grows; but the ratio is far above 1 at the sample ratios where networks grok.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.papers.claims import Claim, Scale
from solvable.papers.delayed_features._shared import on_flow_time, paper_task
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis
from solvable.training import GradientDescent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAMMAS = (2.0, 10.0, 50.0, 200.0)
# So large that the only difference between the losses is the sampling error of the training loss.
NO_GAP = 1e7
LAST_TIME = 6.0
# (learning rate, samples, replicates)
SIZES = {"quick": (0.2, 16384, 4), "full": (0.1, 16384, 8)}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Both losses and eq. 18 at each γ, and at one so large that there is no gap."""
    learning_rate, samples, replicates = SIZES[scale]
    training, steps = GradientDescent(learning_rate), np.arange(1, round(LAST_TIME / learning_rate) + 1)
    solver = solvers.Response(samples=samples, replicates=replicates)

    def losses(gamma: float) -> xr.Dataset:
        return on_flow_time(paper_task(gamma, 1.0, 0.5).loss_gap(steps, training, solver=solver))

    return {f"theory-{gamma:g}": losses(gamma) for gamma in GAMMAS} | {"no-gap": losses(NO_GAP)}


def true_gap(data: Mapping[str, xr.Dataset], gamma: float) -> xr.DataArray:
    """The gap between the losses, without what sampling alone puts between them.

    The samples of the theory are the same for all γ, so that their effect can be subtracted.
    """
    theory, sampling = data[f"theory-{gamma:g}"], data["no-gap"]
    return (theory.test_loss - theory.train_loss) - (sampling.test_loss - sampling.train_loss)


def ratio_to_formula(data: Mapping[str, xr.Dataset], gamma: float) -> xr.DataArray:
    """The true gap over eq. 18."""
    return true_gap(data, gamma) / data[f"theory-{gamma:g}"].loss_gap


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The formula is right at large γ, with a correction of order 1/γ, and too small where networks grok."""

    def ratio(gamma: float, time: float) -> float:
        return float(ratio_to_formula(data, gamma).sel(time=time, method="nearest"))

    early = (
        "what is dropped, of order 1/γ², has a constant near 1 early in training; as much again and 0.01 for sampling"
    )
    made = [
        Claim(f"γ = {gamma:g}, t = {time:g}: true gap over eq. 18", ratio(gamma, time), 1.0, 2 / gamma + 0.01, early)
        for gamma in (50.0, 200.0)
        for time in (0.4, 2.0)
    ]
    made.append(
        Claim(
            "t = 6: power of γ with which the excess of the true gap falls from γ = 50 to 200",
            float(np.log((ratio(50.0, 6.0) - 1) / (ratio(200.0, 6.0) - 1)) / np.log(4)),
            1.0,
            0.3,
            "the next order is 1/γ of the first; the one after it and sampling bend the power at these γ",
        )
    )
    reason = "the paper calls the formula a quantitative characterisation of the gap that is grokking"
    for gamma, bound in ((10.0, 1.3), (2.0, 2.0)):
        made.append(
            Claim.at_least(f"γ = {gamma:g}, t = 6: true gap over eq. 18", ratio(gamma, 6.0), bound, reason, printed=1.0)
        )
    return made


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The true gap beside eq. 18, and their ratio."""
    figure, (gap_panel, ratio_panel) = new_figure(2)
    for colour, gamma in zip(COLOURS, GAMMAS, strict=False):
        draw_curve(gap_panel, gamma * true_gap(data, gamma), colour, f"γ = {gamma:g}")
        draw_curve(gap_panel, gamma * data[f"theory-{gamma:g}"].loss_gap, colour, dashed=True)
        draw_curve(ratio_panel, ratio_to_formula(data, gamma), colour, f"γ = {gamma:g}")
    gap_panel.set_ylabel("γ × gap between the losses\n(solid: true, dashed: eq. 18)")
    gap_panel.set_yscale("log")
    ratio_panel.axhline(1, color="grey", linewidth=0.8, linestyle=":", label="leading order")
    ratio_panel.set_ylabel("true gap over eq. 18")
    for panel in (gap_panel, ratio_panel):
        set_axis(panel, "x", data["theory-2"].time)
        panel.legend(fontsize="small")
    return figure
