"""The standard error of a mean over seeds with its degrees of freedom, and the p-values that follow from it."""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

# At best, a value is known to a few units in the last place.
ROUNDING = 16 * np.finfo(float).eps


class Errors(NamedTuple):
    """Standard error of the mean over seeds, numerical error, and degrees of freedom of each value."""

    of_seeds: xr.DataArray
    numerical: xr.DataArray
    freedom: xr.DataArray

    @property
    def total(self) -> xr.DataArray:
        found: Any = np.hypot(self.of_seeds, self.numerical)
        return found


def standard_errors(
    theory: xr.Dataset, simulation: xr.Dataset, name: str, seeds: int, *, with_theory: bool = True
) -> Errors:
    """Errors of the mean over seeds of one variable, and of theory unless ``with_theory`` is False."""
    runs = simulation[name]
    own, of_theory = (numerical_error_of(data, name) for data in (simulation, theory))
    if not with_theory:
        of_theory = xr.zeros_like(of_theory)
    unit = value_units(abs(runs).max("seed"), theory[name], own, of_theory)
    runs, own, of_theory = runs / unit, own / unit, of_theory / unit
    spread = runs.max("seed") - runs.min("seed")
    # If runs differ by no more than their numerical error, their spread is meaningless.
    of_seeds = (runs.std("seed", ddof=1) / np.sqrt(seeds)).where(spread > own, 0.0)
    known = own**2 + of_theory**2
    # Only the missing part is added: usually the spread of the seeds includes this variance.
    least = _least_error(theory, simulation[name], seeds, bool((of_seeds > 0).any())) / unit
    missing = (least**2 - of_seeds**2 - known).clip(0)
    numerical = np.sqrt(known + missing)
    stated = theory[f"{name}_error"].attrs if f"{name}_error" in theory else {}
    freedom = of_seeds**4 / _freedom_of_spread(runs) + of_theory**4 / stated.get("degrees_of_freedom", np.inf)
    # Even if the spread is known, a mean over few seeds is not Gaussian but has the tails of the seeds.
    freedom = freedom + missing**2 / (seeds - 1)
    total = (of_seeds**2 + numerical**2) ** 2
    # Welch-Satterthwaite equation; errors that are known have infinitely many degrees of freedom.
    degrees = xr.where(freedom > 0, total / freedom.where(freedom > 0, 1.0), np.inf)
    return Errors(of_seeds * unit, numerical * unit, degrees)


def value_units(*sizes: xr.DataArray) -> xr.DataArray:
    """The largest of several values and errors, place by place, or 1 where that is zero or infinite.

    In such units powers do not underflow, as 1e-85**4 does. An error may be much larger than the value, for example
    1e-16 of a loss of 1e-180: in units of the value alone its square would be infinite.
    """
    unit: Any = abs(sizes[0])
    for size in sizes[1:]:
        unit = np.fmax(unit, abs(size))
    found: xr.DataArray = unit.where((unit > 0) & (unit < np.inf), 1.0)
    return found


def numerical_error_of(data: xr.Dataset, name: str) -> xr.DataArray:
    """The absolute error that a dataset states for a variable, at least that of rounding; mean over the seeds."""
    values = abs(data[name])
    if f"{name}_error" in data:
        error = abs(data[f"{name}_error"])
    else:
        largest = data.attrs.get("numerical_error_scale") == "maximum"
        # NaN means that the error is unknown, which must not make every score NaN.
        stated = np.nan_to_num(float(data.attrs.get("numerical_error", 0.0)), nan=0.0)
        error = stated * (values.max() if largest else values)
    error = error + ROUNDING * values
    return error.mean("seed") if "seed" in error.dims else error


def _least_error(theory: xr.Dataset, runs: xr.DataArray, seeds: int, is_random: bool) -> xr.DataArray:
    """A lower bound for the standard error of the mean over seeds, which does not depend on the spread of these seeds.

    It follows from the number of trials, or from the spread that theory predicts. If neither is known and all seeds of
    a random variable are equal, rare events may have been missed: for a mean that is higher by ``d``, with values in a
    range ``W``, at least a fraction ``q = d / W`` of the runs must differ. Having seen none of those in n seeds, ``q``
    has the binomial error of the estimate ``(n q + 1) / (n + 2)``.
    """
    expected = theory[str(runs.name)]
    if "trials" in runs.attrs:
        chance = expected.clip(0, 1)
        return np.sqrt(chance * (1 - chance) / (runs.attrs["trials"] * seeds))
    if f"{runs.name}_spread" in theory:
        return abs(theory[f"{runs.name}_spread"]) / np.sqrt(seeds)
    width = float(np.maximum(runs.max(), expected.max()) - np.minimum(runs.min(), expected.min()))
    alike = runs.max("seed") - runs.min("seed") <= ROUNDING * abs(runs).max("seed")
    if not width > 0 or not is_random:
        return xr.zeros_like(expected)
    distance = abs(runs.mean("seed") - expected)
    fraction = (seeds * distance / width + 1) / (seeds + 2)
    return (width * (fraction * (1 - fraction) / seeds) ** 0.5).where(alike & (distance > 0), 0.0)


def _freedom_of_spread(runs: xr.DataArray) -> xr.DataArray:
    """Degrees of freedom of the spread over seeds: one less than their number, fewer if a few seeds cause the spread.

    The estimated variance of n values of kurtosis ``k`` has the relative variance ``(k - 1) / n``, as with
    ``2 n / (k - 1)`` degrees of freedom: about two for each outlying seed.
    """
    deviations = runs - runs.mean("seed")
    square, fourth = (deviations**2).mean("seed"), (deviations**4).mean("seed")
    excess = fourth / (square**2).where(square > 0, 1.0) - 1
    seeds = runs.sizes["seed"]
    return (2 * seeds / excess.where(excess > 0, 1e-9)).clip(1, seeds - 1)


def two_sided_p_values(scores: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Probability that a t-distributed variable with these degrees of freedom is at least as far from zero."""
    from scipy.special import ndtr, stdtr

    sizes = -np.abs(scores)
    finite = np.isfinite(freedom)
    return np.minimum(2 * np.where(finite, stdtr(np.where(finite, freedom, 1.0), sizes), ndtr(sizes)), 1.0)


def combined_p_value(p_values: np.ndarray) -> float:
    """Combine p-values that may be correlated by the Cauchy combination test of Liu and Xie (2020).

    Each p-value is transformed to a Cauchy variate. The tail of their mean is nearly that of a Cauchy variate, however
    they are correlated. P-values near 1 would be transformed to minus infinity and outweigh all others; they are
    replaced by 0.99, which changes the result by a hundredth at most.

    >>> round(combined_p_value(np.array([0.01])), 4), round(combined_p_value(np.full(50, 0.01)), 4)
    (0.01, 0.01)
    """
    if not p_values.size:
        return 1.0
    p_values = np.clip(p_values, 1e-300, 0.99)
    # tan((1/2 - p) pi), which is 1 / (p pi) if p is small.
    variates = np.where(p_values < 1e-8, 1 / (np.pi * p_values), np.tan((0.5 - p_values) * np.pi))
    mean = float(np.mean(variates))
    return 1 / (np.pi * mean) if mean > 1e8 else 0.5 - float(np.arctan(mean)) / np.pi
