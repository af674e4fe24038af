"""Grokking of four neurons: the training loss falls long before the test loss, in theory as in simulation.

Not a figure of the paper, whose theory stops before the losses fall; its closure can be followed to the end. Gradient
flow, α = 0.5, ε = 0.05, 4.5 samples a dimension, four neurons with small alternating alignments.
"""

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.papers.claims import Claim, Reproduction, Scale
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

GAMMA, EPSILON = 4.5, 0.05
ALIGNMENT = (0.1, -0.1, 0.1, -0.1)
ALPHAS = (0.5, 2.0)
# The learning rates of the simulation, small enough to count as a flow: with 0.5 the training loss of α = 0.5 lags by
# 2 %.
LEARNING_RATE = {0.5: 0.2, 2.0: 0.1}
LAST_TIME = {0.5: 800.0, 2.0: 1600.0}
# (samples of the theory, replicates, dimension, datasets)
SIZES = {"quick": (4096, 2, 200, 8), "full": (65536, 4, 500, 100)}


def reproduce(scale: Scale) -> Reproduction:
    samples, replicates, dimension, seeds = SIZES[scale]
    figure, (panel,) = new_figure(1, width=6.5, height=4.5)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    delays: dict[float, float] = {}
    for colour, alpha in zip(COLOURS, ALPHAS, strict=False):
        label = f"α = {alpha:g}"
        model, rate = paper_task(GAMMA, alpha, EPSILON, ALIGNMENT, np.eye(4)), LEARNING_RATE[alpha]
        steps = steps_near(log_times(5, LAST_TIME[alpha], 23), rate)
        solver = solvers.Flow(samples=samples, replicates=replicates)
        theory = on_flow_time(model.predict(steps, GradientFlow(rate), solver=solver))
        # The larger output scale is there for the comparison of theory with itself: its simulation is for full scale.
        simulated = alpha == ALPHAS[0] or scale == "full"
        simulation = None
        if simulated:
            runs = model.simulate(steps[::2], GradientDescent(rate), dimension=dimension, seeds=seeds, key=4)
            simulation = on_flow_time(runs)
        draw_losses(panel, theory, simulation, colour, label)
        datasets[f"theory-{alpha:g}"] = theory
        delays[alpha] = float(fall_time(theory.test_loss) - fall_time(theory.train_loss))
        claims.append(is_delayed(label, theory))
        if simulation is not None:
            datasets[f"simulation-{alpha:g}"] = simulation
            claims += against_simulation(label, theory, simulation)
    because = "the paper's words: the delay grows with α"
    claims.append(
        Claim.at_least("delay at α = 2 over that at α = 0.5, theory", delays[2.0] / delays[0.5], 1.1, because)
    )
    finish_losses(panel, theory.time)
    return Reproduction(datasets, figure, claims)
