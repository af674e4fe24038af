"""Comparison of laws by held-out prediction: fits to early data, scored on the rest."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.inference.discrepancy import CUTS, Backtest, Origin, rolling_origin
from solvable.inference.fitting import Fit, fit
from solvable.inference.misfit import lack_of_fit
from solvable.inference.registry import find_law

if TYPE_CHECKING:
    from solvable.inference.report import InferenceReport

_WORDS = {
    "score": "mean log score of held-out records; higher is better",
    "score_error": "standard error of the difference of the score from the best one, over cuts",
    "rms": "root mean square relative error of held-out records",
    "aic": "Akaike's criterion of the fit to all data; lower is better, and not used here",
    "numbers": "number of fitted numbers",
    "misfit": "chance of such residuals if the law is right",
}
# A difference below this many standard errors does not decide.
_DECIDED = 2.0


def compare(report: "InferenceReport", others: Sequence[Any]) -> xr.Dataset:
    """As :meth:`solvable.InferenceReport.compare`, whose arguments these are."""
    if not others:
        raise ValueError("name at least one other law to compare with: see law_names()")
    problem, kind = report.fit.problem, report.noise_kind
    past = report.backtest if report.backtest.origins else rolling_origin(report.fit, kind)
    rows: dict[str, tuple[Fit | None, Backtest, float]] = {report.law: (report.fit, past, report.misfit.chance)}
    for other in others:
        if hasattr(other, "backtest"):
            tested = other.backtest if other.backtest.origins else rolling_origin(other.fit, kind)
            rows[other.law] = (other.fit, tested, other.misfit.chance)
            continue
        law = find_law(other).prepare(problem.runs)
        found = fit(law, problem.runs, noise=kind)
        rows[law.name] = (found, rolling_origin(found, kind), lack_of_fit(found, kind).chance)
    if not past.origins:
        raise ValueError("the runs have too few records to fit early ones and predict the rest: record more often")
    rows["last value"] = (None, _last_value(report), float("nan"))
    return _table(rows)


def _last_value(report: "InferenceReport") -> Backtest:
    """The baseline that the loss stays what it was."""
    origins = []
    for cut in CUTS:
        masks = [run.steps <= cut * run.steps[-1] for run in report.runs]
        if any(mask.sum() < 2 or mask.all() for mask in masks):
            continue
        pairs = list(zip(report.runs, masks, strict=True))
        errors = np.concatenate([np.log(run.loss[~mask] / run.loss[mask][-1]) for run, mask in pairs])
        distances = np.concatenate([np.log10(run.steps[~mask] / run.steps[mask][-1]) for run, mask in pairs])
        origins.append(Origin(cut, errors, distances, report.noise.deviation, np.zeros(errors.size)))
    return Backtest(origins)


def _scores(past: Backtest) -> np.ndarray:
    """The score at each cut, with the discrepancy that the other cuts show."""
    found = []
    for number, one in enumerate(past.origins):
        rest = Backtest(past.origins[:number] + past.origins[number + 1 :])
        found.append(one.score(rest.slope if rest.origins else 0.0))
    return np.array(found)


def _table(rows: dict[str, tuple[Fit | None, Backtest, float]]) -> xr.Dataset:
    scores = {name: _scores(past) for name, (_, past, _) in rows.items()}
    count = min(values.size for values in scores.values())
    scores = {name: values[-count:] for name, values in scores.items()}
    order = sorted(rows, key=lambda name: -float(scores[name].mean()))
    best = order[0]
    columns: dict[str, list[float]] = {name: [] for name in _WORDS}
    for name in order:
        found, past, chance = rows[name]
        difference = scores[best] - scores[name]
        error = float(difference.std(ddof=1) / np.sqrt(count)) if count > 1 else float("inf")
        numbers = float(len(found.problem.labels)) if found is not None else 0.0
        aic = (
            found.best.deviance + 2 * found.problem.points * np.log(found.problem.noise.scale) + 2 * numbers
            if found
            else np.nan
        )
        values = (float(scores[name].mean()), error, past.rms, aic, numbers, chance)
        for key, value in zip(_WORDS, values, strict=True):
            columns[key].append(float(value))
    rivals = [
        name
        for place, name in enumerate(order)
        if place and columns["score"][0] - columns["score"][place] < _DECIDED * columns["score_error"][place]
    ]
    verdict = f"{best} predicts held-out records best"
    if rivals:
        verdict = f"undecided between {', '.join([best, *rivals])}: the differences are within twice their errors"
    return xr.Dataset(
        {key: ("law", np.array(values), {"long_name": _WORDS[key], "units": "1"}) for key, values in columns.items()},
        {"law": np.array(order, dtype=str)},
        {"verdict": verdict, "cuts": count},
    )
