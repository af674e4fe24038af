"""A prediction beyond the paper: on hard tasks the noise of the batches stops feature learning.

On average, and to first order in ``eps = learning rate / batch size``, the noise of mini-batches adds a drift
``dw/dt = -(eps / 2) richness L Tr(Lambda) w`` to the weights w. The growth of the kernel, and with it the improved
exponent of hard tasks, ends where this drift balances the signal. An estimate of where: with
``v_k = w*_k exp(-lambda_k M t)`` the signal ``2 richness sum lambda_k (w*_k - v_k) v_k`` is ``2 richness (2^beta - 1)``
times the loss without noise, which is ``1 - e M`` times the loss with it, ``e = (eps / 2) Tr(Lambda)``. So, whatever
the richness,

    M_max - 1 = (1 - 2^-beta) (1 / e - 1)
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.feature_scaling._shared import (
    CAPACITY,
    TRACE,
    agreement,
    finish,
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
    from matplotlib.figure import Figure

SOURCE = 0.4
# The strength of the noise, learning rate over batch size, and until when it is followed.
NOISES = {0.0: 1e6, 0.001: 1e6, 0.01: 1e5, 0.05: 1e4}
SIMULATED = 0.05
# Modes, seeds and the last time of the simulation. Modes left out would have added to the loss, and so to the noise.
RUNS = {"quick": (300, 16, 50.0), "full": (1000, 24, 200.0)}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory of infinitely many modes at each noise, and theory and simulation of finitely many."""
    data = {}
    model = FeatureScaling(CAPACITY, SOURCE, modes=math.inf)
    for noise, last in NOISES.items():
        times = log_times(1, last, round(6 * math.log10(last)) + 1)
        data[f"theory-{noise:g}"] = small_steps(model, times, noise, per_decade=6 if scale == "quick" else 10)
    return data | _simulated(scale)


def _simulated(scale: Scale) -> dict[str, xr.Dataset]:
    """Networks of infinitely many features on a finite number of modes, with and without noise."""
    modes, seeds, last = RUNS[scale]
    model = FeatureScaling(CAPACITY, SOURCE, modes=modes)
    steps = whole_steps(log_times(1.0, last, 12) / SIMULATED)
    cases: tuple[tuple[str, Training, Any, int], ...] = (
        ("noisy", SGD(SIMULATED, batch_size=1), "slot-march", seeds),
        ("quiet", GradientDescent(SIMULATED), "exponential-midpoint", 1),
    )
    data: dict[str, xr.Dataset] = {}
    for name, training, solver, runs in cases:
        simulation = model.simulate(steps, training, seeds=runs, key=1, progress=False)
        theory = model.predict(steps, training, solver=solver, per_decade=12)
        data |= {f"{name}-theory": over_flow_time(theory), f"{name}-simulation": over_flow_time(simulation)}
    return data


def largest_growth(noise: float) -> float:
    """Where the growth of the kernel ends, estimated from the bulk of the kernel alone."""
    return 1 + (1 - 2**-SOURCE) * (2 / (noise * TRACE) - 1)


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Noise ends the growth of the kernel in theory, and slows it down in simulation."""
    late = ((0.01, 1e4, 1e5), (0.05, 1e3, 1e4))
    return [claim for case in late for claim in _late_claims(data, *case)] + _simulation_claims(data)


def _late_claims(data: Mapping[str, xr.Dataset], noise: float, first: float, last: float) -> list[Claim]:
    """Growth and exponent in the last decade of the theory, with and without noise."""
    noisy, quiet = data[f"theory-{noise:g}"], data["theory-0"]
    growth, free = (curve.kernel_growth.sel(time=[first, last], method="nearest").values for curve in (noisy, quiet))
    return [
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
            fitted(noisy.test_loss, first, last),
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


def _simulation_claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Theory against simulation, and by how much noise slows down the growth."""
    _, seeds, last = RUNS[scale_of(data)]
    theory, simulation = data["noisy-theory"], data["noisy-simulation"]
    # Orders beyond the first in (eta/2B) M Tr Lambda = 0.3 are dropped, and steps are not infinitesimal.
    because = f"second order in the noise, steps of {SIMULATED:g}; to t = {last:g}"
    expected = float(theory.kernel_growth[-1] / data["quiet-theory"].kernel_growth[-1])
    ratio = simulation.kernel_growth.isel(time=-1) / float(data["quiet-simulation"].kernel_growth[0, -1])
    error = float(ratio.std("seed", ddof=1)) / math.sqrt(seeds)
    return [
        agreement("with noise, kernel growth", theory, simulation, 0.06, because, "kernel_growth"),
        agreement("with noise, loss", theory, simulation, 0.06, because),
        Claim(
            f"kernel growth with noise over that without at t = {last:g}, in simulation",
            float(ratio.mean()),
            expected,
            0.06 * expected + 3 * error,
            because + "; 3 standard errors",
            printed="1 (SGD noise has no effect on hard tasks)",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The growth of the kernel and the local exponent of the loss in theory, and the growth in simulation."""
    figure, (growth_panel, slope_panel, check_panel) = new_figure(3)
    for colour, noise in zip(("black", *COLOURS), NOISES, strict=False):
        label, curve = "no noise" if noise == 0 else f"η/B = {noise:g}", data[f"theory-{noise:g}"]
        draw_curve(growth_panel, curve.kernel_growth, colour, label)
        if noise > 0:
            growth_panel.axhline(largest_growth(noise), color=colour, linestyle=":", linewidth=1)
        draw_curve(slope_panel, local_exponent(curve.test_loss), colour, label)
    title = f"hard task, β = {SOURCE:g}, γ = 1, theory; dotted: estimate"
    finish(growth_panel, title, "flow time, t", "growth of the kernel, M")
    for value, text in ((SOURCE, "lazy, β"), (rich_exponent(SOURCE), "rich, 2β/(1+β)")):
        slope_panel.axhline(value, color="grey", linestyle=":", linewidth=1)
        slope_panel.text(1.2, value + 0.004, text, fontsize="small", color="grey")
    slope_panel.set(xscale="log", xlabel="flow time, t", ylabel="local exponent of the loss", ylim=(0.36, 0.62))
    slope_panel.set_title("theory", fontsize="medium")
    _draw_simulation(check_panel, data)
    return figure


def _draw_simulation(panel: "Axes", data: Mapping[str, xr.Dataset]) -> None:
    modes, seeds, _ = RUNS[scale_of(data)]
    for name, label, colour in (("noisy", f"η/B = {SIMULATED:g}", COLOURS[2]), ("quiet", "no noise", "black")):
        for kind in ("theory", "simulation"):
            draw_curve(panel, data[f"{name}-{kind}"].kernel_growth, colour, f"{label}, {kind}")
    title = f"{modes} modes, steps of {SIMULATED:g}, {seeds} seeds"
    finish(panel, title, "flow time, t", "growth of the kernel, M")
