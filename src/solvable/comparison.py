"""Theory against simulation: are both of the same system, how far are they apart, and is that more than noise?"""

import json
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

STATISTICS = ("theory", "simulation", "difference", "standard_error", "z_score", "relative_difference")
# How often the verdict calls a correct theory wrong.
FALSE_ALARMS = 0.01
# Every value is known to a few units in its last place at best.
_ROUNDING = 16 * np.finfo(float).eps


def compare(
    theory: xr.Dataset, simulation: xr.Dataset, *, allow_different: bool | str | Collection[str] = False
) -> xr.Dataset:
    """Hold theory against simulation, variable by variable.

    Every variable that both have keeps its name and gains a dimension ``statistic``: ``theory``, ``simulation`` (mean
    over seeds), ``difference`` (simulation minus theory), ``standard_error``, ``z_score`` and ``relative_difference``.
    So ``compare(theory, simulation).test_loss.sel(statistic="z_score")`` is the z-score of the test loss at each time.
    The attribute ``verdict`` says in words whether they agree, as does that of each variable.

    **Same system.** A ValueError names the first of ``model``, ``parameters`` and ``system`` (sizes and training:
    batch, momentum, flow or steps, ...) that differs where both datasets state it. A size that is None in the theory
    means the limit of infinitely many; a finite simulation may be held against it, and a verdict of disagreement says
    so. Datasets without these attributes are compared as they are. ``allow_different`` names what may differ
    (``["batch"]``), or is True for all.

    **Standard error.** That of the mean over seeds and, in quadrature, the numerical errors of both sides:
    ``<name>_error`` (absolute) where a dataset has such a variable, otherwise its attribute ``numerical_error``, which
    is relative to each value, or to the largest value of the variable where the attribute ``numerical_error_scale`` is
    ``"maximum"``. Seeds that are all alike have no spread, and are compared with the numerical errors only. Few seeds
    may all miss what is rare, so that the error is at least that of the spread which theory predicts
    (``<name>_spread``, the standard deviation over seeds). Fractions counted over a number of trials (attribute
    ``trials``) have at least the binomial error that theory's value implies: ten runs that all count 1000 of 1000 do
    not prove a probability of one. Without either, values that are the same in all seeds of a variable that is random
    elsewhere have the binomial error of the share of runs that would have to differ.

    **Relative difference.** The difference over the size of theory's value; where that is zero, over the largest that
    theory's variable has, and over 1 if all of it is zero.

    **Verdict.** The chance of a difference as large as found follows, for each value, from Student's t distribution.
    Its degrees of freedom are those of the standard error: one less than there are seeds, fewer where a few seeds
    cause the spread, more where numerical errors, which are known, dominate. The Cauchy combination test (Liu and Xie,
    2020) joins the chances of all values of a variable, which may be correlated as neighbouring times are. Theory is
    said to disagree where the joint chance is below 1 % over the number of variables, so that a correct theory is
    called wrong in about 1 % of comparisons if the seeds are Gaussian. Seeds that are skewed raise the rate: it is 3 to
    5 % where they are distributed like an exponential, for 3 to 30 of them.

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
    theory = _at_the_same_coordinates(theory, simulation)
    errors = {name: _errors(theory, simulation, name, seeds) for name in shared}
    result = xr.Dataset({name: _statistics(theory[name], simulation[name], errors[name]) for name in shared})
    judged = [_judge(result[name], errors[name], seeds, FALSE_ALARMS / len(shared)) for name in shared]
    for one in judged:
        result[one.name].attrs["verdict"] = f"{one.name} {'agrees' if one.agrees else 'does not agree'}: {one.words}"
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


def _at_the_same_coordinates(theory: xr.Dataset, simulation: xr.Dataset) -> xr.Dataset:
    """Theory with the simulation's coordinates, which must be its own up to rounding: xarray would drop the others."""
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
    """Refuse datasets of different systems; the sizes of the simulation that theory takes to a limit come back."""
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
    """Name, theory's value, the simulation's and where they are stated, of all that both datasets state."""
    if "model" in theory and "model" in simulation:
        yield "model", theory["model"], simulation["model"], "model"
    for section in ("parameters", "system"):
        one, two = (_stated(attrs.get(section)) for attrs in (theory, simulation))
        for name in one:
            if name in two:
                yield name, one[name], two[name], section


