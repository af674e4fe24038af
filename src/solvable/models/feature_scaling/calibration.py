"""From a measured kernel to a forecast: capacity and source of its spectrum, and the exponents they imply."""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from solvable.checks import check_count
from solvable.dataset import Stopwatch, make_dataset
from solvable.models.feature_scaling.model import FeatureScaling
from solvable.numerics.fits import straight_line
from solvable.precision import in_float64

_BINS = 6
_STRAIGHT = 0.03
_SHORTEST = 0.7
_MOST_WEIGHT = 30.0


class _Line(NamedTuple):
    slope: float
    error: float
    scatter: float


@in_float64
def fit_source_capacity(spectrum: Any, target: Any, *, first: int | None = None, last: int | None = None) -> xr.Dataset:
    """Capacity and source of a measured kernel, with their errors and the exponents they imply.

    Eigenvalues are averaged over bins of equal length in ``log k``, as are the ``lambda_k w_k^2``, which go as
    ``k^(-capacity source - 1)``, and straight lines fitted from mode ``first`` to mode ``last``. Errors combine the
    scatter of the bins and the change of slope between the halves of the range. The exponents of
    :meth:`FeatureScaling.exponents` are added.

    Parameters
    ----------
    spectrum
        Eigenvalues of the kernel, in any order.
    target
        Coefficients of the target in the eigenvectors, in the same order.
    first, last
        First and last mode of the range to fit, counted from 1 at the largest eigenvalue. By default the longest range
        over which the eigenvalues scatter about their line by at most 3 %, or twice what the straightest range has; a
        measured spectrum ends in modes that too few samples bend.

    >>> import numpy as np, solvable
    >>> rank = np.arange(1, 1001)
    >>> fit = solvable.fit_source_capacity(rank**-1.5, rank**-0.5)
    >>> round(float(fit.capacity), 2), round(float(fit.source), 2)
    (1.5, 1.0)
    """
    watch = Stopwatch()
    model = FeatureScaling(spectrum=spectrum, target=target)
    order = np.argsort(-model.spectrum, kind="stable")
    eigenvalues, signal = model.spectrum[order], (model.spectrum * model.target**2)[order]
    if eigenvalues.size < 20:
        raise ValueError(f"a power law cannot be fitted to {eigenvalues.size} modes: give at least 20")
    ranks, strengths, counts = _binned(eigenvalues)
    powers = _binned(signal)[1]
    if not (powers > 0).all():
        raise ValueError("target is zero on a whole range of modes: its power law cannot be fitted there")
    begin, end = _range(ranks, strengths, counts, first, last)
    if end - begin < 3:
        raise ValueError(f"the range {ranks[begin]:g} ... {ranks[end - 1]:g} is too short to fit: widen first and last")
    x = np.log(ranks[begin:end])
    decay, fall = (_line(x, np.log(values[begin:end]), counts[begin:end]) for values in (strengths, powers))
    capacity = -decay.slope
    source = (-fall.slope - 1) / capacity
    source_error = np.hypot(fall.error, source * decay.error) / capacity
    variables = {
        "capacity": capacity,
        "capacity_error": decay.error,
        "source": source,
        "source_error": float(source_error),
        "first_mode": ranks[begin],
        "last_mode": ranks[end - 1],
    }
    attributes = {"model": model.name, "method": "fit", "seconds": watch.seconds()}
    data = make_dataset(variables, {}, attributes, model.meanings)
    if capacity <= 1 or source <= 0:
        raise ValueError(
            f"the fit gives capacity = {capacity:.3g}, source = {source:.3g}, outside of the theory (capacity > 1, "
            "source > 0): choose another range with first and last"
        )
    return data.merge(FeatureScaling(capacity, source).exponents(), combine_attrs="override")


def _binned(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre, mean and number of modes of bins of equal length in the logarithm of the rank."""
    ranks = np.arange(1.0, values.size + 1)
    edges = np.unique(np.round(10 ** np.arange(0, np.log10(values.size) + 1 / _BINS, 1 / _BINS)))
    label = np.searchsorted(edges, ranks, side="right")
    count = np.bincount(label)
    kept = count > 0
    centre = np.exp(np.bincount(label, np.log(ranks))[kept] / count[kept])
    return centre, np.bincount(label, values)[kept] / count[kept], count[kept].astype(float)


def _range(
    ranks: np.ndarray, strengths: np.ndarray, counts: np.ndarray, first: int | None, last: int | None
) -> tuple[int, int]:
    low = 0 if first is None else int(np.searchsorted(ranks, check_count("first", first)))
    high = ranks.size if last is None else int(np.searchsorted(ranks, check_count("last", last), side="right"))
    if first is not None and last is not None:
        return low, high
    found = []
    for begin in range(low, high):
        for end in range(begin + 4, high + 1):
            x, y = np.log(ranks[begin:end]), np.log(strengths[begin:end])
            extent = (x[-1] - x[0]) / np.log(10)
            if extent >= _SHORTEST:
                found.append((extent, _line(x, y, counts[begin:end]).scatter, begin, end))
    if not found:
        return low, high
    straight = max(_STRAIGHT, 2 * min(scatter for _, scatter, _, _ in found))
    _, _, begin, end = max(window for window in found if window[1] <= straight)
    return begin, end


def _line(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> _Line:
    """Weighted by the number of modes in a bin, up to a few: beyond, bins differ by more than their fluctuations."""
    weights = np.minimum(counts, _MOST_WEIGHT)
    slope, height = straight_line(x, y, weights)
    residual = y - slope * x - height
    scatter = float(np.sqrt((weights * residual**2).sum() / weights.sum() * x.size / max(1, x.size - 2)))
    middle = (weights * x).sum() / weights.sum()
    spread = float(np.sqrt((weights * (x - middle) ** 2).sum() / weights.mean()))
    half, bend = x.size // 2, 0.0
    if half >= 3:
        parts = (slice(half), slice(half, None))
        slopes = [straight_line(x[part], y[part], weights[part])[0] for part in parts]
        bend = abs(slopes[0] - slopes[1]) / 4
    return _Line(float(slope), float(np.hypot(scatter / spread, bend)), scatter)
