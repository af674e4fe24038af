"""Fig. 4.2: the loss of the multilinear model as a power law of time, data and parameters."""

import math

import numpy as np

from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.timegrid import log_times

EXPONENTS = (0.3, 0.6, 0.9)


def reproduce(scale: Scale) -> Reproduction:
    points = 40 if scale == "quick" else 200
    figure, panels = new_figure(3)
    datasets, claims = {}, []
    for colour, alpha in zip(COLOURS, EXPONENTS, strict=False):
        model = SkillModel(alpha, skills=math.inf)
        curves = {
            "time": model.predict(log_times(1, 1e6, points)),
            "samples": model.data_emergence(np.unique(np.round(np.geomspace(1, 1e6, points)))),
            "basis": model.parameter_emergence(np.unique(np.round(np.geomspace(1, 1e4, points)))),
        }
        exponents, prefactors = model.exponents(), model.prefactors()
        for panel, (name, curve) in zip(panels, curves.items(), strict=True):
            resource = curve[name]
            law = float(prefactors[name]) * resource ** -float(exponents[name])
            panel.plot(resource, curve.test_loss, color=colour, linewidth=1.6, label=f"α = {alpha:g}")
            shown = resource >= resource.max() ** 0.25
            panel.plot(resource[shown], law[shown], color="black", linestyle=":", linewidth=1.6, zorder=3)
            set_axis(panel, "x", resource, log=True)
            set_axis(panel, "y", curve.test_loss, log=True)
            datasets[f"{name}-{alpha:g}"] = curve
            claims += _claims(model, name, float(exponents[name]), float(prefactors[name]))
    panels[0].plot([], [], color="black", linestyle=":", label="power law with its prefactor")
    panels[0].legend(loc="lower left")
    return Reproduction(datasets, figure, claims)


def _claims(model: SkillModel, name: str, exponent: float, prefactor: float) -> list[Claim]:
    """The local exponent over the last decade, and the prefactor that the exact sum shows there."""
    last = 1e4 if name == "basis" else 1e6
    if name == "time":
        losses = model.predict([last / 10, last]).test_loss.values
    elif name == "samples":
        losses = model.data_emergence([last / 10, last]).test_loss.values
    else:
        losses = model.parameter_emergence([last / 10, last]).test_loss.values
    # The integral that stands for the sum beyond N starts at N + 1/2.
    shift = 0.5 if name == "basis" else 0.0
    tolerance, reason = (
        (1e-3, "N + 1/2 stands where the law has N: a change of order 1/N = 1e-3 in the exponent")
        if name == "basis"
        else (1e-4, "the sum differs from its integral by order 1/D, or for the time exponentially little")
    )
    label = f"α = {model.exponent:g}, {name}"
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
