"""Fig. 3.3: modes of the linear model saturate at once, those of the diagonal network one after the other."""

import numpy as np
import xarray as xr

from solvable.models.diagonal_network import DiagonalNetwork
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._layer_reference import INTEGRATOR, agreement, descend, integrate_diagonal, on_flow_time
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis

VARIANCES = (1.0, 0.4, 0.16)
START = 1e-4


def reproduce(scale: Scale) -> Reproduction:
    model = DiagonalNetwork.balanced(VARIANCES, np.ones(3), START)
    fine, sparse = np.linspace(0, 60, 400), np.linspace(2, 60, 24)
    theory = model.predict(fine)
    seeds, samples, rate = (20, 2000, 0.01) if scale == "quick" else (100, 10_000, 0.002)
    expected, simulation = descend(model, sparse, rate, samples=samples, seeds=seeds, key=1)
    points = on_flow_time(simulation)

    figure, (linear_panel, product_panel) = new_figure(2)
    for mode, (colour, variance) in enumerate(zip(COLOURS, VARIANCES, strict=False)):
        for panel, name in ((linear_panel, "linear_strength"), (product_panel, "strength")):
            draw_curve(panel, theory[name][:, mode], colour, f"E[x²] = {variance:g}")
            draw_curve(panel, points[name][:, :, mode], colour)
    for panel, title, label in (
        (linear_panel, "linear model (eq. 3.10)", "θ / S"),
        (product_panel, "diagonal network (eq. 3.9)", "ab / S"),
    ):
        panel.set_title(title)
        set_axis(panel, "x", theory.time)
        panel.set_ylabel(f"strength of the mode, {label}")
        panel.legend(title="lines: theory, points: descent")
    return Reproduction({"theory": theory, "simulation": simulation}, figure, _claims(model, expected, simulation))


def _claims(model: DiagonalNetwork, expected: xr.Dataset, simulation: xr.Dataset) -> list[Claim]:
    grid = np.linspace(0, 60, 61)
    difference = np.abs(model.predict(grid).strength.values - integrate_diagonal(model, grid)).max()
    saturated = float(model.emergence_time(0.99).emergence_time[0])
    half = model.emergence_time(0.5).emergence_time.values
    then = model.predict([saturated])
    slope = model.predict([1e-6]).linear_strength.values[0] / 1e-6
    return [
        Claim("closed form against the flow (largest difference)", float(difference), 0.0, 1e-9, INTEGRATOR),
        Claim(
            "ab/S of the second mode when the first is 99 % learned",
            float(then.strength[0, 1]),
            1 / (1 + (1 / START - 1) * np.exp(-2 * VARIANCES[1] * saturated)),
            1e-12,
            "eq. 3.9 at that time",
        ),
        Claim(
            "θ/S of the second mode of the linear model at that time",
            float(then.linear_strength[0, 1]),
            1 - np.exp(-VARIANCES[1] * saturated),
            1e-12,
            "eq. 3.10: no delay",
        ),
        Claim("linear modes start at once: slope of the slowest at 0", float(slope[2]), VARIANCES[2], 1e-6, "eq. 3.7"),
        Claim(
            "half times of the diagonal modes, slowest over fastest",
            float(half[2] / half[0]),
            VARIANCES[0] / VARIANCES[2],
            1e-12,
            "time enters only as S E[x²] t",
            relative=True,
        ),
        agreement("diagonal network", expected, simulation, "strength", 0.002),
        agreement("linear model", expected, simulation, "linear_strength", 0.002),
    ]
