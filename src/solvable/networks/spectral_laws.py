"""Capacity and source of a measured spectrum: windows in which power laws are fitted, two fits of each, their errors.

On n points the eigenvalues of a kernel and the target's power in its modes follow ``lambda_k ~ k^-alpha`` and
``p_k ~ k^(-alpha beta - 1)`` only between the first modes, which are not asymptotic, and the last, which the finite
number of points distorts. So the default window is the last decade of modes that can be trusted.
"""

import math
from typing import NamedTuple

import numpy as np

from solvable.numerics.fits import straight_line

# Modes beyond this fraction of the points are not trusted: there, eigenvalues of n random points on a circle differ by
# 5 to 10 % from those of infinitely many (capacity 1.5 to 3), which changes a slope over a decade by 0.02 to 0.04.
TRUSTED = 0.1
# A power law is not fitted to fewer modes.
FEWEST_MODES = 12
_BINS = 6
_MOST_WEIGHT = 30.0
# The sum of a target's power converges, so it falls at least like 1/k: a slower fall than this is a noise floor.
_FLAT = 0.5
_ABOVE_FLOOR = 3.0
_LEAKED = 0.3
_SHIFTS = np.linspace(-0.8, 1.0, 91)


class Modes(NamedTuple):
    """Eigenvalues in decreasing order and the power of the target in each mode."""

    eigenvalues: np.ndarray
    power: np.ndarray


class Window(NamedTuple):
    """First and last mode of a fit."""

    first: float
    last: float

    @property
    def decades(self) -> float:
        return math.log10(self.last / self.first) if self.last > self.first > 0 else 0.0

    def scaled(self, first: float, last: float) -> "Window":
        return Window(max(1.5, self.first * first), self.last * last)


class Clearance(NamedTuple):
    """White noise adds the same ``floor`` to the power of every mode; ``last`` is the last mode above it."""

    floor: float
    last: float


class Estimate(NamedTuple):
    """Exponents and their errors; the scatter of log eigenvalues about their line, and how far its halves differ."""

    capacity: float
    source: float
    capacity_error: float = math.nan
    source_error: float = math.nan
    scatter: float = math.nan
    bend: float = math.nan


class _Line(NamedTuple):
    slope: float
    error: float
    scatter: float


def clearance(modes: Modes, size: int, width_noise: float = 0.0) -> Clearance:
    """The floor of the power, if it stops falling, and the last mode whose power is above this floor and above leakage.

    Power of stronger modes leaks into mode k. Sampled eigenfunctions are not exactly orthogonal, which gives
    ``lambda_k^2 / n sum_(j<k) p_j / lambda_j^2`` and hides targets with ``beta > 2 - 1 / alpha``. A kernel of finite
    width mixes modes with amplitude ``sqrt(width_noise lambda_k / lambda_j)``, which gives ``width_noise lambda_k
    sum_(j<k) p_j / lambda_j`` and hides those with ``beta > 1 - 1 / alpha``, as the 1/N term of the loss does in the
    theory.
    """
    eigenvalues, power = modes
    labels, ranks, counts = _bins(power.size)
    mean = np.bincount(labels, power) / counts
    tail = (ranks > TRUSTED * power.size) & (ranks < 0.7 * power.size) & (mean > 0)
    floor = 0.0
    if tail.sum() >= 3:
        slope, _ = straight_line(np.log(ranks[tail]), np.log(mean[tail]))
        floor = float(np.average(mean[tail], weights=counts[tail])) if slope > -_FLAT else 0.0
    leaks = _leak(eigenvalues**2, power) / size + _leak(eigenvalues, power) * width_noise
    leaked = np.bincount(labels, leaks) / counts
    clear = (mean > _ABOVE_FLOOR * floor) & (leaked < _LEAKED * mean)
    # One bin may be weak by chance; two in a row are not.
    hidden = np.flatnonzero(~clear[:-1] & ~clear[1:] & (ranks[:-1] > 1.5))
    return Clearance(floor, float(ranks[max(0, hidden[0] - 1)] if hidden.size else ranks[-1]))


def _leak(strengths: np.ndarray, power: np.ndarray) -> np.ndarray:
    """``s_k sum_(j<k) p_j / s_j``, from ratios of neighbours, so that tiny strengths cannot overflow."""
    found = np.zeros(power.size)
    for mode in range(1, power.size):
        found[mode] = (found[mode - 1] + power[mode - 1]) * (strengths[mode] / strengths[mode - 1])
    return found


def trusted_modes(rank: int, size: int) -> int:
    """The number of modes that can be trusted of a kernel of this rank on ``size`` points (or landmarks)."""
    return min(rank, max(FEWEST_MODES, int(TRUSTED * min(rank, size))))


def last_decade(last: float) -> Window:
    """The decade that ends at ``last``, without the first mode, which is often the constant."""
    return Window(max(1.5, last / 10), float(last))


def neighbours(window: Window, power_window: Window, most: float) -> list[tuple[Window, Window]]:
    """Pairs of windows that could have been chosen as well. Power that is hidden from some mode on remains hidden."""
    hidden = power_window.last < window.last
    found = []
    for first, last in ((0.5, 1.0), (2.0, 1.0), (1.0, 0.5), (0.5, 0.5), (1.0, 1.5), (2.0, 1.5)):
        one, powers = window.scaled(first, last), power_window.scaled(first, min(last, 1.0) if hidden else last)
        if one.decades >= 0.65 * min(1.0, window.decades) and one.last <= most:
            found.append((one, powers))
    return found


