"""Trainings from plain values, as the command line, the page and sweeps have them: which options a model has, and which
training a choice of values means."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.checks import Rule
from solvable.coverage import Covers
from solvable.timegrid import whole_steps
from solvable.training import SAMPLING, SGD, TRAININGS, GradientDescent, GradientFlow, Schedule, Training

if TYPE_CHECKING:
    from solvable.model import Model

# Options that only one kind of training has: giving one of them says which kind is meant.
_OF_SGD = ("batch_size", "batch_fraction", "sampling")
_OF_STEPS = (
    "momentum",
    "nesterov",
    "decoupled",
    "feature_learning_rate",
    "ema_decay",
    "average_from",
    "max_gradient_norm",
    "temperature",
    "readout_learning_rate",
)


@dataclasses.dataclass(frozen=True)
class TrainingOption:
    """An option of the trainings that a model covers: its name, its meaning, its rule and its default.

    ``choices`` are the values of an option that takes one of a few names; ``whole`` says that it is a whole number;
    ``kinds`` are the names of the trainings that have the option; ``needs`` is the name of another option and how its
    text must begin for this one to mean anything. An option whose rule is that of a function is a text.
    """

    name: str
    help: str
    rule: Rule
    symbol: str = ""
    default: Any = None
    choices: tuple[str, ...] = ()
    whole: bool = False
    kinds: tuple[str, ...] = ()
    needs: tuple[str, str] | tuple[()] = ()


def training_options(model: "type[Model]") -> list[TrainingOption]:
    """The options of all trainings that the theory or the simulation of a model covers, ``training`` first.

    >>> import solvable
    >>> from solvable.training_choice import training_options
    >>> [option.name for option in training_options(solvable.ScalarNetwork)][:4]
    ['training', 'learning_rate', 'weight_decay', 'momentum']
    """
    covered = [*model.theory_covers, *model.simulation_covers]
    kinds = [name for name, kind in TRAININGS.items() if any(cover.kind is kind for cover in covered)]
    named = {name for cover in covered for name in cover.options}
    sampling = tuple(name for name in SAMPLING if any(name in cover.sampling for cover in covered))
    if "sgd" in kinds:
        named |= {"batch_size"} | ({"sampling"} if len(sampling) > 1 else set())
    default = model.default_training
    text = "how to train: " + ", ".join(f"{name} ({TRAININGS[name].__name__})" for name in kinds)
    found = [_named_option("training", text, tuple(kinds), default.name)]
    known = {field.name: field for kind in kinds for field in dataclasses.fields(TRAININGS[kind])}
    for name, field in known.items():
        if name != "learning_rate" and name not in named:
            continue
        if name == "sampling":
            found.append(_named_option(name, field.metadata["help"], sampling, None))
        elif name in ("nesterov", "decoupled"):
            rule = Rule("true or false", lambda value: isinstance(value, bool))
            found.append(TrainingOption(name, field.metadata["help"], rule, default=False))
        else:
            value = getattr(default, name, field.default)
            value = None if value is dataclasses.MISSING or isinstance(value, Schedule) else value
            about = field.metadata
            whole = "whole number" in about["rule"].text
            found.append(TrainingOption(name, about["help"], about["rule"], about["symbol"], value, (), whole))
    found = [dataclasses.replace(option, kinds=_kinds_with(option.name, covered)) for option in found]
    scheduled = tuple(kind for kind in kinds if any(_takes_schedules(cover, TRAININGS[kind]) for cover in covered))
    return found + [dataclasses.replace(option, kinds=scheduled) for option in _SCHEDULE_OPTIONS if scheduled]


def _takes_schedules(cover: Covers, kind: type[Training]) -> bool:
    return cover.kind is kind and "learning_rate" in cover.schedules


def _kinds_with(name: str, covered: Iterable[Covers]) -> tuple[str, ...]:
    """The trainings for which the option may be set."""
    always = {"training", "learning_rate"}
    return tuple(
        kind
        for kind, cls in TRAININGS.items()
        for options in [{name for cover in covered if cover.kind is cls for name in cover.options}]
        if any(cover.kind is cls for cover in covered)
        and (name in always | options or (cls is SGD and name in ("batch_size", "sampling")))
    )


def _named_option(name: str, help: str, choices: tuple[str, ...], default: str | None) -> TrainingOption:
    return TrainingOption(name, help, Rule("one of " + ", ".join(choices), choices.__contains__), "", default, choices)


def make_training(model: "type[Model]", values: Mapping[str, Any]) -> Training:
    """The training that values of :func:`training_options` mean; what is None or left out has its default.

    An option that only one kind of training has implies this kind: a batch size means SGD. ``schedule`` may be the text
    of a learning-rate schedule (:func:`parse_schedule`), whose peak is the learning rate; ``warm_up`` and ``decay`` are
    the fractions of ``wsd:STEPS``.

    >>> import solvable
    >>> from solvable.training_choice import make_training
    >>> make_training(solvable.ScalarNetwork, {"momentum": 0.9})
    GradientDescent(learning_rate=0.01, momentum=0.9)
    """
    given = {name: value for name, value in values.items() if value is not None}
    schedule = _schedule_text(*(given.pop(name, None) for name in ("schedule", "warm_up", "decay")))
    kind = _meant(model, given)
    default = model.default_training
    options = dict(default.parameters()) if type(default) is kind else _started(model, kind)
    options |= {name: value for name, value in given.items() if name != "training"}
    known = {field.name for field in dataclasses.fields(kind)}
    for name in set(options) - known:
        # A default of another kind of training was not asked for.
        if name in given and given[name] not in (None, 0, False):
            raise ValueError(f"{name} is not an option of {kind.__name__}; it has {', '.join(sorted(known))}")
        del options[name]
    if schedule is not None:
        options["learning_rate"] = parse_schedule(schedule, options["learning_rate"])
    return kind(**options)


def _schedule_text(schedule: str | None, warm_up: float | None, decay: float | None) -> str | None:
    """The text of a schedule with the fractions that were given apart from it."""
    if warm_up is None and decay is None:
        return schedule
    if schedule is None or not schedule.startswith("wsd:") or schedule.count(":") != 1:
        name = "decay" if warm_up is None else "warm_up"
        raise ValueError(f"{name} is an option of the schedule wsd:STEPS, not of {schedule or 'a constant rate'!r}")
    fractions = (WARM_UP if warm_up is None else warm_up, DECAY if decay is None else decay)
    return f"{schedule}:{fractions[0]:g}:{fractions[1]:g}"


WARM_UP, DECAY = 0.05, 0.2
SCHEDULES = (
    f"constant, cosine:STEPS, linear:STEPS, wsd:STEPS[:WARM_UP:DECAY] (fractions of the steps, {WARM_UP:g} and "
    f"{DECAY:g}) or points:STEPS:FRACTION=RATE,... (fractions of the steps and of the peak)"
)
_FRACTION = Rule("between 0 and 1", lambda value: 0 <= value <= 1)
_SCHEDULE_OPTIONS = (
    TrainingOption("schedule", "schedule whose peak is the learning rate", Rule(SCHEDULES, callable, function=True)),
    TrainingOption(
        "warm_up",
        "fraction of the steps in which the rate rises",
        _FRACTION,
        default=WARM_UP,
        needs=("schedule", "wsd:"),
    ),
    TrainingOption(
        "decay", "fraction of the steps in which the rate falls", _FRACTION, default=DECAY, needs=("schedule", "wsd:")
    ),
)


@dataclasses.dataclass(frozen=True)
class NamedSchedule:
    """A learning-rate schedule that a text describes; equal texts and peaks are equal schedules.

    Parameters
    ----------
    text
        The text, as :func:`parse_schedule` reads it.
    peak
        The largest learning rate.
    """

    text: str
    peak: float

    def __call__(self, step: Any) -> Any:
        return self.peak * _shape_of(self.text)(step)

    def __repr__(self) -> str:
        return f"parse_schedule({self.text!r}, {self.peak!r})"


def parse_schedule(text: str, peak: Any) -> Any:
    """A learning-rate schedule from text such as ``cosine:1000``, with the given peak.

    ``constant`` is the peak itself; ``cosine:STEPS`` and ``linear:STEPS`` decay to zero in that many steps;
    ``wsd:STEPS:WARM_UP:DECAY`` warms up, is constant and decays (both linearly) in these fractions of the steps; and
    ``points:STEPS:FRACTION=RATE,...`` is linear between points: fractions of the steps, and of the peak.

    Parameters
    ----------
    text
        Name and numbers of the schedule.
    peak
        Its largest learning rate.

    >>> from solvable.training_choice import parse_schedule
    >>> schedule = parse_schedule("linear:100", 0.5)
    >>> float(schedule(50))
    0.25
    """
    text = "".join(text.split())
    shape = _shape_of(text)
    return peak if shape is None else NamedSchedule(text, peak)


@lru_cache(maxsize=256)
def _shape_of(text: str) -> Any:
    """The schedule of a text with a peak of one; None for a constant rate."""
    import optax

    name, *numbers = text.split(":")
    refused = ValueError(f"schedule must be {SCHEDULES}, not {text!r}")
    if name == "points":
        return _through_points(numbers, refused)
    sizes = {"constant": (0,), "cosine": (1,), "linear": (1,), "wsd": (1, 3)}
    try:
        values = [float(number) for number in numbers]
    except ValueError:
        raise refused from None
    steps, warm_up, decay = (*values, *(1.0, WARM_UP, DECAY)[len(values) :])[:3]
    valid = _is_count(steps) and warm_up >= 0 and decay > 0 and warm_up + decay <= 1
    if len(numbers) not in sizes.get(name, ()) or not valid:
        raise refused
    if name == "constant":
        return None
    if name == "cosine":
        return optax.cosine_decay_schedule(1.0, int(steps))
    if name == "linear":
        return optax.linear_schedule(1.0, 0.0, int(steps))
    begin, end = round(warm_up * steps), round((1 - decay) * steps)
    parts = [
        optax.linear_schedule(0.0, 1.0, max(begin, 1)),
        optax.constant_schedule(1.0),
        optax.linear_schedule(1.0, 0.0, max(int(steps) - end, 1)),
    ]
    return optax.join_schedules(parts, [begin, end])


def _is_count(steps: float) -> bool:
    return steps >= 1 and float(steps).is_integer()


def _through_points(numbers: list[str], refused: ValueError) -> Any:
    """Linear between points, whose fractions of the run must rise from 0 to 1."""
    import jax.numpy as jnp

    try:
        steps, pairs = float(numbers[0]), [tuple(map(float, pair.split("="))) for pair in numbers[1].split(",")]
        fractions, rates = np.array(pairs, float).T
    except (ValueError, IndexError):
        raise refused from None
    inside = ((rates >= 0) & (rates <= 1)).all() and fractions[0] == 0 and fractions[-1] == 1
    if len(numbers) != 2 or not _is_count(steps) or not inside or not (np.diff(fractions) > 0).all():
        raise refused
    return lambda step: jnp.interp(step / steps, fractions, rates)


def _meant(model: "type[Model]", given: Mapping[str, Any]) -> type[Training]:
    if "training" in given:
        if given["training"] not in TRAININGS:
            raise ValueError(f"training must be one of {', '.join(TRAININGS)}, not {given['training']!r}")
        return TRAININGS[given["training"]]
    if any(name in given for name in _OF_SGD):
        return SGD
    default = type(model.default_training)
    steps = any(given.get(name) for name in _OF_STEPS)
    return GradientDescent if steps and default is GradientFlow else default


def _started(model: "type[Model]", kind: type[Training]) -> dict[str, Any]:
    """The options that a training of another kind than the default begins with: the default's, where it has them."""
    options = {
        name: value
        for name, value in model.default_training.parameters().items()
        if name in {field.name for field in dataclasses.fields(kind)}
    }
    if model.default_training.counts_steps != kind.counts_steps:
        # Flow time passes at a rate of 1, which would be a large step.
        options["learning_rate"] = 1.0 if kind is GradientFlow else model.usual_learning_rate
    return options


