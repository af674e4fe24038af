"""Wide networks that grok, in theory and in simulation.

The paper shows a wide network grok (Fig. 1) and has theory for two neurons; theory of ten and a hundred neurons is
heavier but no different. Weights are drawn at random and their overlaps kept, so that the neurons are neither
orthogonal nor aligned with the target beyond chance.
"""

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.engines.timegrid import log_times, whole_steps
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.delayed_features._shared import LOSSES, TARGET_SQUARE, at_least, draw_losses, fall_time, paper_task
from solvable.papers.delayed_features.grokking import against_simulation
from solvable.plotting import COLOURS, log_losses, new_figure, set_axis

GAMMA, ALPHA, EPSILON = 4.5, 0.5, 0.05
STEP = 0.5
# Wide networks learn slowly: they are asked for a third of the loss at the start.
LEVEL = TARGET_SQUARE / 3
# Each (neurons, samples of the theory, scrambles, dimension, datasets); the last time; the z-score chance exceeds
# once in two hundred.
SIZES = {
    "quick": (((10, 2048, 2, 250, 8),), 800.0, 4.0),
    "full": (((10, 65536, 4, 1000, 50), (100, 65536, 2, 1000, 50)), 3000.0, 2.9),
}


def reproduce(scale: Scale) -> Reproduction:
    networks, last_time, limit = SIZES[scale]
    figure, (panel,) = new_figure(1, width=6.5, height=4.5)
    times = whole_steps(log_times(4, last_time, 19 if scale == "quick" else 31), STEP)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for colour, (neurons, samples, scrambles, dimension, seeds) in zip(COLOURS, networks, strict=False):
        alignment, overlap = random_start(neurons, dimension)
        model = paper_task(GAMMA, ALPHA, EPSILON, alignment, overlap, STEP)
        theory = model.predict(times, solver=solvers.Flow(samples=samples, scrambles=scrambles))
        simulation = model.simulate(times[::2], dimension=dimension, seeds=seeds, key=10)
        draw_losses(panel, theory, simulation, colour, f"N = {neurons}")
        datasets |= {f"theory-{neurons}": theory, f"simulation-{neurons}": simulation}
        fitted, learned = (float(fall_time(theory[name], LEVEL)) for name in LOSSES)
        claims.append(at_least(f"N = {neurons}: time to learn over time to fit, theory", learned / fitted, 3.0, "delayed: seen at sight"))  # fmt: skip
        claims += against_simulation(f"N = {neurons}", theory, simulation, limit, LEVEL)
    panel.axhline(LEVEL, color="grey", linewidth=0.8, linestyle=":", label="a third of ⟨y²⟩")
    set_axis(panel, "x", theory.time, log=True)
    panel.set_ylabel("loss (dashed: training, solid: test)")
    log_losses(panel)
    panel.legend(fontsize="small")
    return Reproduction(datasets, figure, claims)


def random_start(neurons: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Alignments and overlaps of independent weights of variance 1, the first axis being the target's."""
    weights = np.random.default_rng(0).normal(size=(neurons, dimension)) / np.sqrt(dimension)
    return weights[:, 0], weights @ weights.T
