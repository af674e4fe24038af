"""Grokking of four neurons: the training loss falls long before the test loss, in theory as in simulation.

Not a figure of the paper, whose theory stops before the losses fall; its closure can be followed to the end. Gradient
flow, α = 0.5, ε = 0.05, 4.5 samples a dimension, four neurons with small alternating alignments.
"""

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.engines.timegrid import log_times, whole_steps
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.delayed_features._shared import (
    LEARNED,
    LOSSES,
    at_least,
    draw_losses,
    fall_time,
    paper_task,
    root_mean_square,
    z_scores,
)
from solvable.plotting import COLOURS, log_losses, new_figure, set_axis

GAMMA, EPSILON = 4.5, 0.05
ALIGNMENT = (0.1, -0.1, 0.1, -0.1)
ALPHAS = (0.5, 2.0)
# The steps of the simulation, small enough to count as a flow.
STEP = {0.5: 0.5, 2.0: 0.2}
LAST_TIME = {0.5: 800.0, 2.0: 1600.0}
# (samples of the theory, scrambles, dimension, datasets, z-score that chance exceeds once in two hundred)
SIZES = {"quick": (4096, 2, 200, 8, 4.0), "full": (65536, 4, 500, 100, 2.9)}


def reproduce(scale: Scale) -> Reproduction:
    samples, scrambles, dimension, seeds, limit = SIZES[scale]
    figure, panel = new_figure(1, width=6.5, height=4.5)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    delays: dict[float, float] = {}
    for colour, alpha in zip(COLOURS, ALPHAS, strict=False):
        model = paper_task(GAMMA, alpha, EPSILON, ALIGNMENT, np.eye(4), STEP[alpha])
        times = whole_steps(log_times(5, LAST_TIME[alpha], 23), STEP[alpha])
        theory = model.predict(times, solver=solvers.Flow(samples=samples, scrambles=scrambles))
        # The larger output scale is there for the comparison of theory with itself: its simulation is for full scale.
        simulated = alpha == ALPHAS[0] or scale == "full"
        simulation = model.simulate(times[::2], dimension=dimension, seeds=seeds, key=4) if simulated else None
        draw_losses(panel[0], theory, simulation, colour, f"α = {alpha:g}")
        datasets[f"theory-{alpha:g}"] = theory
        fitted, learned = (float(fall_time(theory[name])) for name in LOSSES)
        delays[alpha] = learned - fitted
        claims.append(at_least(f"α = {alpha:g}: time to learn over time to fit, theory", learned / fitted, 3.0, "delayed: seen at sight"))  # fmt: skip
        if simulation is not None:
            datasets[f"simulation-{alpha:g}"] = simulation
            claims += against_simulation(f"α = {alpha:g}", theory, simulation, limit)
    claims.append(at_least("delay at α = 2 over that at α = 0.5, theory", delays[2.0] / delays[0.5], 1.2, "the paper's words: the delay grows with α"))  # fmt: skip
    panel[0].axhline(LEARNED, color="grey", linewidth=0.8, linestyle=":", label="a tenth of ⟨y²⟩")
    set_axis(panel[0], "x", theory.time, log=True)
    panel[0].set_ylabel("loss (dashed: training, solid: test)")
    log_losses(panel[0])
    panel[0].legend(fontsize="small")
    return Reproduction(datasets, figure, claims)


def against_simulation(label: str, theory: xr.Dataset, simulation: xr.Dataset, limit: float) -> list[Claim]:
    """Losses at all times, and the times at which they fall to the level of what counts as learned."""
    because = (
        "root mean square z-score; a curve rises and falls as one, so that it is hardly better than one t-variate with "
        "one degree of freedom less than there are datasets; by chance above this once in two hundred"
    )
    claims = [
        Claim(
            f"{label}: {name.replace('_', ' ')} of theory and simulation, root mean square z-score",
            root_mean_square([z_scores(theory, simulation, name)]),
            0.0,
            limit,
            because,
        )
        for name in LOSSES
    ]
    for name, what in zip(LOSSES, ("fit", "learn"), strict=True):
        # A dataset that never gets there must not drop out of the mean.
        times = fall_time(simulation[name]).fillna(np.inf)
        spread = float(times.std("seed", ddof=1)) / np.sqrt(times.sizes["seed"])
        claims.append(
            Claim(
                f"{label}: time to {what}, mean over datasets",
                float(times.mean("seed")),
                float(fall_time(theory[name])),
                3 * float(np.hypot(spread, fall_time_error(theory, name))),
                "three errors: over datasets, and those of theory's loss where it crosses",
            )
        )
    return claims


def fall_time_error(theory: xr.Dataset, name: str) -> float:
    """Half the time between the crossings of the loss less and plus its error."""
    early, late = (fall_time(theory[name] + sign * theory[f"{name}_error"]) for sign in (-1, 1))
    return float(late - early) / 2
