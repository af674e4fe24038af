"""Label noise: it is fitted, so that the test loss turns up again; the paper has it as a constant."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Scale
from solvable.papers.linear_grokking._shared import (
    DESCENT,
    FLOW,
    agreement,
    draw_run,
    pair,
    quadrature_losses,
    theory_and_simulation,
)
from solvable.plotting import COLOURS, new_figure
from solvable.timegrid import log_times, whole_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOISE = 0.1
ASPECT_RATIOS = (0.5, 0.9, 1.5)
TURNING = LinearEstimator(aspect_ratio=0.9, label_noise=NOISE)


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and simulation at each aspect ratio, limits, a curve with its minimum, and a threshold it dips below."""
    data: dict[str, xr.Dataset] = {}
    limits = []
    for ratio in ASPECT_RATIOS:
        model = LinearEstimator(aspect_ratio=ratio, label_noise=NOISE, threshold=0.05)
        times = whole_steps(log_times(1, 1e5, 14))
        data |= theory_and_simulation(f"{ratio:g}", model, DESCENT, times, scale, key=7)
        limits.append(model.limit())
    data["limits"] = xr.concat(limits, "aspect_ratio", combine_attrs="drop_conflicts").assign_coords(
        aspect_ratio=list(ASPECT_RATIOS)
    )
    data["turning"] = TURNING.predict(log_times(1, 1e6, 200), FLOW)
    dipping = TURNING.replace(threshold=0.25)
    data["dipping"] = dipping.predict(log_times(1, 1e6, 4000), FLOW)
    data["dipping-times"] = dipping.grokking_time(training=FLOW)
    return data


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Theory against simulation, the plateaus, and the minimum of the test loss."""
    made: list[Claim] = []
    for ratio in ASPECT_RATIOS:
        theory, simulation = pair(data, f"{ratio:g}")
        # With fewer samples than dimensions the training loss reaches zero, in runs and in theory: compare before that.
        fitted = simulation.sel(time=slice(0, 3000)) if ratio > 1 else simulation
        made += agreement(f"λ = {ratio:g}", theory, fitted)
        made.append(_plateau(ratio, data["limits"].sel(aspect_ratio=ratio)))
    return [*made, _turning_point(data["turning"]), _first_crossing(data["dipping-times"], data["dipping"])]


def _plateau(ratio: float, limits: xr.Dataset) -> Claim:
    expected = NOISE**2 * (ratio / (1 - ratio) if ratio < 1 else 1 / (ratio - 1)) + max(0.0, 1 - 1 / ratio)
    return Claim(
        f"λ = {ratio:g}: test loss after infinite time",
        float(limits.test_loss),
        expected,
        1e-9,
        "closed form: σ² λ / (1-λ), or σ² / (λ-1) beside the null modes",
        relative=True,
        printed=NOISE**2 + max(0.0, 1 - 1 / ratio),
    )


def _turning_point(curve: xr.Dataset) -> Claim:
    """The test loss at its lowest, against adaptive quadrature at the same time."""
    lowest = curve.test_loss[int(curve.test_loss.argmin())]
    time = float(lowest.time)
    return Claim(
        f"λ = 0.9: lowest test loss, at t = {time:.0f}",
        float(lowest),
        quadrature_losses(TURNING, FLOW, time)[1],
        1e-10,
        "accuracy of adaptive quadrature",
        relative=True,
        printed="no minimum",
    )


def _first_crossing(times: xr.Dataset, scan: xr.Dataset) -> Claim:
    """A loss that dips below the threshold and rises again counts as reached, at the first crossing."""
    first = int(np.argmax(scan.test_accuracy.values >= 0.95))
    return Claim(
        "λ = 0.9, ε = 0.25: first time at 95 % test accuracy",
        float(times.test_time),
        float(np.sqrt(scan.time[first - 1] * scan.time[first].values)),
        0.01,
        "spacing of the scan, half of 0.35 % each way, and a factor for safety",
        relative=True,
        printed="never",
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses and accuracies at each aspect ratio."""
    figure, panels = new_figure(2)
    for colour, ratio in zip(COLOURS, ASPECT_RATIOS, strict=False):
        draw_run(panels, *pair(data, f"{ratio:g}"), colour, f"λ = {ratio:g}")
    return figure
