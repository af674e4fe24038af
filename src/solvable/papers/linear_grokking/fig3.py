"""Fig. 3: weight decay, and the grokking delay that grows with it until test accuracy is out of reach."""

import numpy as np
import xarray as xr
from scipy.optimize import brentq
from scipy.special import erf

from solvable.models.linear_estimator import LinearEstimator
from solvable.models.linear_estimator.grokking import loss_threshold
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import (
    DESCENT,
    FLOW,
    agreement,
    draw_run,
    held_against_simulation,
    quadrature_losses,
    resolvent_square,
)
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.timegrid import log_times, whole_steps


def reproduce(scale: Scale) -> Reproduction:
    figure, (loss_panel, accuracy_panel, delay_panel) = new_figure(3)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for colour, decay in zip(COLOURS, (1e-5, 1e-3, 1e-2), strict=False):
        model, training = LinearEstimator(aspect_ratio=0.9), DESCENT.replace(weight_decay=decay)
        times = whole_steps(log_times(1, 1e5, 14))
        theory, simulation, _ = held_against_simulation(model, training, times, scale, key=3)
        datasets |= {f"theory-{decay:g}": theory, f"simulation-{decay:g}": simulation}
        claims += agreement(f"γ = {decay:g}", theory, simulation, ("train_loss", "test_loss", "test_accuracy"))
        draw_run((loss_panel, accuracy_panel), theory, simulation, colour, f"γ = {decay:g}")
    claims += _saturation_claims() + _delay_claims()

    decays, ratios = np.geomspace(1e-6, 1e-1, 160), np.array([0.5, 0.7, 0.9, 0.95])
    diagram = LinearEstimator().phase_diagram(training=FLOW, aspect_ratio=ratios, weight_decay=decays)
    datasets["delay"] = diagram
    for colour, ratio in zip(COLOURS, ratios, strict=False):
        delay_panel.plot(decays, diagram.delay.sel(aspect_ratio=ratio), color=colour, label=f"λ = {ratio:g}")
        critical = LinearEstimator(aspect_ratio=float(ratio)).critical_weight_decay().critical_weight_decay
        delay_panel.axvline(critical, color=colour, linewidth=0.7, linestyle=":")
    delay_panel.set_yscale("log")
    set_axis(delay_panel, "x", diagram.weight_decay, log=True)
    set_axis(delay_panel, "y", diagram.delay)
    delay_panel.legend(title="dotted: never beyond")
    return Reproduction(datasets, figure, claims)


def _saturation_claims() -> list[Claim]:
    """Where accuracy ends at strong weight decay, and the decay beyond which 95 % is never reached."""
    model = LinearEstimator(aspect_ratio=0.9)
    end = float(model.predict([1e7], FLOW.replace(weight_decay=1e-2)).test_accuracy[0])
    expected = float(erf(np.sqrt(model.threshold / resolvent_square(0.9, 0.005))))
    threshold = float(loss_threshold(model, 0.95))
    critical = brentq(lambda decay: resolvent_square(0.9, decay / 2) / 2 - threshold, 1e-5, 1e-1, xtol=1e-15)
    reason = "quadrature against the closed form of the Stieltjes transform"
    return [
        Claim("γ = 0.01: test accuracy saturates at", end, expected, 1e-9, reason, relative=True),
        Claim(
            "critical weight decay at λ = 0.9",
            float(model.critical_weight_decay().critical_weight_decay),
            critical,
            1e-8,
            reason,
            relative=True,
        ),
    ]


def _delay_claims() -> list[Claim]:
    """The delay grows with weight decay; the paper says it is unaffected or decreases."""
    model = LinearEstimator(aspect_ratio=0.9)
    bare = float(model.grokking_time(training=FLOW).delay)
    threshold = float(loss_threshold(model, 0.95))
    claims = []
    for decay in (1e-4, 1e-3, 1.5e-3):
        training = FLOW.replace(weight_decay=decay)
        crossings = [
            brentq(lambda log_t, kind=kind: quadrature_losses(model, training, np.exp(log_t))[kind] - threshold, 3, 12)  # noqa: B023
            for kind in (0, 1)
        ]
        claims.append(
            Claim(
                f"γ = {decay:g}: delay over that without weight decay",
                float(model.grokking_time(training=training).delay) / bare,
                float(np.exp(crossings[1]) - np.exp(crossings[0])) / bare,
                1e-6,
                "adaptive quadrature and root finding, tolerance of the latter",
                relative=True,
                printed="at most 1",
            )
        )
    return claims
