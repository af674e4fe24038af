"""Fit a law to training curves and report what they determine."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from solvable.checks import check_choice, check_count
from solvable.inference import discrepancy, draws, identifiability, misfit, profiles
from solvable.inference.fitting import Fit, fit
from solvable.inference.law import Law
from solvable.inference.registry import find_law
from solvable.inference.report import InferenceReport
from solvable.inference.runs import Run, check_runs
from solvable.inference.thinning import SHORT, thin
from solvable.training import Training

NOISES = ("student-ar1", "gaussian-ar1", "student", "gaussian")
UNCERTAINTIES = ("profile", "nuts", "none")
_REPEATS = 3
_EXACT_ROUNDS = 2
_SMOOTHED = 0.97
# R-hat up to which chains are said to agree.
_MIXED = 1.05


def infer(
    curves: Any,
    model: Any = "feature-scaling",
    *,
    training: Training | Mapping[str, Training] | None = None,
    free: Mapping[str, tuple[float, float] | None] | None = None,
    fixed: Mapping[str, float] | None = None,
    separate: Sequence[str] = (),
    noise: str = "student-ar1",
    uncertainty: str = "profile",
    backtest: bool = True,
    siblings: Any = None,
    exact: bool = True,
    mask_spikes: bool = False,
    starts: int = 32,
    seed: int = 0,
) -> InferenceReport:
    """Infer the parameters of a law from training curves, with intervals, and say what the curves do not determine.

    Parameters
    ----------
    curves
        Runs of :class:`solvable.inference.Run`; a dataset of ``predict``, ``simulate`` or a tracker; a pair of steps
        and losses; or anything that :func:`solvable.read_curves` reads, such as the path of a log.
    model
        The law: a name of :func:`solvable.inference.law_names`, a :class:`solvable.inference.Law`, or a model, whose
        numeric fields are fitted.
    training
        How the runs were trained, or a mapping from their names. Its schedule gives them their intrinsic time.
    free
        For models: the fitted fields, each with the ends of its box, or None for the range of the page's slider.
    fixed
        Values of parameters and terms that are known, such as ``{"time_unit": 0.1}`` or ``{"floor": 0.0}``.
    separate
        Names of parameters and terms of which each group of runs has its own; all others are shared.
    noise
        ``"student-ar1"``, heavy tails and correlation along a curve, both estimated; ``"gaussian-ar1"``; or
        independent noise, ``"student"`` or ``"gaussian"``.
    uncertainty
        ``"profile"`` for profile-likelihood intervals, ``"nuts"`` for those of a posterior (needs the extra
        ``infer``), ``"none"`` for the fit alone.
    backtest
        Whether to fit early parts of the runs and predict the rest, which measures how far forecasts can be trusted.
    siblings
        Finished runs like the one to be forecast, in any form that ``curves`` may have. The law, with the same
        ``fixed`` values, is fitted to their early parts and held against the rest, and forecasts are at least as
        uncertain as that. An unfinished run cannot tell by itself how the law fares in a decay that it has not seen.
    exact
        Whether to correct an emulator by the solver at the optimum.
    mask_spikes
        Whether to leave out records that are not finite, instead of refusing them.
    starts
        Number of points of the parameter box that are tried.
    seed
        Random seed of starts and draws.

    Returns
    -------
    InferenceReport
        Parameters, what is not determined, fitted curves, diagnostics and forecasts.

    >>> import numpy as np
    >>> import solvable
    >>> from solvable.inference import Law, LawParameter
    >>> class Power(Law):
    ...     name, terms = "power", ("floor", "amplitude")
    ...     parameters = (LawParameter("exponent", 0.05, 2.0, 0.5),)
    ...     def basis(self, theta, run):
    ...         return np.stack([np.ones(run.size), run.flow_time ** -theta["exponent"]], axis=1)
    >>> steps = np.geomspace(1, 1000, 40)
    >>> wobble = 1 + 0.01 * np.random.default_rng(0).normal(size=40)
    >>> report = solvable.infer((steps, (0.3 + steps**-0.5) * wobble), Power())
    >>> low, high = (float(report.parameters[name].sel(parameter="exponent")) for name in ("low95", "high95"))
    >>> low < 0.5 < high
    True
    """
    check_choice("noise", noise, NOISES)
    check_choice("uncertainty", uncertainty, UNCERTAINTIES)
    check_count("starts", starts)
    runs, notes = _prepared(curves, training, mask_spikes)
    law = find_law(model, free).prepare(runs)
    _check_names(law, fixed or {}, separate)
    notes += law.check(runs)
    options: dict[str, Any] = {"fixed": dict(fixed or {}), "separate": tuple(separate), "noise": noise}
    found, error = _fitted(law, runs, options, starts, seed, exact)
    found, walked = _profiled(found, options, uncertainty)
    examined = identifiability.examine(found)
    tested = misfit.lack_of_fit(found, noise)
    if uncertainty == "nuts":
        from solvable.inference.posterior import nuts

        drawn = nuts(found, seed=seed)
        if not drawn.mixing < _MIXED:
            notes.append(
                f"the chains of the posterior do not agree (R-hat {drawn.mixing:.2f}): it has several modes or an open "
                "direction; use uncertainty='profile'"
            )
    else:
        drawn = draws.sample(found, seed)
    past = discrepancy.rolling_origin(found, noise) if backtest else discrepancy.Backtest([])
    others = _siblings_backtest(siblings, law, options, mask_spikes)
    notes += _warnings(found, tested, walked, past if backtest else None)
    said = identifiability.sentences(found, examined, walked)
    names = [label for label, one in walked.items() if one.identified != "yes"]
    theta = found.problem.theta(found.best.coordinates, runs[0].group)
    said += found.problem.law.explain(theta, names, runs)
    return InferenceReport(
        found, walked, examined, tested, drawn, past, tuple(said), tuple(notes), noise, error, others
    )


def _siblings_backtest(siblings: Any, law: Law, options: Mapping[str, Any], mask_spikes: bool) -> discrepancy.Backtest:
    if siblings is None:
        return discrepancy.Backtest([])
    runs, _ = _prepared(siblings, None, mask_spikes)
    found = discrepancy.siblings_backtest(law, runs, options["fixed"], options["noise"])
    if not found.origins:
        raise ValueError(
            "no sibling has enough records to fit its early part and predict the rest (8 in the first 70 % of its "
            "steps, 3 behind them): give finished runs that were recorded more often, or leave siblings out"
        )
    return found


def _prepared(
    curves: Any, training: Training | Mapping[str, Training] | None, mask_spikes: bool
) -> tuple[list[Run], list[str]]:
    runs = as_runs(curves)
    if isinstance(training, Training):
        runs = [run.trained_by(training) for run in runs]
    elif training is not None:
        unknown = sorted(set(training) - {run.name for run in runs})
        if unknown:
            raise ValueError(f"training names {unknown[0]!r}, but the runs are {', '.join(run.name for run in runs)}")
        runs = [run.trained_by(training[run.name]) if run.name in training else run for run in runs]
    runs, notes = check_runs(runs, mask_spikes=mask_spikes)
    for place, run in enumerate(runs):
        if run.size > SHORT:
            runs[place] = thin(run)
            notes.append(f"run {run.name!r}: {run.size} records are {runs[place].size} means over bins of the log step")
    return runs, [*notes, *getattr(curves, "notes", [])]


def as_runs(curves: Any) -> list[Run]:
    """Runs from runs, from datasets of the package, from a pair of steps and losses, or from what can be read.

    Parameters
    ----------
    curves
        As in :func:`infer`.
    """
    if isinstance(curves, Run):
        return [curves]
    if isinstance(curves, xr.Dataset):
        return [run_of_dataset(curves)]
    if isinstance(curves, Sequence) and not isinstance(curves, str) and len(curves):
        if all(isinstance(run, Run) for run in curves):
            return list(curves)
        if all(isinstance(one, xr.Dataset) for one in curves):
            return [run_of_dataset(one, f"run {number + 1}") for number, one in enumerate(curves)]
        if len(curves) == 2 and all(np.ndim(one) == 1 for one in curves):
            return [Run("run", np.asarray(curves[0], float), np.asarray(curves[1], float))]
    if isinstance(curves, Mapping) and curves and all(isinstance(one, xr.Dataset) for one in curves.values()):
        return [run_of_dataset(one, str(name)) for name, one in curves.items()]
    if isinstance(curves, Iterable) and not isinstance(curves, str | Mapping | np.ndarray) and not len(list(curves)):
        raise ValueError("there are no runs to fit: give at least one curve")
    from solvable.inference.readers import read_curves

    return list(read_curves(curves))


def run_of_dataset(dataset: xr.Dataset, name: str = "run", variable: str = "test_loss", **sizes: float) -> Run:
    """A run from a dataset of ``predict`` or ``simulate``: its mean over seeds, with the standard error.

    Widths and batch sizes are read from the attributes that every dataset of the package has.

    Parameters
    ----------
    dataset
        A dataset with a curve over ``time``.
    name
        Name of the run.
    variable
        Name of the curve.
    **sizes
        Sizes of the run, such as ``width=64``, in place of those of the attributes.

    >>> import solvable
    >>> from solvable.inference import run_of_dataset
    >>> curve = solvable.FeatureScaling(features=64).predict([0, 1, 2], solvable.GradientDescent(learning_rate=0.1))
    >>> run_of_dataset(curve).sizes
    {'width': 64.0}
    """
    import json

    if variable not in dataset or "time" not in dataset[variable].dims:
        curves = [str(name) for name, values in dataset.data_vars.items() if "time" in values.dims]
        raise ValueError(f"the dataset has no curve {variable!r} over time; it has {', '.join(curves) or 'none'}")
    values = dataset[variable]
    errors = None
    if "seed" in values.dims:
        if values.sizes["seed"] > 1:
            errors = values.std("seed", ddof=1).values / np.sqrt(values.sizes["seed"])
            errors = errors if (errors > 0).all() else None
        values = values.mean("seed")
    if values.dims != ("time",):
        raise ValueError(f"{variable} must be a curve over time, not over {list(values.dims)}: select one of them")
    known = {**json.loads(dataset.attrs.get("parameters", "{}")), **json.loads(dataset.attrs.get("system", "{}"))}
    found = {
        size: float(known[key])
        for key, size in (("features", "width"), ("width", "width"), ("batch_size", "batch_size"))
        if isinstance(known.get(key), int | float) and np.isfinite(float(known[key]))
    }
    times = dataset.time.values
    flow: Any = dataset.flow_time.values if "flow_time" in dataset.coords else None
    peak = 1.0
    if flow is not None and flow[-1] > 0:
        # The intrinsic time is in units of the peak rate.
        peak = float(np.max(np.diff(flow) / np.diff(times)))
        flow = flow / peak
    return Run(name, times, values.values, flow, errors=errors, sizes={**found, **sizes}, peak=peak)


def _check_names(law: Law, fixed: Mapping[str, float], separate: Sequence[str]) -> None:
    known = [*(p.name for p in law.parameters), *law.terms]
    for name in (*fixed, *separate):
        if name not in known:
            raise ValueError(f"the law {law.name!r} has no parameter or term {name!r}; it has {', '.join(known)}")
    for name, value in fixed.items():
        if not np.isfinite(value) or (name in law.terms and value < 0):
            raise ValueError(f"{name} must be fixed at a finite number, zero or more, not {value!r}")


def _fitted(
    law: Law, runs: list[Run], options: Mapping[str, Any], starts: int, seed: int, exact: bool
) -> tuple[Fit, float]:
    """The fit, corrected by the solver where the law has an emulator, and the relative error that was corrected."""
    found = fit(law, runs, starts=starts, seed=seed, **options)
    shared = not set(options["separate"]) & {p.name for p in law.parameters if p.name != "time_unit"}
    error = 0.0
    for _ in range(_EXACT_ROUNDS if exact and shared else 0):
        theta = found.problem.theta(found.best.coordinates, runs[0].group)
        corrected = law.exact(theta, runs)
        if corrected is None:
            break
        before = found
        error = float(max((np.max(np.abs(one)) for one in getattr(corrected, "corrections", {}).values()), default=0.0))
        near = {one.label: one.parameter.outward(x) for one, x in
                zip(found.problem.space, found.best.coordinates, strict=True)}  # fmt: skip
        found = fit(corrected, runs, starts=0, near=near, seed=seed, **options)
        found = dataclasses.replace(found, others=before.others)
        moved = np.abs(found.best.coordinates - before.best.coordinates) / found.problem.steps
        if np.max(moved, initial=0.0) < 0.1:
            break
    return found, error


def _profiled(found: Fit, options: Mapping[str, Any], uncertainty: str) -> tuple[Fit, dict[str, profiles.Profile]]:
    """Profiles of all fitted numbers; where one of them finds a better optimum, the fit starts from there again."""
    if uncertainty == "none":
        return found, {}
    for _ in range(_REPEATS):
        spread = profiles.covariance(found)
        try:
            labels = found.problem.labels
            return found, {label: profiles.profile(found, number, spread) for number, label in enumerate(labels)}
        except profiles.BetterOptimumError as better:
            problem = found.problem
            best = problem.minimise(better.point.coordinates)
            others = [one for one in (found.best, *found.others) if one.deviance < best.deviance + 4]
            found = Fit(problem, best, others)
    return found, {}


def _warnings(
    found: Fit, tested: misfit.Misfit, walked: Mapping[str, profiles.Profile], past: discrepancy.Backtest | None
) -> list[str]:
    problem, notes = found.problem, []
    if tested.found:
        notes.append(
            f"the law {problem.law.name!r} does not fit: its residuals have a smooth part of "
            f"{100 * tested.structure:.2g} % that noise of {100 * tested.noise:.2g} % does not explain (chance "
            f"{tested.chance:.1g}); its parameters mean little, compare it with other laws"
        )
    if tested.ambiguous:
        notes.append(
            f"the residuals of the law {problem.law.name!r} are correlated ({problem.noise.correlation:.2f} between "
            f"neighbours), which is either noise or a misfit; {problem.points} records do not tell which: record more "
            "often, or pass noise='gaussian' if you know that the noise of neighbouring records is independent"
        )
    if problem.noise.correlation > _SMOOTHED:
        notes.append(
            f"neighbouring records have a correlation of {problem.noise.correlation:.2f}, as after smoothing: export "
            "the raw values if these are running means"
        )
    for one in problem.space:
        place = problem.space.index(one)
        low, high = problem.box[:, place]
        edge = min(found.best.coordinates[place] - low, high - found.best.coordinates[place])
        if edge < 1e-3 * (high - low):
            notes.append(f"{one.label} is at the edge of its box, {one.parameter.low:.3g} to {one.parameter.high:.3g}")
    if found.others:
        notes.append(f"{len(found.others)} other optimum explains the data as well; see report.alternatives")
    decades = min(np.log10(run.flow_time[-1] / run.flow_time[run.flow_time > 0][0]) for run in problem.runs)
    if decades < 1:
        notes.append(f"a run spans {decades:.1f} decades of time, fewer than one: exponents are not to be trusted")
    if past is not None and not past.origins:
        notes.append("too few records to fit early ones and predict the rest: how wrong forecasts are is not known")
    return notes
