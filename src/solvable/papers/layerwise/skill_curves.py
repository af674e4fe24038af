"""Fig. 3.4: stage-like training. Strengths of the skills and the staircase of the loss, α = 0.6 and S = 5."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Scale
from solvable.plotting import COLOURS, new_figure, set_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRACTION = 0.05
SKILLS, TARGET, START = 5, 5.0, 1e-6
# The figure does not give R0; the smaller, the sharper the stages.
MODEL = SkillModel(0.6, skills=SKILLS, target_scale=TARGET, initial_strength=START)
FREQUENCIES = np.arange(1.0, SKILLS + 1) ** -1.6


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Strengths and loss over time, the times at which skills emerge and saturate, and the loss after the first."""
    points = 300 if scale == "quick" else 2000
    fractions = {"emergence": FRACTION, "saturation": 1 - FRACTION}
    times = xr.Dataset({name: MODEL.emergence_time(fraction).emergence_time for name, fraction in fractions.items()})
    saturated, emerging = times.saturation.values, times.emergence.values
    return {
        "curve": MODEL.predict(np.linspace(0, 1.1 * saturated[-1], points)),
        "times": times,
        "between": MODEL.predict([(saturated[0] * emerging[1]) ** 0.5]),
    }


def _levels() -> np.ndarray:
    """The loss with the first k skills learned and the others not at all, k = 0, 1, ..."""
    chances = FREQUENCIES / FREQUENCIES.sum()
    return TARGET**2 / 2 * np.array([chances[k:].sum() for k in range(SKILLS)])


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Which skills are learned in stages: saturated before the next emerges; and the height of the first stair."""
    times = data["times"]
    staged = times.saturation.values[:-1] < times.emergence.values[1:]
    odds, width = np.log(TARGET / START - 1), np.log(1 / FRACTION - 1)
    predicted = odds + width < (odds - width) * FREQUENCIES[:-1] / FREQUENCIES[1:]
    return [
        Claim(
            "number of skills that saturate before the next one emerges",
            staged.sum(),
            predicted.sum(),
            0.0,
            "log(S/R0 - 1) + w < (log(S/R0 - 1) - w) P_k/P_k+1 with w = log(1/ε - 1): a whole number",
        ),
        Claim(
            "loss between the first and the second stage over that of the unlearned skills",
            float(data["between"].test_loss[0] / _levels()[1]),
            1.0,
            2 * FRACTION,
            "skills outside their stage are within ε of learned or unlearned; the loss changes by 2 ε of a stair",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Strengths of the skills with their stages shaded, and the staircase of the loss."""
    curve, times = data["curve"], data["times"]
    figure, (strengths, losses) = new_figure(2)
    for index, colour in enumerate(COLOURS[:SKILLS]):
        strengths.plot(curve.time, curve.strength[:, index] / TARGET, color=colour, label=f"k = {index + 1}")
        begin, end = float(times.emergence[index]), float(times.saturation[index])
        strengths.axvspan(begin, end, color=colour, alpha=0.12, linewidth=0)
    strengths.axhline(FRACTION, color="grey", linestyle=":", linewidth=1, label="ε and 1 − ε")
    strengths.axhline(1 - FRACTION, color="grey", linestyle=":", linewidth=1)
    losses.plot(curve.time, curve.test_loss, color="black", label="loss")
    for k, level in enumerate(_levels()):
        label = "skills k, k+1, … unlearned" if k == 0 else None
        losses.axhline(level, color="grey", linestyle=":", linewidth=1, label=label)
    for panel in (strengths, losses):
        set_axis(panel, "x", curve.time)
        panel.legend(fontsize="small")
    strengths.set_ylabel("relative skill strength, R_k / S")
    losses.set_ylabel("expected test loss, L")
    return figure
