"""Power laws in curves: local slopes, windows in which they agree, least squares, and errors by resampling.

Everything is done in the logarithms, where ``y = prefactor x^-exponent`` is a straight line of slope ``-exponent``.
Curves may be stacked along leading axes; ``x`` runs along the last one.
"""

import math
from typing import Any, NamedTuple

import numpy as np

# How far from zero exponents are looked for beside an offset, and how densely at first.
_STEEPEST, _SCANNED = 12.0, 97
_GOLDEN = (math.sqrt(5) - 1) / 2
# A local exponent may differ from the common one by this many of its standard errors.
_ERRORS_ALLOWED = 3.0
_FEWEST_SEEDS = 4


class PowerLaw(NamedTuple):
    """``offset + prefactor x^-exponent``; each a number, or an array over the curves fitted together."""

    exponent: Any
    prefactor: Any
    offset: Any

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.offset)[..., None] + np.asarray(self.prefactor)[..., None] * (
            x ** -np.asarray(self.exponent)[..., None]
        )


def straight_line(x: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> tuple[Any, Any]:
    """Slope and height at x = 0 of the line of least (weighted) squares."""
    weights = np.ones_like(x, dtype=float) if weights is None else np.asarray(weights, float)
    total = weights.sum(-1)
    middle = (weights * x).sum(-1) / total
    away = x - np.asarray(middle)[..., None]
    slope = (weights * away * y).sum(-1) / (weights * away**2).sum(-1)
    return slope, (weights * y).sum(-1) / total - slope * middle


def local_slopes(x: np.ndarray, y: np.ndarray, errors: np.ndarray | None = None) -> tuple[np.ndarray, Any]:
    """``d log y / d log x`` at every point, of second order on any grid, and its error from independent errors of y.

    Two points have one slope, that between them.
    """
    logs = np.log(x)
    slopes = np.gradient(np.log(y), logs, axis=-1, edge_order=_edge_order(x))
    if errors is None:
        return slopes, None
    return slopes, np.sqrt((np.asarray(errors) / y) ** 2 @ _stencil(logs) ** 2)


def local_slopes_of_mean(x: np.ndarray, runs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for the mean of ``runs[..., seed, x]``, with the error to first order.

    Points of one run fluctuate together, so that the slope is known better than errors of single points suggest.
    """
    mean = runs.mean(-2)
    slopes, _ = local_slopes(x, mean)
    each = (runs / mean[..., None, :] - 1) @ _stencil(np.log(x))
    return slopes, each.std(-2, ddof=1) / math.sqrt(runs.shape[-2])


def _edge_order(x: np.ndarray) -> Any:
    return 2 if x.size > 2 else 1


def _stencil(logs: np.ndarray) -> np.ndarray:
    """What each point adds to each slope, ``[point, slope]``."""
    return np.asarray(np.gradient(np.eye(logs.size), logs, axis=-1, edge_order=_edge_order(logs)))


def straight_window(
    x: np.ndarray, slopes: np.ndarray, drift: float, errors: np.ndarray | None = None, fewest: int = 3
) -> slice:
    """The longest stretch of ``log x`` over which one slope describes all local ones; the later one of two equals.

    The common slope may differ from each local one by ``drift / 2`` and three of its errors.
    """
    allowance = drift / 2 + (0.0 if errors is None else _ERRORS_ALLOWED * errors)
    logs, best = np.log(x), (-1.0, slice(0, 0))
    for begin in range(x.size - fewest + 1):
        highest = np.minimum.accumulate((slopes + allowance)[begin:])
        lowest = np.maximum.accumulate((slopes - allowance)[begin:])
        straight = int((lowest <= highest).sum())
        length = logs[begin + straight - 1] - logs[begin]
        if straight >= fewest and length >= best[0] * (1 - 1e-9):
            best = length, slice(begin, begin + straight)
    if best[0] < 0:
        raise ValueError(
            f"no {fewest} neighbouring points have local exponents within {drift:g} of each other: "
            "allow more drift, give more points per decade, or choose the window yourself"
        )
    return best[1]


def fit(
    x: np.ndarray,
    y: np.ndarray,
    errors: np.ndarray | None = None,
    offset: bool = False,
    counts: np.ndarray | None = None,
) -> PowerLaw:
    """Least squares. Without ``errors`` all points are known with the same relative error.

    ``counts`` says how often each point is taken. A plain power is a line in the logarithms; with an offset the
    residuals are those of y itself, in units of the errors.
    """
    counts = np.ones_like(x) if counts is None else counts
    if offset:
        return _with_offset(x, y, np.abs(y) if errors is None else errors, counts)
    if errors is None:
        return _plain(x, y, counts)
    # Again with errors relative to the law: relative to the values, points that fluctuate upwards would weigh more.
    first = _plain(x, y, counts * (y / errors) ** 2)
    return _plain(x, y, counts * (first(x) / errors) ** 2)


def _plain(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> PowerLaw:
    slope, height = straight_line(np.log(x), np.log(y), weights)
    return PowerLaw(-slope, np.exp(height), np.zeros_like(slope))


def _with_offset(x: np.ndarray, y: np.ndarray, scale: np.ndarray, counts: np.ndarray) -> PowerLaw:
    """``height + slope (u^p - 1) / p``, u = x over its geometric mean: regular at p = 0, where it is a logarithm.

    Height and slope are linear parameters, so that the search is over p alone: a scan, then golden section, for all
    curves together. The exponent is -p.
    """
    unit = np.exp(np.log(x).mean())
    logs, weights = np.log(x / unit), counts / scale**2
    shape = np.broadcast_shapes(y.shape, weights.shape)[:-1]

    def basis(power: Any) -> Any:
        turned = power[..., None] * logs
        small = np.abs(turned) < 1e-6
        safe = np.where(small, 1.0, turned)
        return logs * np.where(small, 1 + turned / 2, np.expm1(safe) / safe)

    def misfit(power: Any) -> Any:
        slope, height = straight_line(basis(power), y, weights)
        return (weights * (y - height[..., None] - slope[..., None] * basis(power)) ** 2).sum(-1)

    # Beyond 12 decades along x one point outweighs all others.
    steepest = min(_STEEPEST, 28.0 / float(np.ptp(logs)))
    scan = np.linspace(-steepest, steepest, _SCANNED)
    found = np.array([misfit(np.full(shape, power)) for power in scan])
    best = scan[np.argmin(found, axis=0)]
    low, high = best - (scan[1] - scan[0]), best + (scan[1] - scan[0])
    for _ in range(45):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        smaller = misfit(left) < misfit(right)
        low, high = np.where(smaller, low, left), np.where(smaller, right, high)
    power = (low + high) / 2
    if power.shape == () and (abs(power) >= steepest or np.ptp(y) == 0):
        raise ValueError(
            f"no power beside an offset fits these values: the exponent runs to {-power:.3g}; choose another window, "
            "or fit without offset"
        )
    slope, height = straight_line(basis(power), y, weights)
    return PowerLaw(-power, slope / power * unit**-power, height - slope / power)


class Resampled(NamedTuple):
    """Fits to resampled data, and what is known of their spread."""

    laws: PowerLaw
    # Degrees of freedom, and by how much the spread of resampled fits falls short of the true one.
    freedom: float
    short: float


def resample(
    x: np.ndarray,
    y: np.ndarray,
    errors: np.ndarray | None,
    offset: bool,
    how: str,
    resamples: int,
    generator: np.random.Generator,
) -> Resampled:
    """Fits to ``resamples`` sets of data drawn like the given one.

    ``how``: whole runs of ``y[seed, x]`` ("seeds"); Gaussian errors about the fitted law ("errors"); residuals, for
    noise alike at all points ("residuals"); or points with their noise ("pairs").
    """
    parameters = 3 if offset else 2
    if how == "seeds":
        seeds = y.shape[0]
        taken = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples)
        return Resampled(fit(x, taken @ y / seeds, errors, offset), seeds - 1.0, math.sqrt(seeds / (seeds - 1)))
    freedom = float(x.size - parameters)
    if how == "pairs":
        taken = generator.multinomial(x.size, np.full(x.size, 1 / x.size), size=4 * resamples)
        # A fit needs more distinct points than parameters: resamples with fewer are left out.
        taken = taken[(taken > 0).sum(1) > parameters][:resamples].astype(float)
        return Resampled(fit(x, y, errors, offset, taken), freedom, math.sqrt(x.size / freedom))
    law = fit(x, y, errors, offset)
    curve = law(x)
    scale = (np.abs(curve) if offset else np.ones_like(y)) if errors is None else errors / (1.0 if offset else y)
    if how == "errors":
        noise = generator.normal(size=(resamples, x.size))
        freedom = math.inf
    else:
        residuals = (y - curve if offset else np.log(y / curve)) / scale
        noise = generator.choice(residuals * math.sqrt(x.size / freedom), size=(resamples, x.size))
    drawn = curve + scale * noise if offset else curve * np.exp(scale * noise)
    # The weights of the fit stay those of the data.
    return Resampled(fit(x, drawn, np.abs(y) if errors is None and offset else errors, offset), freedom, 1.0)


def error_and_interval(values: np.ndarray, found: Resampled, confidence: float) -> tuple[float, float, float]:
    """Standard error and the ends of an interval that holds the truth with probability ``confidence``.

    Quantiles of the resampled fits, further out by what few data ask for: Student's t in place of a Gaussian and the
    spread that resampling misses ("expanded percentiles", Hesterberg, American Statistician 69, 371, 2015).
    """
    from scipy.stats import norm, t

    tail = (1 - confidence) / 2
    deviations = -(t.ppf(tail, found.freedom) if math.isfinite(found.freedom) else norm.ppf(tail)) * found.short
    outside = float(norm.cdf(-deviations))
    low, high = np.quantile(values, [outside, 1 - outside])
    return float(values.std(ddof=1)) * found.short, float(low), float(high)


def check_curve(x: Any, y: Any, fewest: int, positive: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Arrays that a power law can be fitted to, or a ValueError that says which number cannot be."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    if x.ndim != 1 or y.shape[-1:] != x.shape:
        raise ValueError(f"x must be one-dimensional and as long as the values: {x.shape} does not fit {y.shape}")
    if x.size < fewest:
        raise ValueError(f"{x.size} points are too few: give at least {fewest}, or widen the window")
    _check_all("x", x, x, x > 0, "positive: a power law has a logarithm, leave zero out")
    _check_all("x", x[1:], x[1:], np.diff(x) > 0, "increasing: sort the points and remove duplicates")
    where = np.broadcast_to(x, y.shape)
    if positive:
        rule = "positive: they have no logarithm otherwise; choose a window, or subtract what they tend to"
        _check_all("values", y, where, y > 0, rule)
    _check_all("values", y, where, np.isfinite(y), "finite")
    return x, y


def _check_all(name: str, numbers: np.ndarray, where: np.ndarray, good: np.ndarray, rule: str) -> None:
    if not good.all():
        place = np.unravel_index(int(np.argmin(good)), good.shape)
        raise ValueError(f"{name} must be {rule}; there is {numbers[place]:g} at x = {where[place]:g}")


def check_errors(errors: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Positive standard errors, one for each point."""
    errors = np.broadcast_to(np.asarray(errors, float), shape)
    if not ((errors > 0) & np.isfinite(errors)).all():
        raise ValueError("errors must be positive and finite: leave them out where they are not known")
    return errors


def check_resampling(how: str, seeds: int | None, errors: Any) -> str:
    """What is drawn anew: runs if there are some, else within the errors if they are known, else residuals."""
    if how == "auto":
        how = "seeds" if seeds is not None else "residuals" if errors is None else "errors"
    if how not in ("seeds", "errors", "residuals", "pairs"):
        raise ValueError(f"resample must be 'auto', 'seeds', 'errors', 'residuals' or 'pairs', not {how!r}")
    if how == "errors" and errors is None:
        raise ValueError("resample='errors' needs the errors of the values: pass errors=")
    if how == "seeds" and (seeds is None or seeds < _FEWEST_SEEDS):
        raise ValueError(
            f"{seeds or 'no'} seeds are too few to resample: give at least {_FEWEST_SEEDS}, or take the mean over "
            "them first"
        )
    return how
