"""Figure of the page on identifiability: two sets of parameters with one curve, and profiles."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from solvable.inference import Run, feature_curves
from solvable.inference.feature_scaling_law import FeatureScalingLaw
from solvable.inference.fitting import Fit, fit
from solvable.inference.profiles import covariance, profile
from solvable.inference.splines import Grid
from solvable.inference.theory_laws import Curve
from solvable.plotting import COLOURS, log_losses, new_figure, save_figure

TIMES = np.geomspace(1, 1000, 40)
WIDTHS = (16.0, 64.0, 256.0)
NOISE = 0.01


def curve(capacity: float, source: float, richness: float, width: float, times: np.ndarray) -> np.ndarray:
    logs = feature_curves.emulated(capacity, source, richness, width)
    return Curve(Grid(np.log(feature_curves.TIMES)), logs, feature_curves.initial(capacity, source))(times)


def runs(widths: tuple[float, ...], seed: int) -> list[Run]:
    generator, found = np.random.default_rng(seed), []
    for width in widths:
        loss = (curve(1.5, 0.5, 1.0, width, TIMES) + 0.02) * np.exp(NOISE * generator.normal(size=TIMES.size))
        sizes = {} if math.isinf(width) else {"width": width}
        found.append(Run(f"N = {width:g}", TIMES, loss, sizes=sizes, group="all"))
    return found


def profiles(found: Fit) -> dict[str, object]:
    spread = covariance(found)
    return {one.label: profile(found, number, spread) for number, one in enumerate(found.problem.space[:3])}


def main() -> None:
    figure, axes = new_figure(3, width=4.4)
    single = fit(FeatureScalingLaw().prepare(runs((math.inf,), 1)), runs((math.inf,), 1))
    several = fit(FeatureScalingLaw().prepare(runs(WIDTHS, 5)), runs(WIDTHS, 5))
    _draw_two(axes[0], single)
    for ax, name in zip(axes[1:], ("capacity", "source"), strict=True):
        for number, (label, found) in enumerate((("one curve", single), ("three widths", several))):
            one = profiles(found)[name]
            ax.plot(one.values, one.deviances, ".-", color=COLOURS[number], label=f"{label}: {one.identified}")
        ax.axhline(3.84, color="grey", linestyle=":", linewidth=0.8)
        ax.axvline({"capacity": 1.5, "source": 0.5}[name], color="grey", linewidth=0.8)
        ax.set(xlabel=name, ylabel="rise of the deviance", ylim=(0, 9), title=f"is {name} determined?")
        ax.legend(fontsize="small")
    save_figure(figure, str(Path(__file__).parents[1] / "identifiability.png"))


def _draw_two(ax: Any, found: Fit) -> None:
    """Fits with two values of the capacity, continued to a width that was not measured."""
    run = found.problem.runs[0]
    ax.plot(run.steps, run.loss, ".", color="grey", markersize=4, label="one run, N = ∞")
    points = [found.problem.minimise(found.best.coordinates, frozen={0: value}) for value in (1.25, 1.7)]
    sets = [(point.coordinates, point.coefficients) for point in points]
    for number, (coordinates, scales) in enumerate(sets):
        theta = found.problem.theta(coordinates, "all")
        label = f"α = {theta['capacity']:.2f}, γ = {theta['richness']:.2g}"
        for width, style in ((math.inf, "-"), (32.0, "--")):
            own = curve(theta["capacity"], theta["source"], theta["richness"], width, theta["time_unit"] * TIMES)
            text = label if math.isinf(width) else "the same, N = 32"
            ax.plot(TIMES, scales[0] * own + scales[1], style, color=COLOURS[number], label=text, linewidth=1.3)
    ax.set(xscale="log", xlabel="time", ylabel="loss", title="one curve, two explanations")
    log_losses(ax)
    ax.legend(fontsize="small")


if __name__ == "__main__":
    main()
