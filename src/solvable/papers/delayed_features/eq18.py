"""Eqs. 5 and 18: the gap between the losses to leading order in 1/γ, right where it is small and too small elsewhere.

The paper reads the onset of grokking off this formula. Its constant is right, as the ratio of the true gap to it shows
by going to 1 as γ grows; but the ratio is far above 1 at the sample ratios where networks grok.
"""

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.delayed_features._shared import on_flow_time, paper_task
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis
from solvable.training import GradientDescent

GAMMAS = (2.0, 10.0, 50.0, 200.0)
# So large that all there is between the losses is the sampling error of the training loss.
NO_GAP = 1e7
LAST_TIME = 6.0
# (learning rate, samples, replicates)
SIZES = {"quick": (0.2, 16384, 4), "full": (0.1, 16384, 8)}


def reproduce(scale: Scale) -> Reproduction:
    learning_rate, samples, replicates = SIZES[scale]
    figure, (gap_panel, ratio_panel) = new_figure(2)
    training, steps = GradientDescent(learning_rate), np.arange(1, round(LAST_TIME / learning_rate) + 1)
    datasets: dict[str, xr.Dataset] = {}
    ratios: dict[float, xr.DataArray] = {}
    solver = solvers.Response(samples=samples, replicates=replicates)
    # The samples are the same for all gamma: what they alone put between the losses can be taken off.
    sampling = _gap(on_flow_time(paper_task(NO_GAP, 1.0, 0.5).loss_gap(steps, training, solver=solver)))
    for colour, gamma in zip(COLOURS, GAMMAS, strict=False):
        model = paper_task(gamma, 1.0, 0.5)
        data = on_flow_time(model.loss_gap(steps, training, solver=solver))
        gap = _gap(data) - sampling
        datasets[f"theory-{gamma:g}"] = data
        ratios[gamma] = gap / data.loss_gap
        draw_curve(gap_panel, gamma * gap, colour, f"γ = {gamma:g}")
        draw_curve(gap_panel, gamma * data.loss_gap, colour, dashed=True)
        draw_curve(ratio_panel, ratios[gamma], colour, f"γ = {gamma:g}")
    gap_panel.set_ylabel("γ × gap between the losses\n(solid: true, dashed: eq. 18)")
    gap_panel.set_yscale("log")
    ratio_panel.axhline(1, color="grey", linewidth=0.8, linestyle=":", label="leading order")
    ratio_panel.set_ylabel("true gap over eq. 18")
    for panel in (gap_panel, ratio_panel):
        set_axis(panel, "x", datasets["theory-2"].time)
        panel.legend(fontsize="small")
    return Reproduction(datasets, figure, _claims(ratios))


def _gap(data: xr.Dataset) -> xr.DataArray:
    return data.test_loss - data.train_loss


def _claims(ratios: dict[float, xr.DataArray]) -> list[Claim]:
    def at(gamma: float, time: float) -> float:
        return float(ratios[gamma].sel(time=time, method="nearest"))

    early = (
        "what is dropped, of order 1/γ², has a constant near 1 early in training; as much again and 0.01 for sampling"
    )
    claims = [
        Claim(f"γ = {gamma:g}, t = {time:g}: true gap over eq. 18", at(gamma, time), 1.0, 2 / gamma + 0.01, early)
        for gamma in (50.0, 200.0)
        for time in (0.4, 2.0)
    ]
    claims.append(
        Claim(
            "t = 6: power of γ with which the excess of the true gap falls from γ = 50 to 200",
            float(np.log((at(50.0, 6.0) - 1) / (at(200.0, 6.0) - 1)) / np.log(4)),
            1.0,
            0.3,
            "the next order is 1/γ of the first; the one after it and sampling bend the power at these γ",
        )
    )
    reason = "the paper calls the formula a quantitative characterisation of the gap that is grokking"
    for gamma, bound in ((10.0, 1.3), (2.0, 2.0)):
        claims.append(
            Claim.at_least(f"γ = {gamma:g}, t = 6: true gap over eq. 18", at(gamma, 6.0), bound, reason, printed=1.0)
        )
    return claims
