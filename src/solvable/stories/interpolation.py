"""Curves between computed settings, as the player draws them while a slider is dragged.

When a slider moves, curves mostly shift in time: what happened after 100 steps now happens after 300. The mean of two
such curves at one time has two steps where each has one. Curves are therefore compared at the same fraction of the way
along them: that way is the vertical distance travelled by all curves of a scene together, with a small part of the
horizontal one, which matters where nothing else changes. Both the time and the heights at a fraction are interpolated
linearly; for a single falling curve this is the time at which each level is reached. ``player.js`` does the same.
"""

import dataclasses

import numpy as np

# Weight of the time axis, as a whole, beside the heights of the panels; and number of points along the way.
_ACROSS = 0.05
_POINTS = 241


@dataclasses.dataclass(frozen=True)
class Drawn:
    """The curves of one setting as they are drawn.

    Parameters
    ----------
    position
        Increasing positions on the time axis, from 0 to 1.
    coordinates
        One row for each curve: coordinates on the axis of its panel.
    heights
        The same as heights in the panel, from 0 to 1, cut off outside.
    """

    position: np.ndarray
    coordinates: np.ndarray
    heights: np.ndarray

    def along(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions and coordinates at evenly spaced fractions of the way."""
        steps = _ACROSS * np.diff(self.position) + np.abs(np.diff(self.heights)).mean(axis=0)
        way = np.concatenate([[0.0], np.cumsum(steps)])
        fractions = np.linspace(0, way[-1], _POINTS)
        rows = [np.interp(fractions, way, row) for row in self.coordinates]
        return np.interp(fractions, way, self.position), np.array(rows)


def interpolated(weights: list[float], drawn: list[Drawn], aligned: bool) -> tuple[np.ndarray, np.ndarray]:
    """Positions on the time axis and coordinates of the curves between some computed settings.

    Parameters
    ----------
    weights
        Weights of the settings, which add up to one.
    drawn
        The curves of the settings.
    aligned
        Whether curves are compared at the same fraction of the way; otherwise, and where a curve has gaps, at the same
        time.
    """
    if not aligned or any(np.isnan(one.coordinates).any() for one in drawn):
        parts = [(one.position, one.coordinates) for one in drawn]
    else:
        parts = [one.along() for one in drawn]
    position, coordinates = (np.tensordot(weights, np.array(part), 1) for part in zip(*parts, strict=True))
    return position, coordinates
