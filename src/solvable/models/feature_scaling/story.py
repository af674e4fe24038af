"""The story of feature scaling, the marks on its curves, and its modes over time."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.story import Explanation, Level, Mark, Slope, Step, Story, SystemView, readable
from solvable.training import SGD, GradientFlow

# Flow time at which the texts compare curves: the last time of the story.
_LATE = 1e4


def _is_plain(model: Any, training: Any) -> bool:
    """Whether features and data are unlimited and batches are full, so that the loss is a pure power law."""
    return model.features == math.inf and model.samples is None and not isinstance(training, SGD)


def exponent_of(model: Any, regime: str | None = None, quantity: str = "time") -> float:
    """The exponent of the loss in theory, in the model's own regime if none is given."""
    regime = regime or ("rich" if model.richness > 0 else "lazy")
    return float(model.exponents().exponent.sel(quantity=quantity, regime=regime))


def facts(model: Any, training: Any) -> Mapping[str, Any]:
    """Numbers of one setting that the texts insert."""
    found = {
        "lazy": exponent_of(model, "lazy"),
        "rich": exponent_of(model, "rich"),
        "features": model.features,
        "features_exponent": exponent_of(model, quantity="features"),
    }
    sources = np.linspace(0.005, 1, 200)
    plane = model.phase_map([model.capacity], sources).exponent.sel(quantity="time")
    gain = (plane.sel(regime="rich") - plane.sel(regime="lazy")).values.ravel()
    found |= {"best_source": float(sources[gain.argmax()]), "best_gain": float(gain.max())}
    if model.features < math.inf:
        return found | {"limit": float(model.limit().test_loss)}
    late = model.predict([1.0, _LATE], GradientFlow())
    lazy = model.replace(richness=0.0).predict([1.0, _LATE], GradientFlow())
    return found | {"growth": float(late.kernel_growth[-1]), "gain": float(lazy.test_loss[-1] / late.test_loss[-1])}


def explain(model: Any, training: Any, curves: xr.Dataset) -> Explanation:
    """The power law of theory where there is one, and what ends it otherwise."""
    first, last = (float(curves.test_loss[place]) for place in (0, -1))
    fell = f"The test loss falls from {readable(first)} to {readable(last)}"
    if not math.isfinite(last):
        return Explanation("The steps are too long for this spectrum, and the loss diverges.")
    if isinstance(training, SGD):
        batch = "a batch is a noisy sample, and its noise adds to the error of every mode"
        return Explanation(f"{fell}: {batch}.")
    if not _is_plain(model, training):
        limit = float(model.limit(training).test_loss)
        few = "features" if model.features <= model.sample_count else "samples"
        count = readable(min(model.features, model.sample_count))
        reason = f"{count} {few} let only about as many modes be learned"
        floor = (Level("test_loss", limit, f"limit of {few}"),) if limit > 0 else ()
        return Explanation(f"{fell}, and in the end it stops at {readable(limit)}: {reason}.", floor)
    if model.spectrum is not None:
        return Explanation(f"{fell}; a spectrum that is given as a list need not follow any power law.")
    exponent, lazy = exponent_of(model), exponent_of(model, "lazy")
    growth = float(curves.kernel_growth[-1]) if "kernel_growth" in curves else 1.0
    marks = tuple(_slopes(model, curves, exponent, growth))
    law = f"The loss falls as time to the power -{readable(exponent)}"
    if model.richness == 0:
        return Explanation(f"{law}: features stand still, and modes are learned at their first rates.", marks)
    if exponent > lazy:
        faster = f"instead of -{readable(lazy)}, because the kernel keeps growing, {readable(growth)}-fold so far"
        return Explanation(f"{law} {faster}, and speeds up what is still to be learned.", marks)
    same = f"the kernel has grown {readable(growth)}-fold, but on an easy task the growth soon ends"
    return Explanation(f"{law}, with or without feature learning: {same}.", marks)


