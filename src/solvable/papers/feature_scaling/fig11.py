"""Fig. 11: a plain linear network of two layers, trained on easy and hard tasks (appendix G)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

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
    """The exponents of the laziest and of the richest network, and their difference."""
    made = []
    for task, source in TASKS.items():
        first, last = SPANS[task]
        found = [
            mean_exponent(data[run_name(task, richness)].test_loss, first, last)
            for richness in (RICHNESS[0], RICHNESS[-1])
        ]
        expected = [source, rich_exponent(source)]
        for richness, exponent, own in zip((RICHNESS[0], RICHNESS[-1]), found, expected, strict=True):
            made.append(
                Claim(
                    f"{task}, β = {source:g}, γ = {richness:g}: exponent of the loss over steps {first} ... {last}",
                    exponent,
                    own,
                    0.15 * own,
                    "the approach: flow time is at most 100; lazy and rich are 67 % apart for the hard task",
                )
            )
        made.append(
            Claim(
                f"{task}, β = {source:g}: what learned features add to that exponent",
                found[1] - found[0],
                expected[1] - expected[0],
                0.05,
                "the approach: flow time is at most 100",
            )
        )
    return made


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses over steps, one panel per task."""
    figure, panels = new_figure(2)
    for panel, (task, source) in zip(panels, TASKS.items(), strict=True):
        losses = [data[run_name(task, richness)].test_loss for richness in RICHNESS]
        for colour, richness, loss in zip(shades(len(RICHNESS)), RICHNESS, losses, strict=True):
            draw_curve(panel, loss, colour, f"γ = {richness:g}")
        lazy, rich = losses[0].mean("seed"), losses[-1].mean("seed")
        draw_power(panel, lazy, source, "$t^{-\\beta}$", anchor=0.9, shift=1.4, first=30)
        if source < 1:
            label = "$t^{-2\\beta/(1+\\beta)}$"
            draw_power(panel, rich, rich_exponent(source), label, anchor=0.9, first=30, linestyle="--")
        finish(panel, f"{task}, β = {source:g}, α = {CAPACITY:g}", "steps", "test loss", loc="lower left")
    return figure
