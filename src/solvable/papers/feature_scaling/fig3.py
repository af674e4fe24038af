"""Fig. 3: the noise of mini-batches, on a hard task and on a super-easy one."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.feature_scaling._shared import (
    CAPACITY,
    TRACE,
    agreement,
    draw_both,
    draw_power,
    finish,
    fitted,
    rich_exponent,
    shades,
    small_steps,
)
from solvable.plotting import COLOURS, draw_curve, new_figure
from solvable.timegrid import log_times, whole_steps
from solvable.training import SGD

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TASKS = {"hard": 0.5, "super-easy": 3.6}
BATCHES = {"quick": (1, 4, 16, 64), "full": (1, 2, 4, 8, 16, 32, 64)}
FEATURES = {"quick": 128, "full": 1024}
MODES = {"quick": 400, "full": 4000}
STEPS = {"quick": 100, "full": 300}
LEARNING_RATE = 0.1
# Learning rate over batch size in gradient flow, the sources and richnesses at which its effect is followed, and until
# when.
NOISE = 0.1
TRANSIENTS = ((3.6, 0.0), (3.6, 1.0), (1.2, 0.0), (0.5, 0.0))
LAST_TIME = {"quick": 1e4, "full": 1e6}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Steps of SGD in theory and simulation, and the loss that noise adds in gradient flow."""
    data: dict[str, xr.Dataset] = {}
    measured = whole_steps(log_times(1, STEPS[scale], 10))
    every = np.arange(0.0, STEPS[scale] + 1)
    for task, source in TASKS.items():
        model = FeatureScaling(CAPACITY, source, features=FEATURES[scale], modes=MODES[scale])
        for batch in BATCHES[scale]:
            training = SGD(LEARNING_RATE, batch_size=batch)
            # The exact theory keeps the term of each mode that the paper's drops, and that matters for small batches.
            data[f"{task}-theory-{batch}"] = model.predict(every, training, exact_batch=True)
            data[f"{task}-simulation-{batch}"] = model.simulate(measured, training, seeds=32, key=2, progress=False)
    times = log_times(10, LAST_TIME[scale], 25)
    return data | {_name(source, richness): _added(source, richness, times) for source, richness in TRANSIENTS}


def _name(source: float, richness: float) -> str:
    return f"noise-{source:g}-{_regime(richness)}"


def _regime(richness: float) -> str:
    return "lazy" if richness == 0 else "rich"


def _added(source: float, richness: float, times: np.ndarray) -> xr.Dataset:
    """The loss that noise adds with infinitely many features, for which the exponents can be seen, and that without."""
    model = FeatureScaling(CAPACITY, source, richness=richness, modes=math.inf)
    noisy = small_steps(model, times, NOISE).test_loss
    quiet = small_steps(model, noisy.time.values, 0.0).test_loss
    added = (noisy - quiet).assign_attrs(long_name="test loss added by batch noise", units="1")
    return xr.Dataset(
        {"added_loss": added, "quiet_loss": quiet.assign_attrs(long_name="test loss without batch noise")}
    )


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Theory against simulation for each batch size, and the exponents of what noise adds."""
    made: list[Claim] = []
    because = "theory is of leading order in 1/N and 1/B: 3 % where N >= 128 and B >= 8, more for smaller batches"
    for task in TASKS:
        for batch in BATCHES[scale_of(data)]:
            theory, simulation = data[f"{task}-theory-{batch}"], data[f"{task}-simulation-{batch}"]
            theory = theory.sel(time=simulation.time)
            made.append(agreement(f"{task}, B = {batch}", theory, simulation, 0.03 + 0.2 / batch, because))
    for source, richness in TRANSIENTS:
        made += _added_claims(data[_name(source, richness)], source, richness, LAST_TIME[scale_of(data)])
    return made


def _expected(source: float) -> float:
    """The exponent of what noise adds: where it is fed by the loss itself, it falls with it."""
    return min(source, 2 - 1 / CAPACITY)


def _added_claims(found: xr.Dataset, source: float, richness: float, last: float) -> list[Claim]:
    expected, regime = _expected(source), _regime(richness)
    with_the_loss = source < 2 - 1 / CAPACITY
    because = "approach at these times, and the grid: 0.6 % of what noise adds"
    made = [
        Claim(
            f"β = {source:g}, {regime}: exponent of what noise adds over t = {last / 10:.0e} ... {last:.0e}",
            fitted(found.added_loss, last / 10, last),
            expected,
            0.03,
            because + ("; noise fed by the loss itself falls with it" if with_the_loss else ""),
            printed="1.333 (eq. 8)" if with_the_loss else "0.333 (eq. 83)",
        )
    ]
    if source < 1:
        gain = NOISE * TRACE / 2
        made.append(
            Claim(
                f"β = {source:g}, lazy: what noise adds, over the loss without",
                float((found.added_loss / found.quiet_loss)[-1]),
                gain / (1 - gain),
                0.05,
                "each step's noise feeds itself; approach at this time",
                relative=True,
                printed="→ 0",
            )
        )
    return made


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses for each batch size, and what noise adds in gradient flow."""
    figure, (*step_panels, added_panel) = new_figure(3)
    for panel, (task, source) in zip(step_panels, TASKS.items(), strict=True):
        _draw_steps(panel, data, task, source)
    for colour, (source, richness) in zip(COLOURS, TRANSIENTS, strict=False):
        added, expected = data[_name(source, richness)].added_loss, _expected(source)
        draw_curve(added_panel, added, colour, f"β = {source:g}, {_regime(richness)}: $t^{{-{expected:.3g}}}$")
        draw_power(added_panel, added, expected, "", anchor=0.9, shift=1.0)
    finish(added_panel, f"loss added by noise, η/B = {NOISE:g}, N → ∞", "flow time, t", "$L_B - L$")
    return figure


def _draw_steps(panel: "Axes", data: Mapping[str, xr.Dataset], task: str, source: float) -> None:
    scale = scale_of(data)
    batches = BATCHES[scale]
    for colour, batch in zip(shades(len(batches)), batches, strict=True):
        draw_both(panel, data[f"{task}-theory-{batch}"], data[f"{task}-simulation-{batch}"], colour, f"B = {batch}")
    if source < 1:
        curve, label = data[f"{task}-theory-{batches[-1]}"].test_loss, "$t^{-2\\beta/(1+\\beta)}$"
        draw_power(panel, curve, rich_exponent(source), label, anchor=0.98, shift=0.8)
    title = f"{task}, β = {source:g}, γ = 1, N = {FEATURES[scale]}"
    finish(panel, title, f"steps of size {LEARNING_RATE:g}", "test loss")
