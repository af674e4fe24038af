"""Eq. 19: two layers. The printed loss is too large by the number of outputs, and its frozen kernel drifts off."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.comparison import compare
from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Scale
from solvable.papers.linear_grokking._shared import agreement, bessel_train_loss, marcum_test_loss
from solvable.plotting import COLOURS, draw_curve, log_losses, new_figure, set_axis
from solvable.training import GradientDescent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OUTPUTS, WIDTH = 5, 50
TRAINING = GradientDescent(learning_rate=0.5)
STEPS = np.array([0, 10, 30, 100, 300, 1000, 3000])


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and simulation of a network with a hidden layer, and eq. 19."""
    model = LinearEstimator(aspect_ratio=0.9, outputs=OUTPUTS, width=WIDTH, threshold=1e-4)
    dimension, seeds = (400, 40) if scale == "quick" else (1000, 60)
    return {
        "theory": model.predict(STEPS, TRAINING),
        "simulation": model.simulate(STEPS, TRAINING, dimension=dimension, seeds=seeds, key=19),
        "frozen": frozen_kernel(STEPS),
    }


def frozen_kernel(steps: np.ndarray) -> xr.Dataset:
    """Eq. 19 with the prefactor corrected: one layer at the rate eta / (2 d_out^2), times 1 / (2 d_h d_out)."""
    s = 4 * TRAINING.learning_rate / (2 * OUTPUTS**2) * np.maximum(steps, 1e-9)
    prefactor = 1 / (2 * WIDTH * OUTPUTS)
    losses = {
        "train_loss": ("time", prefactor * bessel_train_loss(0.9, s)),
        "test_loss": ("time", prefactor * marcum_test_loss(0.9, s)),
    }
    return xr.Dataset(losses, {"time": steps.astype(float)})


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The prefactor, agreement with simulation, and the drift away from the frozen kernel."""
    theory, simulation = data["theory"], data["simulation"]
    return [
        Claim("test loss at the start", float(theory.test_loss[0]), 1 / (2 * WIDTH * OUTPUTS), 1e-9,
              "|D₀|² / outputs = 1 / (2 width outputs)", relative=True, printed=1 / (2 * WIDTH)),
        *agreement("two layers", theory, simulation),
        _frozen_is_off(compare(theory, simulation), data["frozen"]),
    ]  # fmt: skip


def _frozen_is_off(comparison: xr.Dataset, frozen: xr.Dataset) -> Claim:
    """The single-rate form underestimates the training loss at late times, by many standard errors."""
    late = comparison.train_loss.sel(time=3000.0)
    error = float(late.sel(statistic="standard_error") / late.sel(statistic="simulation"))
    return Claim(
        "simulated training loss over frozen-kernel form at step 3000",
        float(late.sel(statistic="simulation") / frozen.train_loss.sel(time=3000.0)),
        float(late.sel(statistic="theory") / frozen.train_loss.sel(time=3000.0)),
        3 * error,
        "three standard errors over seeds",
        relative=True,
        printed=1 / OUTPUTS,
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Training and test loss by theory and simulation, and by the frozen kernel, corrected and as printed."""
    figure, panels = new_figure(2)
    curves = (
        (COLOURS[0], data["theory"], "this library"),
        (COLOURS[1], data["frozen"], "frozen kernel, prefactor corrected"),
        (COLOURS[2], data["frozen"] * OUTPUTS, "as printed"),
        (COLOURS[6], data["simulation"], "simulation"),
    )
    for panel, name in zip(panels, ("train_loss", "test_loss"), strict=True):
        for colour, dataset, label in curves:
            draw_curve(panel, dataset[name], colour, label)
        set_axis(panel, "x", data["theory"].time, log=True)
        log_losses(panel)
        panel.set_ylabel(name.replace("_", " "))
        panel.legend()
    return figure
