"""The best learning rate of each width, its drift with the width, and what using another width's rate costs.

All logarithms of rates and widths are to base 2, so that differences are octaves; losses enter as the mean over seeds
of their natural logarithm. Seeds are paired: a bootstrap resample draws the same seeds at all rates and widths.
"""

import functools
import math
from typing import Literal, NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.stats import chi2

Status = Literal["interior", "lower edge", "upper edge", "divergence", "diverged"]
RESAMPLES = 2000
# Errors below this many octaves are not told from zero: seeds that agree exactly give no weight of infinity.
_LEAST_ERROR = 1e-3
_SLACK = 1e-6
_LARGEST_CORRELATION = 0.9


class Optimum(NamedTuple):
    """The best rate of one width: vertex of the parabola in log2(rate), two errors, and where the grid's minimum lies.

    If the best rate is the largest one at which no run diverged (``"divergence"``), it lies between its two neighbours:
    then ``log2_rate`` is their middle, and the error that of a uniform distribution between them. At the edges of the
    grid rate and errors are NaN. ``first`` and ``last`` are the indices of the rates that were used.
    """

    status: Status
    log2_rate: float
    error: float
    curvature_error: float
    curvature: float
    grid_index: int
    first: int
    last: int

    @property
    def is_located(self) -> bool:
        """Whether there is a best rate with an error."""
        return self.status in ("interior", "divergence")


class Drift(NamedTuple):
    """Octaves of the best rate per doubling of the width; ``chi_square`` of the straight line, with its probability."""

    slope: float
    error: float
    chi_square: float
    freedom: int
    probability: float


class Limit(NamedTuple):
    """The best rate of infinitely wide networks, and its line in one over the width.

    ``coefficient`` is by how many octaves the rate of the narrowest network lies above the limit.
    """

    log2_rate: float
    coefficient: float
    error: float
    chi_square: float
    freedom: int
    probability: float


class Penalty(NamedTuple):
    """Relative loss that the widest network loses at the narrowest's best rate; infinite where it diverges there."""

    value: float
    error: float


def usable_range(logs: np.ndarray) -> tuple[int, int]:
    """First and last index of the rates around the best one at which no seed diverged: the window of stable rates.

    ``logs`` has dims (rate, seed), NaN for diverged runs. Raises a ValueError if every rate has a diverged seed.
    """
    finite = np.isfinite(logs).all(axis=1)
    if not finite.any():
        raise ValueError("every rate has diverged runs")
    best = int(np.argmin(np.where(finite, np.where(finite[:, None], logs, 0).mean(axis=1), np.inf)))
    first = last = best
    while first > 0 and finite[first - 1]:
        first -= 1
    while last < len(finite) - 1 and finite[last + 1]:
        last += 1
    return first, last


@functools.cache
def resampled(seeds: int) -> np.ndarray:
    """Weights (resample, seed) of a bootstrap over seeds, the same in every call with as many seeds."""
    drawn = np.random.default_rng(0).integers(0, seeds, (RESAMPLES, seeds))
    return np.mean(drawn[:, :, None] == np.arange(seeds), axis=1)


def find_optimum(log2_rates: np.ndarray, logs: np.ndarray, reach: float) -> tuple[Optimum, np.ndarray]:
    """The optimum of one width, and the vertex in every bootstrap resample (empty where there is none).

    The parabola is fitted, by least squares, to the mean log loss at all rates within ``reach`` octaves of the grid's
    minimum, and at least at its two neighbours. In a resample the minimum of the grid is chosen anew.
    """
    nothing = np.empty(0)
    if not np.isfinite(logs).all(axis=1).any():
        return Optimum("diverged", math.nan, math.nan, math.nan, math.nan, 0, 0, 0), nothing
    first, last = usable_range(logs)
    rates, values = log2_rates[first : last + 1], logs[first : last + 1]
    best = int(np.argmin(values.mean(axis=1)))
    if best in (0, len(rates) - 1):
        status: Status = "lower edge"
        if best == len(rates) - 1:
            status = "upper edge" if last == len(log2_rates) - 1 else "divergence"
            if status == "divergence" and best > 0:
                return _bracketed(log2_rates, last, logs.shape[1])
        elif first > 0:
            status = "diverged"
        return Optimum(status, math.nan, math.nan, math.nan, math.nan, first + best, first, last), nothing
    begin, end = _window(rates, best, reach)
    projection = _projection(rates[begin : end + 1])
    vertex = float(_vertices(rates, values.mean(axis=1)[None], reach)[0])
    drawn = _vertices(rates, resampled(values.shape[1]) @ values.T, reach)
    # The bootstrap's variance of a mean is too small by (S - 1) / S.
    seeds = values.shape[1]
    error = float(drawn.std() * math.sqrt(seeds / (seeds - 1)))
    centre = rates[begin : end + 1].mean()
    _, slopes, curvatures = projection @ values[begin : end + 1]
    curvature = float(curvatures.mean())
    from_curvature = math.inf
    if curvature > 0:
        # d x* = -(d b + 2 x* d a) / (2 a) for the parabola a x² + b x + c about the centre of the window.
        influence = (slopes + 2 * (vertex - centre) * curvatures) / (2 * curvature)
        from_curvature = float(influence.std(ddof=1) / math.sqrt(seeds))
    found = Optimum(
        "interior",
        vertex,
        max(error, _LEAST_ERROR),
        max(from_curvature, _LEAST_ERROR),
        2 * curvature,
        first + best,
        first + begin,
        first + end,
    )
    return found, drawn


