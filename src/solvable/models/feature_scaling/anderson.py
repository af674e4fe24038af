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


def damped_anderson(
    function: Callable[[np.ndarray], np.ndarray],
    start: Float[np.ndarray, "size"],
    allowed: Callable[[np.ndarray], bool],
    *,
    tolerance: float = 1e-7,
    memory: int = 25,
    passes: int = 60,
    mixing: float = 0.1,
    longest: float = 0.5,
) -> tuple[Float[np.ndarray, "size"], float, int]:
    """As :func:`anderson`, for maps that expand errors and have poles: small moves from the best point seen.

    ``x = x_b - dX w + mixing (r_b - dF w)``, where ``w`` minimises ``|r_b - dF w|``, changes no entry by more than
    ``longest``, and is halved until it is ``allowed``.
    """
    points, residuals = [start], [function(start) - start]
    if not np.isfinite(residuals[0]).all():
        return start, np.inf, 1
    for count in range(1, passes + 1):
        sizes = [float(np.max(np.abs(residual))) for residual in residuals]
        best = int(np.argmin(sizes))
        if sizes[best] < tolerance or count == passes:
            break
        point, residual = points[best], residuals[best]
        move = mixing * residual
        others = [place for place in range(len(points)) if place != best]
        if others:
            changes = np.stack([residuals[place] - residual for place in others], axis=1)
            moves = np.stack([points[place] - point for place in others], axis=1)
            lengths = np.maximum(np.linalg.norm(changes, axis=0), 1e-300)
            weights = np.linalg.lstsq(changes / lengths, residual, rcond=1e-14)[0] / lengths
            move = -moves @ weights + mixing * (residual - changes @ weights)
        move *= min(1.0, longest / max(float(np.max(np.abs(move))), 1e-300))
        for _ in range(30):
            if allowed(point + move):
                break
            move /= 2
        tried = point + move
        image = function(tried)
        if not np.isfinite(image).all():
            break
        points.append(tried)
        residuals.append(image - tried)
        if len(points) > memory:
            worst = int(np.argmax([*sizes, 0.0]))
            points.pop(worst)
            residuals.pop(worst)
    sizes = [float(np.max(np.abs(residual))) for residual in residuals]
    best = int(np.argmin(sizes))
    return points[best], sizes[best], count


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
            best, least = point, size
        if size < tolerance:
            break
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
    return best, least, count
