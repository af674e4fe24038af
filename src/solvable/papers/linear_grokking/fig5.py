"""Fig. 5: a hidden layer, linear and tanh, at two widths."""

import numpy as np
import xarray as xr

from solvable.comparison import compare
from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import agreement, draw_run, smooth
from solvable.plotting import COLOURS, new_figure
from solvable.timegrid import log_times, whole_steps
from solvable.training import GradientDescent

# The paper trains at 0.01; the same flow at 0.5 takes fifty times fewer steps, and theory is for steps anyway.
TRAINING = GradientDescent(learning_rate=0.5)


def reproduce(scale: Scale) -> Reproduction:
    figure, panels = new_figure(2, 2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    dimension, seeds = (300, 30) if scale == "quick" else (1000, 40)
    for row, activation in enumerate((None, "tanh")):
        for colour, width in zip(COLOURS, (50, 200), strict=False):
            model = LinearEstimator(aspect_ratio=0.9, outputs=5, width=width, threshold=2e-2 / width)
            last = 3000 if activation is None or scale == "full" else 600
            steps = np.concatenate([[0], whole_steps(log_times(3, last, 9))])
            runs = seeds if activation is None else max(6, seeds // 5)
            theory = model.predict(smooth(steps), TRAINING, dimension=dimension)
            simulation = model.simulate(
                steps, TRAINING, dimension=dimension, seeds=runs, key=width, activation=activation
            )
            name = activation or "linear"
            datasets |= {f"theory-{width}": theory, f"simulation-{name}-{width}": simulation}
            draw_run(panels[row], theory, simulation, colour, f"{name}, {width} hidden")
            # Linear theory against tanh: how far apart they are is the question.
            comparison = compare(theory.sel(time=steps), simulation, allow_different=["activation"])
            claims += (
                agreement(f"{name}, {width} hidden", theory, simulation)
                if activation is None
                else [_tanh_claim(comparison, width)]
            )
    return Reproduction(datasets, figure, claims)


def _tanh_claim(comparison: xr.Dataset, width: int) -> Claim:
    """Weights this small barely reach the curvature of tanh: the linear theory holds to a few percent."""
    losses = comparison.test_loss
    off = float(abs(losses.sel(statistic="simulation") / losses.sel(statistic="theory") - 1).max())
    error = float((losses.sel(statistic="standard_error") / losses.sel(statistic="theory")).max())
    return Claim(
        f"tanh, {width} hidden: relative distance of the test loss from linear theory", off, 0.0,
        0.03 + 3 * error, "the slope of tanh lies 0.5 to 2 % below one here, plus three standard errors",
    )  # fmt: skip
