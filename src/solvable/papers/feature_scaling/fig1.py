"""Fig. 1: the time exponent of the infinite network, and which terms of the loss compete over the plane of tasks."""

import math
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._shared import CAPACITY, fitted, rich_exponent
from solvable.plotting import COLOURS, draw_plane, new_figure
from solvable.timegrid import log_times
from solvable.training import GradientFlow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCES = (0.2, 0.4, 0.6, 0.8, 1.2, 1.5)
RICHNESS = {"quick": (0.5,), "full": (0.5, 1.0, 2.0)}
# Exponents are local: they still drift at earlier times, by 0.03 over t = 10 ... 100.
FIRST, LAST = 1e5, 1e6
# Points of the plane in each phase, and what competes at fixed compute there: the boundaries are beta = 1, 2 - 1/alpha.
EXAMPLES = ((1.5, 0.5, "hard"), (1.5, 1.25, "easy"), (1.5, 1.75, "super-easy"), (1.2, 1.25, "super-easy"))


def reproduce(scale: Scale) -> Reproduction:
    figure, (exponent_panel, lazy_panel, rich_panel) = new_figure(3)
    measured = _measured(RICHNESS[scale])
    claims = _exponent_claims(measured)
    _draw_exponents(exponent_panel, measured)

    plane = FeatureScaling(CAPACITY, 0.5).phase_map(np.linspace(1.02, 3, 199), np.linspace(0.02, 2, 199))
    for panel, rich in ((lazy_panel, False), (rich_panel, True)):
        _draw_plane(figure, panel, plane, rich)
    claims += _plane_claims(plane)
    return Reproduction({"exponents": measured, "plane": plane}, figure, claims)


def _measured(richness: tuple[float, ...]) -> xr.Dataset:
    """Exponents fitted to the loss of the infinite network on the whole population, in gradient flow."""
    times = np.union1d(log_times(1, FIRST, 6), log_times(FIRST, LAST, 9))
    found = xr.DataArray(
        [
            [
                fitted(
                    FeatureScaling(CAPACITY, source, richness=rich, modes=math.inf)
                    .predict(times, GradientFlow())
                    .test_loss,
                    FIRST,
                    LAST,
                )
                for source in SOURCES
            ]
            for rich in (0.0, *richness)
        ],
        coords={"richness": [0.0, *richness], "source": list(SOURCES)},
        dims=("richness", "source"),
        attrs={"long_name": "time exponent fitted over t = 1e5 ... 1e6", "units": "1"},
    )
    return xr.Dataset({"exponent": found})


def _exponent_claims(measured: xr.Dataset) -> list[Claim]:
    claims = []
    for richness in measured.richness.values:
        lazy = richness == 0
        for source in SOURCES:
            claims.append(
                Claim(
                    f"β = {source:g}, γ = {richness:g}: time exponent",
                    float(measured.exponent.sel(richness=richness, source=source)),
                    source if lazy else rich_exponent(source),
                    1e-3 if lazy else 0.006,
                    "the sum over modes approaches its integral" if lazy else "what is left of the approach at t = 1e6",
                )
            )
    return claims


def _draw_exponents(panel: "Axes", measured: xr.Dataset) -> None:
    sources = np.linspace(0, 1.6, 161)
    panel.plot(sources, [rich_exponent(source) for source in sources], color=COLOURS[1], label="rich, $\\chi(\\beta)$")
    panel.plot(sources, sources, color=COLOURS[0], label="lazy, $\\beta$")
    for richness, marker in zip(measured.richness.values, "osd^", strict=False):
        panel.plot(
            measured.source,
            measured.exponent.sel(richness=richness),
            marker,
            color=COLOURS[0] if richness == 0 else COLOURS[1],
            markerfacecolor="white",
            label=f"loss at $t = 10^5$ to $10^6$, γ = {richness:g}",
        )
    panel.axvline(1, color="grey", linewidth=0.8, linestyle="--")
    panel.set_xlabel("source, β (hard below 1, easy above)")
    panel.set_ylabel("time exponent")
    panel.legend(fontsize="small")


def _draw_plane(figure: "Figure", panel: "Axes", plane: xr.Dataset, rich: bool) -> None:
    draw_plane(figure, panel, plane.phase, "source", "capacity", names=("hard", "easy", "super-easy"))
    capacities = plane.capacity.values
    panel.plot(np.ones_like(capacities), capacities, color="black", linewidth=1)
    panel.plot(
        2 - 1 / capacities, capacities, color="black", linewidth=1, linestyle="--", label="$\\beta = 2 - 1/\\alpha$"
    )
    time = r"2\beta/(1+\beta)" if rich else r"\beta"
    for x, y, text in (
        (0.48, 2.0, f"hard\n$t^{{-{time}}}$\n→ $N^{{-\\alpha\\beta}}$"),
        (1.27, 2.5, "easy\n$t^{-\\beta}$\n→ $t^{-1+1/\\alpha}/N$"),
        (1.7, 1.35, "super-easy\n$t^{-2+1/\\alpha}/B$\n→ $t^{-1+1/\\alpha}/N$"),
    ):
        panel.text(x, y, text, ha="center", va="center", fontsize=10)
    panel.set(xlim=(0, 2), ylim=(1, 3), xlabel="source, β", ylabel="capacity, α")
    panel.set_title("features learn, γ > 0" if rich else "lazy, γ → 0", fontsize="medium")
    panel.legend(loc="lower left", fontsize="small")


def _plane_claims(plane: xr.Dataset) -> list[Claim]:
    claims = [
        Claim(
            f"α = {capacity:g}, β = {source:g} is {name}",
            ("hard", "easy", "super-easy").index(FeatureScaling(capacity, source).phase()),
            ("hard", "easy", "super-easy").index(name),
            0.0,
            "0 hard, 1 easy, 2 super-easy; boundaries at β = 1 and 2 - 1/α",
        )
        for capacity, source, name in EXAMPLES
    ]
    exponents = plane.exponent.sel(quantity="compute")
    gain = exponents.sel(regime="rich") - exponents.sel(regime="lazy")
    for name, chosen, faster in (("hard", plane.phase == 0, 1.0), ("easy and super-easy", plane.phase > 0, 0.0)):
        share = (gain.where(chosen) > 1e-12).sum() / chosen.sum()
        because = "features that learn improve the compute exponent of hard tasks and of no others"
        claims.append(
            Claim(f"{name}: share of the plane where learned features win", float(share), faster, 0.0, because)
        )
    return claims
