"""The story of the committee, the marks on its curves, and its neurons beside the teacher."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.story import Band, Explanation, Mark, Point, Step, Story, SystemView, crossing, readable

# A loss counts as learned when it has fallen to this fraction of its first value.
FRACTION = 0.1
# Times of the story, in the unit of the training.
_TIMES, _GRID = "0:112:29", np.arange(0, 113, 4)


# The last prediction. Sentence, facts and picture of one setting need the same, which takes seconds.
_LAST: list[tuple[Any, Any, xr.Dataset]] = []


def _predicted(model: Any, training: Any, times: np.ndarray) -> xr.Dataset:
    """Curves of theory: the last prediction if it is for this very model, which is frozen, and these times."""
    for last, trained, curves in _LAST:
        if last is model and trained == training and np.array_equal(curves.time, times):
            return curves
    curves = model.predict(times, training, progress=False)
    _LAST[:] = [(model, training, curves)]
    return curves


def learned_at(curves: xr.Dataset, name: str) -> float:
    """When a loss falls to a tenth of its first value; NaN if it does not, or is not there."""
    if name not in curves:
        return math.nan
    return crossing(curves.time, curves[name], FRACTION * float(curves[name][0]))


def largest_alignment(curves: xr.Dataset, time: float) -> float:
    """The largest alignment of a neuron with an index vector at a time."""
    sizes = np.abs(curves.alignment).max(["neuron", "index"])
    return float(np.interp(time, curves.time, sizes))


def facts(model: Any, training: Any) -> Mapping[str, Any]:
    """Numbers of one setting that the texts insert, from the curves of theory."""
    curves = _predicted(model, training, _GRID)
    train, test = learned_at(curves, "train_loss"), learned_at(curves, "test_loss")
    gap = math.nan if "train_loss" not in curves else float((curves.test_loss - curves.train_loss).max())
    return {
        "train_time": train,
        "test_time": test,
        "delay": test - train,
        "gap": gap,
        "samples": model.samples_per_dimension,
        "start_alignment": largest_alignment(curves, 0.0),
        "memorised_alignment": largest_alignment(curves, train),
        "understood_alignment": largest_alignment(curves, test),
        "rate": float(model.early_alignment_rate(training).early_alignment_rate),
        "output_scale": model.output_scale,
    }


def explain(model: Any, training: Any, curves: xr.Dataset) -> Explanation:
    """When both losses have fallen to a tenth, and how far the neurons have turned to the teacher by then."""
    _LAST[:] = [(model, training, curves)]
    train, test = learned_at(curves, "train_loss"), learned_at(curves, "test_loss")
    marks: list[Mark] = []
    if math.isfinite(train):
        marks.append(Point("train_loss", train, f"memorised: {readable(train)}"))
    if math.isfinite(test):
        marks.append(Point("test_loss", test, f"understood: {readable(test)}"))
    last = float(curves.time[-1])
    if not math.isfinite(test):
        reached = readable(largest_alignment(curves, last))
        start = "Only the training loss falls to a tenth" if marks else "No loss falls to a tenth"
        return Explanation(f"{start} by time {readable(last)}: the largest alignment is {reached}.", tuple(marks))
    reached = readable(largest_alignment(curves, test))
    turn = f"the largest alignment of a neuron with the teacher is {reached} by then"
    if not math.isfinite(train):
        return Explanation(f"The test loss falls to a tenth by time {readable(test)}: {turn}.", tuple(marks))
    if test <= train:
        return Explanation(f"Both losses fall to a tenth by time {readable(train)}: {turn}.", tuple(marks))
    marks.append(Band(train, test, "grokking delay"))
    before = readable(largest_alignment(curves, train))
    sentence = (
        f"The training loss falls to a tenth by time {readable(train)} and the test loss by {readable(test)}, while "
        f"the largest alignment of a neuron with the teacher goes from {before} to {reached}."
    )
    return Explanation(sentence, tuple(marks))


def system(model: Any, training: Any, times: np.ndarray) -> SystemView:
    """Each neuron as an arrow: along the teacher's first direction, and across all of them, with its length kept.

    The across part is ``sqrt(C_ii - A_i1^2)``, so that the squared length of an arrow is the neuron's overlap with
    itself.
    """
    curves = _predicted(model, training, times)
    along = curves.alignment.isel(index=0).transpose("time", "neuron").values
    overlap = curves.overlap.transpose("time", "neuron", "other_neuron").values
    across = np.sqrt(np.maximum(np.einsum("tii->ti", overlap) - along**2, 0))
    neurons = along.shape[1]
    data = xr.Dataset(
        {
            "x": (("time", "index"), along, {"long_name": "along the teacher", "units": "1"}),
            "y": (("time", "index"), across, {"long_name": "across the teacher", "units": "1"}),
            "target_x": ("index", np.ones(neurons)),
            "target_y": ("index", np.zeros(neurons)),
        },
        {"time": curves.time.values, "index": np.arange(1, neurons + 1)},
    )
    caption = "Each arrow is a neuron; the teacher points along the horizontal axis."
    return SystemView("arrows", "Neurons", caption, data)


STORY = Story(
    question="How can a network memorise first and understand later?",
    steps=(
        Step(
            "Memorised first",
            "Two neurons learn from {samples:g} samples for each input dimension. The training loss falls to a tenth "
            "by step {train_time:.2g}, the loss on new data only by step {test_time:.2g}.",
            {"times": _TIMES},
            question="What changes in between?",
            look_at="grokking delay",
            play=True,
        ),
        Step(
            "The neurons turn",
            "The larger alignment of a neuron with the teacher grows from {start_alignment:.2g} to "
            "{memorised_alignment:.2g} when the data are memorised, and to {understood_alignment:.2g} when they are "
            "understood. The samples can also be fitted along directions that mean nothing for new data, so that the "
            "training loss is ahead all the way.",
            {"times": _TIMES},
            question="Do more data shorten the wait?",
            look_at="system",
            cursor=0.5,
        ),
        Step(
            "More data: less to memorise",
            "With {samples:g} samples for each dimension the two losses fall to a tenth by steps {train_time:.2g} and "
            "{test_time:.2g}. What fits that many samples also fits new ones.",
            {"samples_per_dimension": "20", "times": _TIMES},
            question="What sets the speed of the turn?",
            look_at="test_loss",
            play=True,
        ),
        Step(
            "A weaker quadratic part: a slower turn",
            "The target is a square, and only the quadratic part of the activation can see it. With unlimited data and "
            "half of that part a small alignment grows at a rate of {rate:.2g} per unit of flow time.",
            {"samples_per_dimension": "inf", "activation": "quadratic(0.15)", "times": _TIMES},
            question="Now it is your turn: what else shortens the wait?",
            look_at="alignment",
        ),
        Step(
            "Your turn",
            "The number of samples and the scale of the output both change how much is memorised.",
            {"times": _TIMES},
        ),
    ),
    challenge="By how many steps does understanding come after memorising at this setting?",
    answer="By {delay:.2g} steps: a tenth of the first loss is reached at {train_time:.2g} and at {test_time:.2g}.",
    sliders=("samples_per_dimension", "output_scale"),
    variables=(("train_loss", "test_loss"), ("alignment",)),
    facts=facts,
    # Outside, gradient descent at this learning rate diverges for some values of the other slider.
    ranges={"samples_per_dimension": (4, math.inf), "output_scale": (0.1, 1)},
)
