"""``solvable infer``: which law a training log or a table of runs follows, and what it forecasts."""

import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from solvable.cli.outputs import check_outputs, checked
from solvable.cli.streams import print_stderr
from solvable.files import check_data_path
from solvable.plotting import save_figure

SCALING_LAW, SCHEDULE = "scaling-law", "schedule"
_COMPARED = ("power-law", "power-law-steps", "broken-power-law", "schedule")


def infer(source: list[str], model: str, options: Mapping[str, Any]) -> None:
    """Print the report of a log or of a table; files and figures are written first."""
    from solvable.inference.registry import law_names, unknown_law

    check_outputs({"plot": options["plot"]})
    if options["save"] is not None:
        checked("save", options["save"], check_data_path)
    # What is wrong with the options is said before the work.
    for part in _places(options["at"]):
        _place(part)
    _fixed(options["fixed"])
    if model not in (SCALING_LAW, *law_names()):
        raise unknown_law(model, SCALING_LAW)
    if options["finished"] and model != SCHEDULE:
        raise ValueError(
            f"--finished is for the law {SCHEDULE}, not for {model}: add --model {SCHEDULE}, or leave it out"
        )
    if options["ahead"] is not None and model == SCALING_LAW:
        raise ValueError("--ahead is for curves, not for a table of runs: leave it out")
    if model == SCALING_LAW:
        report, forecast = _of_table(source, options)
    else:
        report, forecast = _of_curves(source, model, options)
    if options["save"] is not None:
        print_stderr(f"report: {report.save(options['save'])}")
    if options["plot"] is not None:
        horizon = [] if model == SCALING_LAW or options["at"] is None else [_furthest(options["at"])]
        print_stderr(f"figure: {save_figure(report.plot(*horizon), options['plot'])}")
    if options["json"]:
        print(json.dumps(_plain({**_content(report), "forecast": forecast})))
        return
    print(report.summary())
    for row in forecast:
        print(_forecast_line(row))


def _of_table(source: list[str], options: Mapping[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
    """The scaling law of a table, and the compute-optimal run at a multiple of the largest compute."""
    from solvable.fits import scaling_law

    if len(source) != 1:
        raise ValueError(f"a scaling law is fitted to one table, not to {len(source)} files")
    _exists(source[0])
    chosen = {"loss": options["loss"]} if options["loss"] else {}
    report = scaling_law(
        source[0],
        columns=chosen,
        form=options["form"],
        drop_largest=options["drop_largest"],
        resamples=options["resamples"],
        key=options["seed"],
    )
    if options["at"] is None:
        return report, []
    largest = report.table.values.get("compute")
    if largest is None:
        raise ValueError("--at needs the compute of the runs: a column of it, or of parameters and tokens")
    places = [_place(part) for part in _places(options["at"])]
    budgets = [value * (float(largest.max()) if relative else 1.0) for value, relative in places]
    if report.table.form.name == "compute":
        found = report.predict(compute=np.array(budgets))
        names = {"loss": "loss"}
        rows = [found.isel(run=place) for place in range(len(budgets))]
    else:
        best = report.compute_optimal(budgets)
        names = {"loss": "loss", "optimal_parameters": "parameters", "optimal_tokens": "tokens"}
        rows = [best.isel(budget=place) for place in range(len(budgets))]
    return report, [
        {
            "at": f"compute {budget:.4g}",
            **{
                label: [float(row[name]), float(row[f"{name}_low95"]), float(row[f"{name}_high95"])]
                for name, label in names.items()
            },
        }
        for budget, row in zip(budgets, rows, strict=True)
    ]


def _places(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",")]


def _place(text: str) -> tuple[float, bool]:
    """A number, and whether it is a multiple such as 10x of the last step or of the largest compute."""
    relative = text.lower().endswith("x")
    try:
        value = float(text.lower().removesuffix("x"))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"--at must be numbers above 0 or multiples such as 10x, separated by commas, not {text!r}")
    return value, relative


