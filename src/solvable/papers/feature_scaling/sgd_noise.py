"""A prediction beyond the paper: on hard tasks the noise of the batches stops feature learning.

Weights w that are kicked by the noise of batches learn features for it, and forget: to first order in
``eps = learning rate / batch`` there is a drift ``dw/dt = -(eps / 2) richness L Tr(Lambda) w``. The kernel's growth,
and with it the improved exponent of hard tasks, ends where the drift meets the signal. An estimate of where: with
``v_k = w*_k exp(-lambda_k M t)`` the signal ``2 richness sum lambda_k (w*_k - v_k) v_k`` is ``2 richness (2^beta - 1)``
times the loss without noise, which is ``1 - e M`` times the loss with it, ``e = (eps / 2) Tr(Lambda)``. So, whatever
the richness,

    M_max - 1 = (1 - 2^-beta) (1 / e - 1)
"""

import math
from typing import TYPE_CHECKING, Any

import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._shared import (
    CAPACITY,
    agreement,
    fitted,
    local_exponent,
    over_flow_time,
    rich_exponent,
    small_steps,
)
from solvable.plotting import COLOURS, draw_curve, new_figure
from solvable.timegrid import log_times, whole_steps
from solvable.training import SGD, GradientDescent, Training

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SOURCE = 0.4
# The strength of the noise, and until when it is followed.
NOISES = {0.0: 1e6, 0.001: 1e6, 0.01: 1e5, 0.05: 1e4}
SIMULATED = 0.05
TRACE = 2.612375348685488
# Modes, seeds and the last time of the simulation. Modes left out would have kept up the loss, and so the noise.
RUNS = {"quick": (300, 16, 50.0), "full": (1000, 24, 200.0)}


def reproduce(scale: Scale) -> Reproduction:
    figure, (growth_panel, slope_panel, check_panel) = new_figure(3)
    curves = {noise: _theory(noise, last, scale) for noise, last in NOISES.items()}
    for colour, (noise, curve) in zip(("black", *COLOURS), curves.items(), strict=False):
        label = "no noise" if noise == 0 else f"η/B = {noise:g}"
        draw_curve(growth_panel, curve.kernel_growth, colour, label)
        if noise > 0:
            growth_panel.axhline(largest_growth(noise), color=colour, linestyle=":", linewidth=1)
        draw_curve(slope_panel, local_exponent(curve.test_loss), colour, label)
    growth_panel.set(xscale="log", yscale="log", xlabel="flow time, t", ylabel="growth of the kernel, M")
    growth_panel.set_title(f"hard task, β = {SOURCE:g}, γ = 1, theory; dotted: estimate", fontsize="medium")
    growth_panel.legend(fontsize="small")
    for value, text in ((SOURCE, "lazy, β"), (rich_exponent(SOURCE), "rich, 2β/(1+β)")):
        slope_panel.axhline(value, color="grey", linestyle=":", linewidth=1)
        slope_panel.text(1.2, value + 0.004, text, fontsize="small", color="grey")
    slope_panel.set(xscale="log", xlabel="flow time, t", ylabel="local exponent of the loss", ylim=(0.36, 0.62))
    slope_panel.set_title("theory", fontsize="medium")
    found, claims = _simulated(check_panel, scale)
    datasets = {f"theory-{noise:g}": curve for noise, curve in curves.items()} | found
    return Reproduction(datasets, figure, [*_claims(curves), *claims])


def largest_growth(noise: float) -> float:
    """Where the growth of the kernel ends, estimated from the bulk of the kernel alone."""
    return 1 + (1 - 2**-SOURCE) * (2 / (noise * TRACE) - 1)


def _theory(noise: float, last: float, scale: Scale) -> xr.Dataset:
    """In the limit of small steps the learning rate and the batch size matter through their quotient alone."""
    times = log_times(1, last, round(6 * math.log10(last)) + 1)
    model = FeatureScaling(CAPACITY, SOURCE, modes=math.inf)
    return small_steps(model, times, noise, per_decade=6 if scale == "quick" else 10)


