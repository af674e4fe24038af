"""Lines of equal value on a plane, and names of the regions where its quantity is not defined."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from contourpy import contour_generator
from matplotlib.ticker import MaxNLocator
from scipy import ndimage

# A quantity that spans more than this factor is drawn in logarithmic colours, with contours at powers of ten.
_WIDE = 30.0
# Regions smaller than this fraction of the plane have no room for a name, and lines shorter than this no number.
_SMALL, _SHORT = 0.03, 0.15


@dataclasses.dataclass(frozen=True)
class Contour:
    """A line of equal value.

    Parameters
    ----------
    text
        The value as text; empty on lines that are too short for it.
    x, y
        The points of the line, in the units of the axes.
    """

    text: str
    x: np.ndarray
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class Region:
    """A region where the quantity is not defined, with the place of its name in the units of the axes."""

    text: str
    x: float
    y: float


def is_wide(z: np.ndarray) -> bool:
    """Whether positive values span so much that their logarithm is shown."""
    finite = z[np.isfinite(z)]
    return bool(finite.size > 0 and finite.min() > 0 and finite.max() > _WIDE * finite.min())


def contours(plane: Mapping[str, Any]) -> list[Contour]:
    """A few contours of a plane, at round values.

    Parameters
    ----------
    plane
        What :func:`solvable.settings.planes.compute` returns.
    """
    z, wide = plane["z"], is_wide(plane["z"])
    finite = z[np.isfinite(z)]
    # Differences at the level of rounding have no contours.
    if min(z.shape) < 2 or finite.size == 0 or np.ptp(finite) <= 1e-9 * np.abs(finite).max():
        return []
    values = np.log10(z) if wide else z
    low, high = np.nanmin(values), np.nanmax(values)
    levels = [level for level in MaxNLocator(6, integer=wide).tick_values(low, high) if low < level < high]
    x, y = (_scaled(plane[axis], plane[f"{axis}_log"]) for axis in "xy")
    lines = contour_generator(x, y, np.ma.masked_invalid(values))
    spans = np.array([np.ptp(x), np.ptp(y)])
    made = []
    for level in levels:
        found: list[Any] = sorted(lines.lines(level), key=lambda line: -_length(np.asarray(line), spans))
        for place, line in enumerate(found):
            long = place == 0 and _length(line, spans) > _SHORT
            text = f"{10**level if wide else level:.3g}" if long else ""
            made.append(Contour(text, *(_back(line[:, n], plane[f"{axis}_log"]) for n, axis in enumerate("xy"))))
    return made


def regions(plane: Mapping[str, Any]) -> list[Region]:
    """The names of connected regions without values; none where the plane does not say what that means.

    Parameters
    ----------
    plane
        What :func:`solvable.settings.planes.compute` returns.
    """
    if not plane["undefined"]:
        return []
    numbers, count = ndimage.label(~np.isfinite(plane["z"]))
    made = []
    for number in range(1, count + 1):
        inside = numbers == number
        if inside.mean() > _SMALL:
            # The cell that is furthest from the boundary has the most room.
            depth = ndimage.distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
            row, column = np.unravel_index(np.argmax(depth), depth.shape)
            made.append(Region(plane["undefined"], float(plane["x"][column]), float(plane["y"][row])))
    return made


def _scaled(values: np.ndarray, log: bool) -> np.ndarray:
    return np.log(values) if log else np.asarray(values, float)


def _back(values: np.ndarray, log: bool) -> np.ndarray:
    return np.exp(values) if log else values


def _length(line: np.ndarray, spans: np.ndarray) -> float:
    """Length of a line where the plane has sides of one."""
    return float(np.hypot(*(np.diff(line, axis=0) / spans).T).sum())
