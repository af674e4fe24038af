"""Simulations of several sizes, extrapolated to the infinite system by a straight line in one over the size."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from solvable.same_system import parsed
from solvable.standard_errors import Errors, combined_p_value, numerical_error_of, standard_errors, value_units

# What an extrapolated comparison has beside the usual statistics.
ADDED_STATISTICS = ("coefficient", "coefficient_error")
# Means are called bent, not on a straight line, with this false-alarm rate.
_BENT = 0.01


def inverse_size_weights(sizes: Any, errors: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weights of means ``y`` of systems of sizes ``D`` in the line of least squares ``y = limit + coefficient / D``.

    The limit is ``sum(first * y)``, the coefficient ``sum(second * y)``, over the first axis. For two sizes the limit
    is ``(D2 y2 - D1 y1) / (D2 - D1)`` whatever the errors; for more, each mean counts by one over its squared error.

    Parameters
    ----------
    sizes
        The sizes D.
    errors
        Standard errors of the means, with sizes along the first axis.

    >>> import numpy as np
    >>> from solvable.extrapolation import inverse_size_weights
    >>> limit, coefficient = inverse_size_weights([1, 4], np.ones(2))
    >>> (limit * 3).round(9), (coefficient * 3).round(9)
    (array([-1.,  4.]), array([ 4., -4.]))
    """
    errors = np.asarray(errors, float)
    inverse = (1 / np.asarray(sizes, float)).reshape(-1, *[1] * (errors.ndim - 1))
    # Means without error (a start that is the same in all runs) would have an infinite weight.
    largest = errors.max(axis=0)
    errors = np.where(largest > 0, np.maximum(errors / np.where(largest > 0, largest, 1.0), 1e-6), 1.0)
    weights = 1 / errors**2
    weights = weights / weights.sum(axis=0)
    middle = (weights * inverse).sum(axis=0)
    away = inverse - middle
    slope = weights * away / (weights * away**2).sum(axis=0)
    return weights - middle * slope, slope


class Extrapolation(NamedTuple):
    """The straight line in one over the size through the means of one variable."""

    size: str
    sizes: tuple[float, ...]
    expected: xr.DataArray
    limit: xr.DataArray
    errors: Errors
    coefficient: xr.DataArray
    coefficient_error: xr.DataArray
    straight: float

    @property
    def sizes_in_words(self) -> str:
        *others, last = (f"{size:g}" for size in self.sizes)
        return f"{self.size} {', '.join(others)} and {last}"


def extrapolate_mean(
    theory: xr.Dataset, simulations: Sequence[xr.Dataset], name: str, size: str, sizes: tuple[float, ...]
) -> Extrapolation:
    """The limit of infinite size of the means over seeds of one variable, with all errors, those of theory included."""
    seeds = [runs.sizes["seed"] for runs in simulations]
    means = [runs[name].mean("seed") for runs in simulations]
    each = [
        standard_errors(theory, runs, name, count, with_theory=False)
        for runs, count in zip(simulations, seeds, strict=True)
    ]
    like = means[-1]
    values, of_seeds, numerical, freedom = (
        np.stack([part.broadcast_like(like).transpose(*like.dims).values for part in parts])
        for parts in (means, *([getattr(one, field) for one in each] for field in Errors._fields))
    )
    of_theory = numerical_error_of(theory, name)
    largest = like.copy(data=np.maximum(abs(values), numerical).max(0))
    unit = value_units(largest, theory[name], of_theory).transpose(*like.dims).values
    values, of_seeds, numerical = values / unit, of_seeds / unit, numerical / unit
    total = np.hypot(of_seeds, numerical)
    to_limit, to_coefficient = inverse_size_weights(sizes, total)

    def array(numbers: np.ndarray) -> xr.DataArray:
        return like.copy(data=numbers)

    of_theory = of_theory / array(unit)
    stated = theory[f"{name}_error"].attrs if f"{name}_error" in theory else {}
    variance = array(((to_limit * total) ** 2).sum(0)) + of_theory**2
    # Welch-Satterthwaite equation, as for one simulation.
    spread = array(((to_limit * total) ** 4 / freedom).sum(0)) + of_theory**4 / stated.get("degrees_of_freedom", np.inf)
    errors = Errors(
        array(unit * np.sqrt(((to_limit * of_seeds) ** 2).sum(0))),
        (array(((to_limit * numerical) ** 2).sum(0)) + of_theory**2) ** 0.5 * unit,
        xr.where(spread > 0, variance**2 / spread.where(spread > 0, 1.0), np.inf),
    )
    limit, slope = (to_limit * values).sum(0), (to_coefficient * values).sum(0)
    slope_error = np.sqrt(((to_coefficient * total) ** 2).sum(0))
    residuals = values - limit - slope / np.asarray(sizes).reshape(-1, *[1] * like.ndim)
    straight = _straightness(residuals, total, freedom)
    limit, slope, slope_error = (array(unit * numbers) for numbers in (limit, slope, slope_error))
    return Extrapolation(size, sizes, theory[name], limit, errors, slope, slope_error, straight)


