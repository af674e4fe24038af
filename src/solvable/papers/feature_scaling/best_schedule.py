"""A prediction beyond the paper: the best learning-rate schedule, and the exponents of the loss in the number of steps.

For lazy networks on new samples, by the costate equations. Without label noise the noise of the batches dies with the
loss: a decay at the end buys a prefactor, and only a warm-up at the start changes the exponent of very easy tasks, from
``min(beta, 2 - 1/alpha)`` to ``min(beta, 3 - 1/alpha)``. With label noise hard tasks keep ``beta`` and easy ones reach
``alpha beta / (1 + alpha beta)``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.feature_scaling._shared import CAPACITY
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Source, standard deviation of the label noise, and batch size: exponents are near their limits with little noise of
# batches, or, where labels are noisy and the task is easy, with much of it.
CASES = {
    "hard": (0.4, 0.0, 16),
    "easy": (1.5, 0.0, 16),
    "very easy": (3.0, 0.0, 16),
    "hard, noisy labels": (0.2, 0.5, 16),
    "easy, noisy labels": (0.8, 0.5, 1),
}
HORIZONS = {"quick": (500, 1000, 2000), "full": (1000, 3000, 10_000, 30_000)}
LARGEST = 0.5
# How far local exponents are from their limits at these horizons; they approach them slowly.
APPROACH = {"quick": 0.04, "full": 0.03}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The best schedule of each task beside usual ones; and of one task with batches that vary."""
    data = {
        name: _task(name).best_schedule(HORIZONS[scale], LARGEST, batch, progress=False)
        for name, (_, _, batch) in CASES.items()
    }
    last = HORIZONS[scale][-1]
    data["varied batches"] = _task("easy").best_schedule(last, LARGEST, 16, vary_batch=True, progress=False)
    return data


def _task(name: str) -> FeatureScaling:
    source, noise, _ = CASES[name]
    return FeatureScaling(CAPACITY, source, richness=0.0, modes=np.inf, label_noise=noise)


def expected_exponent(source: float, noise: float) -> float:
    """The exponent of the best schedule, written out again so that claims test the model against it."""
    if noise:
        return source if source < 1 - 1 / CAPACITY else CAPACITY * source / (1 + CAPACITY * source)
    return min(source, 3 - 1 / CAPACITY)


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Exponents of the best schedules and of constant rates, warm-up and decay, and batches at both ends."""
    scale = scale_of(data)
    last = HORIZONS[scale][-1]
    found = [
        Claim(
            f"{name}: exponent of the best schedule at T = {last}",
            _exponent(data[name], "optimal"),
            expected_exponent(*case[:2]),
            APPROACH[scale],
            "approach at these horizons",
        )
        for name, case in CASES.items()
    ]
    found.append(
        Claim(
            f"very easy: exponent of the best constant rate at T = {last}",
            _exponent(data["very easy"], "tuned constant"),
            2 - 1 / CAPACITY,
            APPROACH[scale],
            "approach at these horizons",
        )
    )
    rates = data["very easy"].learning_rate.sel(schedule="optimal").values
    begin, end = np.flatnonzero(rates >= rates.max() / 2)[[0, -1]] / rates.size
    found += [
        Claim.at_least("very easy: fraction of the run until half of the peak", begin, 0.1, "a warm-up that is needed"),
        Claim.at_most("very easy: fraction of the run that decays", 1 - end, 0.15, "it shrinks as runs get longer"),
    ]
    batches = data["varied batches"].batch_size.sel(schedule="optimal").values
    middle = float(np.median(batches))
    found += [
        Claim.at_least("best batch at the start over the median one", batches[0] / middle, 1.5, "the loss is large"),
        Claim.at_least(
            "best batch at the end over the median one", batches[-1] / middle, 1.5, "noise is not forgotten"
        ),
        Claim.at_most(
            "loss with batches that vary over that with fixed ones",
            float(data["varied batches"].test_loss[-1, 0] / data["easy"].test_loss[-1, 0]),
            1.0,
            "the same number of samples",
        ),
    ]
    return found


def _exponent(found: xr.Dataset, schedule: str) -> float:
    return float(found.exponent.sel(schedule=schedule)[-1])


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The best schedules, what the best tuned schedules of other shapes lose, and the best batches."""
    figure, (rates, losses, batches) = new_figure(3)
    for colour, name in zip(COLOURS, CASES, strict=False):
        found = data[name]
        best = found.learning_rate.sel(schedule="optimal")
        rates.plot((found.step + 0.5) / found.sizes["step"], best, color=colour, label=name)
        for style, schedule in (("-", "optimal"), (":", "tuned constant")):
            loss = found.test_loss.sel(schedule=schedule)
            label = name if schedule == "optimal" else None
            losses.plot(found.horizon, loss / loss[0], style, color=colour, label=label)
    rates.set(yscale="log", ylim=(1e-3, 1), xlabel="fraction of the run", ylabel="best learning rate, η")
    losses.set(xscale="log", yscale="log", xlabel="steps of the run, T", ylabel="loss, relative; dotted: constant rate")
    varied = data["varied batches"]
    batches.plot((varied.step + 0.5) / varied.sizes["step"], varied.batch_size.sel(schedule="optimal"), color="black")
    batches.set(yscale="log", xlabel="fraction of the run", ylabel="best batch size, B (easy)")
    rates.legend(fontsize="x-small")
    return figure
