"""Fig. 10: the time exponent of a hard task, level by level of its self-consistency."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Scale
from solvable.papers.feature_scaling._shared import CAPACITY, fitted, local_exponent, rich_exponent, shades
from solvable.plotting import COLOURS, new_figure
from solvable.timegrid import log_times
from solvable.training import GradientFlow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A level is a round of self-consistency. From level to level the exponent of beta = 0.4 alternates about 4/7:
# 0.4, 0.64, 0.544, 0.5824 ...
LEVELS = range(7)
SOURCE = 0.4
SOURCES = np.arange(1, 121) / 100
LAST_TIME = 1e8


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The time exponent at each level and source, and the loss of one hard task."""
    levels = [FeatureScaling(CAPACITY, source).self_consistency(LEVELS[-1]).exponent for source in SOURCES]
    about = {"long_name": "time exponent after so many rounds of self-consistency", "units": "1"}
    times = log_times(1, LAST_TIME, 65 if scale == "quick" else 129)
    return {
        "levels": xr.Dataset(
            {"exponent": (("level", "source"), np.transpose(levels), about)}, {"level": list(LEVELS), "source": SOURCES}
        ),
        "curve": FeatureScaling(CAPACITY, SOURCE, modes=math.inf).predict(times, GradientFlow())[["test_loss"]],
    }


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The levels by a geometric series, easy tasks that are not sped up, and the exponent of the loss."""
    levels, limit = data["levels"].exponent, rich_exponent(SOURCE)
    series = [
        Claim(
            f"β = {SOURCE:g}: exponent at level {level}",
            float(levels.sel(level=level, source=SOURCE)),
            limit + (-SOURCE) ** level * (SOURCE - limit),
            1e-12,
            "the geometric series in closed form; rounding",
        )
        for level in LEVELS
    ]
    easy = float(levels.sel(level=6, source=1.2))
    return [
        *series,
        Claim("β = 1.2: level 6", easy, 1.2, 1e-12, "easy tasks are not sped up"),
        Claim(
            f"β = {SOURCE:g}, γ = 1: exponent of the loss over t = 1e7 ... 1e8",
            fitted(data["curve"].test_loss, 1e7, LAST_TIME),
            limit,
            2e-3,
            "closer to the limit than levels 0 to 4, the nearest of which is 0.0044 away",
            printed="0.64 (β(2 - β), level 1, in Fig. 8)",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The levels over the source, and the local exponent of the loss on its way through them."""
    figure, (levels_panel, time_panel) = new_figure(2)
    levels = data["levels"].exponent
    for level, colour in zip(LEVELS, shades(len(LEVELS)), strict=True):
        levels_panel.plot(SOURCES, levels.sel(level=level), color=colour, label=f"level {level}")
        time_panel.axhline(float(levels.sel(level=level, source=SOURCE)), color=colour, linewidth=0.8)
    limits = [rich_exponent(source) for source in SOURCES]
    levels_panel.plot(SOURCES, limits, color="black", linestyle="--", label="limit, χ")
    levels_panel.set(xlabel="source, β", ylabel="time exponent")
    levels_panel.legend(fontsize="small", ncols=2)
    slopes = local_exponent(data["curve"].test_loss)
    time_panel.plot(slopes.time, slopes, color=COLOURS[1], label=f"loss at β = {SOURCE:g}, γ = 1")
    time_panel.axhline(rich_exponent(SOURCE), color="black", linestyle="--", linewidth=1, label="limit, χ")
    time_panel.set(xscale="log", xlabel="flow time, t", ylabel="local time exponent")
    time_panel.legend(fontsize="small", title="levels as on the left", loc="lower right")
    return figure
