"""Learning curves that consist of two power laws: where they meet, and where a measure crosses a level."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# The number of candidate positions of a bend, which lie far closer than the sizes of training sets.
_CANDIDATES = 400


class Bend(NamedTuple):
    """``n^-before`` up to the size ``at`` and ``n^-after`` beyond it; exponents of a falling curve are positive.

    Errors are standard errors of least squares, from the scatter of the points about the two lines; they are NaN if
    there are no more points than fitted parameters. ``height`` is the value at the bend, and ``scatter`` the sum of
    squared residuals.
    """

    at: float
    before: float
    after: float
    before_error: float
    after_error: float
    difference_error: float
    height: float
    scatter: float

    @property
    def faster_after(self) -> float:
        """The difference of the exponents, after minus before, in its standard errors."""
        return (self.after - self.before) / self.difference_error

    def __call__(self, sizes: np.ndarray) -> np.ndarray:
        ratio = np.asarray(sizes, float) / self.at
        return np.where(ratio < 1, ratio**-self.before, ratio**-self.after) * self.height


def crossing(sizes: Sequence[float] | np.ndarray, values: Sequence[float] | np.ndarray, level: float) -> float:
    """The size from which values stay below a level, by linear interpolation of the logarithms between two sizes.

    NaN if the level is not crossed between the sizes: if the last value is not below it, or all values are.
    """
    sizes, values = np.asarray(sizes, float), np.asarray(values, float)
    above = np.flatnonzero(~(values < level))
    if not above.size or above[-1] == values.size - 1:
        return float("nan")
    last = above[-1]
    heights = np.log(values[last : last + 2])
    share = (np.log(level) - heights[0]) / (heights[1] - heights[0])
    return float(np.exp((1 - share) * np.log(sizes[last]) + share * np.log(sizes[last + 1])))


def bend_at(sizes: Sequence[float] | np.ndarray, values: Sequence[float] | np.ndarray, at: float) -> Bend:
    """Two power laws that meet at a given size, by least squares of the logarithms.

    Without sizes on both sides of it one of the laws is not observed, and all numbers are NaN.
    """
    sizes, values = np.asarray(sizes, float), np.asarray(values, float)
    if not (np.isfinite(at) and sizes.min() < at < sizes.max()):
        nothing = float("nan")
        return Bend(at, nothing, nothing, nothing, nothing, nothing, nothing, nothing)
    x, y = np.log(sizes / at), np.log(values)
    columns = np.stack([np.ones_like(x), np.minimum(x, 0), np.maximum(x, 0)], axis=1)
    found = np.linalg.lstsq(columns, y, rcond=None)[0]
    scatter = float(np.sum((y - columns @ found) ** 2))
    free = x.size - 3
    covariance = np.linalg.inv(columns.T @ columns) * (scatter / free if free > 0 else np.nan)
    difference = covariance[1, 1] + covariance[2, 2] - 2 * covariance[1, 2]
    before_error, after_error, difference_error = np.sqrt([covariance[1, 1], covariance[2, 2], difference]).tolist()
    height, before, after = np.exp(found[0]).item(), -found[1].item(), -found[2].item()
    return Bend(at, before, after, before_error, after_error, difference_error, height, scatter)


def best_bend(sizes: Sequence[float] | np.ndarray, values: Sequence[float] | np.ndarray) -> Bend:
    """The bend of least scatter, with two sizes or more on each side of it.

    The errors of the exponents are those for a bend at this position; they do not include the error of the position.
    """
    unique = np.unique(np.asarray(sizes, float))
    if unique.size < 4:
        raise ValueError(f"two power laws need four sizes or more, not {unique.size}")
    candidates = np.geomspace(unique[1], unique[-2], _CANDIDATES)
    return min((bend_at(sizes, values, at) for at in candidates), key=lambda bend: bend.scatter)


def rank_correlation(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """Spearman's rank correlation, with tied ranks averaged; NaN if one of the two does not vary."""
    ranks = [_ranks(np.asarray(values, float)) for values in (x, y)]
    norms = [np.sqrt(np.sum(rank**2)) for rank in ranks]
    return float(ranks[0] @ ranks[1] / (norms[0] * norms[1])) if all(norms) else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks minus their mean; all NaN if a value is NaN, which has no rank."""
    if np.isnan(values).any():
        return np.full(values.shape, np.nan)
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2
    return middle[place] - (values.size - 1) / 2
