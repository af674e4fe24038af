"""Fig. 3.4: stage-like training on a power law of skills, the emergence and saturation times of its modes."""

import numpy as np
import xarray as xr

from solvable.comparison import first_crossing
from solvable.models.diagonal_network import DiagonalNetwork
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._layer_reference import agreement, descend, on_flow_time
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis

EXPONENT, TARGET, SKILLS, FRACTION = 0.6, 5.0, 5, 0.05
START = 0.01


def reproduce(scale: Scale) -> Reproduction:
    frequencies = np.arange(1, SKILLS + 1) ** -(EXPONENT + 1.0)
    model = DiagonalNetwork.balanced(frequencies / frequencies.sum(), np.full(SKILLS, TARGET), START)
    fine, sparse = np.linspace(0, 25, 2000), np.linspace(0.5, 25, 30)
    theory = model.predict(fine)
    seeds, samples, rate = (16, 20_000, 0.004) if scale == "quick" else (60, 100_000, 0.001)
    expected, simulation = descend(model, sparse, rate, samples=samples, seeds=seeds, key=2)
    points = on_flow_time(simulation)

    figure, (strength_panel, loss_panel) = new_figure(2)
    emergence = model.emergence_time(FRACTION).emergence_time.values
    saturation = model.saturation_time(FRACTION).saturation_time.values
    for mode in range(SKILLS):
        colour = COLOURS[mode]
        draw_curve(strength_panel, theory.strength[:, mode] / TARGET, colour, f"mode {mode + 1}")
        draw_curve(strength_panel, points.strength[:, :, mode] / TARGET, colour)
        begin, last = float(emergence[mode]), float(emergence[mode] + saturation[mode])
        strength_panel.axvspan(begin, last, 0, 1, color=colour, alpha=0.07, linewidth=0)
        loss_panel.axvline(begin, color=colour, linestyle=":", linewidth=1)
    strength_panel.set_ylabel("strength over target, ab / S")
    strength_panel.set_title("shaded: from ε to 1 − ε, ε = 0.05")
    strength_panel.legend()
    draw_curve(loss_panel, theory.test_loss, COLOURS[6], "diagonal network")
    draw_curve(loss_panel, points.test_loss, COLOURS[6])
    draw_curve(loss_panel, theory.linear_test_loss, COLOURS[6], "linear model", dashed=True)
    loss_panel.set_ylabel("test loss, L")
    loss_panel.set_title("dotted: emergence times")
    loss_panel.legend()
    for panel in (strength_panel, loss_panel):
        set_axis(panel, "x", theory.time)
    datasets = {"theory": theory, "simulation": simulation, "stages": model.stage_overlap()}
    return Reproduction(datasets, figure, _claims(model, theory, expected, simulation))


def _claims(model: DiagonalNetwork, fine: xr.Dataset, expected: xr.Dataset, simulation: xr.Dataset) -> list[Claim]:
    emergence = model.emergence_time(FRACTION).emergence_time.values
    saturation = model.saturation_time(FRACTION).saturation_time.values
    read = (
        first_crossing(fine.strength.isel(mode=0) / TARGET, FRACTION),
        first_crossing(fine.strength.isel(mode=0) / TARGET, 1 - FRACTION),
    )
    between = float(emergence[0] + saturation[0] + emergence[1]) / 2
    drop = float(model.predict([0.0]).test_loss[0] - model.predict([between]).test_loss[0])
    overlap = model.stage_overlap().overlap.values
    return [
        Claim("τ_e of the first mode, read off the curve", float(read[0]), float(emergence[0]), 0.01, "grid of 0.0125"),
        Claim(
            "τ_s of the first mode, read off the curve",
            float(read[1] - read[0]),
            float(saturation[0]),
            0.02,
            "two reads of that grid",
        ),
        Claim(
            "drop of the loss at the first stage over E[x²] S²/2",
            drop / (model.variances[0] * TARGET**2 / 2),
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
        agreement("modes", expected, simulation, "strength", 0.02),
    ]
