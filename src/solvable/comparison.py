"""Compare theory and simulation: do both describe the same system, and are their differences larger than the noise?"""

import json
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

STATISTICS = ("theory", "simulation", "difference", "standard_error", "z_score", "relative_difference")
# The false-alarm rate: how often the verdict calls a correct theory wrong.
FALSE_ALARMS = 0.01
# At best, a value is known to a few units in the last place.
_ROUNDING = 16 * np.finfo(float).eps


def compare(
    theory: xr.Dataset, simulation: xr.Dataset, *, allow_different: bool | str | Collection[str] = False
) -> xr.Dataset:
    """Compare theory and simulation, variable by variable.

    Every variable that both have keeps its name and gains a dimension ``statistic``: ``theory``, ``simulation`` (mean
    over seeds), ``difference`` (simulation minus theory), ``standard_error``, ``z_score`` and ``relative_difference``.
    So ``compare(theory, simulation).test_loss.sel(statistic="z_score")`` is the z-score of the test loss at each time.
    The attribute ``verdict`` of the dataset, and of each variable, says whether theory and simulation agree.

    **Same system.** A ValueError names the first of ``model``, ``parameters`` and ``system`` (sizes and training:
    batch, momentum, flow or steps, ...) that differs, if both datasets state it. A size that is None in the theory is
    the limit of infinite size. It may be compared with a finite simulation, which a verdict of disagreement mentions.
    Datasets without these attributes are compared as they are.

    **Standard error.** The standard error of the mean over seeds and, in quadrature, the numerical errors of theory and
    simulation: the variable ``<name>_error`` (absolute) if a dataset has it, otherwise the attribute
    ``numerical_error``, which is relative to each value, or to the largest value of the variable if the attribute
    ``numerical_error_scale`` is ``"maximum"``. If all seeds are equal, only numerical errors count. Few seeds may all
    miss rare events, so the error is at least that of the standard deviation over seeds that theory predicts
    (``<name>_spread``). Fractions counted over a number of trials (attribute ``trials``) have at least the binomial
    error that theory implies: ten runs with 1000 successes in 1000 trials do not prove a probability of one. If neither
    is known, values that are equal in all seeds of a variable that is random elsewhere have the binomial error of the
    fraction of runs that would have to differ.

    **Relative difference.** The difference divided by the absolute value of theory; where that is zero, by the largest
    absolute value of the variable in theory, or by 1 if theory is zero everywhere.

    **Verdict.** The p-value of each difference follows from Student's t distribution. Its degrees of freedom are those
    of the standard error: one less than the number of seeds, fewer if a few seeds cause the spread, more if numerical
    errors, which are known, dominate. The Cauchy combination test (Liu and Xie, 2020) combines the p-values of all
    values of a variable, which may be correlated, as those at neighbouring times are. Theory disagrees if the combined
    p-value is below 1 % divided by the number of variables, so that a correct theory is called wrong in about 1 % of
    comparisons if the seeds are Gaussian. Skewed distributions raise this rate: it is 3 to 5 % for an exponential
    distribution and 3 to 30 seeds.

    Parameters
    ----------
    theory
        Dataset of a prediction, without a dimension ``seed``.
    simulation
        Dataset of runs, with a dimension ``seed`` of length 2 or more, at the same times.
    allow_different
        Names of what may differ between the two systems, such as ``["batch"]``; or True for everything.

    >>> import solvable, xarray as xr
    >>> theory = xr.Dataset({"loss": ("time", [1.0, 0.5])}, {"time": [0.0, 1.0]})
    >>> runs = xr.Dataset({"loss": (("seed", "time"), [[1.0, 0.6], [1.2, 0.5], [0.8, 0.7]])}, {"time": [0.0, 1.0]})
    >>> comparison = solvable.compare(theory, runs)
    >>> comparison.loss.sel(statistic="z_score").values.round(2)
    array([0.  , 1.73])
    >>> comparison.attrs["verdict"]
    'theory and simulation agree: loss within 10 % of its largest value, at most 1.7 standard errors (3 seeds)'
    """
    seeds = _check_seeds(theory, simulation)
    limits = _check_same_system(theory, simulation, allow_different)
    shared = [
        str(name)
        for name in simulation.data_vars
        if name in theory.data_vars and "seed" in simulation[name].dims and not _is_error(str(name), theory)
    ]
    if not shared:
        raise ValueError(
            f"nothing to compare: theory has {', '.join(map(str, theory.data_vars))}; "
            f"simulation has {', '.join(map(str, simulation.data_vars))}"
        )
    theory = _aligned(theory, simulation)
    errors = {name: _errors(theory, simulation, name, seeds) for name in shared}
    result = xr.Dataset({name: _statistics(theory[name], simulation[name], errors[name]) for name in shared})
    judged = [_judge(result[name], errors[name], seeds, FALSE_ALARMS / len(shared)) for name in shared]
    for one in judged:
        agrees = "agrees" if one.agrees else "does not agree"
        result[one.name].attrs["verdict"] = f"{one.name} {agrees}: {one.description}"
    result.attrs = {
        "method": "comparison",
        **{key: theory.attrs[key] for key in ("model", "parameters", "version") if key in theory.attrs},
        **{f"theory_{key}": theory.attrs[key] for key in _KEPT if key in theory.attrs},
        **{f"simulation_{key}": simulation.attrs[key] for key in (*_KEPT, "device") if key in simulation.attrs},
        "verdict": _verdict(judged, limits, seeds),
    }
    return result


