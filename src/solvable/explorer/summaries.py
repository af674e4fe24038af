"""The numbers on the cards: what the summaries of a model come to in a setting."""

import dataclasses
import math
from typing import Any

from solvable import models
from solvable.controls import Summary
from solvable.model import Model
from solvable.precision import in_float64
from solvable.training import Training


@dataclasses.dataclass(frozen=True)
class Card:
    """A summary found: a text for people, the number behind it, or why there is none."""

    name: str
    label: str
    text: str
    unit: str = ""
    why: str = ""


@in_float64
def cards(model: Model, training: Training) -> list[Card]:
    """Every summary of the model; one that does not exist here says why in words."""
    once = _Once(model)
    return [_card(summary, once, training) for summary in model.controls.summaries]


def empty_cards(model: str) -> list[Card]:
    """The cards before their numbers are there."""
    return [Card(summary.name, summary.label, "…") for summary in models.get(model).controls.summaries]


class _Once:
    """The model, whose methods are asked only once each: several cards read one answer."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._found: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._model, name)
        if not callable(attribute):
            return attribute

        def ask(*arguments: Any, **options: Any) -> Any:
            key = (name, arguments, tuple(options.items()))
            if key not in self._found:
                self._found[key] = attribute(*arguments, **options)
            return self._found[key]

        return ask


def _card(summary: Summary, model: Any, training: Training) -> Card:
    try:
        value = summary.of(model, training)
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