def estimate(modes: Modes, window: Window, power_window: Window, floor: float = 0.0) -> Estimate:
    """Capacity and source, each the mean of two estimates, half the difference of which is part of the error.

    Capacity: the slopes of ``log lambda_k`` against ``log k`` and against ``log(k + k_0)`` with the k_0 that fits best:
    eigenvalues approach their power law from above, and the first correction is a shift of the rank. Source: from the
    slope ``-alpha beta - 1`` of the power, and from the power in all weaker modes, which falls as ``lambda_k^beta``.
    """
    labels, ranks, counts = _bins(modes.power.size)
    levels = np.bincount(labels, modes.eigenvalues) / counts
    power = np.bincount(labels, modes.power) / counts - floor
    inside = _inside(ranks, window)
    if inside.sum() < 3:
        return Estimate(math.nan, math.nan)
    weights = np.minimum(counts, _MOST_WEIGHT)
    x, y = np.log(ranks[inside]), np.log(levels[inside])
    straight = _line(x, y, weights[inside])
    shifted = _shifted_slope(ranks[inside], y, weights[inside])
    capacity, half = -(straight.slope + shifted) / 2, abs(straight.slope - shifted) / 2
    half_count = x.size // 2
    parts = (slice(half_count), slice(half_count, None)) if half_count >= 2 else ()
    ends = [straight_line(x[part], y[part], weights[inside][part])[0] for part in parts]
    found = Estimate(
        capacity,
        math.nan,
        math.hypot(straight.error, half),
        scatter=straight.scatter,
        bend=float(abs(ends[0] - ends[1])) if ends else math.nan,
    )
    powered = _inside(ranks, power_window) & (power > 0)
    if powered.sum() < 3 or capacity <= 0:
        return found
    fall = _line(np.log(ranks[powered]), np.log(power[powered]), weights[powered])
    by_power = (-fall.slope - 1) / capacity
    by_tail = _tail_exponent(modes, power_window, floor)
    by_tail = by_power if math.isnan(by_tail) else by_tail
    error = math.hypot(fall.error, by_power * found.capacity_error) / capacity
    return found._replace(source=(by_power + by_tail) / 2, source_error=math.hypot(error, (by_power - by_tail) / 2))


def pairs_of(estimates: list[Estimate]) -> np.ndarray:
    """Capacities and sources, (estimates, 2)."""
    return np.array([(one.capacity, one.source) for one in estimates]).reshape(-1, 2)


def distance_from(central: Estimate, estimates: list[Estimate]) -> tuple[float, float]:
    """Root mean square distance of estimates from a central one, in capacity and source."""
    differences = pairs_of(estimates) - pairs_of([central])
    known = [column[np.isfinite(column)] for column in differences.T]
    capacity, source = (math.sqrt(np.mean(column**2)) if column.size else math.nan for column in known)
    return capacity, source


def _tail_exponent(modes: Modes, window: Window, floor: float) -> float:
    """The slope of the power in mode k and all weaker ones against the eigenvalue, in the logarithms."""
    indices = np.unique(np.round(np.geomspace(max(2, window.first), window.last, 12)).astype(int)) - 1
    indices = indices[indices < modes.power.size]
    tails = np.cumsum((modes.power - floor)[::-1])[::-1][indices]
    # The tail includes the mode itself, so it belongs between this mode and the one before.
    levels = np.sqrt(modes.eigenvalues[indices] * modes.eigenvalues[indices - 1])
    good = tails > 0
    return float(straight_line(np.log(levels[good]), np.log(tails[good]))[0]) if good.sum() >= 3 else math.nan


def _bins(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bins of equal length in the logarithm of the rank: the bin of each mode, mean ranks and sizes of the bins."""
    ranks = np.arange(1.0, size + 1)
    edges = np.unique(np.round(10 ** np.arange(0, np.log10(size) + 1 / _BINS, 1 / _BINS)))
    labels = np.searchsorted(edges, ranks, side="right") - 1
    counts = np.bincount(labels).astype(float)
    return labels, np.exp(np.bincount(labels, np.log(ranks)) / counts), counts


def _inside(ranks: np.ndarray, window: Window) -> np.ndarray:
    return (ranks >= window.first) & (ranks <= window.last)


def _shifted_slope(ranks: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    x = np.log(ranks + _SHIFTS[:, None] * ranks[0])
    slopes, heights = straight_line(x, y[None], weights[None])
    misfit = (weights * (y - heights[:, None] - slopes[:, None] * x) ** 2).sum(1)
    return float(slopes[np.argmin(misfit)])


def _line(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> _Line:
    slope, height = straight_line(x, y, weights)
    residual = y - slope * x - height
    scatter = math.sqrt((weights * residual**2).sum() / weights.sum() * x.size / max(1, x.size - 2))
    middle = (weights * x).sum() / weights.sum()
    spread = math.sqrt((weights * (x - middle) ** 2).sum() / weights.mean())
    return _Line(float(slope), scatter / spread, scatter)