def _stated(text: Any) -> dict[str, Any]:
    """What an attribute in JSON states; nothing where there is none, or one that somebody else wrote."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Errors(NamedTuple):
    """Of each value: the standard error of the mean over seeds, what is known of errors besides, and the freedom."""

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
    # Runs that differ by no more than their own numerical error have no spread that would mean anything.
    of_seeds = (runs.std("seed", ddof=1) / np.sqrt(seeds)).where(spread > own, 0.0)
    known = own**2 + of_theory**2
    # Only what is missing is added: where the seeds differ as much as they must, that is in their spread already.
    missing = (_least_variance(theory, runs, seeds, of_seeds) - of_seeds**2 - known).clip(0)
    numerical = np.sqrt(known + missing)
    stated = theory[f"{name}_error"].attrs if f"{name}_error" in theory else {}
    freedom = of_seeds**4 / _freedom_of_spread(runs) + of_theory**4 / stated.get("degrees_of_freedom", np.inf)
    # A spread may be known, but a mean over few seeds is not Gaussian: its tails are as far as those of the seeds.
    freedom = freedom + missing**2 / (seeds - 1)
    total = (of_seeds**2 + numerical**2) ** 2
    # Welch and Satterthwaite; what is known without estimate has infinitely many degrees of freedom.
    return _Errors(of_seeds, numerical, xr.where(freedom > 0, total / freedom.where(freedom > 0, 1.0), np.inf))


def _numerical_error(data: xr.Dataset, name: str) -> xr.DataArray:
    """The absolute error that a dataset states for a variable, and rounding at least; a mean over the seeds."""
    values = abs(data[name])
    if f"{name}_error" in data:
        error = abs(data[f"{name}_error"])
    else:
        largest = data.attrs.get("numerical_error_scale") == "maximum"
        # NaN says that the error is not known, which must not make every score NaN.
        stated = np.nan_to_num(float(data.attrs.get("numerical_error", 0.0)), nan=0.0)
        error = stated * (values.max() if largest else values)
    error = error + _ROUNDING * values
    return error.mean("seed") if "seed" in error.dims else error


def _least_variance(theory: xr.Dataset, runs: xr.DataArray, seeds: int, of_seeds: xr.DataArray) -> xr.DataArray:
    """The variance that the mean over seeds must have whatever spread these few show.

    It follows from a number of trials, or from the spread that theory predicts. Where neither is known and all seeds of
    a random variable are alike, rare events may have been missed: a mean that is ``d`` higher, with values in a range
    ``W``, takes a share of at least ``q = d / W`` of other runs, and counting none of those in n seeds has the binomial
    error of ``q``, here at the estimate ``(n q + 1) / (n + 2)`` that is never certain.
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
    share = (seeds * distance / width + 1) / (seeds + 2)
    return (width**2 * share * (1 - share) / seeds).where(alike & (distance > 0), 0.0)


