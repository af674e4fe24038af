"""Section 3.4.3: the loss falls from saddle to saddle, one drop per mode."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.diagonal_network import DiagonalNetwork
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._layer_reference import agreement, descend, on_flow_time
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, draw_curve, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIANCES = np.array([1.0, 1.0, 1.0, 1.0])
TARGETS = np.array([3.0, -1.5, 0.75, 0.35])
STARTS = (1e-2, 1e-5, 1e-10)
SIMULATED = STARTS[1]
# The largest start is drawn to show what becomes of the stairs when the stages overlap; nothing is claimed of it.
STAGED = STARTS[1:]
# The loss with the first modes learned exactly and the others not at all.
LEVELS = np.cumsum((VARIANCES * TARGETS**2 / 2)[::-1])[::-1]


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The staircase from each start, the loss on each of its plateaus, and runs of gradient descent from one start."""
    data = {}
    for start in STARTS:
        model = DiagonalNetwork.balanced(VARIANCES, TARGETS, start)
        theory = model.predict(np.linspace(0, 1.6 * _waiting(start), 800))
        size = variable("time", _gradient_size(theory), "size of the gradient", "|∇L|")
        data[f"theory-{start:g}"] = theory.assign(gradient_size=size)
        data[f"plateaus-{start:g}"] = _plateaus(model)
    model = DiagonalNetwork.balanced(VARIANCES, TARGETS, SIMULATED)
    times = np.linspace(0.2, 1.5 * _waiting(SIMULATED), 30)
    seeds, samples, rate = (16, 20_000, 0.005) if scale == "quick" else (60, 100_000, 0.002)
    data["expected"], data["simulation"] = descend(model, times, rate, samples=samples, seeds=seeds, key=4)
    return data


def _waiting(start: float) -> float:
    """The logarithm that sets all waiting times: in units of it the staircases come to lie on each other."""
    return float(np.log(1 / start))


def _gradient_size(curves: xr.Dataset) -> np.ndarray:
    pull = VARIANCES * (TARGETS - curves.strength.values)
    return np.sqrt((pull**2 * (curves.first.values**2 + curves.second.values**2)).sum(1))


def _plateaus(model: DiagonalNetwork) -> xr.Dataset:
    """Half times of the modes, and the loss between two stages, with their overlap.

    It is measured at the end of a stage and the beginning of the next, which for the overlap ε are the same moment.
    """
    overlap = model.stage_overlap().overlap
    moments = [float(model.emergence_time(float(eps)).emergence_time[k + 1]) for k, eps in enumerate(overlap)]
    return xr.Dataset(
        {
            "half_time": model.emergence_time(0.5).emergence_time,
            "overlap": overlap,
            "loss": variable(
                "stage", model.predict(moments).test_loss, "test loss between this stage and the next", "L"
            ),
        },
        {"moment": variable("stage", moments, "time between this stage and the next", units="flow time")},
    )


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Between two drops the loss is that of a saddle, up to the share that is still on its way; then descent."""
    made = []
    for start in STAGED:
        plateaus = data[f"plateaus-{start:g}"]
        for stage, eps in enumerate(plateaus.overlap.values):
            level, own = LEVELS[stage + 1], VARIANCES[stage] * TARGETS[stage] ** 2 / 2
            made.append(
                Claim(
                    f"R(0) = {start:g}: plateau after drop {stage + 1}",
                    float(plateaus.loss[stage]),
                    level,
                    float(eps**2 * own + 2 * eps * level + 1e-12),
                    f"both modes are within the overlap ε = {eps:.2g} of their saddle",
                )
            )
        order = float(np.all(np.diff(plateaus.half_time) > 0))
        made.append(
            Claim(f"R(0) = {start:g}: modes learned in the order of S E[x²]", order, 1.0, 0.0, "a fact, not a fit")
        )
    return [*made, agreement(f"R(0) = {SIMULATED:g}", data["expected"], data["simulation"], "strength", 0.01)]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Loss and size of the gradient over time in units of the waiting time."""
    figure, (loss_panel, gradient_panel) = new_figure(2)
    for colour, start in zip(COLOURS, STARTS, strict=False):
        theory = data[f"theory-{start:g}"]
        time = theory.time / _waiting(start)
        loss_panel.plot(time, theory.test_loss, color=colour, label=f"R(0) = {start:g}")
        gradient_panel.plot(time, theory.gradient_size, color=colour)
    points = on_flow_time(data["simulation"]).test_loss
    points = points.assign_coords(time=points.time / _waiting(SIMULATED))
    draw_curve(loss_panel, points, COLOURS[1], "gradient descent")
    for level in LEVELS:
        loss_panel.axhline(level, color="grey", linewidth=0.7, linestyle=":")
    loss_panel.set_yscale("log")
    loss_panel.set_ylim(0.01, 10)
    loss_panel.set_ylabel(f"{theory.test_loss.attrs['long_name']}, L (dotted: saddles)")
    loss_panel.legend()
    gradient_panel.set_yscale("log")
    gradient_panel.set_ylim(1e-5, 20)
    gradient_panel.set_ylabel("size of the gradient, |∇L|")
    for panel in (loss_panel, gradient_panel):
        panel.set_xlabel("training time over ln(1 / R(0))")
    return figure
