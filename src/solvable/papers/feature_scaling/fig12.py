"""Fig. 12: the spike that a linear network of two layers grows, on easy and hard tasks (appendix G)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Scale
from solvable.papers.feature_scaling._linear import (
    CAPACITY,
    RICHNESS,
    SPANS,
    TASKS,
    linear_networks,
    mean_exponent,
    run_name,
)
from solvable.papers.feature_scaling._shared import draw_power, finish, rich_exponent, shades
from solvable.plotting import draw_curve, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Networks trained on each task at each richness."""
    return dict(linear_networks(scale))


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The growth exponent of the richest network's spike, and how little that of the laziest one changes."""
    made = []
    for task, source in TASKS.items():
        first, last = SPANS[task]
        lazy, rich = (_growth(data[run_name(task, richness)].spike) for richness in (RICHNESS[0], RICHNESS[-1]))
        # The power law of a hard task is that of the growth, without the initial value.
        found = mean_exponent(rich if source < 1 else data[run_name(task, RICHNESS[-1])].spike, first, last)
        made += [
            Claim(
                f"{task}, β = {source:g}, γ = {RICHNESS[-1]:g}: growth exponent of the spike over steps "
                f"{first} ... {last}",
                -found,
                max(0.0, 1 - rich_exponent(source)),
                0.05,
                "the approach: flow time is at most 100",
                printed=round(1 - 2 * source * (1 + source), 3) if source < 1 else None,
            ),
            Claim(
                f"{task}, β = {source:g}, γ = {RICHNESS[0]:g}: largest change of the spike",
                float(np.abs(lazy).max()),
                0.0,
                0.01,
                "of order γ: the kernel does not move",
            ),
        ]
    return made


def _growth(spike: xr.DataArray) -> xr.DataArray:
    return spike - spike.isel(time=0)


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Spikes over steps, one panel per task."""
    figure, panels = new_figure(2)
    for panel, (task, source) in zip(panels, TASKS.items(), strict=True):
        for colour, richness in zip(shades(len(RICHNESS)), RICHNESS, strict=True):
            draw_curve(panel, data[run_name(task, richness)].spike, colour, f"γ = {richness:g}")
        if source < 1:
            rich = data[run_name(task, RICHNESS[-1])].spike.mean("seed")
            for exponent, style, label in (
                (1 - rich_exponent(source), "--", "$t^{1-2\\beta/(1+\\beta)}$"),
                (1 - source, ":", "$t^{1-\\beta}$, perturbative"),
                (1 - 2 * source * (1 + source), "-.", "$t^{1-2\\beta(1+\\beta)}$, as printed"),
            ):
                draw_power(panel, rich, -exponent, label, anchor=0.7, shift=1.6, first=100, linestyle=style)
        finish(panel, f"{task}, β = {source:g}, α = {CAPACITY:g}", "steps", "spike, $|w|^2$", loc="upper left")
    return figure
