"""Compare theory and simulation: do both describe the same system, and are their differences larger than the noise?"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from solvable.extrapolation import ADDED_STATISTICS, Extrapolation, check_sizes, extrapolate_mean, finite_size_words
from solvable.same_system import check_same_system, names_of, short
from solvable.standard_errors import Errors, combined_p_value, standard_errors, two_sided_p_values

STATISTICS = ("theory", "simulation", "difference", "standard_error", "z_score", "relative_difference")
# The false-alarm rate: how often the verdict calls a correct theory wrong.
FALSE_ALARMS = 0.01


def compare(
    theory: xr.Dataset,
    simulation: xr.Dataset | Sequence[xr.Dataset],
    *,
    allow_different: bool | str | Collection[str] = False,
    extrapolate: str | None = None,
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

    **Finite size.** ``compare(theory, [runs_300, runs_1000], extrapolate="dimension")`` compares theory of infinite
    dimension with what the simulations approach: a straight line in ``1 / dimension`` is fitted to their means, value
    by value, and its limit takes the place of the simulation. There are two more statistics, ``coefficient`` (of
    ``1 / dimension``) and ``coefficient_error``. The verdict says how large the finite-size term of the largest system
    is and, if there are three sizes or more, whether the means lie on a straight line.

    Parameters
    ----------
    theory
        Dataset of a prediction, without a dimension ``seed``.
    simulation
        Dataset of runs, with a dimension ``seed`` of length 2 or more, at the same times; or several of them, which
        differ in one size.
    allow_different
        Names of what may differ between the two systems, such as ``["batch"]``; or True for everything.
    extrapolate
        Name of that size, as in the attribute ``system``, such as ``"dimension"``. It must be infinite in theory. The
        simulations must be independent.

    >>> import solvable, xarray as xr
    >>> theory = xr.Dataset({"loss": ("time", [1.0, 0.5])}, {"time": [0.0, 1.0]})
    >>> runs = xr.Dataset({"loss": (("seed", "time"), [[1.0, 0.6], [1.2, 0.5], [0.8, 0.7]])}, {"time": [0.0, 1.0]})
    >>> comparison = solvable.compare(theory, runs)
    >>> comparison.loss.sel(statistic="z_score").values.round(2)
    array([0.  , 1.73])
    >>> comparison.attrs["verdict"]
    'theory and simulation agree: loss within 10 % of its largest value, at most 1.7 standard errors (3 seeds)'
    """
    compared = _Compared.of(theory, simulation, allow_different, extrapolate)
    shared = [
        str(name)
        for name in compared.largest.data_vars
        if all("seed" in runs.get(name, theory).dims for runs in compared.simulations)
        and name in theory.data_vars
        and not _is_error(str(name), theory)
    ]
    if not shared:
        raise ValueError(
            f"nothing to compare: theory has {', '.join(map(str, theory.data_vars))}; "
            f"simulation has {', '.join(map(str, compared.largest.data_vars))}"
        )
    compared = compared.aligned()
    means = {name: compared.mean(name) for name in shared}
    result = xr.Dataset({name: _statistics(compared.theory[name], means[name]) for name in shared})
    seeds = compared.seeds
    judged = [_judge(result[name], means[name].errors, seeds, FALSE_ALARMS / len(shared)) for name in shared]
    for one in judged:
        agrees = "agrees" if one.agrees else "does not agree"
        result[one.name].attrs["verdict"] = f"{one.name} {agrees}: {one.description}"
    verdict = _verdict(judged, compared.limits, seeds)
    if extrapolate is not None:
        verdict = _with_finite_size(verdict, result, {name: means[name].extrapolation for name in shared})
    first = compared.largest.attrs
    result.attrs = {
        "method": "comparison",
        **{key: theory.attrs[key] for key in ("model", "parameters", "version") if key in theory.attrs},
        **{f"theory_{key}": theory.attrs[key] for key in _KEPT if key in theory.attrs},
        **{f"simulation_{key}": first[key] for key in (*_KEPT, "device") if key in first},
        **({} if extrapolate is None else {"extrapolated": extrapolate, "sizes": list(compared.sizes)}),
        "verdict": verdict,
    }
    return result


def _with_finite_size(verdict: str, result: xr.Dataset, lines: dict[str, Any]) -> str:
    """The verdict with the sizes that were extrapolated, and the finite-size term that is known best."""
    terms = {name: finite_size_words(line, name) for name, line in lines.items()}
    for name, words in terms.items():
        result[name].attrs["verdict"] += f"; {words.text}"
    clearest = max(terms.values(), key=lambda words: words.score)
    bent = [f"{name}: {words.bent}" for name, words in terms.items() if words.bent]
    head, tail = verdict.split(":", 1)
    line = next(iter(lines.values()))
    if "disagree" in head:
        bent.append(f"what is left may be of order 1/{line.size}^2: larger sizes would tell")
    return "; ".join([f"{head}, extrapolated from {line.sizes_in_words}:{tail}", clearest.text, *bent])


_KEPT = ("solver", "system", "numerical_error")


def _is_error(name: str, data: xr.Dataset) -> bool:
    return name.endswith("_error") and name.removesuffix("_error") in data


class _Mean(NamedTuple):
    """What is held against theory: the mean over seeds, or its extrapolation to infinite size."""

    values: xr.DataArray
    errors: Errors
    extrapolation: Extrapolation | None = None