def _claims(curves: dict[float, xr.Dataset]) -> list[Claim]:
    claims = []
    for noise, first, last in ((0.01, 1e4, 1e5), (0.05, 1e3, 1e4)):
        growth = curves[noise].kernel_growth.sel(time=[first, last], method="nearest").values
        free = curves[0.0].kernel_growth.sel(time=[first, last], method="nearest").values
        claims += [
            Claim(
                f"η/B = {noise:g}: growth of the kernel over t = {first:.0e} ... {last:.0e}, as an exponent",
                math.log10(growth[1] / growth[0]),
                0.0,
                0.05,
                "it has all but stopped; without noise the exponent is 1 - χ = 0.43",
                printed="0.43 (SGD noise has no effect on hard tasks)",
            ),
            Claim(
                f"no noise: growth of the kernel over t = {first:.0e} ... {last:.0e}, as an exponent",
                math.log10(free[1] / free[0]),
                1 - rich_exponent(SOURCE),
                0.01,
                "approach at these times",
            ),
            Claim(
                f"η/B = {noise:g}: exponent of the loss over t = {first:.0e} ... {last:.0e}",
                fitted(curves[noise].test_loss, first, last),
                SOURCE,
                0.02,
                "it has returned to the lazy one but for the last of the growth",
                printed=f"{rich_exponent(SOURCE):.3f} (eq. 9)",
            ),
            Claim(
                f"η/B = {noise:g}: kernel growth at t = {last:.0e}",
                growth[1],
                largest_growth(noise),
                0.08,
                "an estimate: without the spike that the kernel grows, and before the end",
                relative=True,
            ),
        ]
    return claims


def _simulated(panel: "Axes", scale: Scale) -> tuple[dict[str, xr.Dataset], list[Claim]]:
    """Networks of infinitely many features on a finite number of modes, with and without noise."""
    modes, seeds, last = RUNS[scale]
    model = FeatureScaling(CAPACITY, SOURCE, modes=modes)
    steps = whole_steps(log_times(1.0, last, 12) / SIMULATED)
    datasets: dict[str, xr.Dataset] = {}
    cases: tuple[tuple[str, Training, Any, str, int], ...] = (
        ("noisy", SGD(SIMULATED, batch_size=1), "slot-march", COLOURS[2], seeds),
        ("quiet", GradientDescent(SIMULATED), "exponential-midpoint", "black", 1),
    )
    for name, training, solver, colour, runs in cases:
        simulation = over_flow_time(model.simulate(steps, training, seeds=runs, key=1, progress=False))
        theory = over_flow_time(model.predict(steps, training, solver=solver, per_decade=12))
        label = f"η/B = {SIMULATED:g}" if name == "noisy" else "no noise"
        draw_curve(panel, theory.kernel_growth, colour, f"{label}, theory")
        draw_curve(panel, simulation.kernel_growth, colour, f"{label}, simulation")
        datasets |= {f"{name}-theory": theory, f"{name}-simulation": simulation}
    panel.set(xscale="log", yscale="log", xlabel="flow time, t", ylabel="growth of the kernel, M")
    panel.set_title(f"{modes} modes, steps of {SIMULATED:g}, {seeds} seeds", fontsize="medium")
    panel.legend(fontsize="small")

    theory, simulation = datasets["noisy-theory"], datasets["noisy-simulation"]
    # Orders beyond the first in (eta/2B) M Tr Lambda = 0.3 are dropped, and steps are not infinitesimal.
    because = f"second order in the noise, steps of {SIMULATED:g}; to t = {last:g}"
    claims = [
        agreement("with noise, kernel growth", theory, simulation, 0.06, because, "kernel_growth"),
        agreement("with noise, loss", theory, simulation, 0.06, because),
    ]
    runs = simulation.kernel_growth.isel(time=-1)
    expected = float(theory.kernel_growth[-1] / datasets["quiet-theory"].kernel_growth[-1])
    share = runs / float(datasets["quiet-simulation"].kernel_growth[0, -1])
    error = float(share.std("seed", ddof=1)) / math.sqrt(seeds)
    claims.append(
        Claim(
            f"kernel growth with noise over that without at t = {last:g}, in simulation",
            float(share.mean()),
            expected,
            0.06 * expected + 3 * error,
            because + "; 3 standard errors",
            printed="1 (SGD noise has no effect on hard tasks)",
        )
    )
    return datasets, claims
