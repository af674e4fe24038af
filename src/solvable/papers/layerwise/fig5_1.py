"""Fig. 5.1, solid lines: emergence of five skills in time, data and parameters, as the calibrated model predicts it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.training import GradientFlow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Calibrated by the thesis on a network with one skill (Fig. 5.2); R0 is not given there, and the rate needs it.
RATE, SHOTS, NEURONS = 1 / 22, 800, 4
INITIAL_STRENGTH = 1e-3
SKILLS, TARGET = 5, 5.0
# The runs have learning rate 0.05 and target scale 5 (appendix C.3).
TRAINING = GradientFlow(learning_rate=0.05)
MODEL = SkillModel(
    0.6,
    skills=SKILLS,
    target_scale=TARGET,
    rate=RATE,
    initial_strength=INITIAL_STRENGTH,
    shots=SHOTS,
    neurons_per_skill=NEURONS,
)
CHANCES = np.arange(1.0, SKILLS + 1) ** -1.6 / (np.arange(1.0, SKILLS + 1) ** -1.6).sum()


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The strengths over each resource, at 1000 samples, and the half times of several models."""
    points = 120 if scale == "quick" else 600
    return {
        "time": MODEL.predict(np.linspace(0, 3e4, points), TRAINING),
        "samples": MODEL.data_emergence(np.unique(np.round(np.geomspace(100, 5e4, points)))),
        "basis": MODEL.parameter_emergence(np.arange(1, 25)),
        "few-samples": MODEL.data_emergence([1000]),
        "half-times": _half_times(),
    }


def _half_times() -> xr.Dataset:
    """Half times of the model, of one with another rate and start, and of a single skill with two rates."""

    def half(model: SkillModel) -> np.ndarray:
        return model.emergence_time(0.5, TRAINING).emergence_time.values

    one, other = MODEL.replace(skills=1), MODEL.replace(rate=1 / 41.5, initial_strength=5e-2)
    in_flow = half(one.replace(rate=RATE**0.5))[0]
    return xr.Dataset(
        {
            "half_time": variable("skill", half(MODEL), "half time", units="steps"),
            "other_half_time": variable("skill", half(other), "half time, another rate and start", units="steps"),
            "single_half_time": variable((), half(one)[0], "half time of a single skill, rate B²", units="steps"),
            "single_flow_half_time": variable((), in_flow, "half time of a single skill, rate B", units="steps"),
        },
        {"skill": np.arange(1, SKILLS + 1)},
    )


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """What the calibrated model predicts whatever its rate is, and where eqs. 5.2 and 5.5 are misprinted."""
    return [*_time_claims(data["half-times"]), *_data_claims(data["few-samples"]), *_basis_claims(data["basis"])]


def _time_claims(half: xr.Dataset) -> list[Claim]:
    """Half times go as one over the frequency, whatever rate and initial strength are: this is what is predicted."""
    times, other = half.half_time.values, half.other_half_time.values
    return [
        *(
            Claim(
                f"half time of skill {k + 1} over that of the first",
                float(times[k] / times[0]),
                float(CHANCES[0] / CHANCES[k]),
                1e-12,
                "rounding",
                relative=True,
            )
            for k in range(1, SKILLS)
        ),
        Claim(
            "the same ratio with another rate and start (last skill)",
            float(other[4] / other[0]),
            float(times[4] / times[0]),
            1e-12,
            "rounding: the ratios are free of both",
            relative=True,
        ),
        Claim(
            "half time, one skill: rate B² as printed in 5.2 over the flow of model 5.1, whose rate is B",
            float(half.single_half_time / half.single_flow_half_time),
            22**0.5,
            1e-12,
            "B² = 1/22 makes 5.2 slower by 1/B than model 5.1 with the same B; B² must be read as a rate",
            relative=True,
            printed=1.0,
        ),
    ]


def _data_claims(few: xr.Dataset) -> list[Claim]:
    """Far below saturation the count's spread is irrelevant, and the strength is D P / D_c."""
    found = few.strength.values[0] / TARGET
    reason = "counts of more than D_c have a chance below 1e-12"
    made = []
    for k in (1, 4):
        share = 1000 * CHANCES[k] / SHOTS
        label = f"D = 1000: relative strength of skill {k + 1}"
        made.append(Claim(label, found[k], share, 1e-9, reason, printed=float(1 - np.sqrt(1 - share))))
    return made


def _basis_claims(curve: xr.Dataset) -> list[Claim]:
    complete = [int(curve.basis[curve.strength[:, k] >= TARGET][0]) for k in range(SKILLS)]
    return [
        Claim(f"width at which skill {k + 1} is complete", size, NEURONS * (k + 1), 0.0, "eq. 5.9, a whole number")
        for k, size in enumerate(complete)
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The strength of each skill over time, samples and basis size."""
    figure, panels = new_figure(3)
    for panel, name in zip(panels, ("time", "samples", "basis"), strict=True):
        curve = data[name]
        for index, colour in enumerate(COLOURS[:SKILLS]):
            panel.plot(curve[name], curve.strength[:, index] / TARGET, color=colour, label=f"k = {index + 1}")
            if name == "samples":
                share = np.clip(curve.samples * CHANCES[index] / SHOTS, 0, 1)
                panel.plot(curve.samples, 1 - np.sqrt(1 - share), color=colour, linestyle=":", linewidth=1.2)
        set_axis(panel, "x", curve[name], log=name == "samples")
        panel.set_ylabel("relative skill strength, R_k / S")
    panels[1].plot([], [], color="grey", linestyle=":", label="eq. 5.5 as printed")
    panels[0].legend(fontsize="small")
    panels[1].legend(fontsize="small")
    return figure
