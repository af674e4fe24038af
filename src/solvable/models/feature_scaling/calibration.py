"""From a measured kernel to a forecast: capacity and source of its spectrum, and the exponents they imply."""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from solvable.models.base import Stopwatch, check_count, make_dataset
from solvable.models.feature_scaling.meanings import MEANINGS
from solvable.models.feature_scaling.model import FeatureScaling

_BINS = 6
_STRAIGHT = 0.15
_SHORTEST = 0.7


class _Line(NamedTuple):
    slope: float
    error: float
    scatter: float


def fit_source_capacity(spectrum: Any, target: Any, *, first: int | None = None, last: int | None = None) -> xr.Dataset:
    """Capacity and source of a kernel with eigenvalues ``spectrum`` and target coefficients ``target``, any order.

    Eigenvalues are averaged over bins of equal length in ``log k``, as are ``lambda_k w_k^2 ~ k^(-capacity source - 1)``,
    and straight lines fitted from mode ``first`` to mode ``last``. By default that is the longest range over which the
    eigenvalues scatter about their line by at most 15 %; a measured spectrum ends in modes that too few samples
    bend. Errors combine the scatter of the bins and the change of slope between the halves of the range. The exponents of
    :meth:`FeatureScaling.exponents` are added.
    """
    watch = Stopwatch()
    model = FeatureScaling(spectrum=spectrum, target=target)
    order = np.argsort(-model.spectrum, kind="stable")
    eigenvalues, signal = model.spectrum[order], (model.spectrum * model.target**2)[order]
    if eigenvalues.size < 20:
        raise ValueError(f"a power law cannot be told from {eigenvalues.size} modes: give at least 20")
    ranks, strengths = _binned(eigenvalues)
    _, powers = _binned(signal)
    if not (powers > 0).all():
        raise ValueError("target is zero on a whole range of modes: its power law cannot be fitted there")
    begin, end = _range(ranks, strengths, first, last)
    if end - begin < 3:
        raise ValueError(f"the range {ranks[begin]:g} ... {ranks[end - 1]:g} is too short to fit: widen first and last")
    x = np.log(ranks[begin:end])
    decay = _line(x, np.log(strengths[begin:end]))
    fall = _line(x, np.log(powers[begin:end]))
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
    data = make_dataset(
        {name: ((), value) for name, value in variables.items()},
        {},
        {"model": "feature-scaling", "method": "fit", "seconds": watch.seconds()},
        MEANINGS,
    )
    if capacity <= 1 or source <= 0:
        raise ValueError(
            f"the fit gives capacity = {capacity:.3g}, source = {source:.3g}, outside of the theory (capacity > 1, "
            "source > 0): choose another range with first and last"
        )
    return data.merge(FeatureScaling(capacity, source).exponents(), combine_attrs="override")


def _binned(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over bins of equal length in the logarithm of the rank, single modes at the beginning."""
    ranks = np.arange(1.0, values.size + 1)
    edges = np.unique(np.round(10 ** np.arange(0, np.log10(values.size) + 1 / _BINS, 1 / _BINS)))
    label = np.searchsorted(edges, ranks, side="right")
    count = np.bincount(label)
    kept = count > 0
    with np.errstate(invalid="ignore"):
        centre = np.exp(np.bincount(label, np.log(ranks))[kept] / count[kept])
        return centre, np.bincount(label, values)[kept] / count[kept]


def _range(ranks: np.ndarray, strengths: np.ndarray, first: int | None, last: int | None) -> tuple[int, int]:
    low = 0 if first is None else int(np.searchsorted(ranks, check_count("first", first)))
    high = ranks.size if last is None else int(np.searchsorted(ranks, check_count("last", last), side="right"))
    if first is not None and last is not None:
        return low, high
    best, length = (low, high), 0.0
    flattest, choice = np.inf, (low, high)
    for begin in range(low, high):
        for end in range(begin + 4, high + 1):
            x, y = np.log(ranks[begin:end]), np.log(strengths[begin:end])
            extent = (x[-1] - x[0]) / np.log(10)
            if extent < _SHORTEST:
                continue
            scatter = _line(x, y).scatter
            if scatter < flattest:
                flattest, choice = scatter, (begin, end)
            if scatter < _STRAIGHT and extent > length:
                best, length = (begin, end), extent
    return best if length else choice


def _line(x: np.ndarray, y: np.ndarray) -> _Line:
    slope, height = np.polyfit(x, y, 1)
    residual = y - slope * x - height
    scatter = float(np.sqrt((residual**2).sum() / max(1, x.size - 2)))
    spread = float(np.sqrt(((x - x.mean()) ** 2).sum()))
    half = x.size // 2
    bend = 0.0
    if half >= 3:
        bend = abs(np.polyfit(x[:half], y[:half], 1)[0] - np.polyfit(x[half:], y[half:], 1)[0]) / 4
    return _Line(float(slope), float(np.hypot(scatter / spread, bend)), scatter)