def usual_times(model: "type[Model]", training: Training) -> str:
    """The times to show if none are given: those of the model, in the units of the training.

    >>> import solvable
    >>> from solvable.training_choice import usual_times
    >>> usual_times(solvable.ScalarNetwork, solvable.GradientFlow())
    '0:6:31'
    >>> usual_times(solvable.ScalarNetwork, solvable.GradientDescent(0.01))
    '0:600:31'
    """
    return times_after_change(model.usual_times, model.default_training, training)


def times_after_change(text: str, before: Training, after: Training) -> str:
    """Times in the units of one training, written in those of another: the flow times are the same.

    >>> from solvable import GradientDescent, GradientFlow
    >>> from solvable.training_choice import times_after_change
    >>> times_after_change("0:8:81", GradientFlow(), GradientDescent(0.01))
    '0:800:81'
    """
    factor, counts_steps = _typical_rate(before) / _typical_rate(after), after.counts_steps
    if math.isclose(factor, 1.0) and (before.counts_steps or not counts_steps):
        return text
    if ":" not in text:
        times = np.array([float(one) for one in text.split(",")]) * factor
        return ",".join(_short(time) for time in (whole_steps(times) if counts_steps else times))
    first, last, count = text.split(":")
    begin, end = float(first) * factor, float(last) * factor
    if counts_steps:
        # At a large learning rate the usual times are within the first step, and a grid needs two of them.
        begin = max(round(begin), 1 if count.endswith("log") else 0)
        end = max(round(end), begin + 1)
    return f"{_short(begin)}:{_short(end)}:{count}"


def _typical_rate(training: Any) -> float:
    rate = training.learning_rate
    return float(np.max(training.learning_rates(0, 1000))) if isinstance(rate, Schedule) else float(rate)


def _short(value: float) -> str:
    return f"{value:.6g}"


def times_for(times: np.ndarray, training: Training) -> np.ndarray:
    """Times rounded to whole steps, if the training counts steps."""
    return whole_steps(times) if training.counts_steps else times
