"""Marks of an explanation as columns of Bokeh sources: where they are drawn in a panel, with their labels."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from solvable.plotting.series import Curve
from solvable.story import Band, Level, Mark, Point, Slope, Tick

# Heights of the labels of bands and ticks, as fractions of the panel from its top: neighbours do not cover each other.
_ROWS = (0.06, 0.15, 0.24, 0.33)
# Pixels from the anchor of a label to its baseline: above it or, near the top of the panel, below it.
_ABOVE, _BELOW, _TOP = -6, 18, 0.15
# Labels of points that would cover each other are this many pixels apart. A letter takes at most this share of the
# width of a panel, which is that on a phone; and labels nearer than this share of the height are in one row.
_LINE, _LETTER, _SAME_ROW = 16, 0.022, 0.12
_COLUMNS: dict[str, tuple[str, ...]] = {
    "bands": ("start", "end"),
    "ticks": ("time",),
    "levels": ("value",),
    "slopes": ("xs", "ys"),
    "dots": ("x", "y", "colour"),
    "labels": ("x", "y", "text", "align", "colour", "shift"),
}


@dataclasses.dataclass(frozen=True)
class Window:
    """The part of the plane that a panel shows.

    Parameters
    ----------
    first, last
        Range of times.
    low, high
        Range of values.
    x_log, y_log
        Whether the axes are logarithmic.
    """

    first: float
    last: float
    low: float
    high: float
    x_log: bool
    y_log: bool

    def time(self, time: float) -> float:
        """The nearest time that the panel shows."""
        return min(max(time, self.first), self.last)

    def shows(self, time: float) -> bool:
        return self.first <= time <= self.last

    def middle(self, start: float, end: float) -> float:
        """The time halfway between two times, as they are drawn."""
        return float(np.sqrt(start * end)) if self.x_log and start > 0 else (start + end) / 2

    def place(self, time: float, value: float) -> tuple[float, float]:
        """Where a point is drawn, as shares of the panel's width from its left and of its height from its top."""
        x = _share(time, self.first, self.last, self.x_log and self.first > 0)
        return x, 1 - _share(value, self.low, self.high, self.y_log)

    def height(self, share: float) -> float:
        """The value at a fraction of the panel's height from its top."""
        if self.y_log:
            return float(self.high ** (1 - share) * self.low**share)
        return self.high + share * (self.low - self.high)


def _share(value: float, low: float, high: float, log: bool) -> float:
    if log:
        value, low, high = (float(np.log(one)) for one in (value, low, high))
    return (value - low) / ((high - low) or 1.0)


def empty_columns() -> dict[str, dict[str, list[Any]]]:
    """The columns of a panel without marks, by the name of their source."""
    return {name: {column: [] for column in columns} for name, columns in _COLUMNS.items()}


def mark_columns(
    marks: Iterable[Mark], lines: dict[str, tuple[Curve, str]], window: Window, ink: str, labelled: bool
) -> dict[str, dict[str, list[Any]]]:
    """The columns of all marks of one panel.

    Parameters
    ----------
    marks
        The marks of an explanation. Those of variables that the panel does not show are left out.
    lines
        The first curve of each variable in the panel, with its colour.
    window
        What the panel shows.
    ink
        Colour of labels that belong to no curve.
    labelled
        Whether bands and ticks, which all panels show, are labelled in this one.
    """
    made = empty_columns()
    row = 0
    for mark in marks:
        if isinstance(mark, Band | Tick):
            drawn = _vertical(made, mark, window)
            if drawn is not None and labelled:
                _label(made, window, drawn, window.height(_ROWS[row % len(_ROWS)]), mark.label, ink, "center")
                row += 1
        elif mark.variable in lines:
            curve, colour = lines[mark.variable]
            _horizontal(made, mark, curve, colour, window, ink)
    return made


def _vertical(made: dict[str, dict[str, list[Any]]], mark: Band | Tick, window: Window) -> float | None:
    """Add a band or a tick, and return the time below its label; None if it lies outside."""
    if isinstance(mark, Tick):
        if not window.shows(mark.time):
            return None
        made["ticks"]["time"].append(mark.time)
        return mark.time
    start, end = window.time(mark.start), window.time(mark.end)
    if not end > start:
        return None
    made["bands"]["start"].append(start)
    made["bands"]["end"].append(end)
    return window.middle(start, end)


def _horizontal(
    made: dict[str, dict[str, list[Any]]],
    mark: Level | Slope | Point,
    curve: Curve,
    colour: str,
    window: Window,
    ink: str,
) -> None:
    """Add a mark that belongs to a curve."""
    if isinstance(mark, Level):
        if window.low <= mark.value <= window.high:
            made["levels"]["value"].append(mark.value)
            _label(made, window, window.first, mark.value, mark.label, ink, "left")
    elif isinstance(mark, Point):
        value = float(np.interp(mark.time, curve.x, curve.y))
        if window.shows(mark.time) and np.isfinite(value) and window.low <= value <= window.high:
            for column, entry in (("x", mark.time), ("y", value), ("colour", colour)):
                made["dots"][column].append(entry)
            late = mark.time > window.middle(window.first, window.last)
            align = "right" if late else "left"
            _label(made, window, mark.time, value, mark.label, colour, align)
            _make_room(made["labels"], window)
    else:
        start, end = window.time(mark.start), window.time(mark.end)
        if start > 0 and end > start:
            times = np.geomspace(start, end, 25)
            # A little above the curve that follows it.
            first = float(np.interp(start, curve.x, curve.y)) * (1.5 if window.y_log else 1.05)
            values = first * (times / start) ** -mark.exponent
            made["slopes"]["xs"].append(times.tolist())
            made["slopes"]["ys"].append(values.tolist())
            _label(made, window, float(times[12]), float(values[12]), mark.label, ink, "left")


def _make_room(labels: dict[str, list[Any]], window: Window) -> None:
    """Move the last label away from those that it covers: two curves may pass a level at nearly the same time."""
    *others, (row, start, end) = [_extent(labels, n, window) for n in range(len(labels["text"]))]
    near = [n for n, one in enumerate(others) if abs(one[0] - row) < _SAME_ROW and one[1] < end and one[2] > start]
    away = _LINE if labels["shift"][-1] > 0 else -_LINE
    while any(labels["shift"][n] == labels["shift"][-1] for n in near):
        labels["shift"][-1] += away


def _extent(labels: dict[str, list[Any]], n: int, window: Window) -> tuple[float, float, float]:
    """Height, left and right end of a label, as shares of the panel."""
    x, row = window.place(labels["x"][n], labels["y"][n])
    width = _LETTER * len(labels["text"][n])
    left = x - width * {"left": 0.0, "center": 0.5, "right": 1.0}[labels["align"][n]]
    return row, left, left + width


def _label(
    made: dict[str, dict[str, list[Any]]], window: Window, x: float, y: float, text: str, colour: str, align: str
) -> None:
    shift = _BELOW if y > window.height(_TOP) else _ABOVE
    for column, entry in zip(_COLUMNS["labels"], (x, y, text, align, colour, shift), strict=True):
        made["labels"][column].append(entry)
