"""Inference reports as datasets of numbers and JSON, for files without pickles."""

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.inference.discrepancy import Backtest, Origin
from solvable.inference.draws import Draws
from solvable.inference.fitting import Fit, Problem
from solvable.inference.identifiability import examine
from solvable.inference.misfit import Misfit
from solvable.inference.noise import Noise
from solvable.inference.profiles import Profile, Side
from solvable.inference.registry import find_law
from solvable.inference.runs import Run

if TYPE_CHECKING:
    from solvable.inference.report import InferenceReport

_FORMAT = 3
_RECORDS = ("steps", "loss", "flow_time", "learning_rate", "errors")
_SCHEDULE_POINTS = 2049


def to_dataset(report: "InferenceReport") -> xr.Dataset:
    """All of a report, with the runs; a schedule is written as its values up to the last step.

    Parameters
    ----------
    report
        The report.
    """
    problem, runs = report.fit.problem, report.runs
    variables: dict[str, Any] = {"run": ("record", np.repeat(np.arange(len(runs)), [run.size for run in runs]))}
    for name in _RECORDS:
        parts = [np.full(run.size, np.nan) if getattr(run, name) is None else getattr(run, name) for run in runs]
        variables[name] = ("record", np.concatenate(parts))
    variables["draw_coordinates"] = (("draw", "coordinate"), report.draws.coordinates)
    variables["draw_coefficients"] = (("draw", "coefficient"), report.draws.coefficients)
    content = {
        "format": _FORMAT,
        "law": problem.law.settings(),
        "corrections": [
            {"size": [str(one) for one in size], "logs": list(map(float, values))}
            for size, values in getattr(problem.law, "corrections", {}).items()
        ],
        "runs": [_about(run) for run in runs],
        "fixed": problem.fixed,
        "separate": list(problem.separate),
        "noise": dataclasses.asdict(problem.noise),
        "noise_kind": report.noise_kind,
        "coordinates": report.fit.best.coordinates.tolist(),
        "others": [one.coordinates.tolist() for one in report.fit.others],
        "profiles": [_plain(one) for one in report.profiles.values()],
        "misfit": list(report.misfit),
        "draws": [report.draws.method, report.draws.effective, report.draws.mixing],
        "backtest": _origins(report.backtest),
        "siblings": _origins(report.siblings),
        "unidentified": list(report.unidentified),
        "warnings": list(report.warnings),
        "emulator_error": report.emulator_error,
    }  # fmt: skip
    return xr.Dataset(variables, attrs={"inference_report": json.dumps(content)})


def _about(run: Run) -> dict[str, Any]:
    rates = None
    if run.schedule is not None:
        rates = run.rates(np.linspace(0, run.steps[-1], _SCHEDULE_POINTS)).tolist()
    return {"name": run.name, "sizes": dict(run.sizes), "group": run.group, "peak": run.peak, "rates": rates}


def _origins(past: Backtest) -> list[list[Any]]:
    return [
        [one.cut, one.errors.tolist(), one.distances.tolist(), one.noise, one.spread.tolist()] for one in past.origins
    ]


def _backtest(rows: list[list[Any]]) -> Backtest:
    return Backtest([Origin(cut, np.array(e), np.array(x), noise, np.array(s)) for cut, e, x, noise, s in rows])


def _plain(one: Profile) -> dict[str, Any]:
    return {
        "label": one.label,
        "values": one.values.tolist(),
        "deviances": one.deviances.tolist(),
        "thresholds": list(one.thresholds),
        "low": [list(one.low.ends), one.low.open],
        "high": [list(one.high.ends), one.high.open],
    }


def from_dataset(dataset: xr.Dataset, model: Any = None) -> "InferenceReport":
    """The report that :func:`to_dataset` wrote.

    Parameters
    ----------
    dataset
        The dataset.
    model
        The law, where it has no name.
    """
    from solvable.inference.report import InferenceReport

    if "inference_report" not in dataset.attrs:
        raise ValueError("this dataset is not an inference report: it was not written by InferenceReport.save")
    content = json.loads(dataset.attrs["inference_report"])
    if content["format"] != _FORMAT:
        raise ValueError(f"the report has format {content['format']}, and this version reads {_FORMAT}: infer again")
    runs = [_run(dataset, number, about) for number, about in enumerate(content["runs"])]
    law = _law(content, runs, model)
    problem = Problem(law, runs, content["fixed"], content["separate"], Noise(**content["noise"]))
    points = [problem.evaluate(np.array(place)) for place in (content["coordinates"], *content["others"])]
    found = Fit(problem, points[0], points[1:])
    walked = {
        one["label"]: Profile(
            one["label"], np.array(one["values"]), np.array(one["deviances"]), tuple(one["thresholds"]),
            *(Side(tuple(one[side][0]), one[side][1]) for side in ("low", "high")),
        )
        for one in content["profiles"]
    }  # fmt: skip
    drawn = Draws(dataset.draw_coordinates.values, dataset.draw_coefficients.values, *content["draws"])
    return InferenceReport(
        found, walked, examine(found), Misfit(*content["misfit"]), drawn, _backtest(content["backtest"]),
        tuple(content["unidentified"]), tuple(content["warnings"]), content["noise_kind"], content["emulator_error"],
        _backtest(content["siblings"]),
    )  # fmt: skip


def _run(dataset: xr.Dataset, number: int, about: dict[str, Any]) -> Run:
    rows = dataset.run.values == number
    columns: dict[str, Any] = {name: dataset[name].values[rows] for name in _RECORDS}
    for name in ("learning_rate", "errors"):
        columns[name] = None if np.isnan(columns[name]).any() else columns[name]
    schedule = None
    if about["rates"] is not None:
        grid, rates = np.linspace(0, columns["steps"][-1], len(about["rates"])), np.array(about["rates"])

        def schedule(steps: np.ndarray) -> np.ndarray:
            return np.interp(steps, grid, rates)

    return Run(
        about["name"], schedule=schedule, sizes=about["sizes"], group=about["group"], peak=about["peak"], **columns
    )


def _law(content: dict[str, Any], runs: list[Run], model: Any) -> Any:
    from solvable import models
    from solvable.inference.feature_scaling_law import FeatureScalingLaw
    from solvable.inference.model_law import ModelLaw

    settings = content["law"]
    if model is None and "model_parameters" in settings:
        built = models.get(settings["law"])(**settings["model_parameters"])
        free = {name: tuple(box) for name, box in settings["free"].items()}
        return ModelLaw(built, free, settings["variable"]).prepare(runs)
    law = find_law(settings["law"] if model is None else model).prepare(runs)
    if isinstance(law, FeatureScalingLaw):
        kept = ((*map(float, one["size"]), one["logs"]) for one in content["corrections"])
        corrections = {(width, batch): np.array(logs) for width, batch, logs in kept}
        return dataclasses.replace(law, corrections=corrections)
    return law