_KEPT = ("solver", "system", "numerical_error")


def _is_error(name: str, data: xr.Dataset) -> bool:
    return name.endswith("_error") and name.removesuffix("_error") in data


def _check_seeds(theory: xr.Dataset, simulation: xr.Dataset) -> int:
    if "seed" not in simulation.dims:
        raise ValueError("the second dataset has no dimension 'seed': pass theory first, simulation second")
    if "seed" in theory.dims:
        raise ValueError("the first dataset has a dimension 'seed': pass theory first, simulation second")
    seeds = simulation.sizes["seed"]
    if seeds < 2:
        raise ValueError(f"a standard error needs at least 2 seeds, not {seeds}: simulate more")
    return seeds


def _aligned(theory: xr.Dataset, simulation: xr.Dataset) -> xr.Dataset:
    """Theory with the coordinates of the simulation, which must be equal up to rounding: xarray would drop others."""
    for dim in set(theory.dims) & set(simulation.dims):
        if dim not in theory.coords or dim not in simulation.coords:
            continue
        one, two = theory[dim].values, simulation[dim].values
        if one.shape != two.shape or not np.allclose(one, two, rtol=1e-12, atol=0):
            raise ValueError(
                f"theory and simulation are at different values of {dim!r} ({one.size} and {two.size} of them): "
                f"predict at simulation.{dim}.values"
            )
        theory = theory.assign_coords({dim: simulation[dim]})
    return theory


def _check_same_system(
    theory: xr.Dataset, simulation: xr.Dataset, allow_different: bool | str | Collection[str]
) -> dict[str, Any]:
    """Raise a ValueError for different systems. Returns the sizes of the simulation that are infinite in theory."""
    allowed = {allow_different} if isinstance(allow_different, str) else allow_different
    limits: dict[str, Any] = {}
    for name, one, two, section in _stated_by_both(theory.attrs, simulation.attrs):
        if one == two:
            continue
        if one is None and section == "system":
            limits[name] = two
        elif not (allowed if isinstance(allowed, bool) else name in allowed):
            raise ValueError(
                f"theory has {name} = {_short(one)}, simulation {_short(two)}: give both the same, "
                f"or pass allow_different=[{name!r}] to compare them anyway"
            )
    return limits


def _stated_by_both(theory: dict[Any, Any], simulation: dict[Any, Any]) -> Iterable[tuple[str, Any, Any, str]]:
    """Name, value in theory, value in simulation and section of everything that both datasets state."""
    if "model" in theory and "model" in simulation:
        yield "model", theory["model"], simulation["model"], "model"
    for section in ("parameters", "system"):
        one, two = (_stated(attrs.get(section)) for attrs in (theory, simulation))
        for name in one:
            if name in two:
                yield name, one[name], two[name], section