def _bracketed(log2_rates: np.ndarray, last: int, seeds: int) -> tuple[Optimum, np.ndarray]:
    """The optimum next to the divergent rates: anywhere between the neighbours of the last stable rate."""
    low, high = log2_rates[last - 1], log2_rates[last + 1]
    middle, error = (low + high) / 2, (high - low) / math.sqrt(12)
    # Independent of those of other widths.
    drawn = np.random.default_rng(last + 1).permutation(np.linspace(low, high, RESAMPLES))
    return Optimum("divergence", middle, error, math.nan, math.nan, last, last - 1, last + 1), drawn


def find_drift(log2_widths: np.ndarray, optima: list[Optimum], drawn: np.ndarray, seeds: int) -> Drift:
    """The weighted straight line of the optima against log2(width): see :func:`_least_squares`."""
    return Drift(*_least_squares(log2_widths, optima, drawn, seeds)[1:])


def find_limit(widths: np.ndarray, optima: list[Optimum], drawn: np.ndarray, seeds: int) -> Limit:
    """The weighted line of the optima against one over the width, and its end: the limit of infinite width.

    Where a network has a limit of infinite width, corrections to it are of order one over the width in the mean.
    """
    return Limit(*_least_squares(float(widths[0]) / widths, optima, drawn, seeds))


def _least_squares(
    places: np.ndarray, optima: list[Optimum], drawn: np.ndarray, seeds: int
) -> tuple[float, float, float, float, int, float]:
    """Value at zero and slope of a line through the optima, error of the slope, chi-square, freedom and probability.

    By generalised least squares. Seeds that share their data at all widths shift all optima together, which is no
    slope: the errors of different widths have one correlation, the mean of those found by the bootstrap (at least 0).
    The error of the slope is the larger one of that from the weights and that of the bootstrap. If chi-square is larger
    than its number of degrees of freedom, it grows by the root of the ratio: then the best rates do not lie on a line.
    """
    count = len(optima)
    centres, errors = (np.array(values) for values in zip(*((one.log2_rate, one.error) for one in optima), strict=True))
    spreads = np.maximum(drawn.std(axis=1), _LEAST_ERROR)
    correlations = np.cov(drawn) / np.outer(spreads, spreads)
    mean = float(correlations.sum() - np.trace(correlations)) / (count * (count - 1))
    correlation = min(max(mean, 0.0), _LARGEST_CORRELATION)
    covariance = np.outer(errors, errors) * (correlation + (1 - correlation) * np.eye(count))
    lines = np.stack([np.ones(count), places - places.mean()], axis=1)
    inverse = np.linalg.inv(covariance)
    of_line = np.linalg.inv(lines.T @ inverse @ lines)
    projection = of_line @ lines.T @ inverse
    middle, slope = (float(value) for value in projection @ centres)
    at_zero = middle - slope * float(places.mean())
    from_seeds = float((projection[1] @ drawn).std()) * math.sqrt(seeds / (seeds - 1))
    error = max(math.sqrt(of_line[1, 1]), from_seeds)
    residuals = centres - lines @ projection @ centres
    square, freedom = float(residuals @ inverse @ residuals), count - 2
    if freedom == 0:
        return at_zero, slope, error, 0.0, 0, 1.0
    error *= math.sqrt(max(1.0, square / freedom))
    return at_zero, slope, error, square, freedom, float(chi2.sf(square, freedom))


