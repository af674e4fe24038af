"""The grid of settings over the sliders of a story's last step, and the interpolation between them.

A position on a slider is a number of its stops, from 0; between two computed stops curves are interpolated linearly in
that number, over two or three sliders multilinearly (:mod:`solvable.stories.interpolation` says how).
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from solvable import models
from solvable.settings import Setting

# Computed settings in all, where theory is fast and where it takes seconds.
_MANY, _FEW = 441, 27
_SEED = 20


@dataclasses.dataclass(frozen=True)
class Place:
    """A slider: the texts of its stops, the numbers of those that are computed, and that of the story's setting."""

    key: str
    stops: tuple[str, ...]
    nodes: tuple[int, ...]
    start: int


@dataclasses.dataclass(frozen=True)
class Places:
    """The grid: all combinations of the computed stops of a few sliders, the last slider running fastest."""

    base: Setting
    sliders: tuple[Place, ...]

    def along(self, which: int) -> list[list[tuple[float, ...]]]:
        """Lines of points at all stops of one slider: the others at the story's setting, and at both quarters."""
        count = len(self.sliders[which].stops)
        rests = [tuple(slider.start for slider in self.sliders)]
        rests += [tuple(int(share * (len(slider.stops) - 1)) for slider in self.sliders) for share in (0.25, 0.75)]
        return [[(*rest[:which], position, *rest[which + 1 :]) for position in range(count)] for rest in rests]

    @property
    def count(self) -> int:
        return math.prod(len(slider.nodes) for slider in self.sliders)

    def settings(self) -> Iterator[Setting]:
        """The settings of all nodes, in order."""
        for point in itertools.product(*(slider.nodes for slider in self.sliders)):
            yield self.setting(point)

    def setting(self, point: tuple[float, ...]) -> Setting:
        """The setting at whole positions of the sliders."""
        # The times are stated, since the usual ones may depend on what the sliders change.
        texts = {**self.base.texts, "times": self.base.text("times")}
        for slider, position in zip(self.sliders, point, strict=True):
            texts[slider.key] = slider.stops[int(position)]
        return Setting(self.base.model, texts)

    def corners(self, point: tuple[float, ...]) -> list[tuple[float, int]]:
        """The weights and numbers of the nodes around a point."""
        found = [(1.0, 0)]
        for slider, position in zip(self.sliders, point, strict=True):
            nodes = slider.nodes
            right = min(max(int(np.searchsorted(nodes, position, "right")), 1), len(nodes) - 1)
            share = (position - nodes[right - 1]) / (nodes[right] - nodes[right - 1])
            sides = ((1 - share, right - 1), (share, right))
            found = [(weight * part, number * len(nodes) + n) for weight, number in found for part, n in sides]
        return found

    def points_between(self, count: int, seed: int = _SEED) -> list[tuple[float, ...]]:
        """Different points at stops that are not all computed, drawn with a fixed seed."""
        generator = np.random.default_rng(seed)
        between = [sorted(set(range(len(slider.stops))) - set(slider.nodes)) for slider in self.sliders]
        if not any(between):
            return []
        found: dict[tuple[float, ...], None] = {}
        for _ in range(100 * count):
            found[tuple(int(generator.choice(one or slider.nodes)) for one, slider in self._both(between))] = None
            if len(found) == count:
                break
        return list(found)

    def _both(self, between: list[list[int]]) -> Iterator[tuple[list[int], Place]]:
        return zip(between, self.sliders, strict=True)

    def described(self, steps: list[Setting]) -> list[dict[str, Any]]:
        """The sliders as the player needs them, with their positions at the steps of the story."""
        fields = self.base.fields
        return [
            {
                "key": slider.key,
                "label": slider.key.replace("_", " "),
                "symbol": fields[slider.key].symbol,
                "help": fields[slider.key].help,
                "stops": list(slider.stops),
                "nodes": list(slider.nodes),
                "start": slider.start,
                "at": [_position(slider, _text_at(step, slider.key)) for step in steps],
            }
            for slider in self.sliders
        ]


