"""Wide networks that grok, in theory and in simulation.

The paper shows a wide network grok (Fig. 1) and has theory for two neurons; theory of ten and a hundred neurons is
heavier but no different. The neurons begin with alternating alignments that stand out from those which a finite
dimension puts in by chance, about 1/√D: the escape from smaller ones depends on the dimension.
"""

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.delayed_features._shared import (
    against_simulation,
    draw_losses,
    finish_losses,
    is_delayed,
    on_flow_time,
    paper_task,
    steps_near,
)
from solvable.plotting import COLOURS, new_figure
from solvable.timegrid import log_times
from solvable.training import GradientDescent, GradientFlow

GAMMA, ALPHA, EPSILON = 4.5, 0.5, 0.05
LEARNING_RATE = 0.25
ALIGNMENT = 0.2
# Each (neurons, samples of the theory, replicates, dimension, datasets); the last time.
SIZES = {
    "quick": (((10, 4096, 2, 250, 8),), 1200.0),
    "full": (((10, 65536, 4, 1000, 50), (100, 65536, 2, 1000, 50)), 3000.0),
}


def reproduce(scale: Scale) -> Reproduction:
    networks, last_time = SIZES[scale]
    figure, (panel,) = new_figure(1, width=6.5, height=4.5)
    steps = steps_near(log_times(4, last_time, 19 if scale == "quick" else 31), LEARNING_RATE)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for colour, (neurons, samples, replicates, dimension, seeds) in zip(COLOURS, networks, strict=False):
        alignment, overlap = start(neurons)
        model = paper_task(GAMMA, ALPHA, EPSILON, alignment, overlap)
        solver = solvers.Flow(samples=samples, replicates=replicates, ratio=1.2)
        theory = on_flow_time(model.predict(steps, GradientFlow(LEARNING_RATE), solver=solver))
        training = GradientDescent(LEARNING_RATE)
        runs = model.simulate(steps[::2], training, dimension=dimension, seeds=seeds, key=10)
        simulation = on_flow_time(runs)
        draw_losses(panel, theory, simulation, colour, f"N = {neurons}")
        datasets |= {f"theory-{neurons}": theory, f"simulation-{neurons}": simulation}
        claims.append(is_delayed(f"N = {neurons}", theory))
        claims += against_simulation(f"N = {neurons}", theory, simulation)
    finish_losses(panel, theory.time)
    return Reproduction(datasets, figure, claims)


def start(neurons: int) -> tuple[np.ndarray, np.ndarray]:
    """Alternating alignments, and beside them orthonormal weights."""
    alignment = ALIGNMENT * np.tile([1.0, -1.0], neurons // 2)
    return alignment, np.eye(neurons) + np.outer(alignment, alignment)