def _slopes(model: Any, curves: xr.Dataset, exponent: float, growth: float) -> list[Mark]:
    """The late part of the curve, up to the time at which the last of finitely many modes is learned."""
    times, clock = curves.time.values, curves.flow_time.values
    ends = math.inf if model.mode_count == math.inf else 0.1 * model.mode_count**model.capacity / growth
    inside = (clock > 3) & (clock < ends) & (times > 0)
    if not inside.any() or times[inside][-1] < 4 * times[inside][0]:
        return []
    start, end = float(times[inside][0]), float(times[inside][-1])
    return [Slope("test_loss", exponent, start, end, f"t^-{exponent:.3g}")]


def system(model: Any, training: Any, times: np.ndarray) -> SystemView:
    """What each mode adds to the error, per logarithm of its rank, and how much of it has been learned."""
    times = np.asarray(times, float)
    curves = model.predict(times if times[0] == 0 else np.concatenate([[0.0], times]), training)
    weight = curves.mode_weight.values
    # The nodes of infinitely many modes end with one for all that are left, which is no density.
    modes = curves.isel(node=~(np.maximum.accumulate(weight > 1) & (weight == 1)))
    loss = modes.mode_loss.transpose("time", "node").values
    rank = modes.mode_rank.values
    start = loss[0]
    left = np.divide(loss, start, out=np.zeros_like(loss), where=start > 0)[-times.size :]
    data = xr.Dataset(
        {
            "density": ("x", start * rank),
            "learned": (("time", "x"), np.clip(1 - np.nan_to_num(left, nan=1.0), 0, 1)),
        },
        {"time": times, "x": ("x", rank, {"long_name": "rank of the mode", "units": "1"})},
    )
    caption = "Each mode carries a share of the error, from strong modes on the left to weak ones; the filled part has "
    return SystemView("filling", "Modes of the data", caption + "been learned.", data, log_x=True)


_FLOW = {"training": "flow", "modes": "inf", "times": "1:1e4:61log"}

STORY = Story(
    question="Can learning features change a power law?",
    steps=(
        Step(
            "Features that stand still",
            "On a hard task, whose error sits mostly in weak modes of the data, a network with fixed features learns "
            "slowly. Its loss falls as time to the power minus {lazy:.3g}: a straight line on these axes.",
            {**_FLOW, "richness": "0"},
            question="What if the features learn, too?",
            look_at="test_loss",
            play=True,
        ),
        Step(
            "Features that move",
            "The line becomes steeper: the exponent approaches {rich:.3g} instead of {lazy:.3g}. After this time the "
            "loss is {gain:.2g} times lower than with fixed features.",
            _FLOW,
            question="Where does the speed come from?",
            look_at="test_loss",
            play=True,
        ),
        Step(
            "The kernel grows",
            "The kernel, which sets the speed at which every mode is learned, has grown {growth:.2g}-fold. A hard task "
            "never stops asking for more, so that the kernel never stops growing.",
            _FLOW,
            question="Does this help with every task?",
            look_at="kernel_growth",
        ),
        Step(
            "An easy task: the same slope",
            "Here the error sits in strong modes, which are learned early; the kernel stops after growing "
            "{growth:.2g}-fold. The loss is {gain:.2g} times lower than with fixed features, but the exponent stays at "
            "{rich:.3g}.",
            {**_FLOW, "source": "1.5"},
            question="How far down does the hard task's line go?",
            look_at="kernel_growth",
        ),
        Step(
            "A finite network: a floor",
            "With {features:g} features the loss stops at {limit:.2g}. The floor sinks with the number of features to "
            "the power minus {features_exponent:.3g}, whether the features learn or not.",
            {**_FLOW, "features": "32"},
            question="Now it is your turn: which task gains most?",
            look_at="test_loss",
        ),
        Step(
            "Your turn",
            "The source says how easy the task is: the larger it is, the more of the error sits in strong modes.",
            _FLOW,
        ),
    ),
    challenge="For which source does feature learning raise the exponent most?",
    answer="At a source of {best_source:.2g}, where it raises the exponent by {best_gain:.2g}; from one on it gains "
    "nothing.",
    sliders=("source", "richness"),
    variables=(("test_loss",), ("kernel_growth",)),
    facts=facts,
)
