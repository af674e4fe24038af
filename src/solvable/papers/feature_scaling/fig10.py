"""Fig. 10: the time exponent of a hard task, level by level of its self-consistency."""

import math

import numpy as np
import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._shared import CAPACITY, fitted, local_exponent, rich_exponent, shades
from solvable.plotting import new_figure
from solvable.timegrid import log_times
from solvable.training import GradientFlow

LEVELS = range(7)
SOURCE = 0.4
# Level by level the exponent of beta = 0.4 alternates about 4/7: 0.4, 0.64, 0.544, 0.5824 ...
LAST_TIME = 1e8


def reproduce(scale: Scale) -> Reproduction:
    figure, (levels_panel, time_panel) = new_figure(2)
    sources = np.linspace(0.01, 1.2, 120)
    table = xr.Dataset(
        {
            "exponent": (
                ("level", "source"),
                np.transpose([_levels(source) for source in sources]),
            )
        },
        {"level": list(LEVELS), "source": sources},
    )
    for level, colour in zip(LEVELS, shades(len(LEVELS)), strict=True):
        levels_panel.plot(sources, table.exponent.sel(level=level), color=colour, label=f"level {level}")
    limit = [rich_exponent(source) for source in sources]
    levels_panel.plot(sources, limit, color="black", linestyle="--", label="limit, χ")
    levels_panel.set(xlabel="source, β", ylabel="time exponent")
    levels_panel.legend(fontsize="small", ncols=2)

    times = log_times(1, LAST_TIME, 65 if scale == "quick" else 129)
    curve = FeatureScaling(CAPACITY, SOURCE, modes=math.inf).predict(times, GradientFlow()).test_loss
    slopes = local_exponent(curve)
    time_panel.plot(times, slopes, color="#D55E00", label=f"loss at β = {SOURCE:g}, γ = 1")
    for exponent, colour in zip(_levels(SOURCE), shades(len(LEVELS)), strict=True):
        time_panel.axhline(exponent, color=colour, linewidth=0.8)
    time_panel.axhline(rich_exponent(SOURCE), color="black", linestyle="--", linewidth=1, label="limit, χ")
    time_panel.set(xscale="log", xlabel="flow time, t", ylabel="local time exponent")
    time_panel.legend(fontsize="small", title="levels as on the left", loc="lower right")
    datasets = {"levels": table, "curve": curve.to_dataset()}
    return Reproduction(datasets, figure, _claims(curve))


def _levels(source: float) -> list[float]:
    """The time exponent at each level: after so many rounds of self-consistency."""
    return FeatureScaling(CAPACITY, source).self_consistency(LEVELS[-1]).exponent.values.tolist()


def _claims(curve: xr.DataArray) -> list[Claim]:
    levels = _levels(SOURCE)
    limit = rich_exponent(SOURCE)
    claims = [
        Claim(
            f"β = {SOURCE:g}: exponent at level {level}",
            levels[level],
            limit + (-SOURCE) ** level * (SOURCE - limit),
            1e-12,
            "the geometric series in closed form; rounding",
        )
        for level in LEVELS
    ]
    claims += [
        Claim("β = 1.2: level 6", _levels(1.2)[6], 1.2, 1e-12, "easy tasks are not sped up"),
        Claim(
            f"β = {SOURCE:g}, γ = 1: exponent of the loss over t = 1e7 ... 1e8",
            fitted(curve, 1e7, LAST_TIME),
            limit,
            2e-3,
            "closer to the limit than levels 0 to 4, the nearest of which is 0.0044 away",
            printed="0.64 (β(2 - β), level 1, in Fig. 8)",
        ),
    ]
    return claims
