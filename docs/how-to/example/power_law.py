"""Single weight: the mean loss falls as a power of time, though every run is exponential."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from solvable.models.single_weight import SingleWeight
from solvable.papers.claims import Claim, Scale
from solvable.plotting import COLOURS, draw_curve, log_losses, new_figure, set_axis

SAMPLES = 4


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and simulation over the first decades, and theory at late times."""
    model, seeds = SingleWeight(samples=SAMPLES), 2000 if scale == "quick" else 50_000
    times = np.geomspace(0.1, 3, 12)
    return {
        "theory": model.predict(times),
        "simulation": model.simulate(times, seeds=seeds, key=1),
        "late": model.predict([1e6, 1e7]),
    }


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    """Simulation agrees, and the late loss has the exponent of the closed form."""
    late = data["late"].test_loss
    return [
        Claim.agrees("test loss agrees", data["theory"], data["simulation"], "test_loss"),
        Claim.equals(
            "exponent of the late test loss",
            -float(np.log10(late[1] / late[0])),
            SAMPLES / 2,
            1e-5,
            "next order: n² / 8t = 2e-6 at t = 1e6, over a factor of ten in time",
        ),
    ]


def draw(data: dict[str, xr.Dataset]) -> Figure:
    """The test loss over time."""
    figure, (panel,) = new_figure()
    draw_curve(panel, data["theory"].test_loss, COLOURS[0], "theory")
    draw_curve(panel, data["simulation"].test_loss, COLOURS[0], "simulation")
    set_axis(panel, "x", data["theory"].time, log=True)
    panel.set_ylabel("test loss")
    log_losses(panel)
    panel.legend()
    return figure
