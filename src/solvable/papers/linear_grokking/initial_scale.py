"""Scale of the student's start: a mere rescaling of the losses, but only without weight decay."""

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import (
    DESCENT,
    FLOW,
    agreement,
    draw_run,
    held_against_simulation,
    quadrature_losses,
)
from solvable.plotting import COLOURS, new_figure
from solvable.timegrid import log_times, whole_steps

SCALE = 2.0


def reproduce(scale: Scale) -> Reproduction:
    figure, panels = new_figure(2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for colour, decay in zip(COLOURS, (0.0, 1e-2), strict=False):
        model, training = LinearEstimator(aspect_ratio=0.9, initial_scale=SCALE), DESCENT.replace(weight_decay=decay)
        times = whole_steps(log_times(1, 3e4, 12))
        theory, simulation, _ = held_against_simulation(model, training, times, scale, key=8)
        datasets |= {f"theory-{decay:g}": theory, f"simulation-{decay:g}": simulation}
        draw_run(panels, theory, simulation, colour, f"α = 2, γ = {decay:g}")
        claims += agreement(f"α = 2, γ = {decay:g}", theory, simulation)
        claims.append(_scaling(model, decay))
    return Reproduction(datasets, figure, claims)


def _scaling(model: LinearEstimator, decay: float) -> Claim:
    """Test loss at t = 3e4 over that of α = 1, which the paper puts at (1 + α²) / 2 always."""
    plain, training = model.replace(initial_scale=1.0), FLOW.replace(weight_decay=decay)
    measured = float(model.predict([3e4], training).test_loss[0] / plain.predict([3e4], training).test_loss[0])
    expected = quadrature_losses(model, training, 3e4)[1] / quadrature_losses(plain, training, 3e4)[1]
    printed = (1 + SCALE**2) / 2
    return Claim(
        f"γ = {decay:g}: test loss at t = 3e4, α = 2 over α = 1", measured, expected, 1e-9,
        "accuracy of adaptive quadrature", relative=True,
        printed=None if np.isclose(printed, expected) else printed,
    )  # fmt: skip
