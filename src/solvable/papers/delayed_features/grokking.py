"""Grokking of four neurons: the training loss falls long before the test loss, in theory as in simulation.

Not a figure of the paper, whose theory stops before the losses fall; its closure can be followed to the end. Gradient
flow, α = 0.5 and 2, ε = 0.05, 4.5 samples per dimension, four neurons with small alternating alignments.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.papers.claims import Claim, Scale
from solvable.papers.delayed_features._shared import (
    against_simulation,
    draw_losses,
    fall_time,
    finish_losses,
    is_delayed,
    on_flow_time,
    paper_task,
    steps_near,
)
from solvable.plotting import COLOURS, new_figure
from solvable.timegrid import log_times
from solvable.training import GradientDescent, GradientFlow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAMMA, EPSILON = 4.5, 0.05
ALIGNMENT = (0.1, -0.1, 0.1, -0.1)
ALPHAS = (0.5, 2.0)
# The learning rates of the simulation, small enough to count as a flow: with 0.5 the training loss of α = 0.5 lags by
# 2 %.
LEARNING_RATE = {0.5: 0.2, 2.0: 0.1}
LAST_TIME = {0.5: 800.0, 2.0: 1600.0}
# (samples of the theory, replicates, dimension, datasets)
SIZES = {"quick": (4096, 2, 200, 8), "full": (65536, 4, 500, 100)}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory at both output scales, and simulation at the smaller one; at full scale also at the larger one."""
    samples, replicates, dimension, seeds = SIZES[scale]
    solver = solvers.Flow(samples=samples, replicates=replicates)
    data: dict[str, xr.Dataset] = {}
    for alpha in ALPHAS:
        model, rate = paper_task(GAMMA, alpha, EPSILON, ALIGNMENT, np.eye(4)), LEARNING_RATE[alpha]
        steps = steps_near(log_times(5, LAST_TIME[alpha], 23), rate)
        data[f"theory-{alpha:g}"] = on_flow_time(model.predict(steps, GradientFlow(rate), solver=solver))
        if alpha == ALPHAS[0] or scale == "full":
            runs = model.simulate(steps[::2], GradientDescent(rate), dimension=dimension, seeds=seeds, key=4)
            data[f"simulation-{alpha:g}"] = on_flow_time(runs)
    return data


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Learning comes late, in theory as in simulation, and the later the larger α."""
    made: list[Claim] = []
    for alpha in ALPHAS:
        theory, simulation = data[f"theory-{alpha:g}"], data.get(f"simulation-{alpha:g}")
        made.append(is_delayed(f"α = {alpha:g}", theory))
        if simulation is not None:
            made += against_simulation(f"α = {alpha:g}", theory, simulation)
    small, large = (
        float(fall_time(theory.test_loss) - fall_time(theory.train_loss))
        for theory in (data[f"theory-{alpha:g}"] for alpha in ALPHAS)
    )
    because = "the paper's words: the delay grows with α"
    return [*made, Claim.at_least("delay at α = 2 over that at α = 0.5, theory", large / small, 1.1, because)]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Training and test losses over time."""
    figure, (panel,) = new_figure(1, width=6.5, height=4.5)
    for colour, alpha in zip(COLOURS, ALPHAS, strict=False):
        theory, simulation = data[f"theory-{alpha:g}"], data.get(f"simulation-{alpha:g}")
        draw_losses(panel, theory, simulation, colour, f"α = {alpha:g}")
    finish_losses(panel, data[f"theory-{ALPHAS[-1]:g}"].time)
    return figure
