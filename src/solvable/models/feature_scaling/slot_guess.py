"""The first guess of the next row of the two-time functions on slots, from the rows before it.

Rows are those of :mod:`solvable.models.feature_scaling.slot_rows`, where the names of the arrays are explained. From a
good guess the iteration that solves for a row takes a few passes.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from solvable.models.feature_scaling.slot_rows import TwoTime


def shifted(
    known: "TwoTime",
    count: int,
    same: list[int],
    eigenvalues: Float[np.ndarray, "node"],
    targets: Float[np.ndarray, "node"],
) -> tuple[list[np.ndarray], float]:
    """The row of one step ago, moved along the diagonal: in log time two-time functions are nearly self-similar.

    Parameters
    ----------
    known
        The two-time functions so far.
    count
        Number of the row.
    same
        Numbers of the last rows of the same kind, up to two, the latest last.
    eigenvalues, targets
        Of the modes, which say how large the first row is.

    Returns
    -------
    tuple
        Rows of C3, R3, R1 and C0, and the size of C3 on the diagonal.
    """
    here = np.zeros(count + 1)
    here[count] = 1.0
    if not same:
        scale = math.sqrt((eigenvalues**2 * targets).sum())
        return [np.zeros(count + 1), here, here, np.zeros(count + 1)], max(scale, 1e-12)
    last = same[-1]
    shift = count - last

    def moved(matrix: np.ndarray) -> np.ndarray:
        row = matrix[last, : last + 1]
        return np.concatenate([row[:shift], row])[: count + 1] if last + 1 >= shift else np.pad(row, (shift, 0))

    value = known.drive_correlation[last, last]
    ratio = value / known.drive_correlation[same[0], same[0]] if len(same) == 2 else 1.0
    ratio = ratio if 0.05 < ratio < 1 else 1.0
    scale = math.sqrt(max(value * ratio, 1e-300))
    rest = [moved(matrix) for matrix in (known.feature_response, known.sample_response, known.error_correlation)]
    return [moved(known.drive_correlation) * ratio, *rest], scale


def extrapolated(known: "TwoTime", count: int, same: list[int], scale: float) -> list[np.ndarray]:
    """Rows of C3, R3, R1 and C0: those of the last two steps, moved along the diagonal, and a line through them.

    Of C3 it is the correlation, ``C3(t, s) / sqrt(C3(t, t) C3(s, s))``.

    Parameters
    ----------
    known
        The two-time functions so far.
    count
        Number of the row.
    same
        Numbers of the last two rows of the same kind, the latest last.
    scale
        The size of C3 on the diagonal.
    """
    sizes = np.sqrt(np.abs(np.diagonal(known.drive_correlation)[:count]))
    sizes = np.maximum(np.append(sizes, scale), 1e-150)

    def line(matrix: np.ndarray, scales: np.ndarray | None = None) -> np.ndarray:
        rows = []
        for place in same:
            row = matrix[place, : place + 1]
            row = row if scales is None else row / (scales[: place + 1] * scales[place])
            rows.append(np.concatenate([row[: count - place], row]))
        return 2 * rows[1] - rows[0]

    correlation = line(known.drive_correlation, sizes)
    correlation[count] = 1.0
    rest = [line(matrix) for matrix in (known.feature_response, known.sample_response, known.error_correlation)]
    return [correlation * sizes * scale, *rest]
