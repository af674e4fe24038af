"""The story of learning-rate schedules: what the usual ones lose on an easy task, and why."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.models.feature_scaling.best_schedule import final_loss, task_of
from solvable.precision import in_float64
from solvable.story import Explanation, Level, Step, Story, SystemView, readable
from solvable.training import SGD, Schedule
from solvable.training_choice import parse_schedule

# Steps of the whole run, and the fractions of it among which the best warm-up and decay are looked for.
STEPS = 100
_FRACTIONS = np.linspace(0.01, 0.5, 50)


class Best(NamedTuple):
    """The best schedule: the rate of every step as a fraction of the peak, its loss, and the best simple one."""

    rates: np.ndarray
    loss: float
    warm_up: float
    decay: float
    simple_loss: float


def peak_of(training: Any) -> float:
    """The learning rate, of a schedule the one that it is a fraction of."""
    rate = training.learning_rate
    function: Any = rate.function if isinstance(rate, Schedule) else None
    return float(rate if function is None else function.peak)


def best_of(model: Any, training: Any) -> Best:
    """The schedule with the least loss after the last step, for batches and a peak like those of the training."""
    task = (model.capacity, model.source, model.label_noise, model.mode_count)
    return _best(task, peak_of(training), int(training.batch_size))


@functools.lru_cache(maxsize=64)
def _best(task: tuple[float, float, float, float], peak: float, batch: int) -> Best:
    from solvable.models.feature_scaling.model import FeatureScaling

    capacity, source, label_noise, modes = task
    model = FeatureScaling(capacity=capacity, source=source, label_noise=label_noise, modes=modes, richness=0.0)
    found = model.best_schedule(STEPS, peak, batch, progress=False).sel(schedule="optimal")

    def loss(warm_up: float, decay: float) -> float:
        return last_loss(model, SGD(parse_schedule(f"wsd:{STEPS}:{warm_up:g}:{decay:g}", peak), batch_size=batch))

    # One fraction after the other: the losses have a single valley.
    warm_up, decay = 0.05, 0.2
    for _ in range(2):
        warm_up = min(_FRACTIONS, key=lambda fraction: loss(fraction, decay))
        decay = min(_FRACTIONS, key=lambda fraction: loss(warm_up, fraction))
    rates = found.learning_rate.values / peak
    return Best(rates, float(found.test_loss[0]), float(warm_up), float(decay), loss(warm_up, decay))


@in_float64
def last_loss(model: Any, training: Any) -> float:
    """The loss after the last step, by the recursion of second moments: the same as ``predict`` in less time."""
    task, _ = task_of(model, peak_of(training) * STEPS)
    sizes = jnp.full(STEPS, float(training.batch_size))
    return float(final_loss(task, jnp.asarray(training.learning_rates(0, STEPS)), sizes))


def facts(model: Any, training: Any) -> Mapping[str, Any]:
    """Final losses relative to that of the best schedule, and where that one rises and falls."""
    best = best_of(model, training)

    def ratio(text: str) -> float:
        return last_loss(model, training.replace(learning_rate=parse_schedule(text, peak_of(training)))) / best.loss

    high = np.flatnonzero(best.rates >= best.rates.max() / 2)
    return {
        "steps": STEPS,
        "ratio": last_loss(model, training) / best.loss,
        "constant": ratio("constant"),
        "cosine": ratio(f"cosine:{STEPS}"),
        "warmed": ratio(f"wsd:{STEPS}"),
        "first": float(best.rates[0] / best.rates.max()),
        "rises": float(high[0] / STEPS),
        "falls": float(1 - (high[-1] + 1) / STEPS),
        "warm_up": best.warm_up,
        "decay": best.decay,
        "simple": best.simple_loss / best.loss - 1,
    }


def explain(model: Any, training: Any, curves: xr.Dataset) -> Explanation:
    """The final loss beside the least that any schedule reaches."""
    best, last = best_of(model, training), float(curves.test_loss[-1])
    ratio = last / best.loss
    above = f"{readable(ratio, 2)} times" if ratio >= 1.995 else f"{100 * (ratio - 1):.2g} % above"
    sentence = (
        f"After {STEPS} steps the loss is {readable(last)}: {above} the least that any schedule with rates up to "
        f"{readable(peak_of(training))} reaches, {readable(best.loss)}."
    )
    return Explanation(sentence, (Level("test_loss", best.loss, "the best schedule's last loss"),))


def system(model: Any, training: Any, times: np.ndarray) -> SystemView:
    """The schedule as a path, beside the best one: rates as fractions of the peak, over fractions of the run."""
    times, peak = np.asarray(times, float), peak_of(training)
    steps = np.arange(STEPS + 1) / STEPS
    own = training.learning_rates(0, STEPS + 1) / peak
    best = np.append(best_of(model, training).rates, np.nan)
    data = xr.Dataset(
        {
            "x": ("time", times / STEPS, {"long_name": "fraction of the run", "units": "1"}),
            "y": ("time", own[times.astype(int)], {"long_name": "learning rate / peak", "units": "1"}),
            "line_x": (("line", "position"), steps[None, :-1]),
            "line_y": (("line", "position"), best[None, :-1]),
        },
        {"time": times},
    )
    caption = "The point moves along the schedule; the dashed line is the best one."
    return SystemView("path", "The schedule", caption, data)


_RUN = {
    "source": "1.5",
    "richness": "0",
    "modes": "100",
    "training": "sgd",
    "batch_size": "1",
    "learning_rate": "0.5",
    "times": f"1:{STEPS}:41log",
}
# The best schedule of this setting through a few points; a test compares it with `best_schedule`.
_DRAWN = f"points:{STEPS}:0=0.18,0.1=0.4,0.2=0.69,0.4=0.9,0.6=0.92,0.8=0.77,0.9=0.51,1=0.23"

STORY = Story(
    name="schedule",
    question="Which learning-rate schedule is best?",
    steps=(
        Step(
            "A constant rate",
            "The network learns an easy task from one sample at a time, with a constant learning rate. After {steps} "
            "steps its loss is {ratio:.2g} times the least that any schedule reaches, the dashed line.",
            _RUN,
            question="Noise of single samples is the trouble. Does it help to lower the rate at the end?",
            look_at="test_loss",
            play=True,
        ),
        Step(
            "A decay: cosine",
            "The usual cosine decay hardly helps here: its loss is {ratio:.2g} times the least, instead of "
            "{constant:.2g} times. The noise of a batch is proportional to the loss, so that at the end there is "
            "little left to average away.",
            {**_RUN, "schedule": f"cosine:{STEPS}"},
            question="When does the harmful noise come in?",
            look_at="system",
            play=True,
        ),
        Step(
            "A warm-up",
            "At the start, when the loss is large. A rise over the first twentieth, a constant rate and a fall over "
            "the last fifth come down to {ratio:.2g} times the least.",
            {**_RUN, "schedule": f"wsd:{STEPS}"},
            question="What does the best schedule of all look like?",
            look_at="system",
            play=True,
        ),
        Step(
            "The best schedule",
            "It begins at {first:.0%} of its peak, passes half of it after {rises:.0%} of the run, and falls below "
            "half for the last {falls:.0%}. The rate may rise as the loss, and with it the noise, falls.",
            {**_RUN, "schedule": _DRAWN},
            question="Is that so for every task?",
            look_at="system",
            play=True,
        ),
        Step(
            "Noisy labels turn it round",
            "Noise in the labels does not die with the loss, and now the decay matters: cosine ends at {cosine:.2g} "
            "times the least loss, the warm-up with a long constant rate at {warmed:.2g} times.",
            {**_RUN, "label_noise": "0.3", "schedule": f"cosine:{STEPS}"},
            question="Now it is your turn: how much warm-up, and how much decay?",
            look_at="test_loss",
        ),
        Step(
            "Your turn",
            "The labels are clean again. You set the fractions of the run in which the rate rises and falls.",
            {**_RUN, "schedule": f"wsd:{STEPS}"},
        ),
    ),
    challenge="Which warm-up and which decay come nearest to the best schedule?",
    answer="A warm-up over about {warm_up:.0%} of the run and a decay over {decay:.0%}: {simple:.0%} above the best "
    "schedule of all.",
    sliders=("warm_up", "decay"),
    variables=(("test_loss",),),
    facts=facts,
    explain=explain,
    system=system,
)
