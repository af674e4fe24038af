"""Fig. 5: a hidden layer, linear and tanh, at two widths."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.comparison import compare
from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Scale
from solvable.papers.linear_grokking._shared import agreement, draw_run, pair, smooth
from solvable.plotting import COLOURS, new_figure
from solvable.timegrid import log_times, whole_steps
from solvable.training import GradientDescent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The paper trains at 0.01. The same flow at 0.5 takes fifty times fewer steps, and theory is for steps anyway.
TRAINING = GradientDescent(learning_rate=0.5)
ACTIVATIONS = {"linear": None, "tanh": "tanh"}
WIDTHS = (50, 200)


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory of the linear network, and simulations with both activations."""
    data: dict[str, xr.Dataset] = {}
    dimension, seeds = (300, 30) if scale == "quick" else (1000, 40)
    for name, activation in ACTIVATIONS.items():
        last = 3000 if activation is None or scale == "full" else 600
        steps = np.concatenate([[0], whole_steps(log_times(3, last, 9))])
        runs = seeds if activation is None else max(6, seeds // 5)
        for width in WIDTHS:
            model = LinearEstimator(aspect_ratio=0.9, outputs=5, width=width, threshold=2e-2 / width)
            data[f"theory-{name}-{width}"] = model.predict(smooth(steps), TRAINING, dimension=dimension)
            data[f"simulation-{name}-{width}"] = model.simulate(
                steps, TRAINING, dimension=dimension, seeds=runs, key=width, activation=activation
            )
    return data


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Agreement of the linear network with its theory, and how far tanh is from it."""
    made: list[Claim] = []
    for width in WIDTHS:
        made += agreement(f"linear, {width} hidden", *pair(data, f"linear-{width}"))
    return made + [_tanh_claim(*pair(data, f"tanh-{width}"), width) for width in WIDTHS]


def _tanh_claim(theory: xr.Dataset, simulation: xr.Dataset, width: int) -> Claim:
    """Weights this small barely reach the curvature of tanh: the linear theory holds to a few percent."""
    compared = compare(theory.sel(time=simulation.time), simulation, allow_different=["activation"])
    losses = compared.test_loss
    off = float(abs(losses.sel(statistic="simulation") / losses.sel(statistic="theory") - 1).max())
    error = float((losses.sel(statistic="standard_error") / losses.sel(statistic="theory")).max())
    return Claim(
        f"tanh, {width} hidden: relative distance of the test loss from linear theory",
        off,
        0.0,
        0.03 + 3 * error,
        "the slope of tanh lies 0.5 to 2 % below one here, plus three standard errors",
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses and accuracies, above with linear and below with tanh units."""
    figure, panels = new_figure(2, 2)
    for row, name in zip(panels, ACTIVATIONS, strict=True):
        for colour, width in zip(COLOURS, WIDTHS, strict=False):
            draw_run(row, *pair(data, f"{name}-{width}"), colour, f"{name}, {width} hidden")
    return figure
