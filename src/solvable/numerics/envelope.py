"""The lower envelope of curves: least value over a family, finer than the members of the family that were tried."""

from typing import NamedTuple

import numpy as np


class Lowest(NamedTuple):
    """Depth and place of a minimum, their errors, and whether there was something higher on both sides."""

    depth: np.ndarray
    place: np.ndarray
    depth_error: np.ndarray
    place_error: np.ndarray
    bracketed: np.ndarray


def lowest(places: np.ndarray, values: np.ndarray) -> Lowest:
    """Minima over the first axis of positive ``values[place, ...]``, infinite where there are none.

    They are those of the parabola, in the logarithms, through the lowest value and its neighbours. The errors are the
    distance from that value, or half of what taking every second member of the family changes where that is more: a
    sharp bend that a family misses shows in them, as the distance to a polynomial of higher order would not. A lowest
    value at the end of the family, or beside an infinite one, is given as it is, with infinite errors.
    """
    x = np.log(np.asarray(places, float))
    with np.errstate(divide="ignore"):
        logs = np.log(np.asarray(values, float))
    shape = logs.shape[1:]
    found = np.array([_with_errors(x, column) for column in logs.reshape(x.size, -1).T]).reshape(*shape, 5)
    depth, place = np.exp(found[..., 0]), np.exp(found[..., 1])
    return Lowest(depth, place, depth * found[..., 2], place * found[..., 3], found[..., 4] > 0)


def _with_errors(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float, float]:
    """Depth, place, their errors and whether bracketed, for one row of logarithms."""
    depth, place, bracketed = _minimum(x, y)
    if not bracketed:
        return depth, place, np.inf, np.inf, 0.0
    halves = (_minimum(x[begin::2], y[begin::2]) for begin in (0, 1))
    coarse = [(abs(other - depth) / 2, abs(there - place) / 2) for other, there, inside in halves if inside]
    middle = int(np.argmin(y))
    moved = abs(y[middle] - depth), abs(x[middle] - place)
    depth_error, place_error = np.max([moved, *coarse], axis=0)
    return depth, place, depth_error, place_error, 1.0


def _minimum(x: np.ndarray, y: np.ndarray) -> tuple[float, float, bool]:
    middle = int(np.argmin(y))
    around = slice(middle - 1, middle + 2)
    if not 0 < middle < x.size - 1 or not np.isfinite(y[around]).all() or np.ptp(y[around]) == 0:
        return y[middle], x[middle], False
    curvature, slope, height = np.polyfit(x[around] - x[middle], y[around], 2)
    shift = -slope / (2 * curvature)
    return height + slope * shift / 2, x[middle] + shift, True


def at_costs(costs: np.ndarray, values: np.ndarray, budgets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A positive curve at the given costs, by a cubic spline in the logarithms; infinite outside of it.

    The relative error is what a spline through every second point differs by, divided by four: halving a grid
    lowers the error of a cubic spline by sixteen where the curve is smooth, and by less where it bends.
    """
    from scipy.interpolate import CubicSpline

    if not (np.diff(costs) > 0).all():
        raise ValueError("the cost must rise along a run")
    x, y, wanted = np.log(costs), np.log(values), np.log(budgets)
    inside = (wanted >= x[0] - 1e-12) & (wanted <= x[-1] + 1e-12)
    found, error = np.full(budgets.size, np.inf), np.full(budgets.size, np.inf)
    if inside.any():
        here = CubicSpline(x, y)(wanted[inside])
        coarse = np.unique(np.r_[np.arange(0, x.size, 2), x.size - 1])
        found[inside] = np.exp(here)
        error[inside] = np.abs(CubicSpline(x[coarse], y[coarse])(wanted[inside]) - here) / 4
    return found, error
