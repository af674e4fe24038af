"""Fig. 2: several outputs, and the output dimension at which grokking takes longest."""

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import DESCENT, FLOW, agreement, draw_run, held_against_simulation
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.timegrid import log_times, whole_steps

ACCURACY_REASON = "the chi-square law with effective degrees of freedom is an approximation at finite input dimension"


def reproduce(scale: Scale) -> Reproduction:
    figure, (loss_panel, accuracy_panel, delay_panel) = new_figure(3)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    # The paper's 700 outputs need its input dimension of 1000; the quick run keeps the proportion.
    for colour, outputs in zip(COLOURS, (1, 50, 700) if scale == "full" else (1, 20, 280), strict=False):
        model = LinearEstimator(aspect_ratio=0.9, outputs=outputs)
        times = whole_steps(log_times(10, 1e5 * min(outputs, 30), 12))
        theory, simulation, comparison = held_against_simulation(model, DESCENT, times, scale, key=2)
        datasets |= {f"theory-{outputs}": theory, f"simulation-{outputs}": simulation}
        early = comparison.sel(time=slice(0, 2e4 * outputs))
        # Hundreds of outputs average the noise away and uncover what the finite input dimension does to the spectrum:
        # a shift of the loss by 1 / (5 d_in), which late losses are too small to hide.
        last = 2e4 * outputs if outputs <= 50 else 125 * outputs
        claims += agreement(f"{outputs} outputs", theory, simulation.sel(time=slice(0, last)))
        for kind in ("train", "test"):
            off = early[f"{kind}_accuracy"].sel(statistic="difference")
            claims.append(
                Claim(f"{outputs} outputs: {kind} accuracy", float(abs(off).max()), 0.0, 0.03, ACCURACY_REASON)
            )
        draw_run((loss_panel, accuracy_panel), theory, simulation, colour, f"{outputs} outputs")

    ratios, outputs_axis = np.array([0.5, 0.7, 0.8, 0.9, 0.95]), np.unique(np.geomspace(1, 1000, 160).round())
    diagram = LinearEstimator().phase_diagram(training=FLOW, aspect_ratio=ratios, outputs=outputs_axis)
    datasets["delay"] = diagram
    for colour, ratio in zip(COLOURS, ratios, strict=False):
        delay_panel.plot(diagram.outputs, diagram.delay.sel(aspect_ratio=ratio), color=colour, label=f"λ = {ratio:g}")
    delay_panel.set_yscale("log")
    set_axis(delay_panel, "x", diagram.outputs, log=True)
    set_axis(delay_panel, "y", diagram.delay)
    delay_panel.legend()
    return Reproduction(datasets, figure, claims)
