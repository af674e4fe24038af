"""Eq. 3.13: how much two stages of training overlap, as printed and corrected."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy.optimize import brentq

from solvable.models.diagonal_network import DiagonalNetwork
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STARTS = (1e-2, 1e-4, 1e-8)
# Ratios of variances of two pairs whose modes are drawn.
DRAWN = (0.2, 0.8)


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The overlap over the ratio of variances, by the corrected formula and by root finding, and two pairs of modes."""
    ratios = np.linspace(0.02, 0.98, 25 if scale == "quick" else 97)
    closed = [[float(_pair(ratio, start).stage_overlap().overlap[0]) for ratio in ratios] for start in STARTS]
    found = [[overlap_by_roots(_pair(ratio, start)) for ratio in ratios] for start in STARTS]
    halved = [overlap_by_roots(_pair(0.5, start)) for start in STARTS]
    overlap = xr.Dataset(
        {
            "overlap": variable(("start", "ratio"), closed, "overlap of the stages", "ε"),
            "overlap_by_roots": variable(("start", "ratio"), found, "overlap of the stages by root finding", "ε"),
            "overlap_at_half": variable("start", halved, "overlap by root finding at a ratio of 1/2", "ε"),
        },
        {"start": list(STARTS), "ratio": ratios},
    )
    return {"overlap": overlap} | {f"pair-{ratio:g}": _curves(_pair(ratio, 1e-4)) for ratio in DRAWN}


def _pair(ratio: float, start: float) -> DiagonalNetwork:
    return DiagonalNetwork.balanced([1.0, ratio], [1.0, 1.0], start)


def _curves(model: DiagonalNetwork) -> xr.Dataset:
    """Strengths over time, the overlap of the two stages, and the moment at which both modes are ε away."""
    overlap = model.stage_overlap().overlap[0].drop_vars("stage")
    moment = float(model.emergence_time(float(overlap)).emergence_time[1])
    moment_variable = variable((), moment, "time at which one stage ends and the next begins", units="flow time")
    return model.predict(np.linspace(0, 35, 400)).assign(overlap=overlap, moment=moment_variable)


def overlap_by_roots(model: DiagonalNetwork) -> float:
    """The ε at which the saturation time of the first mode fills the gap between the emergence times."""

    def excess(log_overlap: float) -> float:
        overlap = float(np.exp(log_overlap))
        emergence = model.emergence_time(overlap).emergence_time.values
        return float(model.saturation_time(overlap).saturation_time[0] - (emergence[1] - emergence[0]))

    start = float(model.initial_first[0] * model.initial_second[0])
    return float(np.exp(brentq(excess, np.log(start) + 1e-9, np.log(0.5) - 1e-9, xtol=1e-13)))


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The corrected eq. 3.13 against root finding on the times of eq. 3.12."""
    made = []
    for start in STARTS:
        found = data["overlap"].sel(start=start)
        made += [
            Claim(
                f"R(0)/S = {start:g}: corrected eq. 3.13 against root finding (largest relative difference)",
                float(np.abs(found.overlap_by_roots / found.overlap - 1).max()),
                0.0,
                1e-10,
                "roots found to 1e-13 in ln ε",
            ),
            Claim(
                f"R(0)/S = {start:g}: ε for E[x²] = 1 and 1/2",
                float(found.overlap_at_half),
                1 / (1 + (1 / start - 1) ** (1 / 3)),
                1e-10,
                "root finding on the times of eq. 3.12 against the corrected eq. 3.13",
                relative=True,
                printed=printed_overlap(0.5, start),
            ),
        ]
    return made


def printed_overlap(ratio: float, start: float) -> float:
    """Eq. 3.13 as it stands: the ratio of variances multiplies."""
    return 1 / (1 + (1 / start - 1) * (ratio - 1) / (ratio + 1))


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The overlap over the ratio of variances, and two pairs of modes."""
    figure, (overlap_panel, curve_panel) = new_figure(2)
    for colour, start in zip(COLOURS, STARTS, strict=False):
        found = data["overlap"].sel(start=start)
        overlap_panel.plot(found.ratio, found.overlap, color=colour, label=f"R(0)/S = {start:g}")
        overlap_panel.plot(found.ratio[::3], found.overlap_by_roots[::3], "o", color=colour, markersize=3.8)
    overlap_panel.set_yscale("log")
    overlap_panel.set_xlabel("ratio of variances, E[x²] of the next mode / E[x²]")
    overlap_panel.set_ylabel("overlap of the stages, ε")
    overlap_panel.set_title("lines: eq. 3.13 corrected, points: root finding")
    overlap_panel.legend()
    _draw_stages(curve_panel, data)
    return figure


def _draw_stages(panel: "Axes", data: Mapping[str, xr.Dataset]) -> None:
    """What an overlap looks like: the two modes of each pair and the moment at which both are ε away."""
    for colour, ratio in zip(COLOURS, DRAWN, strict=False):
        curves = data[f"pair-{ratio:g}"]
        eps, moment = float(curves.overlap), float(curves.moment)
        panel.plot(curves.time, curves.strength[:, 0], color=colour, label=f"E[x²] = 1 and {ratio:g}: ε = {eps:.2g}")
        panel.plot(curves.time, curves.strength[:, 1], color=colour, linestyle="--")
        panel.plot([moment, moment], [eps, 1 - eps], "o-", color=colour, linewidth=0.8, markersize=5)
    panel.set_xlabel("training time, t (flow time)")
    panel.set_ylabel("strength of the mode, ab / S")
    panel.set_title("solid: first mode, dashed: next, R(0)/S = 1e-4")
    panel.set_ylim(-0.05, 1.32)
    panel.legend(loc="upper right")
