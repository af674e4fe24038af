"""Eqs. 19 and 20: how fast alignment grows at first, and when the loss falls, with many samples and small α.

The rate is right. The time is not: alignment must reach the scale 1/√(αε) of the weights of zero loss and not 1/α,
which halves its dependence on ln α; and from a very small alignment it does not depend on α at all.
"""

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.delayed_features._shared import paper_task
from solvable.plotting import COLOURS, draw_curve, log_losses, new_figure, set_axis
from solvable.training import GradientFlow

EPSILON = 0.1
SMALL_START, TINY_START = 0.01, 1e-4
ALPHAS = {"quick": (1e-4, 1e-3, 1e-2), "full": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)}
TINY_ALPHAS = (1e-3, 3e-2, 1.0)
DOUBLING = 2 * np.log(2) / (3 * EPSILON)
TIMES = np.linspace(0, 200, 401)


def reproduce(scale: Scale) -> Reproduction:
    figure, (path_panel, time_panel) = new_figure(2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    half_times: dict[tuple[float, float], float] = {}
    settings = [(alpha, SMALL_START) for alpha in ALPHAS[scale]] + [(alpha, TINY_START) for alpha in TINY_ALPHAS]
    for alpha, start in settings:
        model = paper_task(np.inf, alpha, EPSILON, alignment=(start, -start), overlap=np.eye(2))
        data = model.predict(TIMES, GradientFlow())
        datasets[f"online-{alpha:g}-{start:g}"] = data
        alignment = data.alignment.isel(neuron=0, index=0)
        half_times[alpha, start] = float(np.interp(np.log(0.5), np.log(alignment / alignment[-1]), data.time))
        if start == SMALL_START:
            escape_time = float(model.escape_time().escape_time)
            claims += _claims(alpha, alignment, half_times[alpha, start], escape_time)
            colour = COLOURS[ALPHAS[scale].index(alpha)]
            draw_curve(path_panel, alignment, colour, f"α = {alpha:g}")
            path_panel.axvline(escape_time, color=colour, linestyle="--", linewidth=0.9)
            path_panel.axvline(printed_time(alpha, start), color=colour, linestyle=":", linewidth=1.2)
    path_panel.plot(TIMES, SMALL_START * np.exp(1.5 * EPSILON * TIMES), color="grey", linewidth=0.8, label="eq. 19")
    set_axis(path_panel, "x", data.time)
    path_panel.set_ylabel("alignment with the target, A")
    log_losses(path_panel)
    path_panel.set_xlim(0, 140)
    path_panel.set_ylim(SMALL_START / 2, 3 / np.sqrt(min(ALPHAS[scale]) * EPSILON))
    path_panel.legend(fontsize="small", title="dashed: eq. 20 corrected\ndotted: as printed", title_fontsize="small")
    _draw_times(time_panel, half_times)
    return Reproduction(datasets, figure, claims + _dependence_claims(half_times, ALPHAS[scale]))


def printed_time(alpha: float, start: float) -> float:
    """Eq. 20 as printed."""
    return float(2 / (3 * EPSILON) * np.log(1 / (alpha * start)))


def _claims(alpha: float, alignment: xr.DataArray, half_time: float, escape_time: float) -> list[Claim]:
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
            half_time,
            escape_time,
            DOUBLING,
            "a scale is given up to a factor of two: one doubling time",
            printed=round(printed_time(alpha, SMALL_START), 2),
        ),
    ]


def _dependence_claims(half_times: dict[tuple[float, float], float], alphas: tuple[float, ...]) -> list[Claim]:
    decades = np.log10(alphas[-1] / alphas[0])
    a_decade = (half_times[alphas[0], SMALL_START] - half_times[alphas[-1], SMALL_START]) / decades
    tiny = [half_times[alpha, TINY_START] for alpha in TINY_ALPHAS]
    return [
        Claim(
            "time gained by each decade of α, A0 = 0.01",
            float(a_decade),
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


def _draw_times(panel, half_times: dict[tuple[float, float], float]) -> None:  # type: ignore[no-untyped-def]
    for colour, start in zip(COLOURS, (SMALL_START, TINY_START), strict=False):
        alphas = np.array([alpha for alpha, other in half_times if other == start])
        times = [half_times[alpha, start] for alpha in alphas]
        panel.plot(alphas, times, "o", color=colour, label=f"A0 = {start:g}, online flow")
        corrected = 2 / (3 * EPSILON) * np.log(1 / (np.sqrt(alphas * EPSILON) * start))
        if start == SMALL_START:
            panel.plot(alphas, corrected, "--", color=colour, label="eq. 20 corrected")
        panel.plot(alphas, [printed_time(alpha, start) for alpha in alphas], ":", color=colour, label="as printed")
    panel.set_xscale("log")
    panel.set_xlabel("output scale, α")
    panel.set_ylabel("time to half the final alignment, t")
    panel.legend(fontsize="small")
