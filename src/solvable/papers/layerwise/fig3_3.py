"""Fig. 3.3: modes of the linear model saturate at once, those of the diagonal network one after the other."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.diagonal_network import DiagonalNetwork
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._layer_reference import INTEGRATOR, agreement, descend, integrate_diagonal, on_flow_time
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIANCES = (1.0, 0.4, 0.16)
START = 1e-4


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Curves of theory, runs of gradient descent, the integrated flow, and the times at which modes are learned."""
    model = DiagonalNetwork.balanced(VARIANCES, np.ones(3), START)
    seeds, samples, rate = (20, 2000, 0.01) if scale == "quick" else (100, 10_000, 0.002)
    expected, simulation = descend(model, np.linspace(2, 60, 24), rate, samples=samples, seeds=seeds, key=1)
    grid = np.linspace(0, 60, 61)
    integrated = variable(("time", "mode"), integrate_diagonal(model, grid), "strength by integration")
    return {
        "theory": model.predict(np.linspace(0, 60, 400)),
        "expected": expected,
        "simulation": simulation,
        "flow": model.predict(grid).assign(integrated_strength=integrated),
        "half-times": model.emergence_time(0.5),
        # Just after the start, and when the first mode is 99 % learned.
        "moments": model.predict([1e-6, float(model.emergence_time(0.99).emergence_time[0])]),
    }


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The closed forms of eqs. 3.9 and 3.10 against the integrated flow and against gradient descent."""
    difference = np.abs(data["flow"].strength - data["flow"].integrated_strength)
    begin, then = (data["moments"].isel(time=index) for index in (0, 1))
    slope = begin.linear_strength / begin.time
    half = data["half-times"].emergence_time
    return [
        Claim("closed form against the flow (largest difference)", float(difference.max()), 0.0, 1e-9, INTEGRATOR),
        Claim(
            "ab/S of the second mode when the first is 99 % learned",
            float(then.strength[1]),
            1 / (1 + (1 / START - 1) * np.exp(-2 * VARIANCES[1] * float(then.time))),
            1e-12,
            "eq. 3.9 at that time",
        ),
        Claim(
            "θ/S of the second mode of the linear model at that time",
            float(then.linear_strength[1]),
            1 - np.exp(-VARIANCES[1] * float(then.time)),
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
        agreement("diagonal network", data["expected"], data["simulation"], "strength", 0.002),
        agreement("linear model", data["expected"], data["simulation"], "linear_strength", 0.002),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Strengths of the modes over time, of the linear model and of the diagonal network."""
    theory, points = data["theory"], on_flow_time(data["simulation"])
    figure, panels = new_figure(2)
    for panel, name, title, label in (
        (panels[0], "linear_strength", "linear model (eq. 3.10)", "θ / S"),
        (panels[1], "strength", "diagonal network (eq. 3.9)", "ab / S"),
    ):
        for mode, (colour, variance) in enumerate(zip(COLOURS, VARIANCES, strict=False)):
            draw_curve(panel, theory[name][:, mode], colour, f"E[x²] = {variance:g}")
            draw_curve(panel, points[name][:, :, mode], colour)
        panel.set_title(title)
        set_axis(panel, "x", theory.time)
        panel.set_ylabel(f"strength of the mode, {label}")
        panel.legend(title="lines: theory\npoints: gradient descent")
    return figure
