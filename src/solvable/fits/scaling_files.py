"""A scaling-law report as a dataset, and back."""

import dataclasses
import json
from typing import Any

import xarray as xr

from solvable._version import __version__
from solvable.fits.scaling_objective import FORMS, Robust
from solvable.fits.scaling_report import ScalingLawReport
from solvable.fits.scaling_table import Table
from solvable.fits.scaling_uncertainty import Backtest

_KIND = "scaling-law report"


def to_dataset(report: ScalingLawReport) -> xr.Dataset:
    """All arrays of a report; what is not an array is in its attributes, as JSON."""
    table = report.table
    variables: dict[str, Any] = {f"table_{name}": (("run",), values) for name, values in table.values.items()}
    variables |= {
        "loss": (("run",), table.loss, {"long_name": "final loss", "units": "1"}),
        "group": (("run",), table.groups),
        "residual": (("run",), report.residuals, {"long_name": "log of measured over fitted loss", "units": "1"}),
        "theta": (("coordinate",), report.theta),
        "draws": (("draw", "coordinate"), report.draws),
    }
    if table.relative is not None:
        variables["relative_error"] = (("run",), table.relative)
    if report.backtest is not None:
        for field in dataclasses.fields(report.backtest):
            variables[f"backtest_{field.name}"] = (("prediction",), getattr(report.backtest, field.name))
    settings = {
        "form": table.form.name,
        "pivots": dict(table.pivots),
        "flops": table.flops,
        "table_notes": list(table.notes),
        "scale": report.scale,
        "objective": report.objective,
        "intervals": report.intervals,
        "robust": dataclasses.asdict(report.robust),
        "profiles": {name: [list(ends) for ends in levels] for name, levels in report.profiles.items()},
        "discrepancy": report.discrepancy,
        "notes": list(report.notes),
    }
    attributes = {"kind": _KIND, "settings": json.dumps(settings), "version": __version__}
    return xr.Dataset(variables, attrs=attributes)


def from_dataset(dataset: xr.Dataset, name: str) -> ScalingLawReport:
    """The report in a dataset of :func:`to_dataset`."""
    if dataset.attrs.get("kind") != _KIND:
        raise ValueError(f"{name} is not a {_KIND}: read it with solvable.load")
    settings = json.loads(dataset.attrs["settings"])
    prefix = "table_"
    table = Table(
        FORMS[settings["form"]],
        {str(key).removeprefix(prefix): dataset[key].values for key in dataset if str(key).startswith(prefix)},
        dataset["loss"].values,
        dataset["relative_error"].values if "relative_error" in dataset else None,
        dataset["group"].values,
        settings["pivots"],
        settings["flops"],
        tuple(settings["table_notes"]),
    )
    back = None
    if "backtest_error" in dataset:
        back = Backtest(*(dataset[f"backtest_{field.name}"].values for field in dataclasses.fields(Backtest)))
    profiles = {key: tuple(tuple(ends) for ends in levels) for key, levels in settings["profiles"].items()}
    return ScalingLawReport(
        table=table,
        theta=dataset["theta"].values,
        scale=settings["scale"],
        objective=settings["objective"],
        residuals=dataset["residual"].values,
        draws=dataset["draws"].values,
        intervals=settings["intervals"],
        robust=Robust(**settings["robust"]),
        profiles=profiles,  # type: ignore[arg-type]
        backtest=back,
        discrepancy=settings["discrepancy"],
        notes=tuple(settings["notes"]),
    )
