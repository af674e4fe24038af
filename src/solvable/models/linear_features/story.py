"""The story of regression on linear features, the marks on its curves, and its coefficients over time."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.story import Explanation, Level, Mark, Point, Step, Story, SystemView, readable

# Times of the steps, at which the facts are read off as well; and the number of modes that the picture shows.
_TIMES, _GRID = "0.1:1e4:61log", np.geomspace(0.1, 1e4, 61)
_SHOWN = 60


def facts(model: Any, training: Any) -> Mapping[str, Any]:
    """Numbers of one setting that the texts insert; the end is the last time of the story."""
    curves = model.predict(_GRID / training.learning_rate, training)
    loss = curves.test_loss.values
    best = int(loss.argmin())
    return {
        "best_time": float(curves.time[best]),
        "best_loss": float(loss[best]),
        "end_loss": float(loss[-1]),
        "ratio": float(loss[-1] / loss[best]),
        "signal_best": float(curves.signal_fit[best]),
        "noise_best": float(curves.noise_fit[best]),
        "noise_end": float(curves.noise_fit[-1]),
        "samples": math.inf if model.samples is None else model.samples,
        "modes": int(np.count_nonzero(model.intensities)),
    }


def explain(model: Any, training: Any, curves: xr.Dataset) -> Explanation:
    """The best time to stop, what comes after it, and which of signal and noise is to blame."""
    loss, times = curves.test_loss.values, curves.time.values
    best = int(loss.argmin())
    marks: list[Mark] = []
    if "limit_test_loss" in curves and float(curves.limit_test_loss) > 0:
        marks.append(Level("test_loss", float(curves.limit_test_loss), "in the end"))
    low, last = readable(float(loss[best])), readable(float(loss[-1]))
    if model.samples is None:
        sentence = f"The test loss falls to {last}: with unlimited data the noise on the labels averages out."
        return Explanation(sentence, tuple(marks))
    if loss[-1] < 1.05 * loss[best]:
        reason = "there is no noise to fit" if model.noise == 0 else "what is fitted of the noise does little harm"
        return Explanation(f"The test loss comes down to {last} and does not rise again: {reason}.", tuple(marks))
    marks.append(Point("test_loss", float(times[best]), f"best: {low}"))
    noise, end = float(curves.noise_fit[best]), float(curves.noise_fit[-1])
    rise = f"The test loss is smallest, {low}, at time {readable(float(times[best]))} and then rises to {last}"
    cause = f"by then {noise:.0%} of the noise has been fitted, at the last time {end:.0%}"
    if model.noise == 0:
        cause = f"{model.samples} samples do not determine the weak modes, and strong ones are taken for them"
    return Explanation(f"{rise}: {cause}.", tuple(marks))


def system(model: Any, training: Any, times: np.ndarray) -> SystemView:
    """The mean coefficient of each mode beside the target's; half the sum of the squared gaps is the bias."""
    count = min(_SHOWN, model.target.size)
    learned = model.predict(times, training, modes=count).coefficient
    data = xr.Dataset(
        {
            "height": (("time", "index"), learned.values, {"long_name": "mean coefficient", "units": "1"}),
            "target": ("index", model.target[:count], {"long_name": "coefficient of the target", "units": "1"}),
        },
        {"time": learned.time.values, "index": ("index", learned.mode.values, {"long_name": "mode"})},
    )
    return SystemView("bars", "What is learned of each mode", "Each bar grows from zero towards its target.", data)


STORY = Story(
    question="When is overfitting harmless?",
    steps=(
        Step(
            "First better, then worse",
            "From {samples:g} noisy samples the test loss falls to {best_loss:.2g} at time {best_time:.2g}. Then it "
            "rises again, to {end_loss:.2g}, although the training loss keeps falling.",
            {"times": _TIMES},
            question="What is learned after the best moment?",
            look_at="test_loss",
            play=True,
        ),
        Step(
            "First the signal, then the noise",
            "At the best moment {signal_best:.0%} of the target has been learned and {noise_best:.0%} of the noise on "
            "the labels. Strong modes hold the target and are fast; weak modes are slow, and can only fit noise.",
            {"times": _TIMES},
            question="Would clean labels be harmless?",
            look_at="noise_fit",
            cursor=0.4,
        ),
        Step(
            "Without noise: no harm",
            "With clean labels the test loss only falls, to {end_loss:.2g} at the last time. Fitting the training data "
            "perfectly is no mistake in itself.",
            {"noise": "0", "times": _TIMES},
            question="When is the noise most harmful?",
            look_at="test_loss",
        ),
        Step(
            "As many samples as modes: the peak",
            "With {samples:g} samples for {modes:g} modes there is just one way to fit all of the noise, and it takes "
            "huge coefficients. The test loss ends {ratio:.2g} times above its best value.",
            {"samples": "40", "times": _TIMES},
            question="Do more samples help?",
            look_at="test_loss",
            play=True,
        ),
        Step(
            "More samples: the noise averages out",
            "With {samples:g} samples only {noise_end:.0%} of the noise can be fitted at all. The test loss ends at "
            "{end_loss:.2g}, close to its best value of {best_loss:.2g}.",
            {"samples": "400", "times": _TIMES},
            question="Now it is your turn: where is the danger greatest?",
            look_at="test_loss",
        ),
        Step(
            "Your turn",
            "Change the number of samples and the noise, and compare the best loss with the last one.",
            {"times": _TIMES},
        ),
    ),
    challenge="For which number of samples is the test loss at the last time largest?",
    answer="For {modes:g}, one for each mode: fewer samples leave freedom to fit the noise gently, and more of them "
    "average it out.",
    sliders=("samples", "noise"),
    variables=(("train_loss", "test_loss"), ("signal_fit", "noise_fit")),
    facts=facts,
)
