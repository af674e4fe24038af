"""Fixed points of maps that plain iteration does not reach: Anderson acceleration.

>>> import numpy as np
>>> from solvable.models.feature_scaling.anderson import anderson
>>> point, residual, passes = anderson(np.cos, np.array([1.0]))
>>> point.round(8), residual < 1e-10
(array([0.73908513]), True)
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float


def anderson(
    function: Callable[[np.ndarray], np.ndarray],
    start: Float[np.ndarray, "size"],
    *,
    tolerance: float = 1e-10,
    memory: int = 25,
    passes: int = 60,
) -> tuple[Float[np.ndarray, "size"], float, int]:
    """The point where ``function(x) = x``, the largest residual there, and the number of passes.

    Entries should be of order one; the residual is absolute. Where rounding keeps it above the tolerance, the best
    point seen is returned, and its residual tells.
    """
    point = start
    points: list[np.ndarray] = []
    residuals: list[np.ndarray] = []
    best, least = start, np.inf
    for count in range(1, passes + 1):
        image = function(point)
        residual = image - point
        size = float(np.max(np.abs(residual)))
        if not np.isfinite(size):
            return best, np.inf, count
        if size < least:
            best, least = image, size
        if size < tolerance:
            return image, size, count
        if residuals and len(points) >= memory:
            points.pop(0)
            residuals.pop(0)
        points.append(point)
        residuals.append(residual)
        if len(points) == 1:
            point = image
            continue
        steps = np.stack([residual - old for old in residuals[:-1]], axis=1)
        moves = np.stack([point - old for old in points[:-1]], axis=1)
        weights = np.linalg.lstsq(steps, residual, rcond=1e-14)[0]
        point = point + residual - (moves + steps) @ weights
    return best, least, passes
