"""Fig. 12: the spike that a linear network of two layers grows, on easy and hard tasks (appendix G)."""

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._linear import CAPACITY, RICHNESS, SPANS, TASKS, mean_exponent, train
from solvable.papers.feature_scaling._shared import draw_power, rich_exponent, shades
from solvable.plotting import draw_curve, new_figure


def reproduce(scale: Scale) -> Reproduction:
    figure, panels = new_figure(2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for panel, (task, source) in zip(panels, TASKS.items(), strict=True):
        runs = train(source, scale)
        for colour, richness in zip(shades(len(RICHNESS)), RICHNESS, strict=True):
            datasets[f"{task}-{richness:g}"] = runs[richness]
            draw_curve(panel, runs[richness].spike, colour, f"γ = {richness:g}")
        if source < 1:
            rich = runs[RICHNESS[-1]].spike.mean("seed")
            for exponent, style, label in (
                (1 - rich_exponent(source), "--", "$t^{1-2\\beta/(1+\\beta)}$"),
                (1 - source, ":", "$t^{1-\\beta}$, perturbative"),
                (1 - 2 * source * (1 + source), "-.", "$t^{1-2\\beta(1+\\beta)}$, as printed"),
            ):
                draw_power(panel, rich, -exponent, label, at=0.7, shift=1.6, since=100, linestyle=style)
        panel.set(xscale="log", yscale="log", xlabel="steps", ylabel="spike, $|w|^2$")
        panel.set_title(f"{task}, β = {source:g}, α = {CAPACITY:g}", fontsize="medium")
        panel.legend(fontsize="small", loc="upper left")
        claims += _claims(task, source, runs)
    return Reproduction(datasets, figure, claims)


def _claims(task: str, source: float, runs: dict[float, xr.Dataset]) -> list[Claim]:
    spike = runs[RICHNESS[-1]].spike
    first, last = SPANS[task]
    # The power law is that of what has grown.
    grown = spike - spike.isel(time=0)
    found = mean_exponent(grown if source < 1 else spike, first, last)
    still = runs[RICHNESS[0]].spike
    lazy = float(np.abs(still - still.isel(time=0)).max())
    expected = max(0.0, 1 - rich_exponent(source))
    return [
        Claim(
            f"{task}, β = {source:g}, γ = {RICHNESS[-1]:g}: growth exponent of the spike over steps {first} ... {last}",
            -found,
            expected,
            0.05,
            "the approach: flow time is at most 100",
            printed=round(1 - 2 * source * (1 + source), 3) if source < 1 else None,
        ),
        Claim(
            f"{task}, β = {source:g}, γ = {RICHNESS[0]:g}: largest change of the spike",
            lazy,
            0.0,
            0.01,
            "of order γ: the kernel does not move",
        ),
    ]
