"""Fig. 1: losses and accuracies at three aspect ratios, and the grokking time over the aspect ratio."""

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.models.linear_estimator.grokking import loss_threshold
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import (
    DESCENT,
    FLOW,
    agreement,
    closed_form_times,
    draw_run,
    held_against_simulation,
)
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.timegrid import log_times, whole_steps

ASPECT_RATIOS = (0.1, 0.9, 1.5)
# Where each run is still doing something: later its losses are rounding noise.
LAST_TIME = {0.1: 1e3, 0.9: 1e5, 1.5: 1e4}


def reproduce(scale: Scale) -> Reproduction:
    figure, (loss_panel, accuracy_panel, delay_panel) = new_figure(3)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for colour, ratio in zip(COLOURS, ASPECT_RATIOS, strict=False):
        model = LinearEstimator(aspect_ratio=ratio)
        times = whole_steps(log_times(1, LAST_TIME[ratio], 16))
        theory, simulation, _ = held_against_simulation(model, DESCENT, times, scale, key=1)
        datasets |= {f"theory-{ratio:g}": theory, f"simulation-{ratio:g}": simulation}
        variables = ("train_loss", "test_loss", "train_accuracy", "test_accuracy")
        claims += agreement(f"λ = {ratio:g}", theory, simulation, variables)
        draw_run((loss_panel, accuracy_panel), theory, simulation, colour, f"λ = {ratio:g}")
        claims += _time_claims(model)

    diagram = LinearEstimator().phase_diagram(training=FLOW, aspect_ratio=np.linspace(0.02, 0.999, 200))
    datasets["delay"] = diagram
    ratios = diagram.aspect_ratio.values
    printed = np.log(1 / (1 - np.sqrt(ratios))) / (2 * FLOW.learning_rate * (1 - np.sqrt(ratios)) ** 2)
    delay_panel.plot(ratios, diagram.delay, color=COLOURS[0], label="exact")
    delay_panel.plot(ratios, printed, color=COLOURS[1], linestyle=":", label="eq. 12 as printed")
    delay_panel.set_yscale("log")
    set_axis(delay_panel, "x", diagram.aspect_ratio)
    set_axis(delay_panel, "y", diagram.delay)
    delay_panel.legend()
    return Reproduction(datasets, figure, claims)


def _time_claims(model: LinearEstimator) -> list[Claim]:
    """The times at which theory's accuracies reach 95 %, by quadrature and by the closed forms."""
    times = model.grokking_time(0.95, FLOW)
    expected = closed_form_times(model.aspect_ratio, float(loss_threshold(model, 0.95)))
    return [
        Claim(
            f"λ = {model.aspect_ratio:g}: {kind} accuracy reaches 95 % (steps)",
            float(times[f"{kind}_time"]),
            value,
            1e-9,
            "quadrature against Bessel and Marcum functions",
            relative=True,
        )
        for kind, value in zip(("train", "test"), expected, strict=True)
    ]