def _stated(text: Any) -> dict[str, Any]:
    """Parse a JSON attribute; empty if it is missing, or if another program wrote it."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Errors(NamedTuple):
    """Standard error of the mean over seeds, numerical error, and degrees of freedom of each value."""

    of_seeds: xr.DataArray
    numerical: xr.DataArray
    freedom: xr.DataArray

    @property
    def total(self) -> xr.DataArray:
        return (self.of_seeds**2 + self.numerical**2) ** 0.5


def _errors(theory: xr.Dataset, simulation: xr.Dataset, name: str, seeds: int) -> _Errors:
    runs = simulation[name]
    own, of_theory = _numerical_error(simulation, name), _numerical_error(theory, name)
    spread = runs.max("seed") - runs.min("seed")
    # If runs differ by no more than their numerical error, their spread is meaningless.
    of_seeds = (runs.std("seed", ddof=1) / np.sqrt(seeds)).where(spread > own, 0.0)
    known = own**2 + of_theory**2
    # Only the missing part is added: usually the spread of the seeds includes this variance.
    missing = (_least_variance(theory, runs, seeds, of_seeds) - of_seeds**2 - known).clip(0)
    numerical = np.sqrt(known + missing)
    stated = theory[f"{name}_error"].attrs if f"{name}_error" in theory else {}
    freedom = of_seeds**4 / _freedom_of_spread(runs) + of_theory**4 / stated.get("degrees_of_freedom", np.inf)
    # Even if the spread is known, a mean over few seeds is not Gaussian but has the tails of the seeds.
    freedom = freedom + missing**2 / (seeds - 1)
    total = (of_seeds**2 + numerical**2) ** 2
    # Welch-Satterthwaite equation; errors that are known have infinitely many degrees of freedom.
    return _Errors(of_seeds, numerical, xr.where(freedom > 0, total / freedom.where(freedom > 0, 1.0), np.inf))


def _numerical_error(data: xr.Dataset, name: str) -> xr.DataArray:
    """The absolute error that a dataset states for a variable, at least that of rounding; mean over the seeds."""
    values = abs(data[name])
    if f"{name}_error" in data:
        error = abs(data[f"{name}_error"])
    else:
        largest = data.attrs.get("numerical_error_scale") == "maximum"
        # NaN means that the error is unknown, which must not make every score NaN.
        stated = np.nan_to_num(float(data.attrs.get("numerical_error", 0.0)), nan=0.0)
        error = stated * (values.max() if largest else values)
    error = error + _ROUNDING * values
    return error.mean("seed") if "seed" in error.dims else error


def _least_variance(theory: xr.Dataset, runs: xr.DataArray, seeds: int, of_seeds: xr.DataArray) -> xr.DataArray:
    """A lower bound for the variance of the mean over seeds, which does not depend on the spread of these seeds.

    It follows from the number of trials, or from the spread that theory predicts. If neither is known and all seeds of
    a random variable are equal, rare events may have been missed: for a mean that is higher by ``d``, with values in a
    range ``W``, at least a fraction ``q = d / W`` of the runs must differ. Having seen none of those in n seeds, ``q``
    has the binomial error of the estimate ``(n q + 1) / (n + 2)``.
    """
    expected = theory[str(runs.name)]
    if "trials" in runs.attrs:
        chance = expected.clip(0, 1)
        return chance * (1 - chance) / (runs.attrs["trials"] * seeds)
    if f"{runs.name}_spread" in theory:
        return theory[f"{runs.name}_spread"] ** 2 / seeds
    width = float(np.maximum(runs.max(), expected.max()) - np.minimum(runs.min(), expected.min()))
    alike = runs.max("seed") - runs.min("seed") <= _ROUNDING * abs(runs).max("seed")
    if not width > 0 or not bool((of_seeds > 0).any()):
        return xr.zeros_like(expected)
    distance = abs(runs.mean("seed") - expected)
    fraction = (seeds * distance / width + 1) / (seeds + 2)
    return (width**2 * fraction * (1 - fraction) / seeds).where(alike & (distance > 0), 0.0)


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


def _statistics(expected: xr.DataArray, runs: xr.DataArray, errors: _Errors) -> xr.DataArray:
    mean, error = runs.mean("seed"), errors.total
    difference = mean - expected
    score = xr.where(difference == 0, 0.0, difference / error.where(error > 0, 0.0))
    largest = float(abs(expected).max())
    relative = difference / abs(expected).where(expected != 0, largest or 1.0)
    parts = xr.concat(
        [expected, mean, difference, error, score, relative],
        xr.Variable("statistic", list(STATISTICS)),
        coords="minimal",
    )
    parts.attrs = {**expected.attrs}
    return parts


def _p_value(scores: xr.DataArray, errors: _Errors) -> float:
    """The combined p-value of all scores that are numbers."""
    freedom = errors.freedom.broadcast_like(scores).transpose(*scores.dims)
    each = two_sided_p_values(scores.fillna(0.0).values, freedom.values)
    return combined_p_value(each[scores.notnull().values])


class _Judgement(NamedTuple):
    """Of one variable: largest difference and error as fractions of the largest value, and largest score."""

    name: str
    agrees: bool
    difference: float
    error: float
    score: float
    deterministic: bool
    description: str


def _judge(parts: xr.DataArray, errors: _Errors, seeds: int, limit: float) -> _Judgement:
    """Judge whether theory and simulation agree in one variable."""
    part = {name: parts.sel(statistic=name, drop=True) for name in STATISTICS}
    scores = abs(part["z_score"])
    p_value = _p_value(scores, errors)
    largest = float(abs(part["theory"]).max()) or 1.0
    found = _Judgement(
        name=str(parts.name),
        agrees=p_value >= limit,
        difference=float(abs(part["difference"]).max()) / largest,
        error=float(errors.numerical.max()) / largest,
        score=float(scores.fillna(0.0).max()),
        deterministic=not bool((errors.of_seeds > 0).any()),
        description="",
    )
    if found.agrees or found.deterministic:
        return found._replace(description=_summary([found], seeds))
    where = scores.fillna(0.0).argmax(...)
    at = scores.isel(where)
    place = [f"{dim} = {at[dim].item():g}" for dim in scores.dims if dim in at.coords]
    relative = _percent(abs(float(part["relative_difference"].isel(where))))
    text = f"{relative} and {found.score:.2g} standard errors off{' at ' if place else ''}{', '.join(place)}"
    return found._replace(description=f"{text} ({seeds} seeds; p-value {p_value:.1g}, limit {limit:.2g})")


def _summary(judged: list[_Judgement], seeds: int) -> str:
    """How well the worst of some variables agrees; they are all random or all deterministic."""
    difference, error = (max(getattr(one, name) for one in judged) for name in ("difference", "error"))
    of = "its largest value" if len(judged) == 1 else "their largest values"
    if judged[0].deterministic:
        off = "within" if judged[0].agrees else "off by"
        known = f"deterministic: all seeds are alike, and numerical errors are up to {_percent(error)}"
        return f"{off} {_percent(difference)} of {of} ({known})"
    score = max(one.score for one in judged)
    return f"within {_percent(difference)} of {of}, at most {score:.2g} standard errors ({seeds} seeds)"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2g} %" if fraction < 10 else f"{fraction:.2g} times"


def _verdict(judged: list[_Judgement], limits: dict[str, Any], seeds: int) -> str:
    """All judgements in one sentence: each variable that disagrees, and the others together."""
    agreed = []
    for deterministic in (False, True):
        alike = [one for one in judged if one.agrees and one.deterministic == deterministic]
        if alike:
            names = ", ".join(one.name for one in alike)
            agreed.append(f"{names} {_summary(alike, seeds)}")
    against = [f"{one.name} is {one.description}" for one in judged if not one.agrees]
    if not against:
        return "theory and simulation agree: " + "; ".join(agreed)
    text = f"theory and simulation disagree in {len(against)} of {len(judged)} variables: " + "; ".join(against)
    if limits:
        finite = ", ".join(f"{name} = {_short(value)}" for name, value in limits.items())
        text += f" (theory is a limit that the simulation with {finite} only approaches, which may explain it)"
    return text + ("; they agree in: " + "; ".join(agreed) if agreed else "")


class Agreement(NamedTuple):
    """Combined p-value of the differences in one variable, the largest score, and a description."""

    p_value: float
    score: float
    description: str


def agreement(
    theory: xr.Dataset,
    simulation: xr.Dataset,
    variable: str,
    *,
    bias: float = 0.0,
    absolute_bias: float = 0.0,
    allow_different: bool | str | Collection[str] = False,
) -> Agreement:
    """How well theory and the mean over seeds agree in one variable, judged as in :func:`compare`.

    Parameters
    ----------
    theory, simulation
        The datasets, as for :func:`compare`. Theory may have more coordinates than the simulation.
    variable
        The variable to compare.
    bias
        Fraction of the value of theory by which the mean may differ without counting against theory.
    absolute_bias
        The same in the units of the variable.
    allow_different
        What may differ between the two systems, as for :func:`compare`.
    """
    seeds = _check_seeds(theory, simulation)
    _check_same_system(theory, simulation, allow_different)
    for data, whose in ((theory, "theory"), (simulation, "the simulation")):
        if variable not in data:
            raise ValueError(f"{variable!r} is not a variable of {whose}, which has {', '.join(map(str, data))}")
    shared = [dim for dim in simulation[variable].dims if dim in theory[variable].dims and dim in theory.coords]
    # Values that theory does not have raise an error below.
    inside = {
        dim: simulation[dim].values for dim in shared if np.isin(simulation[dim].values, theory[dim].values).all()
    }
    theory = _aligned(theory.sel(inside), simulation)
    errors = _errors(theory, simulation, variable, seeds)
    difference = abs(simulation[variable].mean("seed") - theory[variable])
    excess = (difference - bias * abs(theory[variable]) - absolute_bias).clip(0)
    total = errors.total
    scores = xr.where(excess == 0, 0.0, excess / total.where(total > 0, 1e-300))
    # Runs that are NaN at all times are not evidence of agreement.
    p_value = _p_value(scores, errors) if bool(scores.notnull().any()) else np.nan
    largest = float(abs(theory[variable]).max()) or 1.0
    besides = f" beyond a bias of {_percent(bias)}" if bias else ""
    besides += f" beyond a bias of {absolute_bias:g}" if absolute_bias else ""
    description = (
        f"within {_percent(float(difference.max()) / largest)} of the largest value, at most "
        f"{float(scores.max()):.2g} standard errors{besides} ({seeds} seeds)"
    )
    return Agreement(p_value, float(scores.max()), description)


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


def first_crossing(values: xr.DataArray, level: float, dim: str = "time") -> xr.DataArray:
    """The time at which each curve first reaches a level, interpolated linearly in log time; NaN if it never does.

    Parameters
    ----------
    values
        The curves.
    level
        The level, which is reached from below.
    dim
        The dimension of time.

    >>> import xarray as xr
    >>> from solvable.comparison import first_crossing
    >>> accuracy = xr.DataArray([0.0, 0.5, 1.0], coords={"time": [1.0, 10.0, 100.0]}, name="accuracy")
    >>> round(float(first_crossing(accuracy, 0.75)), 3)
    31.623
    """

    def along(curve: np.ndarray, times: np.ndarray) -> float:
        above = np.nonzero(curve >= level)[0]
        if above.size == 0:
            return np.nan
        last = above[0]
        if last == 0 or times[last - 1] <= 0:
            return float(times[last])
        fraction = (level - curve[last - 1]) / (curve[last] - curve[last - 1])
        return float(times[last - 1] * (times[last] / times[last - 1]) ** fraction)

    crossing = xr.apply_ufunc(along, values, values[dim], input_core_dims=[[dim], [dim]], vectorize=True)
    return crossing.assign_attrs(long_name=f"time at which {values.name} reaches {level:g}", units="steps")
