"""Fig. 1: a wide network fits its data long before it generalises, and the later the lazier it is.

The paper gives epsilon and alpha but no sizes; a network of a hundred neurons with 4.5 samples per dimension shows its
curves. Losses are compared with a tenth of the target's mean square, which is that of a network that knows nothing:
the loss at the start is nearly the same in wide networks, but in narrow ones it grows with alpha by itself.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Scale
from solvable.papers.delayed_features._shared import LEARNED, LOSSES, fall_time, on_flow_time, paper_task, steps_near
from solvable.plotting import COLOURS, draw_curve, log_losses, new_figure, set_axis
from solvable.timegrid import log_times
from solvable.training import GradientDescent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILON = 0.05
DIMENSION, SAMPLES = 100, 450
# The learning rate for each output scale: the loss is steeper with a larger one.
LEARNING_RATE = {0.5: 0.5, 2.0: 0.2}
# (neurons, datasets, last time)
SIZES = {"quick": (50, 3, 2000.0), "full": (100, 20, 5000.0)}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Gradient descent of a wide network on the same datasets at both output scales."""
    return {f"simulation-{alpha:g}": _run(alpha, scale) for alpha in LEARNING_RATE}


def _run(alpha: float, scale: Scale) -> xr.Dataset:
    neurons, seeds, last_time = SIZES[scale]
    # Independent weights of variance 1, over sqrt(D) as overlaps are measured; the same for all datasets.
    weights = np.random.default_rng(0).normal(size=(neurons, DIMENSION)) / np.sqrt(DIMENSION)
    training = GradientDescent(LEARNING_RATE[alpha])
    steps = steps_near(log_times(training.learning_rate, last_time, 50), training.learning_rate)
    model = paper_task(SAMPLES / DIMENSION, alpha, EPSILON, weights[:, 0], weights @ weights.T)
    return on_flow_time(model.simulate(steps, training, dimension=DIMENSION, seeds=seeds, key=1))


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Learning comes long after fitting, and the later the larger α."""
    made: list[Claim] = []
    delays = {}
    for alpha in LEARNING_RATE:
        fitted, learned = (fall_time(data[f"simulation-{alpha:g}"][name]).fillna(np.inf).values for name in LOSSES)
        delays[alpha] = learned - fitted
        made.append(
            Claim(
                f"α = {alpha:g}: share of datasets that are learned 4 times later than fitted",
                float(np.mean(learned > 4 * fitted)),
                1.0,
                0.0,
                "what the logarithmic axis of the figure shows at sight; the paper gives no number",
            )
        )
    turned = {alpha: data[f"simulation-{alpha:g}"].kernel_alignment.isel(time=-1).values for alpha in LEARNING_RATE}
    return made + _delay_claims(delays, turned)


def _delay_claims(delays: dict[float, np.ndarray], turned: dict[float, np.ndarray]) -> list[Claim]:
    pairs = "the same datasets and initial weights at both: paired, each of them must show it"
    return [
        Claim(
            "α = 0.5: the delay in steps, log10 of the median",
            float(np.log10(np.median(delays[0.5]) / LEARNING_RATE[0.5])),
            3.5,
            0.5,
            "thousands: between 10³ and 10⁴",
        ),
        Claim(
            "share of datasets where α = 2 delays more than 0.5",
            float(np.mean(delays[2.0] > delays[0.5])),
            1.0,
            0.0,
            pairs,
        ),
        Claim(
            "share of datasets where the kernel ends better aligned at α = 0.5 than at 2",
            float(np.mean(turned[0.5] > turned[2.0])),
            1.0,
            0.0,
            pairs,
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses and the alignment of the kernel over time."""
    figure, (loss_panel, kernel_panel) = new_figure(2)
    for colour, alpha in zip(COLOURS, LEARNING_RATE, strict=False):
        run = data[f"simulation-{alpha:g}"]
        for name, kind in (("train_loss", "train"), ("test_loss", "test")):
            draw_curve(loss_panel, run[name], colour, label=f"α = {alpha:g}, {kind}", dashed=kind == "train")
        draw_curve(kernel_panel, run.kernel_alignment, colour, label=f"α = {alpha:g}")
    loss_panel.axhline(LEARNED, color="grey", linewidth=0.8, linestyle=":", label="a tenth of ⟨y²⟩")
    first = data["simulation-0.5"]
    for panel in (loss_panel, kernel_panel):
        set_axis(panel, "x", first.time, log=True)
        panel.legend(fontsize="small")
    loss_panel.set_ylabel("loss")
    log_losses(loss_panel)
    set_axis(kernel_panel, "y", first.kernel_alignment)
    return figure
