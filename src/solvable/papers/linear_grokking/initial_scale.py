"""Scale of the student's start: a mere rescaling of the losses, but only without weight decay."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Scale
from solvable.papers.linear_grokking._shared import (
    DESCENT,
    FLOW,
    agreement,
    draw_run,
    pair,
    quadrature_losses,
    theory_and_simulation,
)
from solvable.plotting import COLOURS, new_figure
from solvable.timegrid import log_times, whole_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALE = 2.0
DECAYS = (0.0, 1e-2)
LATE = 3e4
MODEL = LinearEstimator(aspect_ratio=0.9, initial_scale=SCALE)
PLAIN = MODEL.replace(initial_scale=1.0)


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and simulation at α = 2, and late test losses at α = 2 and α = 1, without and with weight decay."""
    data: dict[str, xr.Dataset] = {}
    late = np.zeros((2, len(DECAYS)))
    for place, decay in enumerate(DECAYS):
        training, times = DESCENT.replace(weight_decay=decay), whole_steps(log_times(1, LATE, 12))
        data |= theory_and_simulation(f"{decay:g}", MODEL, training, times, scale, key=8)
        flow = FLOW.replace(weight_decay=decay)
        late[:, place] = [float(model.predict([LATE], flow).test_loss[0]) for model in (MODEL, PLAIN)]
    about = {"long_name": "test loss of gradient flow at t = 3e4", "units": "1"}
    axes = {"initial_scale": [SCALE, 1.0], "weight_decay": list(DECAYS)}
    return data | {"late": xr.Dataset({"test_loss": (tuple(axes), late, about)}, axes)}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Theory against simulation, and what the scale of the start does to the test loss."""
    made: list[Claim] = []
    for decay in DECAYS:
        made += agreement(f"α = 2, γ = {decay:g}", *pair(data, f"{decay:g}"))
        made.append(_scaling(data["late"].test_loss.sel(weight_decay=decay), decay))
    return made


def _scaling(late: xr.DataArray, decay: float) -> Claim:
    """Test loss at t = 3e4 over that of α = 1, which the paper puts at (1 + α²) / 2 always."""
    flow = FLOW.replace(weight_decay=decay)
    expected = quadrature_losses(MODEL, flow, LATE)[1] / quadrature_losses(PLAIN, flow, LATE)[1]
    printed = (1 + SCALE**2) / 2
    return Claim(
        f"γ = {decay:g}: test loss at t = 3e4, α = 2 over α = 1",
        float(late.sel(initial_scale=SCALE) / late.sel(initial_scale=1.0)),
        expected,
        1e-9,
        "accuracy of adaptive quadrature",
        relative=True,
        printed=None if np.isclose(printed, expected) else printed,
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses and accuracies at α = 2, without and with weight decay."""
    figure, panels = new_figure(2)
    for colour, decay in zip(COLOURS, DECAYS, strict=False):
        draw_run(panels, *pair(data, f"{decay:g}"), colour, f"α = 2, γ = {decay:g}")
    return figure
