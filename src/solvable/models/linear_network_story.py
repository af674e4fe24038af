"""The story of the linear network, the marks on its curves, and its singular modes over time."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.story import Band, Explanation, Mark, Step, Story, SystemView, Tick, listed, readable

# A mode emerges at this fraction of its singular value and is complete at one minus it.
FRACTION = 0.05
_MOST_NAMED = 4


def times_to_reach(model: Any, training: Any, fraction: float) -> np.ndarray:
    """When each mode reaches a fraction of its singular value, in the training's unit of time; infinite if never."""
    return np.asarray(model.emergence_time(fraction).emergence_time.values / training.speed)


def facts(model: Any, training: Any) -> Mapping[str, Any]:
    """Numbers of one setting that the texts insert."""
    begin, half, end = (times_to_reach(model, training, share) for share in (FRACTION, 0.5, 1 - FRACTION))
    modes = np.asarray(model.modes)
    earlier = times_to_reach(model.replace(initial_scale=2 * model.initial_scale), training, 0.5)
    later = np.subtract(half, earlier, out=np.zeros_like(half), where=np.isfinite(half))
    return {
        "half_first": half[0],
        "half_second": half[1],
        "half_third": half[2],
        "quiet": begin[2] - end[1],
        "overlapping": end[1] - begin[2],
        "later_first": later[0],
        "later_third": later[2],
        "width": model.width,
        "lost": float(np.sum(modes[model.width :] ** 2) / 2),
        "scale": _largest_scale(modes[1], modes[2]),
    }


def _largest_scale(strong: float, weak: float) -> float:
    """The start at which the strong mode is complete just when the weak one begins; 0 if they are equally strong.

    From a small scale s a mode rho reaches the odds q at the time ``ln(q rho / s^2) / (2 rho)``.
    """
    if not strong > weak > 0:
        return 0.0
    odds = math.log((1 - FRACTION) / FRACTION)
    log_square = ((math.log(weak) - odds) / weak - (math.log(strong) + odds) / strong) / (1 / weak - 1 / strong)
    return math.exp(log_square / 2)


def explain(model: Any, training: Any, curves: xr.Dataset) -> Explanation:
    """When each mode is half learned, the plateaus in between, and the modes for which there is no hidden unit."""
    last = float(curves.time[-1])
    begin, half, end = (times_to_reach(model, training, share) for share in (FRACTION, 0.5, 1 - FRACTION))
    order = [int(place) for place in np.argsort(half, kind="stable") if half[place] <= last]
    if not order:
        if not np.any(np.asarray(model.modes) > 0):
            return Explanation("Inputs and targets are not correlated, so that there is nothing to learn.")
        return Explanation(f"No mode is half learned before the last time, {readable(last)}.")
    marks: list[Mark] = [Tick(float(half[place]), f"mode {place + 1}") for place in order]
    for one, other in itertools.pairwise(order):
        if begin[other] > end[one]:
            marks.append(Band(float(end[one]), float(begin[other]), "plateau"))
    named = order if len(order) <= _MOST_NAMED else [order[0], order[-1]]
    modes = listed([str(place + 1) for place in named])
    moments = listed([readable(float(half[place])) for place in named])
    reason = "each grows from its start at twice its singular value"
    if model.width < half.size and model.modes[model.width] > 0:
        reason += f", and {model.width} hidden unit{'s' if model.width > 1 else ''} cannot carry the others"
    learned = f"Mode{'s' if len(named) > 1 else ''} {modes} {'are' if len(named) > 1 else 'is'} half learned"
    return Explanation(f"{learned} at time {moments}: {reason}.", tuple(marks))


def system(model: Any, training: Any, times: np.ndarray) -> SystemView:
    """The strength of each singular mode beside its singular value; half the sum of the squared gaps is the loss."""
    strength = model.predict(times, training).strength
    data = xr.Dataset(
        {
            "height": (("time", "index"), strength.values, {"long_name": "strength of the mode", "units": "1"}),
            "target": ("index", np.asarray(model.modes), {"long_name": "singular value", "units": "1"}),
        },
        {"time": strength.time.values, "index": ("index", strength.mode.values, {"long_name": "singular mode"})},
    )
    return SystemView("bars", "Singular modes", "Each bar is one direction of the map and grows to its target.", data)


_TIMES = "0:10:101"

STORY = Story(
    question="Why does a deep network learn the simplest solution first?",
    steps=(
        Step(
            "From saddle to saddle",
            "Two layers learn a map with three directions, the first the strongest. They come one by one, half learned "
            "at times {half_first:.2g}, {half_second:.2g} and {half_third:.2g}, and the loss rests in between.",
            {"times": _TIMES},
            question="What is the network doing while it rests?",
            look_at="test_loss",
            play=True,
        ),
        Step(
            "One direction after the other",
            "On each plateau the map is the best one of its rank: another direction has been learned. For a time "
            "of {quiet:.2g} the second direction is complete and the third has not begun.",
            {"times": _TIMES},
            question="What sets the length of the plateaus?",
            look_at="system",
            cursor=0.5,
        ),
        Step(
            "A smaller start: longer plateaus",
            "Halving the start delays the first direction by {later_first:.2g} and the third by {later_third:.2g}. "
            "Each direction grows exponentially, so that only the logarithm of the start counts.",
            {"initial_scale": "0.0005", "times": _TIMES},
            question="And a large start?",
            look_at="plateau",
        ),
        Step(
            "A large start: all at once",
            "Now the third direction begins before the second is complete: the two share a time of {overlapping:.2g}. "
            "Nothing has to grow from almost nothing, and the plateaus are gone.",
            {"initial_scale": "0.5", "times": "0:4:101"},
            question="What if there are too few hidden units?",
            look_at="test_loss",
            play=True,
        ),
        Step(
            "A bottleneck: the last direction never comes",
            "With {width:g} hidden units the rank cannot exceed {width:g}. The loss stops at {lost:.2g}, half of the "
            "square of what is left out.",
            {"width": "2", "times": _TIMES},
            question="Now it is your turn: when do plateaus appear?",
            look_at="test_loss",
        ),
        Step(
            "Your turn",
            "Make the start larger until the last plateau is gone: until the third direction has begun when the second "
            "is complete.",
            {"times": _TIMES},
        ),
    ),
    challenge="How small must the start be for the second direction to be complete before the third begins?",
    answer="Smaller than {scale:.2g}.",
    sliders=("initial_scale", "width"),
    variables=(("test_loss",), ("strength",)),
    facts=facts,
)
