"""Fig. 3: the noise of batches, on a hard task and on a super-easy one."""

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
    fitted,
    rich_exponent,
    shades,
    small_steps,
)
from solvable.plotting import COLOURS, draw_curve, log_losses, new_figure
from solvable.timegrid import log_times, whole_steps
from solvable.training import SGD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TASKS = {"hard": 0.5, "super-easy": 3.6}
BATCHES = {"quick": (1, 4, 16, 64), "full": (1, 2, 4, 8, 16, 32, 64)}
FEATURES = {"quick": 128, "full": 1024}
MODES = {"quick": 400, "full": 4000}
STEPS = {"quick": 100, "full": 300}
LEARNING_RATE = 0.1
NOISE = 0.1
TRACE = 2.612375348685488
# Source, richness, and the exponent of what noise adds, where it is not that of the loss itself.
TRANSIENTS = ((3.6, 0.0), (3.6, 1.0), (1.2, 0.0), (0.5, 0.0))


def reproduce(scale: Scale) -> Reproduction:
    figure, (hard_panel, easy_panel, late_panel) = new_figure(3)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for panel, (task, source) in zip((hard_panel, easy_panel), TASKS.items(), strict=True):
        found, made = _steps(panel, task, source, scale)
        datasets |= found
        claims += made
    found, made = _late(late_panel, scale)
    return Reproduction(datasets | found, figure, claims + made)


def _steps(panel: "Axes", task: str, source: float, scale: Scale) -> tuple[dict[str, xr.Dataset], list[Claim]]:
    """Panels a and b: whole steps, features that learn, against simulation."""
    measured = whole_steps(log_times(1, STEPS[scale], 10))
    smooth = np.arange(0.0, STEPS[scale] + 1)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for colour, batch in zip(shades(len(BATCHES[scale])), BATCHES[scale], strict=True):
        model = FeatureScaling(CAPACITY, source, features=FEATURES[scale], modes=MODES[scale])
        training = SGD(LEARNING_RATE, batch_size=batch)
        # The term of each mode that the paper's theory drops, and that matters for small batches.
        theory = model.predict(smooth, training, exact_batch=True)
        simulation = model.simulate(measured, training, seeds=32, key=2, progress=False)
        draw_both(panel, theory.isel(time=slice(1, None)), simulation, colour, f"B = {batch}")
        datasets |= {f"{task}-theory-{batch}": theory, f"{task}-simulation-{batch}": simulation}
        own = 0.03 + 0.2 / batch
        because = "theory is of leading order in 1/N and 1/B: 3 % where N >= 128 and B >= 8, more for smaller batches"
        claims.append(agreement(f"{task}, B = {batch}", theory.sel(time=measured), simulation, own, because))
    if source < 1:
        draw_power(panel, theory.test_loss, rich_exponent(source), "$t^{-2\\beta/(1+\\beta)}$", at=0.98, shift=0.8)
    panel.set(xscale="log", xlabel=f"steps of size {LEARNING_RATE:g}", ylabel="test loss")
    panel.set_title(f"{task}, β = {source:g}, γ = 1, N = {FEATURES[scale]}", fontsize="medium")
    log_losses(panel)
    panel.legend(fontsize="small")
    return datasets, claims


def _late(panel: "Axes", scale: Scale) -> tuple[dict[str, xr.Dataset], list[Claim]]:
    """What noise adds in gradient flow of infinitely many features, where the exponents can be seen."""
    last = 1e4 if scale == "quick" else 1e6
    first, times = last / 10, log_times(10, last, 25)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for colour, (source, richness) in zip(COLOURS, TRANSIENTS, strict=False):
        model = FeatureScaling(CAPACITY, source, richness=richness, modes=math.inf)
        noisy = small_steps(model, times, NOISE)
        quiet = small_steps(model, noisy.time.values, 0.0)
        extra = noisy.test_loss - quiet.test_loss
        name = "lazy" if richness == 0 else "rich"
        expected = min(source, 2 - 1 / CAPACITY)
        draw_curve(panel, extra, colour, f"β = {source:g}, {name}: $t^{{-{expected:.3g}}}$")
        draw_power(panel, extra, expected, "", at=0.9, shift=1.0)
        datasets[f"noise-{source:g}-{name}"] = extra.to_dataset(name="test_loss")
        because = "approach at these times, and the grid: 0.6 % of what noise adds"
        if source < 2 - 1 / CAPACITY:
            because += "; noise fed by the loss itself falls with it"
        printed = "1.333 (eq. 8)" if expected < 2 - 1 / CAPACITY else "0.333 (eq. 83)"
        label = f"β = {source:g}, {name}: exponent of what noise adds over t = {first:.0e} ... {last:.0e}"
        claims.append(Claim(label, fitted(extra, first, last), expected, 0.03, because, printed=printed))
        if source < 1:
            share = float((extra / quiet.test_loss)[-1])
            gain = NOISE * TRACE / 2
            claims.append(
                Claim(
                    f"β = {source:g}, lazy: what noise adds, over the loss without",
                    share,
                    gain / (1 - gain),
                    0.05,
                    "each step's noise feeds itself; approach at this time",
                    relative=True,
                    printed="→ 0",
                )
            )
    panel.set(xscale="log", yscale="log", xlabel="flow time, t", ylabel="$L_B - L$")
    panel.set_title(f"what noise adds, η/B = {NOISE:g}, N → ∞", fontsize="medium")
    panel.legend(fontsize="small")
    return datasets, claims
