"""Cubic splines of many curves over one grid: the slopes at the knots are a matrix times the values."""

import functools

import numpy as np


class Grid:
    """Knots on which many curves are interpolated, by the same cubic splines as :class:`scipy.interpolate.CubicSpline`.

    Parameters
    ----------
    knots
        Increasing positions.

    >>> import numpy as np
    >>> from solvable.inference.splines import Grid
    >>> knots = np.linspace(0.0, 1.0, 9)
    >>> float(Grid(knots)(knots**3, np.array([0.3]))[0].round(6))
    0.027
    """

    def __init__(self, knots: np.ndarray) -> None:
        self.knots = np.asarray(knots, float)

    @functools.cached_property
    def slopes(self) -> np.ndarray:
        """The matrix that turns values at the knots into derivatives there."""
        from scipy.interpolate import CubicSpline

        return CubicSpline(self.knots, np.eye(self.knots.size))(self.knots, 1)

    def __call__(self, values: np.ndarray, at: np.ndarray) -> np.ndarray:
        """The spline through values at any positions; beyond the ends, the value at the end.

        Parameters
        ----------
        values
            One value per knot.
        at
            Positions.
        """
        at = np.clip(at, self.knots[0], self.knots[-1])
        place = np.clip(np.searchsorted(self.knots, at, "right") - 1, 0, self.knots.size - 2)
        slopes = self.slopes @ values
        length = self.knots[place + 1] - self.knots[place]
        x = (at - self.knots[place]) / length
        left, right = values[place], values[place + 1]
        first, last = slopes[place] * length, slopes[place + 1] * length
        return left + x * (
            first + x * (3 * (right - left) - 2 * first - last + x * (2 * (left - right) + first + last))
        )