def _of_curves(source: list[str], model: str, options: Mapping[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
    """The law of one or several logs, and forecasts of every run."""
    from solvable.inference.empirical_laws import KERNEL, borrowed_kernel
    from solvable.inference.inferring import infer as fit
    from solvable.inference.readers import read_curves

    def read(paths: list[str]) -> Any:
        for path in paths:
            _exists(path)
        return read_curves(
            [Path(path) for path in paths] if len(paths) > 1 else paths[0],
            loss=options["loss"],
            step=options["step"],
            run=options["run"],
            learning_rate=options["learning_rate"],
            warm_up=options["warm_up"],
            mask_spikes=options["mask_spikes"],
        )

    curves, fixed, siblings = read(source), _fixed(options["fixed"]), None
    if options["ahead"] is not None:
        curves = _with_rates_ahead(curves, options)
    if options["finished"]:
        siblings = read(options["finished"])
        large = fit(siblings, model, uncertainty="none", backtest=False, mask_spikes=options["mask_spikes"])
        fixed = {**borrowed_kernel(large), **fixed}
        print_stderr(
            f"kernel of {len(large.runs)} finished runs: " + ", ".join(f"{name} {fixed[name]:.4g}" for name in KERNEL)
        )
    report = fit(
        curves,
        model,
        fixed=fixed,
        siblings=siblings,
        uncertainty=options["uncertainty"],
        mask_spikes=options["mask_spikes"],
        seed=options["seed"],
    )
    if options["compare"]:
        compared = report.compare(*(law for law in _COMPARED if law != report.law))
        print_stderr(_comparison(compared))
    rows = []
    for part in _places(options["at"]):
        value, relative = _place(part)
        at: Any = part if relative else [value]
        for run in report.runs:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = report.predict(at, run=run.name).isel(time=-1)
            ends = [float(found[name]) for name in ("loss", "low95", "high95")]
            shares = {name: float(found[name]) for name in ("noise", "parameters", "discrepancy")}
            rows.append({"at": f"{run.name}, step {float(found.time):.6g}", "loss": ends, "shares": shares,
                         "warnings": found.attrs.get("warnings", "")})  # fmt: skip
    return report, rows


def _with_rates_ahead(curves: Any, options: Mapping[str, Any]) -> list[Any]:
    """The one run of a log, with the learning rates that lie ahead."""
    from solvable.inference.rates_ahead import read_rates, with_rates_ahead

    if len(curves) != 1:
        raise ValueError(f"--ahead is for one run, not for {len(curves)}: give the log of one")
    _exists(options["ahead"])
    columns = {name: options[name] for name in ("step", "run", "learning_rate")}
    ahead = read_rates(options["ahead"], **columns, name=curves[0].name)
    return [with_rates_ahead(curves[0], ahead)]


def _furthest(text: str) -> Any:
    """How far a figure shows the forecast: the last of the places."""
    last = _places(text)[-1]
    value, relative = _place(last)
    return last if relative else [value]


def _fixed(texts: list[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, mark, value = text.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            mark = ""
        if not mark:
            raise ValueError(f"--fixed must be name=value, such as floor=0, not {text!r}")
    return found


def _exists(path: str) -> None:
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}")


def _comparison(table: Any) -> str:
    lines = ["laws by prediction of held-out records:"]
    for law in table.law.values:
        one = table.sel(law=law)
        lines.append(f"  {law!s:<24} score {float(one.score):8.3f}   error {100 * float(one.rms):.2g} %")
    return "\n".join([*lines, f"  {table.attrs.get('verdict', '')}"])


def _forecast_line(row: Mapping[str, Any]) -> str:
    parts = [
        f"{name} {values[0]:.4g} (95 %: {values[1]:.4g} … {values[2]:.4g})"
        for name, values in row.items()
        if isinstance(values, list)
    ]
    words = f"   caution: {row['warnings']}" if row.get("warnings") else ""
    return f"{'forecast at ' + row['at']:<40} {'; '.join(parts)}{words}"


def _content(report: Any) -> dict[str, Any]:
    if hasattr(report, "to_json"):
        return dict(json.loads(report.to_json()))
    table = report.parameters
    fields = ("estimate", "low68", "high68", "low95", "high95", "identified")
    rows = {
        str(name): {field: table[field].sel(parameter=name).item() for field in fields}
        for name in table.parameter.values
    }
    return {"law": report.law, "parameters": rows, "not_determined": list(report.unidentified),
            "warnings": list(report.warnings)}  # fmt: skip


def _plain(value: Any) -> Any:
    """Numbers that JSON does not have become null."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
