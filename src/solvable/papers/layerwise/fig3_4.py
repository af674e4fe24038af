"""Fig. 3.4: stage-like training on a power law of skills, the emergence and saturation times of its modes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.comparison import first_crossing
from solvable.models.diagonal_network import DiagonalNetwork
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._layer_reference import agreement, descend, on_flow_time
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPONENT, TARGET, SKILLS, FRACTION = 0.6, 5.0, 5, 0.05
START = 0.01
FREQUENCIES = np.arange(1, SKILLS + 1) ** -(EXPONENT + 1.0)
VARIANCES = FREQUENCIES / FREQUENCIES.sum()


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Curves of theory, runs of gradient descent, the times and overlaps of the stages, and the loss between two."""
    model = DiagonalNetwork.balanced(VARIANCES, np.full(SKILLS, TARGET), START)
    seeds, samples, rate = (16, 20_000, 0.004) if scale == "quick" else (60, 100_000, 0.001)
    expected, simulation = descend(model, np.linspace(0.5, 25, 30), rate, samples=samples, seeds=seeds, key=2)
    events = [model.emergence_time(FRACTION), model.saturation_time(FRACTION)]
    times = xr.merge(events, combine_attrs="drop_conflicts")
    emergence, saturation = times.emergence_time.values, times.saturation_time.values
    return {
        "theory": model.predict(np.linspace(0, 25, 2000)),
        "expected": expected,
        "simulation": simulation,
        "stages": model.stage_overlap(),
        "times": times,
        # At the start, and midway between the end of the first stage and the beginning of the second.
        "moments": model.predict([0.0, float(emergence[0] + saturation[0] + emergence[1]) / 2]),
    }


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The times of the stages read off the curve and by closed forms, their overlap, and descent against theory."""
    emergence, saturation = (data["times"][name].values for name in ("emergence_time", "saturation_time"))
    first = data["theory"].strength.isel(mode=0) / TARGET
    emerged, saturated = (float(first_crossing(first, level)) for level in (FRACTION, 1 - FRACTION))
    before, between = data["moments"].test_loss.values
    overlap = data["stages"].overlap.values
    return [
        Claim("τ_e of the first mode, read off the curve", emerged, float(emergence[0]), 0.01, "grid of 0.0125"),
        Claim(
            "τ_s of the first mode, read off the curve",
            saturated - emerged,
            float(saturation[0]),
            0.02,
            "two reads of that grid",
        ),
        Claim(
            "drop of the loss at the first stage over E[x²] S²/2",
            (before - between) / (VARIANCES[0] * TARGET**2 / 2),
            1.0,
            0.05,
            "a stage is complete up to ε = 0.05",
        ),
        Claim(
            "first stage: gap to the next emergence over saturation time (above 1: stage-like)",
            float((emergence[1] - emergence[0]) / saturation[0]),
            1.0
            + np.log((1 - overlap[0]) / overlap[0] / (1 / FRACTION - 1))
            * (0.5 + 0.5 * 2 ** (EXPONENT + 1))
            / np.log(1 / FRACTION - 1),
            1e-9,
            "eq. 3.12 solved for the overlap of the corrected eq. 3.13",
        ),
        Claim(
            "overlap ε of the first stage",
            float(overlap[0]),
            1 / (1 + (TARGET / START - 1) ** ((1 - 2.0**-1.6) / (1 + 2.0**-1.6))),
            1e-12,
            "eq. 3.13 with the factor as an exponent",
            printed=float(1 / (1 + (TARGET / START - 1) * (2.0**-1.6 - 1) / (2.0**-1.6 + 1))),
        ),
        agreement("modes", data["expected"], data["simulation"], "strength", 0.02),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Strengths of the modes with their stages shaded, and the loss with the emergence times."""
    theory, points, times = data["theory"], on_flow_time(data["simulation"]), data["times"]
    figure, (strength_panel, loss_panel) = new_figure(2)
    for mode, colour in enumerate(COLOURS[:SKILLS]):
        draw_curve(strength_panel, theory.strength[:, mode] / TARGET, colour, f"mode {mode + 1}")
        draw_curve(strength_panel, points.strength[:, :, mode] / TARGET, colour)
        begin = float(times.emergence_time[mode])
        end = begin + float(times.saturation_time[mode])
        strength_panel.axvspan(begin, end, color=colour, alpha=0.07, linewidth=0)
        loss_panel.axvline(begin, color=colour, linestyle=":", linewidth=1)
    strength_panel.set_ylabel("strength over target, ab / S")
    strength_panel.set_title("shaded: from ε to 1 − ε, ε = 0.05")
    draw_curve(loss_panel, theory.test_loss, COLOURS[6], "diagonal network")
    draw_curve(loss_panel, points.test_loss, COLOURS[6])
    draw_curve(loss_panel, theory.linear_test_loss, COLOURS[6], "linear model", dashed=True)
    loss_panel.set_ylabel("test loss, L")
    loss_panel.set_title("dotted: emergence times")
    for panel in (strength_panel, loss_panel):
        set_axis(panel, "x", theory.time)
        panel.legend()
    return figure
