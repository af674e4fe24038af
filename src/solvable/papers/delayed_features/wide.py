"""Wide networks that grok, in theory and in simulation.

The paper shows a wide network grok (Fig. 1) and has theory for two neurons; theory of ten and a hundred neurons is
heavier but no different. The neurons begin with alternating alignments that stand out from those which a finite
dimension puts in by chance, about 1/√D: the escape from smaller ones depends on the dimension.

Simulations of two dimensions are extrapolated to the infinite one by a line in 1/D. Until 2026-11-19 the larger
dimension alone was held against theory; at full scale the time to fit of a hundred neurons at D = 1000, 51.7, then
missed theory's 51.1 by 4.4 of its errors.

The full scale is made for an accelerator. Without one, 32768 samples for a hundred neurons, 24 and 8 datasets and times
to 1200 take two cores half an hour.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.papers.claims import Claim, Scale, scale_of
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

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAMMA, ALPHA, EPSILON = 4.5, 0.5, 0.05
LEARNING_RATE = 0.25
ALIGNMENT = 0.2
# Each (neurons, samples of the theory, replicates, datasets of each dimension); the last time.
SIZES: dict[str, tuple[tuple[tuple[int, int, int, dict[int, int]], ...], float]] = {
    "quick": (((10, 4096, 2, {125: 16, 250: 8}),), 1200.0),
    "full": (((10, 65536, 4, {500: 100, 1000: 50}), (100, 65536, 2, {500: 100, 1000: 50})), 3000.0),
}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and simulation of each network."""
    networks, last_time = SIZES[scale]
    steps = steps_near(log_times(4, last_time, 19 if scale == "quick" else 31), LEARNING_RATE)
    data: dict[str, xr.Dataset] = {}
    for neurons, samples, replicates, simulated in networks:
        model = paper_task(GAMMA, ALPHA, EPSILON, *start(neurons))
        solver = solvers.Flow(samples=samples, replicates=replicates, ratio=1.2)
        theory = model.predict(steps, GradientFlow(LEARNING_RATE), solver=solver)
        training = GradientDescent(LEARNING_RATE)
        data[f"theory-{neurons}"] = on_flow_time(theory)
        for key, (dimension, seeds) in enumerate(simulated.items(), start=10):
            runs = model.simulate(steps[::2], training, dimension=dimension, seeds=seeds, key=key)
            data[f"simulation-{neurons}-{dimension}"] = on_flow_time(runs)
    return data


def start(neurons: int) -> tuple[np.ndarray, np.ndarray]:
    """Initial alignments that alternate, and overlaps of weights that are otherwise orthonormal."""
    alignment = ALIGNMENT * np.tile([1.0, -1.0], neurons // 2)
    return alignment, np.eye(neurons) + np.outer(alignment, alignment)


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Learning comes late, and theory agrees with simulation."""
    made: list[Claim] = []
    for neurons, theory, simulations in _networks(data):
        made.append(is_delayed(f"N = {neurons}", theory))
        made += against_simulation(f"N = {neurons}", theory, *simulations)
    return made


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Training and test losses over time; points are of the larger dimension."""
    figure, (panel,) = new_figure(1, width=6.5, height=4.5)
    for colour, (neurons, theory, simulations) in zip(COLOURS, _networks(data), strict=False):
        draw_losses(panel, theory, simulations[-1], colour, f"N = {neurons}")
    finish_losses(panel, theory.time)
    return figure


def _networks(data: Mapping[str, xr.Dataset]) -> list[tuple[int, xr.Dataset, list[xr.Dataset]]]:
    """Number of neurons, theory and the simulations of each network, the largest last."""
    return [
        (neurons, data[f"theory-{neurons}"], [data[f"simulation-{neurons}-{dimension}"] for dimension in simulated])
        for neurons, *_, simulated in SIZES[scale_of(data)][0]
    ]
