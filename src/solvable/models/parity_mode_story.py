"""The story of the network that learns a parity, the marks on its curves, and its three neurons over time."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.story import Explanation, Mark, Step, Story, SystemView, Tick, crossing, listed, readable

# Where the strengths of the three neurons end.
_ENDS = (0.5, 0.25, 0.25)
_LAYERS = ("initial_first", "initial_second", "initial_third")


def _scaled(model: Any, factor: float) -> Any:
    return model.replace(**{name: factor * getattr(model, name) for name in _LAYERS})


def facts(model: Any, training: Any) -> Mapping[str, Any]:
    """Numbers of one setting that the texts insert."""
    half = model.emergence_time(0.5).emergence_time.values / training.learning_rate
    earlier = _scaled(model, 2.0).emergence_time(0.5).emergence_time.values / training.learning_rate
    later = half - earlier
    return {
        "half_first": half[0],
        "half_second": half[1],
        "half_third": half[2],
        "later_first": later[0],
        "target": model.target_scale,
        # The wait goes with the logarithm of the start: each factor of two costs the same time.
        "start": model.initial_first * 2 ** (-half[0] / later[0]) if later[0] > 0 else 0.0,
    }


def explain(model: Any, training: Any, curves: xr.Dataset) -> Explanation:
    """When each of the three neurons has half of its final strength."""
    strength = curves.strength.values
    halves = {
        mode: 0.0 if strength[0, mode] >= end / 2 else crossing(curves.time, strength[:, mode], end / 2)
        for mode, end in enumerate(_ENDS)
    }
    seen = {mode: when for mode, when in halves.items() if math.isfinite(when)}
    marks: list[Mark] = [Tick(when, f"neuron {mode + 1}") for mode, when in seen.items()]
    if not seen:
        last = readable(float(curves.time[-1]))
        return Explanation(f"All three neurons are still below half of their strength at the last time, {last}.")
    order = sorted(seen, key=lambda mode: seen[mode])
    moments = listed([readable(seen[mode]) for mode in order])
    names = listed([str(mode + 1) for mode in order])
    some = f"Neurons {names} reach" if len(order) > 1 else f"Neuron {names} reaches"
    reason = "each grows in proportion to its own size, and what one of them gets wrong drives the others"
    return Explanation(f"{some} half of the final strength at time {moments}: {reason}.", tuple(marks))


def system(model: Any, training: Any, times: np.ndarray) -> SystemView:
    """How much of the parity each neuron gives; the sum is the strength of the skill."""
    strength = model.predict(times, training).strength
    data = xr.Dataset(
        {
            "height": (("time", "index"), strength.values, {"long_name": "share of the parity", "units": "1"}),
            "target": ("index", np.array(_ENDS), {"long_name": "share in the end", "units": "1"}),
        },
        {"time": strength.time.values, "index": ("index", strength.mode.values, {"long_name": "neuron"})},
    )
    return SystemView("bars", "Three neurons", "Each bar is what one neuron adds to the parity of the bits.", data)


_TIMES = "0:40:161"

STORY = Story(
    question="How does a ReLU network find a parity?",
    steps=(
        Step(
            "Nothing, and then everything",
            "Whether the number of ones among three bits is even cannot be seen from any one bit. The loss hardly "
            "moves at first, and then falls: the first neuron has half of its strength at time {half_first:.2g}.",
            {"times": _TIMES},
            question="What happens during the fall?",
            look_at="test_loss",
            play=True,
        ),
        Step(
            "Three neurons, one after the other",
            "The second neuron follows at time {half_second:.2g} and the third at {half_third:.2g}. Each corrects what "
            "the ones before it get wrong, and only together do they give the parity.",
            {"times": _TIMES},
            question="What sets the length of the plateau?",
            look_at="system",
            cursor=0.4,
        ),
        Step(
            "A smaller start: a longer wait",
            "With all three weights half as large, the first neuron comes {later_first:.2g} later. Growth is "
            "exponential at first, so that every halving costs about the same.",
            {"initial_first": "0.005", "initial_second": "0.005", "initial_third": "0.005", "times": _TIMES},
            question="What if only one neuron starts small?",
            look_at="test_loss",
        ),
        Step(
            "One late neuron",
            "The third neuron starts much smaller than the others and arrives at time {half_third:.2g}. The loss gets "
            "stuck in between: two neurons cannot be right on all inputs.",
            {"initial_third": "0.0001", "times": _TIMES},
            question="Is there a way to hurry?",
            look_at="test_loss",
            play=True,
        ),
        Step(
            "A larger target: faster",
            "With a target of {target:g} the error is larger, and so is the pull on every weight. The first neuron has "
            "half of its strength at time {half_first:.2g}.",
            {"target_scale": "3", "times": _TIMES},
            question="Now it is your turn: how long can you make it wait?",
            look_at="strength",
        ),
        Step(
            "Your turn",
            "The three sliders are the weights of the neurons at the start.",
            {"times": _TIMES},
        ),
    ),
    challenge="Double the wait of the first neuron without touching the target, with equal weights at the start.",
    answer="All three weights have to start at about {start:.2g}: the wait goes with the logarithm of the start.",
    sliders=_LAYERS,
    variables=(("test_loss",), ("strength",)),
    facts=facts,
)
