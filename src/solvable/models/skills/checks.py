"""What the skill model refuses, with the rule and the remedy."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.checks import check_count
from solvable.models.skills.dynamics import frequencies, growth, law, plain

if TYPE_CHECKING:
    from solvable.models.skills.model import SkillModel

_SHOWN, _SHOWN_ALL = 10, 10_000


def check_counts(name: str, values: Any, infinite: bool = True) -> np.ndarray:
    """Whole numbers from one on, increasing; the last may be infinite."""
    try:
        array = np.atleast_1d(np.asarray(values, dtype=float))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be whole numbers, not {values!r}") from error
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a flat, non-empty list, not of shape {array.shape}")
    # Infinity equals itself rounded.
    whole = (array >= 1) & (array == np.round(array)) & (infinite | np.isfinite(array))
    if not whole.all():
        place = int(np.argmin(whole))
        rule = "whole numbers, 1 or more" + (", or inf" if infinite else "")
        raise ValueError(f"{name} must be {rule}, but {name}[{place}] = {array[place]:g}: round it")
    if (np.diff(array) <= 0).any():
        raise ValueError(f"{name} must increase: sort them and remove duplicates")
    return array


def shown_skills(model: "SkillModel", shown: int | None) -> np.ndarray:
    """The numbers of the skills to show, from one on."""
    skills = plain(model, "skills")
    if shown is None:
        shown = _SHOWN if skills > _SHOWN_ALL else int(skills)
    elif check_count("shown", shown) > skills:
        raise ValueError(f"shown = {shown} skills, but there are only {skills:g}: show fewer")
    return np.arange(1.0, shown + 1)


def check_skill(model: "SkillModel", skill: int) -> int:
    """The number of one skill, from one on."""
    if check_count("skill", skill) > plain(model, "skills"):
        raise ValueError(f"skill = {skill}, but there are only {model.skills:g} skills: choose one of them")
    return skill


def check_time_theory(model: "SkillModel") -> None:
    samples = plain(model, "samples")
    for name in ("shots", "neurons_per_skill"):
        if math.isfinite(samples) and plain(model, name) > 1:
            raise ValueError(
                f"with finite samples learning in time is solved for {name} = 1, not {getattr(model, name)}: "
                "use data_emergence for the end of training, or replace(samples=math.inf)"
            )


def check_step(model: "SkillModel", batch: int | None) -> None:
    """Refuse steps that are too long for the fastest skill, whose curvature is 2 η B S P_1 at the target.

    Drawn data shows the skill more often than P_1, by up to four standard deviations.
    """
    chance = float(frequencies(law(model), 1.0))
    for drawn in (model.samples, math.inf if batch is None else batch):
        chance = min(1.0, chance + 4 * math.sqrt(max(chance * (1 - chance), 0) / drawn))
    largest = float(growth(model)) * chance
    # At 2 descent just does not overshoot; the sum of one frequency may be above one by rounding.
    if largest > 2 * (1 + 1e-9):
        raise ValueError(
            f"a step moves the first skill by {largest:.3g} e-folds, more than 2, and descent would overshoot: "
            f"lower learning_rate below {model.learning_rate * 2 / largest:.3g}, and use longer times"
        )


def check_infinite(model: "SkillModel", what: str, name: str) -> None:
    if math.isfinite(plain(model, name)):
        raise ValueError(
            f"{what} is for unlimited {name}, not {name} = {getattr(model, name):g}: use replace({name}=math.inf)"
        )