class _Compared(NamedTuple):
    """Theory and simulations of the same system; the simulations in the order of their sizes, if these differ."""

    theory: xr.Dataset
    simulations: tuple[xr.Dataset, ...]
    limits: dict[str, Any]
    size: str | None
    sizes: tuple[float, ...]

    @classmethod
    def of(
        cls,
        theory: xr.Dataset,
        simulation: xr.Dataset | Sequence[xr.Dataset],
        allow_different: bool | str | Collection[str],
        extrapolate: str | None,
    ) -> "_Compared":
        """Raise a ValueError for simulations that are not comparable with theory, or not with each other."""
        given = [simulation] if isinstance(simulation, xr.Dataset | xr.DataArray) else list(simulation)
        for data in (theory, *given):
            if not isinstance(data, xr.Dataset):
                one = ": for one variable pass data[['test_loss']]" if isinstance(data, xr.DataArray) else ""
                raise ValueError(f"theory and simulation must be datasets, not {type(data).__name__}{one}")
        sizes, given = check_sizes(theory, given, extrapolate)
        for runs in given:
            _check_seeds(theory, runs)
        found = [check_same_system(theory, runs, allow_different) for runs in given]
        for runs in given[:-1]:
            allowed = True if allow_different is True else {*names_of(allow_different or ()), extrapolate}
            check_same_system(runs, given[-1], allowed, ("one simulation", "another"))
        limits = {name: value for name, value in found[-1].items() if name != extrapolate}
        return cls(theory, tuple(given), limits, extrapolate, sizes)

    @property
    def largest(self) -> xr.Dataset:
        return self.simulations[-1]

    @property
    def seeds(self) -> str:
        *others, last = (str(runs.sizes["seed"]) for runs in self.simulations)
        return f"{', '.join(others)} and {last}" if others else last

    def aligned(self) -> "_Compared":
        """With the coordinates of the largest simulation, which must be equal up to rounding."""
        simulations = [*(_aligned(runs, self.largest) for runs in self.simulations[:-1]), self.largest]
        return self._replace(theory=_aligned(self.theory, self.largest), simulations=tuple(simulations))

    def mean(self, name: str) -> _Mean:
        """What one variable of theory is compared with."""
        if self.size is None:
            runs = self.largest
            return _Mean(runs[name].mean("seed"), standard_errors(self.theory, runs, name, runs.sizes["seed"]))
        line = extrapolate_mean(self.theory, self.simulations, name, self.size, self.sizes)
        return _Mean(line.limit, line.errors, line)


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
    for dim in (set(theory.dims) & set(simulation.dims)) - {"seed"}:
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


def _statistics(expected: xr.DataArray, measured: _Mean) -> xr.DataArray:
    mean, error = measured.values, measured.errors.total
    difference = mean - expected
    score = xr.where(difference == 0, 0.0, difference / error.where(error > 0, 0.0))
    largest = float(abs(expected).max())
    relative = difference / abs(expected).where(expected != 0, largest or 1.0)
    columns, names = [expected, mean, difference, error, score, relative], list(STATISTICS)
    if (line := measured.extrapolation) is not None:
        columns, names = [*columns, line.coefficient, line.coefficient_error], [*names, *ADDED_STATISTICS]
    parts = xr.concat(columns, xr.Variable("statistic", names), coords="minimal")
    parts.attrs = {**expected.attrs}
    return parts


def _p_value(scores: xr.DataArray, errors: Errors) -> float:
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


def _judge(parts: xr.DataArray, errors: Errors, seeds: str, limit: float) -> _Judgement:
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


def _summary(judged: list[_Judgement], seeds: str) -> str:
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


def _verdict(judged: list[_Judgement], limits: dict[str, Any], seeds: str) -> str:
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
        finite = ", ".join(f"{name} = {short(value)}" for name, value in limits.items())
        text += f" (theory is a limit that the simulation with {finite} only approaches, which may explain it)"
    return text + ("; they agree in: " + "; ".join(agreed) if agreed else "")


class Agreement(NamedTuple):
    """Combined p-value of the differences in one variable, the largest score, and a description."""

    p_value: float
    score: float
    description: str


def agreement(
    theory: xr.Dataset,
    simulation: xr.Dataset | Sequence[xr.Dataset],
    variable: str,
    *,
    bias: float = 0.0,
    absolute_bias: float = 0.0,
    allow_different: bool | str | Collection[str] = False,
    extrapolate: str | None = None,
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
    extrapolate
        The size in which several simulations differ and that is extrapolated, as for :func:`compare`.
    """
    compared = _Compared.of(theory, simulation, allow_different, extrapolate)
    for data, whose in ((theory, "theory"), *((runs, "the simulation") for runs in compared.simulations)):
        if variable not in data:
            raise ValueError(f"{variable!r} is not a variable of {whose}, which has {', '.join(map(str, data))}")
    runs = compared.largest
    shared = [dim for dim in runs[variable].dims if dim in theory[variable].dims and dim in theory.coords]
    # Values that theory does not have raise an error below.
    inside = {dim: runs[dim].values for dim in shared if np.isin(runs[dim].values, theory[dim].values).all()}
    compared = compared._replace(theory=theory.sel(inside)).aligned()
    theory, (mean, errors, line) = compared.theory, compared.mean(variable)
    difference = abs(mean - theory[variable])
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
        f"{float(scores.max()):.2g} standard errors{besides} ({compared.seeds} seeds)"
    )
    if line is not None:
        description = (
            f"extrapolated from {line.sizes_in_words}: {description}; {finite_size_words(line, variable).text}"
        )
    return Agreement(p_value, float(scores.max()), description)


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
