"""Fig. 3: weight decay, and the grokking delay that grows with it until test accuracy is out of reach."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy.optimize import brentq
from scipy.special import erf

from solvable.models.linear_estimator import LinearEstimator
from solvable.models.linear_estimator.grokking import loss_threshold
from solvable.papers.claims import Claim, Scale
from solvable.papers.linear_grokking._shared import (
    DESCENT,
    FLOW,
    agreement,
    draw_run,
    pair,
    quadrature_losses,
    resolvent_square,
    theory_and_simulation,
)
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.timegrid import log_times, whole_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DECAYS = (1e-5, 1e-3, 1e-2)
# Weight decays at which the delay is claimed, relative to that without.
DELAYING_DECAYS = (1e-4, 1e-3, 1.5e-3)
ASPECT_RATIOS = (0.5, 0.7, 0.9, 0.95)
MODEL = LinearEstimator(aspect_ratio=0.9)


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and simulation at each weight decay, delays, where they cease to exist, and a late accuracy."""
    data: dict[str, xr.Dataset] = {}
    for decay in DECAYS:
        training, times = DESCENT.replace(weight_decay=decay), whole_steps(log_times(1, 1e5, 14))
        data |= theory_and_simulation(f"{decay:g}", MODEL, training, times, scale, key=3)
    many = np.geomspace(1e-6, 1e-1, 160)
    data["delay"] = MODEL.phase_diagram(training=FLOW, aspect_ratio=np.array(ASPECT_RATIOS), weight_decay=many)
    critical = [LinearEstimator(aspect_ratio=ratio).critical_weight_decay() for ratio in ASPECT_RATIOS]
    data["critical"] = _over("aspect_ratio", ASPECT_RATIOS, critical)
    decays = (0.0, *DELAYING_DECAYS)
    times_reached = [MODEL.grokking_time(training=FLOW.replace(weight_decay=decay)) for decay in decays]
    data["times"] = _over("weight_decay", decays, times_reached)
    data["late"] = MODEL.predict([1e7], FLOW.replace(weight_decay=1e-2))
    return data


def _over(name: str, values: tuple[float, ...], parts: list[xr.Dataset]) -> xr.Dataset:
    return xr.concat(parts, name, combine_attrs="drop_conflicts").assign_coords({name: list(values)})


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Theory against simulation, where accuracy ends, and the delay over weight decay."""
    made: list[Claim] = []
    for decay in DECAYS:
        variables = ("train_loss", "test_loss", "test_accuracy")
        made += agreement(f"γ = {decay:g}", *pair(data, f"{decay:g}"), variables)
    return [*made, *_saturation_claims(data["late"], data["critical"]), *_delay_claims(data["times"].delay)]


def _saturation_claims(late: xr.Dataset, critical: xr.Dataset) -> list[Claim]:
    """Where accuracy ends at strong weight decay, and the decay beyond which 95 % is never reached."""
    expected = float(erf(np.sqrt(MODEL.threshold / resolvent_square(0.9, 0.005))))
    threshold = float(loss_threshold(MODEL, 0.95))
    last = brentq(lambda decay: resolvent_square(0.9, decay / 2) / 2 - threshold, 1e-5, 1e-1, xtol=1e-15)
    reason = "quadrature against the closed form of the Stieltjes transform"
    return [
        Claim(
            "γ = 0.01: test accuracy saturates at",
            float(late.test_accuracy[0]),
            expected,
            1e-9,
            reason,
            relative=True,
        ),
        Claim(
            "critical weight decay at λ = 0.9",
            float(critical.critical_weight_decay.sel(aspect_ratio=0.9)),
            last,
            1e-8,
            reason,
            relative=True,
        ),
    ]


def _delay_claims(delay: xr.DataArray) -> list[Claim]:
    """The delay grows with weight decay; the paper says it is unaffected or decreases."""
    bare = float(delay.sel(weight_decay=0.0))
    made = []
    for decay in DELAYING_DECAYS:
        train, test = _crossings(decay)
        made.append(
            Claim(
                f"γ = {decay:g}: delay over that without weight decay",
                float(delay.sel(weight_decay=decay)) / bare,
                (test - train) / bare,
                1e-6,
                "adaptive quadrature and root finding, tolerance of the latter",
                relative=True,
                printed="at most 1",
            )
        )
    return made


def _crossings(decay: float) -> tuple[float, float]:
    """When training and test accuracy reach 95 %, by adaptive quadrature."""
    threshold, training = float(loss_threshold(MODEL, 0.95)), FLOW.replace(weight_decay=decay)

    def excess(log_time: float, kind: int) -> float:
        return quadrature_losses(MODEL, training, np.exp(log_time))[kind] - threshold

    train, test = (float(np.exp(brentq(excess, 3, 12, args=(kind,)))) for kind in (0, 1))
    return train, test


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses, accuracies, and the delay over weight decay up to where it ceases to exist."""
    figure, (loss_panel, accuracy_panel, delay_panel) = new_figure(3)
    for colour, decay in zip(COLOURS, DECAYS, strict=False):
        draw_run((loss_panel, accuracy_panel), *pair(data, f"{decay:g}"), colour, f"γ = {decay:g}")
    delay, critical = data["delay"].delay, data["critical"].critical_weight_decay
    for colour, ratio in zip(COLOURS, ASPECT_RATIOS, strict=False):
        delay_panel.plot(delay.weight_decay, delay.sel(aspect_ratio=ratio), color=colour, label=f"λ = {ratio:g}")
        delay_panel.axvline(critical.sel(aspect_ratio=ratio), color=colour, linewidth=0.7, linestyle=":")
    delay_panel.set_yscale("log")
    set_axis(delay_panel, "x", delay.weight_decay, log=True)
    set_axis(delay_panel, "y", delay)
    delay_panel.legend(title="dotted: never beyond")
    return figure
