"""The story of the skills, the marks on their curves, and how they fill up over time."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.story import Explanation, Level, Mark, Slope, Step, Story, SystemView, Tick, crossing, readable

# Skills that are marked on the curves, those that the picture shows, and a time at which nothing changes any more.
_MARKED = (1, 2, 3, 5, 10)
_SHOWN = 10
_LATE = 1e12


def facts(model: Any, training: Any) -> Mapping[str, Any]:
    """Numbers of one setting that the texts insert; emergence is that of unlimited data."""
    unlimited = model.replace(samples=math.inf)
    skills = int(min(_SHOWN, model.skills))

    def emerges(skill: int, fraction: float = 0.5) -> float:
        return float(unlimited.emergence_time(fraction, training, max_skills=skills).emergence_time[skill - 1])

    end = model.predict([_LATE], training, max_skills=skills)
    fifth, last = min(5, skills), skills
    return {
        "first": emerges(1),
        "fifth": emerges(fifth),
        "tenth": emerges(last),
        "fifth_begins": emerges(fifth, 0.1),
        "fifth_ends": emerges(fifth, 0.9),
        "time_exponent": float(model.exponents().time),
        "basis": model.basis,
        "samples": model.samples,
        "limit": float(end.test_loss[0]),
        "tenth_strength": float(end.strength[0, last - 1]) / model.target_scale,
        "rarer": last ** (1 + model.exponent),
    }


def explain(model: Any, training: Any, curves: xr.Dataset) -> Explanation:
    """When skills are half learned, the power law that they add up to, and what keeps later ones from coming."""
    last = float(curves.time[-1])
    halves = _half_times(model, training, curves)
    marks: list[Mark] = [Tick(when, f"skill {skill}") for skill, when in halves.items() if when <= last]
    seen = [f"skill {skill} at time {readable(when)}" for skill, when in halves.items() if when <= last]
    loss = float(curves.test_loss[-1])
    beginning = "No skill is half learned yet"
    if seen:
        beginning = f"Half learned are {seen[0]} and {seen[-1]}" if len(seen) > 1 else f"Half learned is {seen[0]}"
    if math.isfinite(model.samples):
        rest = f"rare skills are seldom or never among the {readable(model.samples)} samples"
        return Explanation(f"{beginning}, and the loss comes down to {readable(loss)}: {rest}.", tuple(marks))
    if model.basis < model.skills * model.neurons_per_skill:
        limit = float(model.parameter_emergence([model.basis], max_skills=1).test_loss[0])
        marks.append(Level("test_loss", limit, "no basis functions left"))
        few = f"{readable(model.basis)} basis function{'s' if model.basis > 1 else ''}"
        sentence = f"{beginning}, and the loss stops at {readable(limit)}: {few} cannot express the rarer skills."
        return Explanation(sentence, tuple(marks))
    exponent = float(model.exponents().time)
    start = halves.get(3, math.inf)
    reason = "the rarer a skill, the later it comes"
    if math.isinf(model.skills) and last > 4 * start:
        marks.append(Slope("test_loss", exponent, start, last, f"t^-{exponent:.2g}"))
        reason += f", and together their losses fall as time to the power -{readable(exponent)}"
    return Explanation(f"{beginning}: {reason}.", tuple(marks))


def _half_times(model: Any, training: Any, curves: xr.Dataset) -> dict[int, float]:
    """When some of the skills are half learned: exactly on unlimited data, and else from the expected curves."""
    skills = [skill for skill in _MARKED if skill <= curves.sizes["skill"]]
    if math.isfinite(model.samples) or training.counts_steps or not training.is_constant:
        found = [crossing(curves.time, curves.strength[:, skill - 1], model.target_scale / 2) for skill in skills]
    else:
        times = model.emergence_time(0.5, training, max_skills=skills[-1]).emergence_time.values
        found = [float(times[skill - 1]) for skill in skills]
    return dict(zip(skills, found, strict=True))


def system(model: Any, training: Any, times: np.ndarray) -> SystemView:
    """The strength of the first skills; their losses, weighted by frequency, are part of the test loss."""
    count = int(min(_SHOWN, model.skills))
    strength = model.predict(times, training, max_skills=count).strength
    data = xr.Dataset(
        {
            "height": (("time", "index"), strength.values, {"long_name": "strength of the skill", "units": "1"}),
            "target": ("index", np.full(count, float(model.target_scale)), {"long_name": "target", "units": "1"}),
        },
        {"time": strength.time.values, "index": ("index", strength.skill.values, {"long_name": "skill"})},
    )
    return SystemView("bars", "The most frequent skills", "Each bar fills up when its skill is learned.", data)


_MANY = {"skills": "inf", "times": "1:1e4:81log"}

STORY = Story(
    question="Why do abilities appear suddenly while the loss falls smoothly?",
    steps=(
        Step(
            "One skill after another",
            "Each skill is practised less often than the one before it. The first is half learned at time {first:.2g}, "
            "the fifth at {fifth:.2g} and the tenth at {tenth:.3g}.",
            _MANY,
            question="How sudden is that?",
            look_at="system",
            play=True,
        ),
        Step(
            "From nothing to complete",
            "On an ordinary axis the fifth skill does nothing for long, and then goes from a tenth of its strength to "
            "nine tenths between times {fifth_begins:.0f} and {fifth_ends:.0f}. What is learned helps to learn more, "
            "so that its curve is a sigmoid.",
            {"skills": "inf", "times": "0:150:76"},
            question="Does the loss know about it?",
            look_at="skill 5",
        ),
        Step(
            "The sum is smooth",
            "The loss adds up many such sigmoids, each later and smaller than the one before. Soon no single one can "
            "be seen, and the loss falls as time to the power minus {time_exponent:.3g}.",
            _MANY,
            question="Can this go on for ever?",
            look_at="test_loss",
        ),
        Step(
            "A small network: some skills never come",
            "With {basis:g} basis functions only the {basis:g} most frequent skills can be expressed. The loss stops "
            "at {limit:.2g}, however long one waits.",
            {**_MANY, "basis": "5"},
            question="And with little data?",
            look_at="test_loss",
        ),
        Step(
            "Few samples: some skills are never seen",
            "Among {samples:g} samples rare skills are often missing: on average the tenth reaches "
            "{tenth_strength:.0%} of its strength. The loss stops again, now at {limit:.2g}.",
            {"samples": "30", "times": "1:1e4:81log"},
            question="Now it is your turn: can you tell when a skill will come?",
            look_at="test_loss",
        ),
        Step(
            "Your turn",
            "The exponent says how quickly skills become rare. All of them follow the same curve, each on its own "
            "clock.",
            _MANY,
        ),
    ),
    challenge="The first skill is half learned at time {first:.3g}. When is the tenth?",
    answer="At time {tenth:.3g}: the tenth skill is {rarer:.3g} times rarer than the first, and so {rarer:.3g} times "
    "slower.",
    sliders=("exponent", "initial_strength"),
    variables=(("test_loss",), ("strength",)),
    facts=facts,
)
