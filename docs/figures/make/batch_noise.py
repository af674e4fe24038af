"""Figure of the page on identifiability: batches of three sizes, and what they tell of the noise of batches."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from solvable.inference import Run, feature_curves
from solvable.inference.feature_scaling_law import FeatureScalingLaw
from solvable.inference.fitting import Fit, fit
from solvable.inference.profiles import BetterOptimumError, Profile, covariance, profile
from solvable.inference.splines import Grid
from solvable.inference.theory_laws import Curve
from solvable.plotting import COLOURS, log_losses, new_figure, save_figure

TIMES = np.geomspace(1, 300, 40)
BATCH_NOISE, SCATTER, FLOOR = 0.1, 0.01, 0.02
SETS = {"B = 4 alone": (4.0,), "B = 16 and 4": (16.0, 4.0), "full batches, B = 16 and 4": (math.inf, 16.0, 4.0)}


def run(size: float, seed: int) -> Run:
    """A curve of the theory with a floor, and scatter of its records."""
    logs = feature_curves.emulated(1.5, 0.5, 1.0, math.inf, BATCH_NOISE / size)
    loss = Curve(Grid(np.log(feature_curves.TIMES)), logs, feature_curves.initial(1.5, 0.5))(TIMES) + FLOOR
    scatter = np.exp(SCATTER * np.random.default_rng(seed).normal(size=TIMES.size))
    sizes = {} if math.isinf(size) else {"batch_size": size}
    name = "full batches" if math.isinf(size) else f"B = {size:g}"
    return Run(name, TIMES, loss * scatter, sizes=sizes, group="all")


def noise_profile(found: Fit) -> Profile:
    """The profile of the noise, from a better optimum where it finds one."""
    place = [one.label for one in found.problem.space].index("batch_noise")
    try:
        return profile(found, place, covariance(found))
    except BetterOptimumError as better:
        return noise_profile(Fit(found.problem, found.problem.minimise(better.point.coordinates), []))


def main() -> None:
    """Draw the figure."""
    figure, axes = new_figure(2, width=5.2)
    runs = {size: run(size, seed) for seed, size in enumerate((math.inf, 16.0, 4.0))}
    fits = {
        label: fit(FeatureScalingLaw().prepare(chosen), chosen)
        for label, chosen in ((label, [runs[size] for size in sizes]) for label, sizes in SETS.items())
    }
    _draw_curves(axes[0], list(fits.values())[-1])
    for number, (label, found) in enumerate(fits.items()):
        one = noise_profile(found)
        axes[1].plot(one.values, one.deviances, ".-", color=COLOURS[number], label=f"{label}: {one.identified}")
    axes[1].axhline(3.84, color="grey", linestyle=":", linewidth=0.8)
    axes[1].axvline(BATCH_NOISE, color="grey", linewidth=0.8)
    axes[1].set(xscale="log", xlabel="batch_noise", ylabel="rise of the deviance", ylim=(0, 9))
    axes[1].set_title("is the noise of the batches determined?")
    axes[1].legend(fontsize="small")
    save_figure(figure, str(Path(__file__).parents[1] / "batch-noise.png"))


def _draw_curves(ax: Any, found: Fit) -> None:
    """Records of all runs, and the law that was fitted to them together."""
    for number, (one, logs) in enumerate(zip(found.problem.runs, found.best.logs, strict=True)):
        ax.plot(one.steps, one.loss, ".", color=COLOURS[number], markersize=4, label=one.name)
        ax.plot(one.steps, np.exp(logs), color=COLOURS[number], linewidth=1.2)
    ax.set(xscale="log", xlabel="time", ylabel="loss", title="one law, three batch sizes")
    log_losses(ax)
    ax.legend(fontsize="small")


if __name__ == "__main__":
    main()