def _freedom_of_spread(runs: xr.DataArray) -> xr.DataArray:
    """Degrees of freedom of the spread over seeds: one less than there are seeds, fewer if it is due to a few of them.

    The variance of n values of kurtosis ``k`` is known to a relative variance of ``(k - 1) / n``, which is that of
    ``2 n / (k - 1)`` degrees of freedom: about two for each seed that stands out.
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


class _Judgement(NamedTuple):
    """Of one variable: its largest difference and error as shares of its largest value, and its largest score."""

    name: str
    agrees: bool
    difference: float
    error: float
    score: float
    deterministic: bool
    words: str


def _judge(parts: xr.DataArray, errors: _Errors, seeds: int, limit: float) -> _Judgement:
    """Whether a variable agrees."""
    part = {name: parts.sel(statistic=name, drop=True) for name in STATISTICS}
    known = part["z_score"].notnull()
    scores = part["z_score"].fillna(0.0)
    chance = combined_chance(two_sided(scores.values, errors.freedom.broadcast_like(scores).values)[known.values])
    largest = float(abs(part["theory"]).max()) or 1.0
    found = _Judgement(
        name=str(parts.name),
        agrees=chance >= limit,
        difference=float(abs(part["difference"]).max()) / largest,
        error=float(errors.numerical.max()) / largest,
        score=float(abs(scores).max()),
        deterministic=not bool((errors.of_seeds > 0).any()),
        words="",
    )
    if found.agrees or found.deterministic:
        return found._replace(words=_summary([found], seeds))
    at = scores.isel(abs(scores).argmax(...))
    place = [f"{dim} = {at[dim].item():g}" for dim in scores.dims if dim in at.coords]
    relative = abs(float(part["relative_difference"].isel(abs(scores).argmax(...))))
    words = f"{_percent(relative)} and {found.score:.2g} standard errors off{' at ' if place else ''}{', '.join(place)}"
    return found._replace(words=f"{words} ({seeds} seeds; chance {chance:.1g}, limit {limit:.2g})")


def _summary(judged: list[_Judgement], seeds: int) -> str:
    """How well the worst of some variables agrees, all random or all deterministic."""
    difference, error = (max(getattr(one, name) for one in judged) for name in ("difference", "error"))
    of = "its largest value" if len(judged) == 1 else "their largest values"
    if judged[0].deterministic:
        off = "within" if judged[0].agrees else "off by"
        known = f"deterministic: all seeds are alike, and numerical errors are up to {_percent(error)}"
        return f"{off} {_percent(difference)} of {of} ({known})"
    score = max(one.score for one in judged)
    return f"within {_percent(difference)} of {of}, at most {score:.2g} standard errors ({seeds} seeds)"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 10 else f"{share:.2g} times"


def _verdict(judged: list[_Judgement], limits: dict[str, Any], seeds: int) -> str:
    """All judgements in one sentence: what disagrees one by one, what agrees together."""
    agreed = []
    for deterministic in (False, True):
        alike = [one for one in judged if one.agrees and one.deterministic == deterministic]
        if alike:
            names = ", ".join(one.name for one in alike)
            agreed.append(f"{names} {_summary(alike, seeds)}")
    against = [f"{one.name} is {one.words}" for one in judged if not one.agrees]
    if not against:
        return "theory and simulation agree: " + "; ".join(agreed)
    text = f"theory and simulation disagree in {len(against)} of {len(judged)} variables: " + "; ".join(against)
    if limits:
        finite = ", ".join(f"{name} = {_short(value)}" for name, value in limits.items())
        text += f" (theory is of a limit that the simulation with {finite} only approaches, which may explain it)"
    return text + ("; they agree in: " + "; ".join(agreed) if agreed else "")


class Agreement(NamedTuple):
    """Of one variable: the joint chance of its differences, and the largest of them in words."""

    chance: float
    score: float
    words: str


def agreement(
    theory: xr.Dataset,
    simulation: xr.Dataset,
    variable: str,
    *,
    bias: float = 0.0,
    absolute_bias: float = 0.0,
    allow_different: bool | str | Collection[str] = False,
) -> Agreement:
    """How well theory and the mean over seeds agree in one variable, as :func:`compare` judges it.

    Parameters
    ----------
    theory, simulation
        The datasets, as for :func:`compare`. Theory may be at more coordinates than the simulation.
    variable
        The variable to compare.
    bias
        A fraction of theory's value by which the mean may be off without counting against theory.
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
    # Values that theory does not have are refused below, in words.
    inside = {
        dim: simulation[dim].values for dim in shared if np.isin(simulation[dim].values, theory[dim].values).all()
    }
    theory = theory.sel(inside)
    theory = _at_the_same_coordinates(theory, simulation)
    errors = _errors(theory, simulation, variable, seeds)
    difference = abs(simulation[variable].mean("seed") - theory[variable])
    excess = (difference - bias * abs(theory[variable]) - absolute_bias).clip(0)
    total = errors.total
    scores = xr.where(excess == 0, 0.0, excess / total.where(total > 0, 1e-300))
    freedom = errors.freedom.broadcast_like(scores).transpose(*scores.dims)
    known = scores.notnull().values
    # Runs that are not numbers at any time are no evidence of agreement.
    chance = combined_chance(two_sided(scores.fillna(0.0).values, freedom.values)[known]) if known.any() else np.nan
    largest = float(abs(theory[variable]).max()) or 1.0
    besides = f" beyond a bias of {_percent(bias)}" if bias else ""
    besides += f" beyond a bias of {absolute_bias:g}" if absolute_bias else ""
    words = (
        f"within {_percent(float(difference.max()) / largest)} of the largest value, at most "
        f"{float(scores.max()):.2g} standard errors{besides} ({seeds} seeds)"
    )
    return Agreement(chance, float(scores.max()), words)


def two_sided(scores: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """The chance that a t-variate of so many degrees of freedom is at least as far from zero."""
    from scipy.special import ndtr, stdtr

    sizes = -np.abs(scores)
    finite = np.isfinite(freedom)
    return np.minimum(2 * np.where(finite, stdtr(np.where(finite, freedom, 1.0), sizes), ndtr(sizes)), 1.0)


def combined_chance(chances: np.ndarray) -> float:
    """One chance from many that may depend on each other: the Cauchy combination test of Liu and Xie (2020).

    The mean of the Cauchy variates that the chances are transformed to is nearly a Cauchy variate itself in its tail,
    however they are correlated. Chances near 1 would be transformed to minus infinity and outweigh all others; they
    are taken as 0.99, which can only make the result more cautious of agreement by a hundredth.

    >>> round(combined_chance(np.array([0.01])), 4), round(combined_chance(np.full(50, 0.01)), 4)
    (0.01, 0.01)
    """
    if not chances.size:
        return 1.0
    chances = np.clip(chances, 1e-300, 0.99)
    # tan((1/2 - p) pi), which is 1 / (p pi) where p is small.
    variates = np.where(chances < 1e-8, 1 / (np.pi * chances), np.tan((0.5 - chances) * np.pi))
    mean = float(np.mean(variates))
    return 1 / (np.pi * mean) if mean > 1e8 else 0.5 - float(np.arctan(mean)) / np.pi


def first_crossing(values: xr.DataArray, level: float, dim: str = "time") -> xr.DataArray:
    """When each curve first rises to ``level``, interpolated linearly in log time; NaN where it never does.

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
        share = (level - curve[last - 1]) / (curve[last] - curve[last - 1])
        return float(times[last - 1] * (times[last] / times[last - 1]) ** share)

    crossing = xr.apply_ufunc(along, values, values[dim], input_core_dims=[[dim], [dim]], vectorize=True)
    return crossing.assign_attrs(long_name=f"time at which {values.name} reaches {level:g}", units="steps")
