"""Cards: the numbers that a model's summaries give for a setting."""

import dataclasses
import math
from typing import Any

from solvable import models
from solvable.controls import Summary
from solvable.model import Model
from solvable.precision import in_float64
from solvable.settings.planes import unit_of
from solvable.training import Training


@dataclasses.dataclass(frozen=True)
class Card:
    """A summary as it is shown: its label, its value as text with a unit, or the reason why there is none."""

    name: str
    label: str
    text: str
    unit: str = ""
    why: str = ""


@in_float64
def cards(model: Model, training: Training) -> list[Card]:
    """A card for every summary of the model. Where a summary is not defined, its card gives the reason."""
    once = _Once(model)
    return [_card(summary, once, training) for summary in model.controls.summaries]


def empty_cards(model: str) -> list[Card]:
    """Placeholders for the cards, until their numbers have been computed."""
    return [Card(summary.name, summary.label, "…") for summary in models.get(model).controls.summaries]


class _Once:
    """A model that caches the results of its methods, because several cards read the same result."""

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
    return Card(summary.name, summary.label, show(value), unit_of(summary, training) if math.isfinite(value) else "")


def show(value: float) -> str:
    """Six significant digits. Below 1e-16 a loss is rounding error, and is shown as such."""
    if math.isnan(value):
        return "never"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value != 0 and abs(value) < 1e-16:
        return "< 1e-16"
    return f"{value:.6g}".replace("-", "−", 1) if value < 0 else f"{value:.6g}"
