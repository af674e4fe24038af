"""Forecasts of a fitted law, with intervals that are split by their origin."""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.inference.discrepancy import FREEDOM, curves
from solvable.inference.profiles import LEVELS
from solvable.inference.runs import Run
from solvable.training import Training

if TYPE_CHECKING:
    from solvable.inference.report import InferenceReport

# Without a measured discrepancy, forecasts end at this many times the last step.
_FAR = 3.0
_BAND = 120
_WORDS = {
    "loss": "forecast of the loss",
    "noise": "relative standard deviation that noise makes",
    "parameters": "relative standard deviation that the fitted numbers make",
    "discrepancy": "relative standard deviation that the law itself makes",
}


def predict(
    report: "InferenceReport",
    at: Any,
    name: str | None,
    training: Training | None,
    sizes: Mapping[str, float] | None,
    discrepancy: float | None,
) -> xr.Dataset:
    """As :meth:`solvable.InferenceReport.predict`, whose arguments these are."""
    from scipy.stats import norm
    from scipy.stats import t as student

    place = _place(report, name)
    run = report.runs[place]
    steps = steps_of(at, run)
    base = run if training is None else run.trained_by(training)
    base = base if not sizes else dataclasses.replace(base, sizes={**base.sizes, **sizes})
    wanted = report.fit.problem.law.at(base, steps)
    slope = report.discrepancy if discrepancy is None else float(discrepancy)
    distances = np.maximum(np.log10(np.maximum(steps, 1e-300) / run.steps[-1]), 0.0)
    if math.isnan(slope):
        if steps[-1] > _FAR * run.steps[-1]:
            raise ValueError(
                f"how wrong the law is beyond the data is not known, so that a forecast at {steps[-1]:g}, "
                f"{steps[-1] / run.steps[-1]:.3g} times the last step, has no interval: record more, "
                "infer with siblings=, which are finished runs like this one, or pass discrepancy=0.02 for 2 % of the "
                "loss per decade, say"
            )
        slope = 0.0
    loss = curves(report.fit, report.fit.best, [wanted], [place])
    spread = _spread(report, wanted, place)
    noise = np.full(steps.size, report.noise.deviation * report.noise.relative.get(run.group, 1.0))
    extra = slope * distances
    width = np.sqrt(noise**2 + spread**2 + extra**2)
    variables: dict[str, Any] = {"loss": loss, "noise": noise, "parameters": spread, "discrepancy": extra}
    for level in LEVELS:
        inner, outer = norm.ppf((1 + level) / 2), student.ppf((1 + level) / 2, FREEDOM)
        factor = np.where(distances > 0, outer, inner)
        variables[f"low{100 * level:.0f}"] = loss * np.exp(-factor * width)
        variables[f"high{100 * level:.0f}"] = loss * np.exp(factor * width)
    words = {**_WORDS, **{key: f"{'lower' if key[0] == 'l' else 'upper'} end of the {key[-2:]} % interval"
                          for key in variables if key[-2:].isdigit()}}  # fmt: skip
    attributes = {
        "law": report.law,
        "run": run.name,
        "warnings": "; ".join(_cautions(report, base, float(steps[-1]), distances)),
    }
    return xr.Dataset(
        {key: ("time", values, {"long_name": words[key], "units": "1"}) for key, values in variables.items()},
        {"time": ("time", steps, {"long_name": "training time", "units": "steps"})},
        attributes,
    )


def steps_of(at: Any, run: Run) -> np.ndarray:
    """Steps from numbers, or from a text such as ``"10x"``: that many times the last step of the run.

    Parameters
    ----------
    at
        Increasing steps, or a text.
    run
        The run.
    """
    if isinstance(at, str):
        try:
            factor = float(at.lower().removesuffix("x"))
        except ValueError:
            factor = math.nan
        if not (at.lower().endswith("x") and 0 < factor < math.inf):
            raise ValueError(f'at must be steps, or a text such as "10x" for ten times the last step, not {at!r}')
        return np.array([factor * run.steps[-1]])
    steps = np.atleast_1d(np.asarray(at, float))
    if (
        steps.ndim != 1
        or steps.size == 0
        or not (np.isfinite(steps) & (steps >= 0)).all()
        or (np.diff(steps) <= 0).any()
    ):
        raise ValueError("at must be increasing finite steps, zero or more")
    return steps


def _place(report: "InferenceReport", name: str | None) -> int:
    names = [run.name for run in report.runs]
    if name is None:
        return 0
    if name not in names:
        raise ValueError(f"there is no run {name!r}; the runs are {', '.join(names)}")
    return names.index(name)


def _spread(report: "InferenceReport", wanted: Run, place: int) -> np.ndarray:
    """Standard deviation of the logarithm of the law over the draws."""
    drawn = report.draws
    logs = []
    for coordinates, coefficients in list(zip(drawn.coordinates, drawn.coefficients, strict=True))[:_BAND]:
        point = report.fit.best._replace(coordinates=coordinates, coefficients=coefficients)
        logs.append(np.log(curves(report.fit, point, [wanted], [place])))
    return np.std(logs, axis=0)


def _cautions(report: "InferenceReport", run: Run, last: float, distances: np.ndarray) -> list[str]:
    said = []
    furthest = float(distances.max())
    if furthest > report.tested_decades > 0:
        said.append(
            f"the forecast reaches {furthest:.1f} decades beyond the data; the law was tested over "
            f"{report.tested_decades:.1f}"
        )
    # Learning rates that were read from a table end somewhere; a function of the step does not.
    known = -math.inf if run.schedule is None else getattr(run.schedule, "last", math.inf)
    if furthest > 0 and last > known:
        where = f"beyond step {known:g}" if math.isfinite(known) else "beyond the data"
        said.append(f"the schedule {where} is not known: the forecast assumes that the last learning rate goes on")
    if report.misfit.found:
        said.append("the law does not fit the data")
    return said


def fitted_curves(report: "InferenceReport") -> list[xr.Dataset]:
    """The fitted curve of each run at its own steps, with a 95 % band of the law and relative residuals.

    Parameters
    ----------
    report
        The report.
    """
    found = []
    for place, run in enumerate(report.runs):
        loss = np.exp(report.fit.best.logs[place])
        spread = _spread(report, run, place)
        variables = {
            "loss": (run.loss, "measured loss"),
            "fit": (loss, "fitted loss"),
            "fit_low": (loss * np.exp(-1.96 * spread), "lower end of the 95 % band"),
            "fit_high": (loss * np.exp(1.96 * spread), "upper end of the 95 % band"),
            "residual": (np.log(run.loss / loss), "logarithm of measured over fitted loss"),
        }
        found.append(
            xr.Dataset(
                {
                    name: ("time", values, {"long_name": text, "units": "1"})
                    for name, (values, text) in variables.items()
                },
                {"time": run.steps},
                {"run": run.name},
            )
        )
    return found
