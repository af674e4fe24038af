"""Eq. 3.13: how much two stages of training overlap, as printed and corrected."""

from typing import Any

import numpy as np
import xarray as xr
from scipy.optimize import brentq

from solvable.models.diagonal_network import DiagonalNetwork
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, new_figure

STARTS = (1e-2, 1e-4, 1e-8)


def reproduce(scale: Scale) -> Reproduction:
    ratios = np.linspace(0.02, 0.98, 25 if scale == "quick" else 97)
    figure, (overlap_panel, curve_panel) = new_figure(2)
    claims: list[Claim] = []
    rows = []
    for colour, start in zip(COLOURS, STARTS, strict=False):
        closed = np.array([float(_pair(ratio, start).stage_overlap().overlap[0]) for ratio in ratios])
        found = np.array([overlap_by_roots(_pair(ratio, start)) for ratio in ratios])
        rows.append(closed)
        overlap_panel.plot(ratios, closed, color=colour, label=f"R(0)/S = {start:g}")
        overlap_panel.plot(ratios[::3], found[::3], "o", color=colour, markersize=3.8)
        claims.append(
            Claim(
                f"R(0)/S = {start:g}: corrected eq. 3.13 against root finding (largest relative difference)",
                float(np.max(np.abs(found / closed - 1))),
                0.0,
                1e-10,
                "roots found to 1e-13 in ln ε",
            )
        )
        claims.append(
            Claim(
                f"R(0)/S = {start:g}: ε for E[x²] = 1 and 1/2",
                overlap_by_roots(_pair(0.5, start)),
                1 / (1 + (1 / start - 1) ** (1 / 3)),
                1e-10,
                "root finding on the times of eq. 3.12 against the corrected eq. 3.13",
                relative=True,
                printed=printed_overlap(0.5, start),
            )
        )
    overlap_panel.set_yscale("log")
    overlap_panel.set_xlabel("ratio of variances, E[x²] of the next mode / E[x²]")
    overlap_panel.set_ylabel("overlap of the stages, ε")
    overlap_panel.set_title("lines: eq. 3.13 corrected, points: root finding")
    overlap_panel.legend()
    _draw_stages(curve_panel)
    overlap = xr.Dataset(
        {"overlap": (("start", "ratio"), np.array(rows), {"long_name": "overlap of the stages", "units": "1"})},
        {"start": list(STARTS), "ratio": ratios},
    )
    return Reproduction({"overlap": overlap}, figure, claims)


def _pair(ratio: float, start: float) -> DiagonalNetwork:
    return DiagonalNetwork.balanced([1.0, ratio], [1.0, 1.0], start)


def printed_overlap(ratio: float, start: float) -> float:
    """Eq. 3.13 as it stands: the ratio of variances multiplies."""
    return 1 / (1 + (1 / start - 1) * (ratio - 1) / (ratio + 1))


def overlap_by_roots(model: DiagonalNetwork) -> float:
    """The ε at which the saturation time of the first mode fills the gap between the emergence times."""

    def excess(log_eps: float) -> float:
        eps = float(np.exp(log_eps))
        emergence = model.emergence_time(eps).emergence_time.values
        return float(model.saturation_time(eps).saturation_time[0] - (emergence[1] - emergence[0]))

    start = float(model.initial_first[0] * model.initial_second[0])
    return float(np.exp(brentq(excess, np.log(start) + 1e-9, np.log(0.5) - 1e-9, xtol=1e-13)))


def _draw_stages(panel: Any) -> None:
    """What an overlap looks like: the two modes of one pair and the moment at which both are ε away."""
    for colour, ratio in zip(COLOURS, (0.2, 0.8), strict=False):
        model = _pair(ratio, 1e-4)
        curves = model.predict(np.linspace(0, 35, 400))
        eps = float(model.stage_overlap().overlap[0])
        moment = float(model.emergence_time(eps).emergence_time[1])
        panel.plot(curves.time, curves.strength[:, 0], color=colour, label=f"E[x²] = 1 and {ratio:g}: ε = {eps:.2g}")
        panel.plot(curves.time, curves.strength[:, 1], color=colour, linestyle="--")
        panel.plot([moment, moment], [eps, 1 - eps], "o-", color=colour, linewidth=0.8, markersize=5)
    panel.set_xlabel("training time, t (flow time)")
    panel.set_ylabel("strength of the mode, ab / S")
    panel.set_title("solid: first mode, dashed: next, R(0)/S = 1e-4")
    panel.set_ylim(-0.05, 1.32)
    panel.legend(loc="upper right")
