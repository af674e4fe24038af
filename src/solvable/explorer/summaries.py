"""The numbers on the cards: what each model's own methods sum a setting up to."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from solvable.model import Model

# A number may be an array without axes, or traced by JAX: planes are computed for many settings at once.
Value = Any


@dataclasses.dataclass(frozen=True)
class Summary:
    """One card: what it is called, its unit, and how it is found. ``planar`` ones can be drawn over two parameters."""

    name: str
    label: str
    of: Callable[[Any], Value]
    unit: str = ""
    planar: bool = True


@dataclasses.dataclass(frozen=True)
class Card:
    """A summary found: a text for people, the number behind it, or why there is none."""

    name: str
    label: str
    text: str
    unit: str = ""
    why: str = ""


def cards(model: Model) -> list[Card]:
    """Every summary of the model; one that does not exist here says why in words."""
    once = _Once(model)
    return [_card(summary, once) for summary in SUMMARIES.get(model.name, ())]


def empty_cards(model: str) -> list[Card]:
    """The cards before their numbers are there."""
    return [Card(summary.name, summary.label, "…") for summary in SUMMARIES.get(model, ())]


class _Once:
    """The model, whose methods are asked only once each: several cards read one answer."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._found: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._model, name)
        if not callable(attribute):
            return attribute

        def ask(*arguments: Any) -> Any:
            if (name, arguments) not in self._found:
                self._found[name, arguments] = attribute(*arguments)
            return self._found[name, arguments]

        return ask


def _card(summary: Summary, model: Any) -> Card:
    try:
        value = summary.of(model)
    except ValueError as error:
        return Card(summary.name, summary.label, "–", why=str(error))
    if isinstance(value, str):
        return Card(summary.name, summary.label, value)
    value = float(value)
    return Card(summary.name, summary.label, show(value), summary.unit if math.isfinite(value) else "")


def show(value: float) -> str:
    """Six digits; a floor below which a loss is rounding."""
    if math.isnan(value):
        return "never"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value != 0 and abs(value) < 1e-16:
        return "< 1e-16"
    return f"{value:.6g}".replace("-", "−", 1) if value < 0 else f"{value:.6g}"


def _variable(method: str, name: str) -> Callable[[Any], Value]:
    return lambda model: getattr(model, method)()[name].data


def _number(method: str) -> Callable[[Any], Value]:
    return lambda model: getattr(model, method)()


def _rich(model: Any) -> str:
    distance = float(model.distance_from_linear())
    return "lazy" if distance < 0.1 else "rich" if distance > 0.5 else "in between"


def _overfits(model: Any) -> str:
    if model.samples is None:
        return "no noise is fitted"
    times = model.phases()
    ratio = float(times.noise_time) / float(times.signal_time)
    return "signal first" if ratio > 3 else "noise first" if ratio < 1 / 3 else "together"


def _feature_exponent(quantity: str) -> Callable[[Any], float]:
    def of(model: Any) -> float:
        regime = "rich" if model.richness > 0 else "lazy"
        return float(model.exponents()["exponent"].sel(quantity=quantity, regime=regime))

    return of


def _skill_time(skill: int) -> Callable[[Any], Value]:
    return lambda model: model.emergence_time(0.5, max_skills=skill).emergence_time.data[skill - 1]


def _learned_first(model: Any) -> Value:
    return model.emergence_time(0.5).data.min()


def _learned_last(model: Any) -> Value:
    return model.emergence_time(0.5).data.max()


def _overlap(model: Any) -> Value:
    return model.stage_overlap()["overlap"].data.max()


def _half_time(mode: int) -> Callable[[Any], Value]:
    return lambda model: model.half_times().data[mode]


SUMMARIES: Mapping[str, tuple[Summary, ...]] = {
    "linear-estimator": (
        Summary("train_time", "training accuracy 95 % at", _variable("grokking_time", "train_time"), "steps"),
        Summary("test_time", "test accuracy 95 % at", _variable("grokking_time", "test_time"), "steps"),
        Summary("delay", "grokking delay", _variable("grokking_time", "delay"), "steps"),
        Summary("limit", "test loss in the end", _variable("limits", "test_loss")),
        Summary("critical", "groks for weight decay below", _number("critical_weight_decay"), planar=False),
    ),
    "linear-features": (
        Summary("limit", "test loss in the end", _variable("limits", "limit_test_loss")),
        Summary("signal_time", "signal half learned at", _variable("phases", "signal_time")),
        Summary("noise_time", "noise half fitted at", _variable("phases", "noise_time")),
        Summary("kappa", "κ, modes above are learned", lambda model: model.kappa),
        Summary("regime", "what comes first", _overfits, planar=False),
    ),
    "diagonal-network": (
        Summary("first", "first mode half learned at", _learned_first),
        Summary("last", "last mode half learned at", _learned_last),
        Summary("overlap", "largest overlap of stages, ε", _overlap),
    ),
    "linear-network": (
        Summary("first", "first mode half learned at", _learned_first),
        Summary("last", "last mode half learned at", _learned_last),
    ),
    "scalar-network": (
        Summary("regime", "regime", _rich, planar=False),
        Summary("distance", "distance from linear", _number("distance_from_linear")),
        Summary("kernel_ratio", "kernel, end over start", _number("kernel_ratio")),
        Summary("weight_size", "size of the weights, Σ₀", lambda model: model.weight_size),
    ),
    "skills": (
        Summary("first", "first skill emerges at", _skill_time(1), "steps"),
        Summary("fifth", "fifth skill emerges at", _skill_time(5), "steps"),
        Summary("time", "exponent in time", _variable("exponents", "time")),
        Summary("samples", "exponent in samples", _variable("exponents", "samples")),
        Summary("basis", "exponent in basis functions", _variable("exponents", "basis")),
        Summary("budget", "exponent in compute", _variable("exponents", "budget")),
    ),
    "committee": (
        Summary("rate", "early growth rate of alignment", _number("early_alignment_rate")),
        Summary("escape", "escape time, eq. 20 corrected", _number("escape_time")),
    ),
    "feature-scaling": (
        Summary("phase", "phase of the task", lambda model: model.phase(), planar=False),
        Summary("time", "exponent in time", _feature_exponent("time")),
        Summary("features", "exponent in features", _feature_exponent("features")),
        Summary("compute", "exponent in compute", _feature_exponent("compute")),
        Summary("limit", "test loss in the end", _variable("limit", "test_loss")),
    ),
    "parity-mode": tuple(
        Summary(f"half_{mode + 1}", f"{word} mode half learned at", _half_time(mode))
        for mode, word in enumerate(("first", "second", "third"))
    ),
}
