"""Eq. 19: two layers. The printed loss is too large by the number of outputs, and its frozen kernel drifts off."""

import numpy as np
import xarray as xr

from solvable.comparison import compare
from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import agreement, bessel_train_loss, marcum_test_loss
from solvable.plotting import COLOURS, draw_curve, log_losses, new_figure, set_axis
from solvable.training import GradientDescent

OUTPUTS, WIDTH = 5, 50
TRAINING = GradientDescent(learning_rate=0.5)
STEPS = np.array([0, 10, 30, 100, 300, 1000, 3000])


def frozen_kernel(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eq. 19 with the prefactor corrected: one layer at the rate eta / (2 d_out^2), times 1 / (2 d_h d_out)."""
    s = 4 * TRAINING.learning_rate / (2 * OUTPUTS**2) * np.maximum(steps, 1e-9)
    scale = 1 / (2 * WIDTH * OUTPUTS)
    return scale * bessel_train_loss(0.9, s), scale * marcum_test_loss(0.9, s)


def reproduce(scale: Scale) -> Reproduction:
    model = LinearEstimator(aspect_ratio=0.9, outputs=OUTPUTS, width=WIDTH, threshold=1e-4)
    dimension, seeds = (400, 40) if scale == "quick" else (1000, 60)
    theory = model.predict(STEPS, TRAINING)
    simulation = model.simulate(STEPS, TRAINING, dimension=dimension, seeds=seeds, key=19)
    comparison = compare(theory, simulation)
    train, test = frozen_kernel(STEPS)
    frozen = xr.Dataset(
        {"train_loss": ("time", train), "test_loss": ("time", test)}, coords={"time": STEPS.astype(float)}
    )
    figure, panels = new_figure(2)
    for panel, name in zip(panels, ("train_loss", "test_loss"), strict=True):
        for colour, dataset, label in (
            (COLOURS[0], theory, "this library"),
            (COLOURS[1], frozen, "frozen kernel, prefactor corrected"),
            (COLOURS[2], frozen * OUTPUTS, "as printed"),
        ):
            draw_curve(panel, dataset[name], colour, label)
        draw_curve(panel, simulation[name], COLOURS[6], "simulation")
        set_axis(panel, "x", theory.time, log=True)
        log_losses(panel)
        panel.set_ylabel(name.replace("_", " "))
        panel.legend()
    claims = [
        Claim("test loss at the start", float(theory.test_loss[0]), 1 / (2 * WIDTH * OUTPUTS), 1e-9,
              "|D₀|² / outputs = 1 / (2 width outputs)", relative=True, printed=1 / (2 * WIDTH)),
        *agreement("two layers", theory, simulation),
        _frozen_is_off(comparison, frozen),
    ]  # fmt: skip
    return Reproduction({"theory": theory, "simulation": simulation, "frozen": frozen}, figure, claims)


def _frozen_is_off(comparison: xr.Dataset, frozen: xr.Dataset) -> Claim:
    """The single-rate form underestimates the training loss at late times, by many standard errors."""
    at = comparison.train_loss.sel(time=3000.0)
    error = float(at.sel(statistic="standard_error") / at.sel(statistic="simulation"))
    return Claim(
        "simulated training loss over frozen-kernel form at step 3000",
        float(at.sel(statistic="simulation") / frozen.train_loss.sel(time=3000.0)),
        float(at.sel(statistic="theory") / frozen.train_loss.sel(time=3000.0)),
        3 * error,
        "three standard errors over seeds",
        relative=True,
        printed=1 / OUTPUTS,
    )
