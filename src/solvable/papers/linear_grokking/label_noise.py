"""Label noise: it is fitted, so that the test loss turns up again; the paper has it as a constant."""

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import (
    DESCENT,
    FLOW,
    agreement,
    draw_run,
    held_against_simulation,
    quadrature_losses,
)
from solvable.plotting import COLOURS, new_figure
from solvable.timegrid import log_times, whole_steps

NOISE = 0.1


def reproduce(scale: Scale) -> Reproduction:
    figure, panels = new_figure(2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for colour, ratio in zip(COLOURS, (0.5, 0.9, 1.5), strict=False):
        model = LinearEstimator(aspect_ratio=ratio, label_noise=NOISE, threshold=0.05)
        times = whole_steps(log_times(1, 1e5, 14))
        theory, simulation, _ = held_against_simulation(model, DESCENT, times, scale, key=7)
        datasets |= {f"theory-{ratio:g}": theory, f"simulation-{ratio:g}": simulation}
        draw_run(panels, theory, simulation, colour, f"λ = {ratio:g}")
        # With fewer samples than dimensions the training loss reaches zero, in runs and in theory: compare before that.
        fitted = simulation.sel(time=slice(0, 3000)) if ratio > 1 else simulation
        claims += agreement(f"λ = {ratio:g}", theory, fitted)
        claims.append(_plateau(model))
    claims += [_turning_point(), _first_crossing()]
    return Reproduction(datasets, figure, claims)


def _plateau(model: LinearEstimator) -> Claim:
    ratio = model.aspect_ratio
    expected = NOISE**2 * (ratio / (1 - ratio) if ratio < 1 else 1 / (ratio - 1)) + max(0.0, 1 - 1 / ratio)
    printed = NOISE**2 + max(0.0, 1 - 1 / ratio)
    return Claim(
        f"λ = {ratio:g}: test loss after infinite time", float(model.limit().test_loss), expected, 1e-9,
        "closed form: σ² λ / (1-λ), or σ² / (λ-1) beside the null modes", relative=True, printed=printed,
    )  # fmt: skip


def _turning_point() -> Claim:
    """The test loss at its lowest, against adaptive quadrature at the same time."""
    model = LinearEstimator(aspect_ratio=0.9, label_noise=NOISE)
    times = log_times(1, 1e6, 200)
    curve = model.predict(times, FLOW).test_loss
    best = int(np.argmin(curve.values))
    return Claim(
        f"λ = 0.9: lowest test loss, at t = {times[best]:.0f}", float(curve[best]),
        quadrature_losses(model, FLOW, float(times[best]))[1], 1e-10, "accuracy of adaptive quadrature",
        relative=True, printed="no minimum",
    )  # fmt: skip


def _first_crossing() -> Claim:
    """A loss that dips below the threshold and rises again counts as reached, at the first crossing."""
    model = LinearEstimator(aspect_ratio=0.9, label_noise=NOISE, threshold=0.25)
    reached = float(model.grokking_time(training=FLOW).test_time)
    times = log_times(1, 1e6, 4000)
    accuracy = model.predict(times, FLOW).test_accuracy.values
    first = int(np.argmax(accuracy >= 0.95))
    return Claim(
        "λ = 0.9, ε = 0.25: first time at 95 % test accuracy", reached, float(np.sqrt(times[first - 1] * times[first])),
        0.01, "spacing of the scan, half of 0.35 % each way, and a factor for safety", relative=True,
        printed="never",
    )  # fmt: skip
