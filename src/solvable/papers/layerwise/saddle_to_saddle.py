"""Section 3.4.3: the loss falls from saddle to saddle, one mode a drop."""

import numpy as np
import xarray as xr

from solvable.models.diagonal_network import DiagonalNetwork
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._layer_reference import agreement, descend, on_flow_time
from solvable.plotting import COLOURS, draw_curve, new_figure

VARIANCES = np.array([1.0, 1.0, 1.0, 1.0])
TARGETS = np.array([3.0, -1.5, 0.75, 0.35])
STARTS = (1e-2, 1e-5, 1e-10)


def reproduce(scale: Scale) -> Reproduction:
    figure, (loss_panel, pull_panel) = new_figure(2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for colour, start in zip(COLOURS, STARTS, strict=False):
        model = DiagonalNetwork.balanced(VARIANCES, TARGETS, start)
        # In units of the logarithm that sets all waiting times, the staircases come to lie on each other.
        unit = np.log(1 / start)
        times = np.linspace(0, 1.6 * unit, 800)
        theory = datasets[f"theory-{start:g}"] = model.predict(times)
        loss_panel.plot(times / unit, theory.test_loss, color=colour, label=f"R(0) = {start:g}")
        pull_panel.plot(times / unit, _gradient_size(model, theory), color=colour)
        if start < 1e-3:
            # The largest start is drawn to show what becomes of the stairs when the stages overlap.
            claims += _plateaus(model, start)
    model = DiagonalNetwork.balanced(VARIANCES, TARGETS, STARTS[1])
    unit = np.log(1 / STARTS[1])
    sparse = np.linspace(0.2, 1.5 * unit, 30)
    seeds, samples, rate = (16, 20_000, 0.005) if scale == "quick" else (60, 100_000, 0.002)
    expected, simulation = descend(model, sparse, rate, samples=samples, seeds=seeds, key=4)
    datasets["simulation"] = simulation
    points = on_flow_time(simulation).test_loss
    draw_curve(loss_panel, points.assign_coords(time=points.time / unit), COLOURS[1], "descent")
    claims.append(agreement("R(0) = 1e-05", expected, simulation, "strength", 0.01))
    for level in _levels():
        loss_panel.axhline(level, color="grey", linewidth=0.7, linestyle=":")
    loss_panel.set_yscale("log")
    loss_panel.set_ylim(0.01, 10)
    loss_panel.set_ylabel(f"{theory.test_loss.attrs['long_name']}, L (dotted: saddles)")
    loss_panel.legend()
    pull_panel.set_yscale("log")
    pull_panel.set_ylim(1e-5, 20)
    pull_panel.set_ylabel("size of the gradient, |∇L|")
    for panel in (loss_panel, pull_panel):
        panel.set_xlabel("training time over ln(1 / R(0))")
    return Reproduction(datasets, figure, claims)


def _levels() -> np.ndarray:
    """The loss with the first modes learned exactly and the others not at all."""
    return np.cumsum((VARIANCES * TARGETS**2 / 2)[::-1])[::-1]


def _gradient_size(model: DiagonalNetwork, curves: xr.Dataset) -> np.ndarray:
    pull = model.variances * (model.target_scales - curves.strength.values)
    return np.sqrt((pull**2 * (curves.first.values**2 + curves.second.values**2)).sum(1))


def _plateaus(model: DiagonalNetwork, start: float) -> list[Claim]:
    """The loss half-way between two half times is that of a saddle, up to the share that is still on its way."""
    half = model.emergence_time(0.5).emergence_time.values
    overlap = model.stage_overlap().overlap.values
    claims = []
    for stage, eps in enumerate(overlap):
        # Between the end of this stage and the begin of the next, which for the overlap ε are the same moment.
        moment = float(model.emergence_time(float(eps)).emergence_time[stage + 1])
        measured = float(model.predict([moment]).test_loss[0])
        level = _levels()[stage + 1]
        own = VARIANCES[stage] * TARGETS[stage] ** 2 / 2
        slack = eps**2 * own + 2 * eps * level + 1e-12
        claims.append(
            Claim(
                f"R(0) = {start:g}: plateau after drop {stage + 1}",
                measured,
                level,
                float(slack),
                f"both modes are within the overlap ε = {eps:.2g} of their saddle",
            )
        )
    order = float(np.all(np.diff(half) > 0))
    claims.append(
        Claim(f"R(0) = {start:g}: modes learned in the order of S E[x²]", order, 1.0, 0.0, "a fact, not a fit")
    )
    return claims
