"""Fig. 4.2: the loss of the multilinear model as a power law of time, data and parameters."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Scale
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.timegrid import log_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPONENTS = (0.3, 0.6, 0.9)
RESOURCES = ("time", "samples", "basis")


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The loss over each resource, and over its last decade, for three exponents of the skills' frequencies."""
    points = 40 if scale == "quick" else 200
    counts, sizes = (np.unique(np.round(np.geomspace(1, last, points))) for last in (1e6, 1e4))
    grids: dict[str, Any] = {"time": log_times(1, 1e6, points), "samples": counts, "basis": sizes}
    decades: dict[str, Any] = {"time": [1e5, 1e6], "samples": [1e5, 1e6], "basis": [1e3, 1e4]}
    data = {}
    for alpha in EXPONENTS:
        model = SkillModel(alpha, skills=math.inf)
        methods: dict[str, Callable[..., xr.Dataset]] = {
            "time": model.predict,
            "samples": model.data_emergence,
            "basis": model.parameter_emergence,
        }
        for name, method in methods.items():
            data[f"{name}-{alpha:g}"] = method(grids[name])
            data[f"{name}-{alpha:g}-decade"] = method(decades[name])
    return data


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The exponents and the prefactors of the power laws."""
    return [
        claim
        for alpha in EXPONENTS
        for name in RESOURCES
        for claim in _claims(alpha, name, data[f"{name}-{alpha:g}-decade"])
    ]


def _law(alpha: float, name: str) -> tuple[float, float]:
    """Exponent and prefactor of the loss as a power law of a resource."""
    model = SkillModel(alpha, skills=math.inf)
    return float(model.exponents()[name]), float(model.prefactors()[name])


def _claims(alpha: float, name: str, decade: xr.Dataset) -> list[Claim]:
    """The local exponent over the last decade, and the prefactor that the exact sum shows there."""
    exponent, prefactor = _law(alpha, name)
    losses, last = decade.test_loss.values, float(decade[name][-1])
    # The integral that stands for the sum beyond N starts at N + 1/2.
    shift = 0.5 if name == "basis" else 0.0
    tolerance, reason = (
        (1e-3, "N + 1/2 stands where the law has N: a change of order 1/N = 1e-3 in the exponent")
        if name == "basis"
        else (1e-4, "the sum differs from its integral by order 1/D, or for the time exponentially little")
    )
    label = f"α = {alpha:g}, {name}"
    return [
        Claim(
            f"{label}: exponent of the last decade", float(np.log10(losses[0] / losses[1])), exponent, tolerance, reason
        ),
        Claim(
            f"{label}: prefactor",
            float(losses[1] * (last + shift) ** exponent),
            prefactor,
            1e-5,
            "exact sum against the asymptotic law, whose next term is of order 1/D and 1/N^2",
            relative=True,
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The loss over time, samples and basis size, with the power laws that it follows."""
    figure, panels = new_figure(3)
    for panel, name in zip(panels, RESOURCES, strict=True):
        for colour, alpha in zip(COLOURS, EXPONENTS, strict=False):
            loss = data[f"{name}-{alpha:g}"].test_loss
            resource = loss[name]
            exponent, prefactor = _law(alpha, name)
            late = resource[resource >= resource.max() ** 0.25]
            panel.plot(resource, loss, color=colour, linewidth=1.6, label=f"α = {alpha:g}")
            law = prefactor * late**-exponent
            panel.plot(late, law, color="black", linestyle=":", linewidth=1.6, zorder=3)
            set_axis(panel, "x", resource, log=True)
            set_axis(panel, "y", loss, log=True)
    panels[0].plot([], [], color="black", linestyle=":", label="power law with its prefactor")
    panels[0].legend(loc="lower left")
    return figure