def places(
    setting: Setting,
    keys: tuple[str, ...],
    nodes: int | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> Places:
    """The grid over the sliders with these keys, evenly spaced over a range of each, which contains the setting."""
    each = nodes or max(2, math.floor((_FEW if is_slow(setting) else _MANY) ** (1 / len(keys)) + 1e-9))
    every = (-math.inf, math.inf)
    return Places(setting, tuple(_place(setting, key, each, *(ranges or {}).get(key, every)) for key in keys))


def is_slow(setting: Setting) -> bool:
    """Whether theory takes seconds there."""
    return bool(models.get(setting.model).controls.slow(setting.build(), setting.training()))


def adapted(even: Places, differences: list[np.ndarray]) -> Places:
    """The grid with as many nodes, placed where the curves change: equally much changes between any two of them.

    ``differences`` holds for each slider how much the curves differ between neighbouring stops.
    """
    sliders = []
    for slider, steps in zip(even.sliders, differences, strict=True):
        # Half of the weight is even, so that no part of a slider is left without nodes.
        weight = steps / max(steps.sum(), 1e-300) + 1 / steps.size
        length = np.concatenate([[0.0], np.cumsum(weight)])
        wanted = np.interp(np.linspace(0, length[-1], len(slider.nodes)), length, np.arange(length.size))
        sliders.append(dataclasses.replace(slider, nodes=_with_start(np.round(wanted).astype(int), slider.start)))
    return dataclasses.replace(even, sliders=tuple(sliders))


def _place(setting: Setting, key: str, count: int, low: float, high: float) -> Place:
    slider = setting.fields[key].slider
    if slider is None:
        raise ValueError(f"the story of {setting.model} hands over {key!r}, which has no slider")
    stops, start = _with([stop for stop in slider.stops() if low <= _value(stop) <= high], setting.text(key))
    chosen = np.round(np.linspace(0, len(stops) - 1, min(count, len(stops)))).astype(int)
    return Place(key, tuple(stops), _with_start(chosen, start), start)


def _with_start(nodes: np.ndarray, start: int) -> tuple[int, ...]:
    """The nodes with the story's own setting in the place of the nearest one, unless that is an end."""
    nearest = int(np.argmin(np.abs(nodes - start)))
    kept = [int(node) for place, node in enumerate(nodes) if place != nearest or place in (0, len(nodes) - 1)]
    return tuple(sorted({*kept, start}))


def _with(stops: list[str], text: str) -> tuple[list[str], int]:
    """The stops with a text among them, and its number."""
    if text in stops:
        return stops, stops.index(text)
    values = [_value(stop) for stop in stops]
    value = _value(text)
    if value in values:
        place = values.index(value)
        return [*stops[:place], text, *stops[place + 1 :]], place
    place = next((place for place, other in enumerate(values) if other > value), len(stops))
    return [*stops[:place], text, *stops[place:]], place


def _text_at(setting: Setting, key: str) -> str | None:
    """The text of a control; None where it means nothing, as the warm-up of a constant rate."""
    needs = setting.fields[key].needs
    return None if needs and not setting.text(needs[0]).startswith(needs[1]) else setting.text(key)


def _position(slider: Place, text: str | None) -> dict[str, Any]:
    """The position of a text on a slider; between two stops where it is none of them."""
    if text is None:
        return {"text": "–", "position": 0}
    if text in slider.stops:
        return {"text": text, "position": slider.stops.index(text)}
    values = [_value(stop) for stop in slider.stops]
    return {"text": text, "position": float(np.interp(_value(text), values, np.arange(len(values))))}


def _value(text: str) -> float:
    """A stop as a number, of a list its first entry. An empty text, which stands for None, is larger than all."""
    return float(text.split(",")[0]) if text else math.inf
