"""The delay between fitting and learning over γ and α, from theory alone.

Four neurons as in the figure on grokking. With too few samples the network never learns;
with more of them the delay shrinks, and it grows with the output scale. The full scale has 8192 samples and takes two
cores 12 minutes. It had 32768 samples at first, and then 16384, neither of which has ever run to its end.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable import solvers, sweep
from solvable.papers.claims import Claim, Scale
from solvable.papers.delayed_features._shared import LOSSES, fall_time, fall_time_error, paper_task
from solvable.papers.delayed_features.grokking import ALIGNMENT, EPSILON
from solvable.plotting import draw_plane, new_figure
from solvable.timegrid import log_times
from solvable.training import GradientFlow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# (sample ratios, output scales, samples of the theory, replicates, last time)
SIZES = {
    "quick": ((4.5, 6.0, 9.0), (0.25, 0.7, 2.0), 2048, 2, 1000.0),
    "full": (tuple(np.geomspace(3, 12, 12)), tuple(np.geomspace(0.125, 4, 8)), 8192, 2, 5000.0),
}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The times to fit and to learn over the plane, with the error of their difference."""
    gammas, alphas, samples, replicates, last_time = SIZES[scale]
    curves = sweep(
        paper_task(gammas[0], alphas[0], EPSILON, ALIGNMENT, np.eye(4)),
        {"samples_per_dimension": gammas, "output_scale": alphas},
        "predict",
        options={
            "times": log_times(10, last_time, 14 if scale == "quick" else 40),
            "solver": solvers.Flow(samples=samples, replicates=replicates, ratio=1.3 if scale == "quick" else 1.15),
        },
        training=GradientFlow(),
    ).transpose("samples_per_dimension", "output_scale", ...)
    found = {name: fall_time(curves[name]).values for name in LOSSES}
    errors = {name: fall_time_error(curves, name).values for name in LOSSES}
    return {"delay": _dataset(gammas, alphas, found, np.hypot(*(errors[name] for name in LOSSES)))}


def _dataset(
    gammas: tuple[float, ...], alphas: tuple[float, ...], found: dict[str, np.ndarray], error: np.ndarray
) -> xr.Dataset:
    fitted, learned = (found[name] for name in LOSSES)
    over = ("gamma", "alpha")
    return xr.Dataset(
        {
            "fit_time": (over, fitted, {"long_name": "time to fit", "units": "1"}),
            "learn_time": (over, learned, {"long_name": "time to learn", "units": "1"}),
            "delay": (over, learned - fitted, {"long_name": "delay of learning", "units": "1", "symbol": "Δt"}),
            "delay_error": (over, error, {"long_name": "error of: delay of learning", "units": "1"}),
            "share": (over, learned / fitted, {"long_name": "time to learn over time to fit", "units": "1"}),
        },
        {
            "gamma": ("gamma", list(gammas), {"long_name": "samples for each dimension", "units": "1", "symbol": "γ"}),
            "alpha": ("alpha", list(alphas), {"long_name": "scale of the output", "units": "1", "symbol": "α"}),
        },
        {"model": "committee", "method": "theory"},
    )


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The delay falls with γ and grows with α."""
    # Never to learn is the longest delay of all.
    delay = data["delay"].delay.fillna(np.inf).values
    shorter, reached = delay[1:] < delay[:-1], np.isfinite(delay[1:])
    longer, learned = delay[:, -1] > delay[:, 0], np.isfinite(delay[:, -1])
    because = (
        "the paper's words, cell by cell of those that learn; in quick scale the errors of the cells are as large as "
        "their differences along α, but common to them, since they share their samples"
    )
    return [
        Claim("share of steps up in γ that shorten the delay", float(np.mean(shorter[reached])), 1.0, 0.1, because),
        Claim("share of γ with a longer delay at the largest α", float(np.mean(longer[learned])), 1.0, 0.0, because),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The delay, and the time to learn over the time to fit."""
    figure, panels = new_figure(2)
    for panel, name in zip(panels, ("delay", "share"), strict=True):
        panel.grid(False)
        draw_plane(figure, panel, data["delay"][name], "gamma", "alpha", log=("alpha",))
    return figure
