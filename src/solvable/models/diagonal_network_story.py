"""The story of the diagonal network, the marks on its curves, and its modes over time."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.story import Band, Explanation, Mark, Step, Story, SystemView, Tick, listed, readable

# A mode emerges at this fraction of its target and is complete at one minus it.
FRACTION = 0.05
# With more modes than this, only the first and the last to be learned are named.
_MOST_NAMED = 4


def times_to_reach(model: Any, training: Any, fraction: float) -> np.ndarray:
    """When each mode reaches a fraction of its target, in the training's unit of time; infinite if it never does."""
    found = np.full(model.variances.shape, np.inf)
    kept = model.target_scales != 0
    if kept.any():
        part = model.replace(**{name: values[kept] for name, values in model.parameters().items()})
        found[kept] = part.emergence_time(fraction).emergence_time.values / training.speed
    return found


def facts(model: Any, training: Any) -> Mapping[str, Any]:
    """Numbers of one setting that the texts insert; modes are counted by their targets in the texts."""
    half, end = times_to_reach(model, training, 0.5), times_to_reach(model, training, 1 - FRACTION)
    doubled = model.replace(initial_first=2 * model.initial_first, initial_second=2 * model.initial_second)
    later = half - times_to_reach(doubled, training, 0.5)
    begin = times_to_reach(model, training, FRACTION)
    return {
        "half_first": half[0],
        "half_second": half[1],
        "half_third": half[2],
        "spread": half.max() / half.min(),
        "quiet": max(begin[2] - end[1], 0.0),
        "overlapping": end[1] - begin[2],
        "later_first": later[0],
        "later_third": later[2],
        # Time enters as variance times time, so that the half time goes with one over the variance.
        "variance": model.variances[2] * half[2] / half[1],
        "imbalance": model.imbalance[0],
    }


def explain(model: Any, training: Any, curves: xr.Dataset) -> Explanation:
    """When each mode is half learned, and the plateaus between a mode that is complete and the next one."""
    last = float(curves.time[-1])
    begin, half, end = (times_to_reach(model, training, share) for share in (FRACTION, 0.5, 1 - FRACTION))
    order = [int(place) for place in np.argsort(half, kind="stable") if half[place] <= last]
    marks: list[Mark] = [Tick(float(half[place]), f"mode {place + 1}") for place in order]
    waits = [(end[one], begin[other]) for one, other in itertools.pairwise(order)]
    bands = [Band(float(start), float(stop), "plateau") for start, stop in waits if stop > start]
    if not order:
        if not np.any(model.target_scales):
            return Explanation("All targets are zero, so that there is nothing to learn but to forget the start.")
        return Explanation(f"No mode is half learned before the last time, {readable(last)}.")
    named = order if len(order) <= _MOST_NAMED else [order[0], order[-1]]
    moments = listed([readable(float(half[place])) for place in named])
    modes = listed([str(place + 1) for place in named])
    sentence = f"Mode {modes} is" if len(named) == 1 else f"Modes {modes} are"
    reason = (
        "each grows in proportion to its own size, at a rate that its target and its variance set"
        if bands
        else "the start is not small enough to keep one mode waiting until another is complete"
    )
    return Explanation(f"{sentence} half learned at time {moments}: {reason}.", (*marks, *bands))


def system(model: Any, training: Any, times: np.ndarray) -> SystemView:
    """The strength of each mode beside its target; half the sum of variance times squared gap is the loss."""
    strength = model.predict(times, training).strength
    data = xr.Dataset(
        {
            "height": (("time", "index"), strength.values, {"long_name": "strength of the mode", "units": "1"}),
            "target": ("index", model.target_scales, {"long_name": "target", "units": "1"}),
        },
        {"time": strength.time.values, "index": ("index", strength.mode.values, {"long_name": "mode"})},
    )
    return SystemView("bars", "Modes", "Each bar is a product of two weights and grows towards its target.", data)


_START, _TIMES = "0.001", "0:9:91"

STORY = Story(
    question="Why does training come in stages?",
    steps=(
        Step(
            "One fall after another",
            "The network learns three independent modes, the second a little weaker than the first and the third the "
            "weakest. They are half learned at times {half_first:.2g}, {half_second:.2g} and {half_third:.2g}, and the "
            "loss falls in three stages.",
            {"times": _TIMES},
            question="Why do they not rise together?",
            look_at="test_loss",
            play=True,
        ),
        Step(
            "What is small grows slowly",
            "Each mode is a product of two weights, and each weight grows as fast as the other is large. From a tiny "
            "start this is exponential growth, fastest for the largest target: for a time of {quiet:.2g} the second "
            "mode is complete and the third has not begun.",
            {"times": _TIMES},
            question="What does a larger start change?",
            look_at="system",
            cursor=0.5,
        ),
        Step(
            "A larger start: the stages merge",
            "The third mode now begins before the second is complete: the two share a time of {overlapping:.2g}. "
            "Nothing has to grow from almost nothing, so the plateaus are gone.",
            {"initial_first": "0.5", "initial_second": "0.5", "times": "0:3:91"},
            question="And a smaller one?",
            look_at="test_loss",
            play=True,
        ),
        Step(
            "Half the start, a little more patience",
            "Halving the weights of the first step delays the first mode by {later_first:.2g} and the third by "
            "{later_third:.2g}. The start enters through its logarithm, and the wait is shared out by the targets.",
            {"initial_first": "0.0005", "initial_second": "0.0005", "times": _TIMES},
            question="Is a small product enough for stages?",
            look_at="plateau",
        ),
        Step(
            "Unequal layers: no stages",
            "Now only the second weight of each product is small, and the difference of the two squares stays at "
            "{imbalance:.2g} for ever. The large weight drives the small one at the same rate in all modes: the last "
            "is half learned only {spread:.2g} times later than the first.",
            {"initial_first": "2", "initial_second": _START, "times": "0:1.5:91"},
            question="Now it is your turn: can the weakest mode catch up?",
            look_at="test_loss",
        ),
        Step(
            "Your turn",
            "A feature that varies more is learned sooner. The sliders set the weights at the start, the same for all "
            "modes; the form has the variance of each feature.",
            {"initial_first": _START, "initial_second": _START, "times": _TIMES},
        ),
    ),
    challenge="Which variance of the third feature makes the third mode half learned together with the second?",
    answer="A variance of {variance:.3g}: the time of a mode goes with one over the variance of its feature.",
    sliders=("initial_first", "initial_second"),
    variables=(("test_loss",), ("strength",)),
    facts=facts,
)
