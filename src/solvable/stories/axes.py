"""The vertical axes of a scene's panels, which all steps and all settings of a slider share."""

import dataclasses

import numpy as np

from solvable.plotting.series import Curve, log_by_default, y_range
from solvable.stories.computed import Computed
from solvable.story import Story

# A logarithmic panel shows at most this many decades below its largest value.
_DECADES = 8


@dataclasses.dataclass(frozen=True)
class Axis:
    """The vertical axis of a panel: its label, whether it is logarithmic, and its range, in decades if it is."""

    label: str
    log: bool
    low: float
    high: float

    def coordinate(self, values: np.ndarray) -> np.ndarray:
        """Values as they are drawn: logarithms, cut off well below the range, on a logarithmic axis."""
        if not self.log:
            return np.asarray(values, float)
        floor = 10.0 ** (self.low - 2)
        return np.log10(np.maximum(np.where(np.isnan(values), floor, values), floor))

    def height(self, values: np.ndarray) -> np.ndarray:
        """Values as heights above the lower edge of the panel, from 0 to 1, cut off outside."""
        return np.clip((self.coordinate(values) - self.low) / (self.high - self.low), 0, 1)

    def error(self, shown: np.ndarray, exact: np.ndarray) -> float:
        """The largest difference of two curves in this panel's coordinates, as a fraction of its height."""
        inside = np.abs(np.clip(shown, self.low, self.high) - np.clip(exact, self.low, self.high))
        return float(np.nanmax(inside, initial=0.0)) / (self.high - self.low)


def axes_of_steps(story: Story, computed: list[Computed]) -> list[Axis]:
    """One axis per panel for all steps, so that nothing jumps when a step changes."""
    axes = []
    for place, names in enumerate(story.variables):
        log = any(log_by_default(name) for name in names)
        ranges = [_range(one.panels[place], log) for one in computed]
        axes.append(_axis(names, log, min(low for low, _ in ranges), max(high for _, high in ranges)))
    return axes


def axes_of_nodes(axes: list[Axis], computed: list[Computed], story: Story) -> list[Axis]:
    """The axes of the last step: wide enough for nine settings of ten in either direction."""
    made = []
    for place, axis in enumerate(axes):
        lows, highs = np.transpose([_range(one.panels[place], axis.log) for one in computed])
        low, high = min(lows[0], np.quantile(lows, 0.1)), max(highs[0], np.quantile(highs, 0.9))
        made.append(_axis(story.variables[place], axis.log, float(low), float(high)))
    return made


def _axis(names: tuple[str, ...], log: bool, low: float, high: float) -> Axis:
    if log:
        low, high = np.floor(low + 0.01), np.ceil(high - 0.01)
        low = max(low, high - _DECADES)
    return Axis(_common_words(names), log, float(low), float(high))


def _range(panel: tuple[tuple[str, Curve], ...], log: bool) -> tuple[float, float]:
    low, high = y_range([curve for _, curve in panel], log)
    return (max(np.log10(low), np.log10(high) - _DECADES), np.log10(high)) if log else (low, high)


def _common_words(names: tuple[str, ...]) -> str:
    """The last words that all names share, such as "loss"; otherwise the names themselves."""
    words = [name.split("_") for name in names]
    shared: list[str] = []
    for parts in zip(*(reversed(one) for one in words), strict=False):
        if len(set(parts)) > 1:
            break
        shared.insert(0, parts[0])
    return " ".join(shared) or ", ".join(name.replace("_", " ") for name in names)
