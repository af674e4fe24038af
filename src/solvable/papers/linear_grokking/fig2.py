"""Fig. 2: several outputs, and the output dimension at which grokking takes longest."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.comparison import compare
from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.linear_grokking._shared import DESCENT, FLOW, agreement, draw_run, pair, theory_and_simulation
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.timegrid import log_times, whole_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The paper's 700 outputs need its input dimension of 1000; the quick run keeps the proportion.
OUTPUTS = {"quick": (1, 20, 280), "full": (1, 50, 700)}
ASPECT_RATIOS = (0.5, 0.7, 0.8, 0.9, 0.95)
ACCURACY_REASON = "the chi-square law with effective degrees of freedom is an approximation at finite input dimension"


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and simulation for each number of outputs, and the delay over outputs and aspect ratio."""
    data: dict[str, xr.Dataset] = {}
    for outputs in OUTPUTS[scale]:
        model = LinearEstimator(aspect_ratio=0.9, outputs=outputs)
        times = whole_steps(log_times(10, 1e5 * min(outputs, 30), 12))
        data |= theory_and_simulation(f"{outputs}", model, DESCENT, times, scale, key=2)
    many = np.unique(np.geomspace(1, 1000, 160).round())
    data["delay"] = LinearEstimator().phase_diagram(training=FLOW, aspect_ratio=np.array(ASPECT_RATIOS), outputs=many)
    return data


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Theory against simulation: losses by their noise, accuracies by how good their formula is."""
    made: list[Claim] = []
    for outputs in OUTPUTS[scale_of(data)]:
        theory, simulation = pair(data, outputs)
        # Hundreds of outputs average the noise away and uncover what the finite input dimension does to the spectrum:
        # a shift of the loss by 1 / (5 d_in), which late losses are too small to hide.
        last = 2e4 * outputs if outputs <= 50 else 125 * outputs
        made += agreement(f"{outputs} outputs", theory, simulation.sel(time=slice(0, last)))
        early = compare(theory.sel(time=simulation.time), simulation).sel(time=slice(0, 2e4 * outputs))
        for kind in ("train", "test"):
            off = early[f"{kind}_accuracy"].sel(statistic="difference")
            made.append(Claim(f"{outputs} outputs: {kind} accuracy", float(abs(off).max()), 0.0, 0.03, ACCURACY_REASON))
    return made


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses, accuracies, and the delay over the number of outputs."""
    figure, (loss_panel, accuracy_panel, delay_panel) = new_figure(3)
    for colour, outputs in zip(COLOURS, OUTPUTS[scale_of(data)], strict=False):
        draw_run((loss_panel, accuracy_panel), *pair(data, outputs), colour, f"{outputs} outputs")
    delay = data["delay"].delay
    for colour, ratio in zip(COLOURS, ASPECT_RATIOS, strict=False):
        delay_panel.plot(delay.outputs, delay.sel(aspect_ratio=ratio), color=colour, label=f"λ = {ratio:g}")
    delay_panel.set_yscale("log")
    set_axis(delay_panel, "x", delay.outputs, log=True)
    set_axis(delay_panel, "y", delay)
    delay_panel.legend()
    return figure
