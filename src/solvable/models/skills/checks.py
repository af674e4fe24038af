"""Checks of what the skill model is asked for; each error names the rule and the remedy."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.checks import check_count
from solvable.models.skills.dynamics import frequencies, growth, law, plain
from solvable.numerics.descent import check_stable
from solvable.training import SGD, GradientDescent, Training

if TYPE_CHECKING:
    from solvable.models.skills.parameters import SkillParameters

# All skills are returned if there are at most this many, and otherwise the first few.
_ALL_SKILLS, _FEW_SKILLS = 10_000, 10


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


def first_skills(model: "SkillParameters", max_skills: int | None) -> np.ndarray:
    """The numbers, from 1, of the skills whose curves are returned."""
    skills = plain(model, "skills")
    if max_skills is None:
        max_skills = _FEW_SKILLS if skills > _ALL_SKILLS else int(skills)
    elif check_count("max_skills", max_skills) > skills:
        raise ValueError(f"max_skills = {max_skills}, but there are only {skills:g} skills: ask for fewer")
    return np.arange(1, max_skills + 1)


def check_skill(model: "SkillParameters", skill: int) -> int:
    """The number of one skill, from one on."""
    if check_count("skill", skill) > plain(model, "skills"):
        raise ValueError(f"skill = {skill}, but there are only {model.skills:g} skills: choose one of them")
    return skill


def check_time_theory(model: "SkillParameters") -> None:
    """Refuse finite samples with several shots or neurons for each skill: in time this is not solved."""
    samples = plain(model, "samples")
    for name in ("shots", "neurons_per_skill"):
        if math.isfinite(samples) and plain(model, name) > 1:
            raise ValueError(
                f"with finite samples learning in time is solved for {name} = 1, not {getattr(model, name)}: "
                "use data_emergence for the end of training, or replace(samples=math.inf)"
            )


def check_step(model: "SkillParameters", training: Training, last: float) -> None:
    """Refuse steps that are too long for the first skill, which has the largest curvature: 2 B S P_1 at the target.

    Drawn data shows the skill more often than P_1, by up to four standard deviations.
    """
    if not isinstance(training, GradientDescent):
        return
    batch = training.samples_per_batch(model.samples) if isinstance(training, SGD) else math.inf
    chance = float(frequencies(law(model), 1.0))
    for drawn in (model.samples, batch):
        chance = min(1.0, chance + 4 * math.sqrt(max(chance * (1 - chance), 0) / drawn))
    check_stable(training, 2 / (float(growth(model)) * chance + training.weight_decay), last)


def check_infinite(model: "SkillParameters", what: str, name: str) -> None:
    """Refuse a finite number where a result is for infinitely many."""
    if math.isfinite(plain(model, name)):
        raise ValueError(
            f"{what} is for unlimited {name}, not {name} = {getattr(model, name):g}: use replace({name}=math.inf)"
        )
