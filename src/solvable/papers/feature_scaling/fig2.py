"""Fig. 2: losses of easy and hard tasks at several richnesses, and at finite numbers of features against simulation."""

import math
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._shared import (
    CAPACITY,
    agreement,
    draw_both,
    draw_power,
    fall,
    fitted,
    rich_exponent,
    shades,
)
from solvable.plotting import draw_curve, log_losses, new_figure
from solvable.timegrid import log_times, whole_steps
from solvable.training import GradientDescent, GradientFlow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TASKS = {"easy": 1.2, "hard": 0.4}
RICHNESS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0)
SIZES = {"quick": (16, 32, 64, 128), "full": tuple(2**power for power in range(4, 12))}
MODES = {"quick": 400, "full": 4000}
STEPS = {"quick": 100, "full": 400}
SEEDS = {"quick": 64, "full": 32}
# Smaller where steps are many: the kernel of a hard task grows until descent is unstable.
LEARNING_RATE = {"quick": 0.2, "full": 0.1}


def reproduce(scale: Scale) -> Reproduction:
    figure, panels = new_figure(2, rows=2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for column, (task, source) in enumerate(TASKS.items()):
        found, made = _rich(panels[0][column], task, source)
        datasets |= found
        claims += made
        found, made = _finite(panels[1][column], task, source, scale)
        datasets |= found
        claims += made
    claims += [_endpoint_claim(source) for source in (0.4, 0.8, 1.2, 1.8, 2.5)]
    return Reproduction(datasets, figure, claims)


def _rich(panel: "Axes", task: str, source: float) -> tuple[dict[str, xr.Dataset], list[Claim]]:
    """Panels a and b: infinitely many features, the whole population."""
    times = log_times(1, 1e4, 49)
    curves = {
        richness: FeatureScaling(CAPACITY, source, richness=richness, modes=math.inf).predict(times, GradientFlow())
        for richness in RICHNESS
    }
    for colour, (richness, curve) in zip(shades(len(RICHNESS)), curves.items(), strict=True):
        draw_curve(panel, curve.test_loss, colour, f"γ = {richness:g}")
    draw_power(panel, curves[0.0].test_loss, source, "$t^{-\\beta}$", shift=1.5, at=0.6)
    if source < 1:
        draw_power(
            panel, curves[2.0].test_loss, rich_exponent(source), "$t^{-2\\beta/(1+\\beta)}$", linestyle="--", at=0.6
        )
    panel.set(xscale="log", xlabel="flow time, t", ylabel="test loss")
    panel.set_title(f"{task}, β = {source:g}, N, B → ∞", fontsize="medium")
    log_losses(panel)
    panel.legend(fontsize="small", loc="lower left")

    losses = np.array([curve.test_loss.values for curve in curves.values()])
    later = times >= 2
    claims = [
        Claim(
            f"{task}: share of times at which more richness means less loss",
            float((np.diff(losses[:, later], axis=0) < 0).all(0).mean()),
            1.0,
            0.0,
            "features that learn speed up easy and hard tasks alike",
        ),
        Claim(
            f"{task}: exponent at γ = 2 over t = 1e3 ... 1e4",
            fitted(curves[2.0].test_loss, 1e3, 1e4),
            rich_exponent(source),
            0.02,
            "the exponent is approached slowly; fig1 follows it to t = 1e6",
        ),
    ]
    return {f"{task}-{richness:g}": curve for richness, curve in curves.items()}, claims


def _finite(panel: "Axes", task: str, source: float, scale: Scale) -> tuple[dict[str, xr.Dataset], list[Claim]]:
    """Panels c and d: finite networks of richness 1, in steps of gradient descent on the whole population."""
    measured = whole_steps(log_times(1, STEPS[scale], 12))
    smooth = np.arange(0.0, STEPS[scale] + 1)
    training = GradientDescent(LEARNING_RATE[scale])
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    colours = shades(len(SIZES[scale]))
    for colour, size in zip(colours, SIZES[scale], strict=True):
        model = FeatureScaling(CAPACITY, source, features=size, modes=MODES[scale])
        theory = model.predict(smooth, training)
        simulation = model.simulate(measured, training, seeds=SEEDS[scale], key=1, progress=False)
        draw_both(panel, theory.isel(time=slice(1, None)), simulation, colour, f"N = {size}")
        panel.axhline(float(model.limit().test_loss), color=colour, linestyle=":", linewidth=0.9)
        datasets |= {f"{task}-theory-{size}": theory, f"{task}-simulation-{size}": simulation}
        # Corrections to the mean over networks of order 1/N: measured -11 % at N = 32, -1 % at N = 128.
        claims.append(
            agreement(
                f"{task}, N = {size}",
                theory.sel(time=measured),
                simulation,
                max(0.02, 3.0 / size),
                "theory is of leading order in 1/N",
            )
        )
    panel.set(xscale="log", xlabel=f"steps of size {LEARNING_RATE[scale]:g}", ylabel="test loss")
    panel.set_title(f"{task}, β = {source:g}, γ = 1; dotted: t → ∞", fontsize="medium")
    log_losses(panel)
    panel.legend(fontsize="small")
    return datasets, claims


def _endpoint_claim(source: float) -> Claim:
    """What is left after infinite time falls as a power of the number of features."""
    sizes = 2 ** np.arange(20, 23)
    losses = [
        float(FeatureScaling(CAPACITY, source, features=int(size), modes=math.inf).limit().test_loss) for size in sizes
    ]
    return Claim(
        f"β = {source:g}: model bottleneck, exponent of N over 2^20 ... 2^22",
        fall(sizes, losses),
        CAPACITY * min(1.0, source),
        0.02,
        "the first correction falls as N^(-α|β - 1|)",
        printed=None if source <= 1 else round(CAPACITY * min(2.0, source), 12),
    )
