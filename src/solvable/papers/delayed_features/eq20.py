"""Eqs. 19 and 20: how fast alignment grows at first, and when the loss falls, with many samples and small α.

The rate is right. The time is not: alignment must reach the scale 1/√(αε) of the weights of zero loss and not 1/α,
which halves its dependence on ln α; and from a very small alignment it does not depend on α at all.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.delayed_features._shared import paper_task
from solvable.plotting import COLOURS, draw_curve, log_losses, new_figure, set_axis
from solvable.training import GradientFlow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EPSILON = 0.1
SMALL_START, TINY_START = 0.01, 1e-4
ALPHAS = {"quick": (1e-4, 1e-3, 1e-2), "full": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)}
TINY_ALPHAS = (1e-3, 3e-2, 1.0)
DOUBLING = 2 * np.log(2) / (3 * EPSILON)
TIMES = np.linspace(0, 200, 401)


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The online flow from a small and a tiny alignment over α, and the corrected eq. 20."""
    data: dict[str, xr.Dataset] = {}
    escape_times = []
    for start, alphas in _settings(scale).items():
        for alpha in alphas:
            model = paper_task(np.inf, alpha, EPSILON, alignment=(start, -start), overlap=np.eye(2))
            data[_name(alpha, start)] = model.predict(TIMES, GradientFlow())
            if start == SMALL_START:
                escape_times.append(model.escape_time())
    found = xr.concat(escape_times, "alpha", combine_attrs="drop_conflicts")
    return data | {"escape-times": found.assign_coords(alpha=list(ALPHAS[scale]))}


def _settings(scale: Scale) -> dict[float, tuple[float, ...]]:
    """The output scales for each initial alignment."""
    return {SMALL_START: ALPHAS[scale], TINY_START: TINY_ALPHAS}


def _name(alpha: float, start: float) -> str:
    return f"online-{alpha:g}-{start:g}"


def first_alignment(data: Mapping[str, xr.Dataset], alpha: float, start: float) -> xr.DataArray:
    """The alignment of the first neuron over time."""
    return data[_name(alpha, start)].alignment.isel(neuron=0, index=0)


def half_time(data: Mapping[str, xr.Dataset], alpha: float, start: float) -> float:
    """The time at which the first neuron has half of its final alignment, interpolated in its logarithm."""
    alignment = first_alignment(data, alpha, start)
    return float(np.interp(np.log(0.5), np.log(alignment / alignment[-1]), alignment.time))


def printed_time(alpha: float, start: float) -> float:
    """Eq. 20 as printed."""
    return float(2 / (3 * EPSILON) * np.log(1 / (alpha * start)))


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Rate, final alignment and time at each α, and how the time depends on α."""
    alphas = ALPHAS[scale_of(data)]
    made = [claim for alpha in alphas for claim in _claims_at(data, alpha)]
    return made + _dependence_claims(data, alphas)


def _claims_at(data: Mapping[str, xr.Dataset], alpha: float) -> list[Claim]:
    alignment = first_alignment(data, alpha, SMALL_START)
    rate = float(np.log(alignment.sel(time=1.0) / alignment.sel(time=0.0)))
    return [
        Claim(
            f"α = {alpha:g}: early rate of alignment over 3ε/2 (eq. 19)",
            rate / (1.5 * EPSILON),
            1.0,
            0.1 * alpha + 1e-6,
            "what α takes from the rate at the start, α ε² (C_11 + C_22 + 2)/4 over 3ε/2: α/15; a little more by t = 1",
        ),
        Claim(
            f"α = {alpha:g}: alignment at the end",
            float(alignment[-1]),
            1 / np.sqrt(alpha * EPSILON),
            1e-2,
            "what the two neurons have in common relaxes at the rate α only, and keeps below a percent of their length",
            relative=True,
            printed=round(1 / alpha, 2),
        ),
        Claim(
            f"α = {alpha:g}: time to half of that alignment (eq. 20)",
            half_time(data, alpha, SMALL_START),
            float(data["escape-times"].escape_time.sel(alpha=alpha)),
            DOUBLING,
            "a scale is given up to a factor of two: one doubling time",
            printed=round(printed_time(alpha, SMALL_START), 2),
        ),
    ]


def _dependence_claims(data: Mapping[str, xr.Dataset], alphas: tuple[float, ...]) -> list[Claim]:
    decades = np.log10(alphas[-1] / alphas[0])
    first, last = (half_time(data, alpha, SMALL_START) for alpha in (alphas[0], alphas[-1]))
    tiny = [half_time(data, alpha, TINY_START) for alpha in TINY_ALPHAS]
    return [
        Claim(
            "time gained by each decade of α, A0 = 0.01",
            float((first - last) / decades),
            np.log(10) / (3 * EPSILON),
            0.15,
            "towards α = 0.01 the isotropic part of the weights begins to saturate, which takes a tenth off",
            relative=True,
            printed=round(2 * np.log(10) / (3 * EPSILON), 2),
        ),
        Claim(
            "spread of the times over three decades of α, A0 = 0.0001",
            float(np.ptp(tiny)),
            0.0,
            DOUBLING,
            "the isotropic part saturates first and α drops out: less than one doubling time",
            printed=round(printed_time(TINY_ALPHAS[0], TINY_START) - printed_time(TINY_ALPHAS[-1], TINY_START), 2),
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Alignments over time, and the times at which they are half of their final value."""
    figure, (path_panel, time_panel) = new_figure(2)
    alphas = ALPHAS[scale_of(data)]
    for colour, alpha in zip(COLOURS, alphas, strict=False):
        escape_time = data["escape-times"].escape_time.sel(alpha=alpha)
        draw_curve(path_panel, first_alignment(data, alpha, SMALL_START), colour, f"α = {alpha:g}")
        path_panel.axvline(escape_time, color=colour, linestyle="--", linewidth=0.9)
        path_panel.axvline(printed_time(alpha, SMALL_START), color=colour, linestyle=":", linewidth=1.2)
    path_panel.plot(TIMES, SMALL_START * np.exp(1.5 * EPSILON * TIMES), color="grey", linewidth=0.8, label="eq. 19")
    set_axis(path_panel, "x", data[_name(alphas[0], SMALL_START)].time)
    path_panel.set_ylabel("alignment with the target, A")
    log_losses(path_panel)
    path_panel.set_xlim(0, 140)
    path_panel.set_ylim(SMALL_START / 2, 3 / np.sqrt(min(alphas) * EPSILON))
    path_panel.legend(fontsize="small", title="dashed: eq. 20 corrected\ndotted: as printed", title_fontsize="small")
    _draw_times(time_panel, data)
    return figure


def _draw_times(panel: "Axes", data: Mapping[str, xr.Dataset]) -> None:
    for colour, (start, values) in zip(COLOURS, _settings(scale_of(data)).items(), strict=False):
        alphas = np.array(values)
        times = [half_time(data, alpha, start) for alpha in alphas]
        panel.plot(alphas, times, "o", color=colour, label=f"A0 = {start:g}, online flow")
        corrected = 2 / (3 * EPSILON) * np.log(1 / (np.sqrt(alphas * EPSILON) * start))
        if start == SMALL_START:
            panel.plot(alphas, corrected, "--", color=colour, label="eq. 20 corrected")
        panel.plot(alphas, [printed_time(alpha, start) for alpha in alphas], ":", color=colour, label="as printed")
    panel.set_xscale("log")
    panel.set_xlabel("output scale, α")
    panel.set_ylabel("time to half the final alignment, t")
    panel.legend(fontsize="small")