def _straightness(residuals: np.ndarray, errors: np.ndarray, freedom: np.ndarray) -> float:
    """The chance of residuals as large as those found, over all values together; NaN for two sizes.

    The residuals of k sizes have a chi-square of k - 2 degrees of freedom. Because the errors are estimated, it is
    compared with Fisher's F distribution, whose second number of degrees of freedom is the smallest of the errors'.
    """
    from scipy.special import chdtrc, fdtrc

    beyond = len(residuals) - 2
    known = (errors > 0).all(axis=0) & np.isfinite(residuals).all(axis=0)
    if beyond < 1 or not known.any():
        return float("nan")
    square = ((residuals[:, known] / errors[:, known]) ** 2).sum(axis=0)
    second = freedom[:, known].min(axis=0)
    finite = np.isfinite(second)
    chances = np.where(finite, fdtrc(beyond, np.where(finite, second, 1.0), square / beyond), chdtrc(beyond, square))
    return combined_p_value(chances)


class FiniteSizeWords(NamedTuple):
    """How large the finite-size term of the largest system is, its size in errors, and whether the line is bent."""

    text: str
    score: float
    bent: str


def finite_size_words(line: Extrapolation, name: str) -> FiniteSizeWords:
    """The finite-size term where it is largest, and what the means of three sizes or more say of the straight line."""
    term = abs(line.coefficient).fillna(0.0)
    where = term.argmax(...)
    at = line.coefficient.isel(where)
    largest = line.sizes[-1]
    value, error = float(at) / largest, float(line.coefficient_error.isel(where)) / largest
    expected = abs(line.expected.broadcast_like(line.coefficient).transpose(*term.dims).isel(where).item())
    place = [f"{dim} = {at[dim].item():g}" for dim in term.dims if dim in at.coords]
    of = name + (f" at {', '.join(place)}" if place else "")
    percent = 100 / expected if expected > 0 else 0.0
    amount = f"{_digits(percent * value, percent * error)} % of {of}" if percent else f"{_digits(value, error)} in {of}"
    text = f"the finite-size term at {line.size} {largest:g} is {amount}"
    bent = ""
    if line.straight < _BENT:
        bent = f"no straight line in 1/{line.size} (p-value {line.straight:.1g}): use larger sizes"
    elif line.straight >= _BENT:
        text += f", and the means lie on a straight line in 1/{line.size} (p-value {line.straight:.2g})"
    return FiniteSizeWords(text, abs(value) / error if error > 0 else 0.0, bent)


def _digits(value: float, error: float) -> str:
    """A value with its error, to two digits of the error.

    >>> _digits(2.3456, 0.41), _digits(-0.000123, 0.00001)
    ('2.35 ± 0.41', '-0.000123 ± 1e-05')
    """
    if not error > 0:
        return f"{value:.3g}"
    digits = 1 - int(np.floor(np.log10(error)))
    return f"{value:.{digits}f} ± {error:.2g}" if 0 <= digits <= 4 else f"{value:.3g} ± {error:.1g}"


def check_sizes(
    theory: xr.Dataset, simulations: list[xr.Dataset], size: str | None
) -> tuple[tuple[float, ...], list[xr.Dataset]]:
    """The sizes of the simulations that are extrapolated, and these in the order of their sizes.

    Raises a ValueError for simulations of one size, or of a size that theory does not take to infinity.
    """
    if size is None:
        if len(simulations) != 1:
            raise ValueError(
                f"{len(simulations)} simulations and no size to extrapolate: pass one simulation, "
                "or extrapolate='dimension' (the size in which they differ)"
            )
        return (), simulations
    if len(simulations) < 2:
        raise ValueError(
            f"extrapolate={size!r} needs simulations of at least 2 sizes, not {len(simulations)}: "
            f"pass them as a list, such as compare(theory, [small, large], extrapolate={size!r})"
        )
    of_theory = parsed(theory.attrs.get("system"))
    first = parsed(simulations[0].attrs.get("system"))
    infinite = [name for name, value in of_theory.items() if value is None and first.get(name) is not None]
    if size not in of_theory or of_theory[size] is not None:
        has = f"has {size} = {of_theory[size]!r}" if size in of_theory else f"states no {size}"
        possible = f"extrapolate {' or '.join(map(repr, infinite))}" if infinite else "theory is of the finite system"
        raise ValueError(f"theory {has}, which is not a limit of infinite {size}: {possible}")
    sizes = []
    for runs in simulations:
        found = parsed(runs.attrs.get("system")).get(size)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < np.inf:
            raise ValueError(f"a simulation has {size} = {found!r}: extrapolation needs a finite number, above 0")
        sizes.append(float(found))
    if len(set(sizes)) < 2:
        raise ValueError(f"all simulations have {size} = {sizes[0]:g}: extrapolation needs different sizes")
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    return tuple(sizes[place] for place in order), [simulations[place] for place in order]
