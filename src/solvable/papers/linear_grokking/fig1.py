"""Fig. 1: losses and accuracies at three aspect ratios, and the grokking time over the aspect ratio."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.models.linear_estimator.grokking import loss_threshold
from solvable.papers.claims import Claim, Scale
from solvable.papers.linear_grokking._shared import (
    DESCENT,
    FLOW,
    agreement,
    closed_form_times,
    draw_run,
    pair,
    theory_and_simulation,
)
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.timegrid import log_times, whole_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ASPECT_RATIOS = (0.1, 0.9, 1.5)
# Later than this the losses of a run are rounding noise.
LAST_TIME = {0.1: 1e3, 0.9: 1e5, 1.5: 1e4}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and simulation at each aspect ratio, the times of 95 % accuracy, and the delay over the aspect ratio."""
    data: dict[str, xr.Dataset] = {}
    for ratio in ASPECT_RATIOS:
        model = LinearEstimator(aspect_ratio=ratio)
        times = whole_steps(log_times(1, LAST_TIME[ratio], 16))
        data |= theory_and_simulation(f"{ratio:g}", model, DESCENT, times, scale, key=1)
    many = np.linspace(0.02, 0.999, 200)
    data["delay"] = LinearEstimator().phase_diagram(training=FLOW, aspect_ratio=many)
    data["times"] = LinearEstimator().phase_diagram(0.95, FLOW, aspect_ratio=np.array(ASPECT_RATIOS))
    return data


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Theory against simulation, and the times of 95 % accuracy against closed forms."""
    made: list[Claim] = []
    for ratio in ASPECT_RATIOS:
        variables = ("train_loss", "test_loss", "train_accuracy", "test_accuracy")
        made += agreement(f"λ = {ratio:g}", *pair(data, f"{ratio:g}"), variables)
        made += _time_claims(ratio, data["times"].sel(aspect_ratio=ratio))
    return made


def _time_claims(ratio: float, times: xr.Dataset) -> list[Claim]:
    """The times at which theory's accuracies reach 95 %, by quadrature and by the closed forms."""
    expected = closed_form_times(ratio, float(loss_threshold(LinearEstimator(aspect_ratio=ratio), 0.95)))
    return [
        Claim(
            f"λ = {ratio:g}: {kind} accuracy reaches 95 % (steps)",
            float(times[f"{kind}_time"]),
            value,
            1e-9,
            "quadrature against Bessel and Marcum functions",
            relative=True,
        )
        for kind, value in zip(("train", "test"), expected, strict=True)
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses, accuracies, and the delay over the aspect ratio."""
    figure, (loss_panel, accuracy_panel, delay_panel) = new_figure(3)
    for colour, ratio in zip(COLOURS, ASPECT_RATIOS, strict=False):
        draw_run((loss_panel, accuracy_panel), *pair(data, f"{ratio:g}"), colour, f"λ = {ratio:g}")
    delay, ratios = data["delay"].delay, data["delay"].aspect_ratio
    printed = np.log(1 / (1 - np.sqrt(ratios))) / (2 * FLOW.learning_rate * (1 - np.sqrt(ratios)) ** 2)
    delay_panel.plot(ratios, delay, color=COLOURS[0], label="exact")
    delay_panel.plot(ratios, printed, color=COLOURS[1], linestyle=":", label="eq. 12 as printed")
    delay_panel.set_yscale("log")
    set_axis(delay_panel, "x", ratios)
    set_axis(delay_panel, "y", delay)
    delay_panel.legend()
    return figure
