"""Fig. 4: the loss over compute for networks of many sizes whose features learn, and its envelope."""

import math
from typing import TYPE_CHECKING

import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._shared import (
    CAPACITY,
    agreement,
    fitted,
    noisy_envelope,
    over_flow_time,
    shades,
    small_steps,
)
from solvable.papers.feature_scaling.table1 import tabulated
from solvable.plotting import draw_curve, log_losses, new_figure
from solvable.timegrid import log_times, whole_steps
from solvable.training import GradientDescent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RICHNESS = 0.75
TASKS = {"hard": 0.5, "easy": 1.25, "super-easy": 1.75}
SIZES = {"quick": (16, 64, 256, 1024), "full": tuple(2**power for power in range(4, 13))}
# Networks that are simulated, their modes, and how long: steps so small that descent is nearly a flow.
SIMULATED = {"quick": (16, 64), "full": (16, 32, 64, 128, 256, 512, 1024)}
MODES = {"quick": 400, "full": 4000}
STEPS = {"quick": 400, "full": 4000}
LEARNING_RATE = 0.05
# Batch noise decides the super-easy task; gradient flow knows its strength, learning rate over batch.
NOISE = 0.2
# Exponents still drift at the paper's budgets; table1 follows them to 1e9.
FIRST, LAST = 1e4, 1e6


def reproduce(scale: Scale) -> Reproduction:
    figure, panels = new_figure(3)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for panel, (task, source) in zip(panels, TASKS.items(), strict=True):
        model = FeatureScaling(CAPACITY, source, richness=RICHNESS, modes=math.inf)
        noise = NOISE if task == "super-easy" else 0.0
        datasets |= _draw_sizes(panel, task, model, noise, SIZES[scale])
        if noise == 0:
            found, made = _simulated(panel, task, model, scale)
            datasets |= found
            claims += made
        budgets = log_times(FIRST, LAST, 3 if scale == "quick" else 9)
        best = noisy_envelope(model, budgets, noise, 8) if noise else model.compute_optimal(budgets, progress=False)
        datasets[f"{task}-envelope"] = best
        exponent = tabulated(source, rich=True)[0]
        line = log_times(30, LAST, 5)
        anchored = float(best.test_loss[-1]) * (line / LAST) ** -exponent
        panel.plot(line, anchored, "k--", linewidth=1.1, label=f"$C^{{-{exponent:.3f}}}$")
        panel.plot(best.budget, best.test_loss, "k*", markersize=8, label="optimum")
        panel.set(xscale="log", xlabel="compute, C = N t", ylabel="test loss")
        panel.set_title(f"{task}, β = {source:g}, γ = {RICHNESS:g}", fontsize="medium")
        log_losses(panel)
        panel.legend(fontsize="small", loc="lower left")
        claims.append(
            Claim(
                f"{task}, β = {source:g}: compute exponent over C = {FIRST:.0e} ... {LAST:.0e}",
                fitted(best.test_loss, FIRST, LAST, "budget"),
                exponent,
                0.03,
                "the approach at the paper's budgets; table1 has it within 0.01 at 1e7 ... 1e9",
            )
        )
    return Reproduction(datasets, figure, claims)


def _draw_sizes(
    panel: "Axes", task: str, model: FeatureScaling, noise: float, sizes: tuple[int, ...]
) -> dict[str, xr.Dataset]:
    datasets = {}
    for colour, size in zip(shades(len(sizes)), sizes, strict=True):
        # At its plateau a network has nothing more to show, and noise keeps time steps short there.
        times = log_times(1, min(3e5 / size, (1 if noise else 4) * size**CAPACITY), 40)
        curve = small_steps(model.replace(features=size), times, noise, 8)
        datasets[f"{task}-{size}"] = curve
        draw_curve(panel, curve.test_loss.assign_coords(time=size * curve.time.values), colour, f"N = {size}")
    return datasets


def _simulated(
    panel: "Axes", task: str, model: FeatureScaling, scale: Scale
) -> tuple[dict[str, xr.Dataset], list[Claim]]:
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    training = GradientDescent(LEARNING_RATE)
    steps = whole_steps(log_times(1 / LEARNING_RATE, STEPS[scale], 8))
    colours = dict(zip(SIZES[scale], shades(len(SIZES[scale])), strict=True))
    for size in SIMULATED[scale]:
        network = model.replace(features=size, modes=MODES[scale])
        runs = over_flow_time(network.simulate(steps, training, seeds=32, key=3, progress=False))
        theory = over_flow_time(network.predict(steps, training, solver="slot-march", per_decade=12))
        datasets |= {f"{task}-simulation-{size}": runs, f"{task}-simulation-theory-{size}": theory}
        shown = runs.test_loss.assign_coords(time=size * steps * LEARNING_RATE)
        draw_curve(panel, shown, colours[size])
        label = f"theory, {MODES[scale]} modes" if size == SIMULATED[scale][0] else None
        panel.plot(shown.time, theory.test_loss, color="black", linewidth=0.8, label=label)
        own = 0.04 + 2.0 / size
        because = f"theory is of leading order in 1/N, and of flow where runs take steps of {LEARNING_RATE:g}"
        claims.append(agreement(f"{task}, N = {size}", theory, runs, own, because))
    return datasets, claims