def find_penalty(
    log2_rates: np.ndarray, logs: np.ndarray, narrow: Optimum, wide: Optimum, drawn: tuple[np.ndarray, np.ndarray]
) -> Penalty:
    """Log of the widest network's loss at the narrowest's best rate over that at its own best rate, as a ratio less 1.

    Between rates of the grid the mean log loss of the widest network is interpolated: by its parabola where that was
    fitted, and by monotone cubics elsewhere. The mean over resamples corrects the bias of a minimum over noise, so that
    a penalty of zero may be found a little negative.
    """
    first, last = usable_range(logs)
    rates, values = log2_rates[first : last + 1], logs[first : last + 1]
    beyond = log2_rates[last + 1] - _SLACK if last + 1 < len(log2_rates) else rates[-1] + _SLACK
    if narrow.log2_rate > beyond or narrow.log2_rate < rates[0] - _SLACK:
        return Penalty(math.inf, math.nan)
    window = slice(wide.first - first, wide.last - first + 1)

    inside = rates[window]
    projection, centre = _projection(inside), float(inside.mean())

    def excess(means: np.ndarray, here: float, own: float) -> float:
        if wide.status == "interior" and inside[0] - _SLACK <= here <= inside[-1] + _SLACK:
            _, slope, curvature = projection @ means[window]
            return float((here - own) * (slope + curvature * (here + own - 2 * centre)))
        curve = PchipInterpolator(rates, means)
        return float(curve(np.clip(here, rates[0], rates[-1])) - curve(np.clip(own, rates[0], rates[-1])))

    found = excess(values.mean(axis=1), narrow.log2_rate, wide.log2_rate)
    several = resampled(values.shape[1]) @ values.T
    again = np.array([excess(*parts) for parts in zip(several, *drawn, strict=True)])
    seeds = values.shape[1]
    corrected = 2 * found - float(again.mean())
    error = float(again.std()) * math.sqrt(seeds / (seeds - 1))
    return Penalty(math.expm1(corrected), math.exp(corrected) * error)


def log_slopes(widths: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slopes of log2(value) against log2(width), and their standard errors over seeds; dims (width, layer, seed).

    The line is fitted to each seed alone. Values that are zero have no slope: NaN.
    """
    distance = np.log2(widths) - np.log2(widths).mean()
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.einsum("w,wls->ls", distance, np.log2(values)) / np.sum(distance**2)
    slopes = np.where(np.isfinite(slopes), slopes, math.nan)
    return slopes.mean(axis=1), slopes.std(axis=1, ddof=1) / math.sqrt(slopes.shape[1])


def _window(rates: np.ndarray, best: int, reach: float) -> tuple[int, int]:
    """First and last index of the parabola's points: within reach, symmetric in number, at least three."""
    near = np.abs(rates - rates[best]) <= reach + _SLACK
    sides = min(int(near[:best].sum()), int(near[best + 1 :].sum()))
    sides = max(1, sides)
    middle = min(max(best, sides), len(rates) - 1 - sides)
    return middle - sides, middle + sides


def _projection(rates: np.ndarray) -> np.ndarray:
    """The matrix from values to the coefficients (1, x, x²) of their least-squares parabola about the mean rate."""
    return np.linalg.pinv(np.vander(rates - rates.mean(), 3, increasing=True))


def _vertices(rates: np.ndarray, means: np.ndarray, reach: float) -> np.ndarray:
    """The vertex of every row of mean log losses (resample, rate), within the window of its fit."""
    found = np.empty(len(means))
    best = means.argmin(axis=1)
    for index in np.unique(best):
        rows = best == index
        begin, end = _window(rates, int(index), reach)
        inside = rates[begin : end + 1]
        _, slope, curvature = _projection(inside) @ means[rows, begin : end + 1].T
        with np.errstate(divide="ignore", invalid="ignore"):
            vertex = inside.mean() - slope / (2 * curvature)
        vertex = np.where(curvature > 0, vertex, rates[index])
        found[rows] = np.clip(vertex, inside[0], inside[-1])
    return found
