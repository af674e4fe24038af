"""Fig. 3.4: stage-like training. Strengths of the skills and the staircase of the loss, α = 0.6 and S = 5."""

import numpy as np

from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, new_figure, set_axis

FRACTION = 0.05
# The figure does not give R0; the smaller, the sharper the stages.
MODEL = SkillModel(0.6, skills=5, target_scale=5.0, initial_strength=1e-6)


def reproduce(scale: Scale) -> Reproduction:
    points = 300 if scale == "quick" else 2000
    last = float(MODEL.emergence_time(1 - FRACTION).emergence_time[-1])
    curve = MODEL.predict(np.linspace(0, 1.1 * last, points))
    emerging = MODEL.emergence_time(FRACTION).emergence_time.values
    saturated = MODEL.emergence_time(1 - FRACTION).emergence_time.values
    figure, (strengths, losses) = new_figure(2)
    for index, colour in enumerate(COLOURS[:5]):
        strengths.plot(curve.time, curve.strength[:, index] / 5, color=colour, label=f"k = {index + 1}")
        strengths.axvspan(emerging[index], saturated[index], color=colour, alpha=0.12, linewidth=0)
    strengths.axhline(FRACTION, color="grey", linestyle=":", linewidth=1, label="ε and 1 − ε")
    strengths.axhline(1 - FRACTION, color="grey", linestyle=":", linewidth=1)
    chances = np.arange(1.0, 6) ** -1.6 / (np.arange(1.0, 6) ** -1.6).sum()
    steps = 12.5 * np.array([chances[k:].sum() for k in range(6)])
    losses.plot(curve.time, curve.test_loss, color="black", label="loss")
    for k, level in enumerate(steps[:5]):
        losses.axhline(
            level, color="grey", linestyle=":", linewidth=1, label="skills k, k+1, … unlearned" if k == 0 else None
        )
    for panel in (strengths, losses):
        set_axis(panel, "x", curve.time)
        panel.legend(fontsize="small")
    strengths.set_ylabel("relative skill strength, R_k / S")
    losses.set_ylabel("expected test loss, L")
    return Reproduction({"curve": curve}, figure, _claims(emerging, saturated, steps))


def _claims(emerging: np.ndarray, saturated: np.ndarray, steps: np.ndarray) -> list[Claim]:
    """Which skills are learned in stages: saturated before the next emerges; and the height of the first stair."""
    staged = [bool(saturated[k] < emerging[k + 1]) for k in range(4)]
    odds = np.log(5 / 1e-6 - 1)
    width = 2 * np.log(1 / FRACTION - 1)
    ratio = np.arange(1.0, 5) ** -1.6 / np.arange(2.0, 6) ** -1.6
    predicted = [(odds + width / 2) < (odds - width / 2) * value for value in ratio]
    between = (saturated[0] * emerging[1]) ** 0.5
    loss = float(MODEL.predict([between]).test_loss[0])
    return [
        Claim(
            "number of skills that saturate before the next one emerges",
            sum(staged),
            sum(predicted),
            0.0,
            "log(S/R0 - 1) + w < (log(S/R0 - 1) - w) P_k/P_k+1 with w = log(1/ε - 1): a whole number",
        ),
        Claim(
            "loss between the first and the second stage over that of the unlearned skills",
            loss / float(steps[1]),
            1.0,
            2 * FRACTION,
            "skills outside their stage are within ε of learned or unlearned; the loss changes by 2 ε of a stair",
        ),
    ]
