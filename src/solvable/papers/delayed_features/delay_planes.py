"""The delay between fitting and learning over γ × α and γ × ε, from theory alone: the paper's picture as planes.

Two neurons as in the paper's figures, gradient descent. At full scale each plane has 24 x 24 settings, which an
accelerator takes through every step together. The delay is the time between the falls of training and test loss to a
tenth of ⟨y²⟩; settings whose test loss does not fall that far within the time are left empty.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable import solvers, sweep
from solvable.papers.claims import Claim, Scale
from solvable.papers.delayed_features._shared import LOSSES, fall_time, paper_task, steps_near
from solvable.plotting import draw_plane, new_figure
from solvable.timegrid import log_times
from solvable.training import GradientDescent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEARNING_RATE, LAST_TIME = 0.25, 200.0
# What the axis that is not shown has.
ALPHA, EPSILON = 0.5, 0.2
# (values on each axis, samples of the theory, replicates)
SIZES = {"quick": (4, 2048, 2), "full": (24, 8192, 4)}
GAMMAS, ALPHAS, EPSILONS = (3.0, 16.0), (0.125, 1.25), (0.1, 0.6)
# Each plane: its name, the symbol of its second axis, and how that is called in the sweep.
PLANES = (("output scale", "alpha", "output_scale"), ("activation strength", "epsilon", "activation"))


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Times to fit and to learn over both planes."""
    count, samples, replicates = SIZES[scale]
    axes = {
        "alpha": np.geomspace(*ALPHAS, count),
        "epsilon": np.geomspace(*EPSILONS, count),
    }
    options = {
        "times": np.append(0.0, steps_near(log_times(1, LAST_TIME, 40), LEARNING_RATE)),
        "solver": solvers.Latent(samples=samples, replicates=replicates),
    }
    data = {}
    for _, symbol, field in PLANES:
        values = axes[symbol]
        swept = [f"quadratic({value!r})" for value in values.tolist()] if symbol == "epsilon" else values
        found = sweep(
            paper_task(GAMMAS[0], ALPHA, EPSILON),
            {"samples_per_dimension": np.geomspace(*GAMMAS, count), field: swept},
            "predict",
            options=options,
            training=GradientDescent(LEARNING_RATE),
        )
        curves = found.rename({"samples_per_dimension": "gamma", field: symbol}).assign_coords({symbol: values})
        data[f"delay-{symbol}"] = _delays(curves, symbol)
    return data


def _delays(curves: xr.Dataset, symbol: str) -> xr.Dataset:
    flow_time = curves.time * LEARNING_RATE
    curves = curves[list(LOSSES)].assign_coords(time=flow_time)
    fitted, learned = (fall_time(curves[name]) for name in LOSSES)
    found = xr.Dataset({"fit_time": fitted, "learn_time": learned, "delay": learned - fitted})
    words = {"fit_time": "time to fit", "learn_time": "time to learn", "delay": "delay of learning"}
    for name, text in words.items():
        found[name].attrs = {"long_name": text, "units": "flow time"}
    found["delay"].attrs["symbol"] = "Δt"
    found["gamma"].attrs = {"long_name": "samples for each dimension", "units": "1", "symbol": "γ"}
    about = {"alpha": ("scale of the output", "α"), "epsilon": ("strength of the quadratic part", "ε")}[symbol]
    found[symbol].attrs = dict(zip(("long_name", "symbol"), about, strict=True)) | {"units": "1"}
    return found.assign_attrs(model="committee", method="theory")


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The delay falls with γ and with ε. With two neurons it hardly depends on α, unlike with four (``delay_map``)."""
    because = "the paper's words, cell by cell of those that learn; cells share their samples, and with them the noise"
    made = []
    for name, symbol, _ in PLANES:
        # Never to learn is the longest delay of all.
        delay = data[f"delay-{symbol}"].delay.transpose("gamma", symbol).fillna(np.inf).values
        shorter, learns = delay[1:] < delay[:-1], np.isfinite(delay[1:])
        words = f"plane of the {name}: share of steps up in γ that shorten the delay"
        made.append(Claim(words, float(np.mean(shorter[learns])), 1.0, 0.1, because))
    first = data["delay-epsilon"].delay.transpose("gamma", "epsilon").fillna(np.inf).values
    some = np.isfinite(first[:, [0, -1]]).any(axis=1)
    words = "share of γ with a longer delay at the smallest ε than at the largest"
    made.append(Claim(words, float(np.mean(first[some, 0] > first[some, -1])), 1.0, 0.0, because))
    over = data["delay-alpha"].delay.transpose("gamma", "alpha")
    learned = over.values[np.isfinite(over.values).all(axis=1)]
    return [
        *made,
        Claim.at_most(
            "largest over smallest delay along α, at the largest γ",
            float(learned[-1].max() / learned[-1].min()),
            2.0,
            "α grows tenfold; the paper expects later learning at larger α, which holds for four neurons only",
        ),
        Claim.at_least(
            "largest over smallest delay along γ, at the smallest α",
            float(learned[:, 0].max() / learned[:, 0].min()),
            5.0,
            "γ grows less than sixfold, and decides: near its smallest value the network never learns",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The delay over both planes."""
    figure, panels = new_figure(2)
    for panel, (_, symbol, _) in zip(panels, PLANES, strict=True):
        panel.grid(False)
        draw_plane(figure, panel, data[f"delay-{symbol}"].delay, "gamma", symbol, log=(symbol,))
    return figure
