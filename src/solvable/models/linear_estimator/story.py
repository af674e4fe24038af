"""The story of the linear estimator, the marks on its curves, and the spectrum of its data over time."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.story import Band, Explanation, Level, Mark, Point, Step, Story, SystemView, crossing, readable
from solvable.training import SGD

ACCURACY = 0.95


def edges(aspect_ratio: float) -> tuple[float, float]:
    """Smallest and largest non-zero eigenvalue of the data's covariance: the edges of the Marchenko-Pastur law."""
    return (1 - math.sqrt(aspect_ratio)) ** 2, (1 + math.sqrt(aspect_ratio)) ** 2


def facts(model: Any, training: Any) -> Mapping[str, Any]:
    """Numbers of one setting that the texts insert."""
    times = model.grokking_time(ACCURACY, training)
    train, test = float(times.train_time), float(times.test_time)
    slowest, fastest = edges(model.aspect_ratio)
    return {
        "train_time": train,
        "test_time": test,
        "delay": test - train,
        "ratio": test / train,
        "slowest": slowest,
        "spread": fastest / slowest,
        "limit": float(model.limit(training).test_loss),
        "critical": float(model.critical_weight_decay(ACCURACY, training).critical_weight_decay),
    }


def explain(model: Any, training: Any, curves: xr.Dataset) -> Explanation:
    """The delay between the two crossings of 95 % accuracy, and which direction of the data is to blame for it."""
    last = float(curves.time[-1])
    if model.width is not None:
        return Explanation("With a hidden layer each direction of the data is learned along a sigmoid of its own.")
    if isinstance(training, SGD) or not training.is_constant or getattr(training, "momentum", 0.0) > 0:
        reached = [crossing(curves.time, curves[name], ACCURACY) for name in ("train_accuracy", "test_accuracy")]
        when = [f"at step {readable(time)}" if time <= last else "not yet" for time in reached]
        return Explanation(f"Training accuracy reaches 95 % {when[0]}, test accuracy {when[1]}.")
    times = model.grokking_time(ACCURACY, training)
    train, test = float(times.train_time), float(times.test_time)
    marks: list[Mark] = []
    if train <= last:
        marks.append(Point("train_accuracy", train, f"memorised: {readable(train)} steps"))
    if test <= last:
        marks.append(Point("test_accuracy", test, f"understood: {readable(test)} steps"))
    slowest, fastest = edges(model.aspect_ratio)
    if math.isnan(train):
        return Explanation("Training accuracy never reaches 95 %, so that there is nothing to wait for.", tuple(marks))
    if math.isnan(test):
        limit = float(model.limit(training).test_loss)
        reason = _never_reason(model, training)
        sentence = f"Test accuracy never reaches 95 %: the test loss stops at {limit:.3g}, because {reason}."
        return Explanation(sentence, (*marks, Level("test_loss", limit, f"stops at {limit:.3g}")))
    marks.append(Band(train, test, "grokking delay"))
    sentence = (
        f"Test accuracy arrives {readable(test / train, 2)} times later than training accuracy: the slowest direction "
        f"of the data has eigenvalue {readable(slowest, 2)}, {readable(fastest / slowest)} times below the fastest."
    )
    return Explanation(sentence, tuple(marks))


def _never_reason(model: Any, training: Any) -> str:
    if model.aspect_ratio > 1:
        share = 1 - 1 / model.aspect_ratio
        return f"{share:.0%} of the directions do not occur in the training data"
    if training.weight_decay > 0:
        return "weight decay shrinks what was learned"
    return "the labels are noisy"


def system(model: Any, training: Any, times: np.ndarray) -> SystemView:
    """The eigenvalues of the data's covariance and how much of each direction has been learned at each time.

    A direction of eigenvalue ``nu`` approaches its end value as ``1 - exp(-kappa (nu + gamma / 2) t)`` under the flow,
    and as ``1 - (1 - kappa (nu + gamma / 2))^t`` in steps, where ``kappa = 2 eta / d_out``.
    """
    low, high = edges(model.aspect_ratio)
    x = np.geomspace(max(low, 1e-6 * high), high, 120)
    # The density per logarithm of the eigenvalue, since the axis is logarithmic.
    density = np.sqrt(np.maximum((x - low) * (high - x), 0)) / (2 * np.pi * model.aspect_ratio)
    kappa = 2 * training.speed / model.outputs
    rate = kappa * (x + training.weight_decay / 2)
    log_left = np.log(np.abs(1 - rate)) if training.counts_steps else -rate
    learned = -np.expm1(np.asarray(times, float)[:, None] * log_left)
    data = xr.Dataset(
        {"density": ("x", density), "learned": (("time", "x"), learned)},
        {
            "time": np.asarray(times, float),
            "x": ("x", x, {"long_name": "eigenvalue of the data's covariance", "units": "1"}),
        },
    )
    return SystemView(
        "filling",
        "Directions of the data",
        "Each direction is learned at the rate of its eigenvalue; the filled part has been learned.",
        data,
        log_x=True,
    )


STORY = Story(
    question="Why does it understand long after it has memorised?",
    steps=(
        Step(
            "Plenty of data: both arrive together",
            "With ten samples for each input dimension, training accuracy is complete after {train_time:,.0f} steps "
            "and test accuracy after {test_time:,.0f}. What is learned on the training set holds on new data.",
            {"aspect_ratio": "0.1", "times": "1:1e4:97log"},
            question="What changes if data are scarce?",
            look_at="test_accuracy",
            play=True,
        ),
        Step(
            "Scarce data: a tenfold delay",
            "With hardly more samples than dimensions, training accuracy is complete after {train_time:,.0f} steps, "
            "but test accuracy only after {test_time:,.0f}. This is grokking.",
            {"aspect_ratio": "0.9", "times": "1:1e5:97log"},
            question="Does anything sudden happen in between?",
            look_at="grokking delay",
            play=True,
        ),
        Step(
            "Nothing jumps",
            "Each direction of the data is learned at its own rate, and the slowest has eigenvalue {slowest:.2g}. The "
            "training loss hardly contains these directions, but new data contain them in full.",
            {"aspect_ratio": "0.9", "times": "1:1e5:97log"},
            question="How much of the delay lies in the way we measure?",
            look_at="system",
            cursor=0.75,
        ),
        Step(
            "Move the threshold",
            "Asking for a hundred times smaller squared error before an output counts as right moves the crossings to "
            "{train_time:,.0f} and {test_time:,.0f} steps. The losses are the same as before.",
            {"aspect_ratio": "0.9", "threshold": "1e-5", "times": "1:1e5:97log"},
            question="Can test accuracy stay away for ever?",
            look_at="test_loss",
        ),
        Step(
            "Too few samples: never",
            "With fewer samples than dimensions, some directions do not occur in the training data at all. The test "
            "loss stops at {limit:.3g}, and test accuracy never comes.",
            {"aspect_ratio": "1.5", "times": "1:1e5:97log"},
            question="Now it is your turn: what else can prevent grokking?",
            look_at="test_loss",
        ),
        Step(
            "Your turn",
            "Weight decay pulls all weights towards zero. A little of it changes nothing, and too much keeps the "
            "student from ever reaching the teacher.",
            {"aspect_ratio": "0.9", "times": "1:1e5:97log"},
        ),
    ),
    challenge="At 0.9 dimensions per sample, find the weight decay above which the student never groks.",
    answer="It is {critical:.3g}; on the plane of delays it is the edge of the region that never groks.",
    sliders=("aspect_ratio", "weight_decay"),
    variables=(("train_accuracy", "test_accuracy"), ("train_loss", "test_loss")),
    facts=facts,
)
