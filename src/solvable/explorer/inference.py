"""Uploaded training logs: the file is checked, its curves are read, and the law of them is inferred."""

import base64
import dataclasses
import io
import os
import tempfile
import warnings
from html import escape
from pathlib import Path
from typing import Any

# Files that a page takes; others are for Python and the command line.
ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".json")
LAWS = {
    "power-law": "power law, intrinsic time",
    "power-law-steps": "power law, steps",
    "broken-power-law": "broken power law",
    "schedule": "law of schedules",
    "feature-scaling": "feature scaling",
    "scaling-law": "scaling law (table)",
}
HORIZONS = {"2x": "twice the last step", "5x": "five times", "10x": "ten times"}
_SAMPLE = "constant_24000"


def received(content: bytes, name: str, limit: int) -> Path:
    """Store an upload in a temporary file for a worker; a ValueError says what is wrong with it."""
    if not content:
        raise ValueError("the file is empty")
    if len(content) > limit:
        raise ValueError(f"the file has {len(content) / 1e6:.1f} MB, more than the {limit / 1e6:.0f} MB a page takes")
    ending = Path(name).suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{name[:80]!r} must end in one of {', '.join(ENDINGS)}: other logs are for the command line")
    handle, path = tempfile.mkstemp(prefix="solvable-log-", suffix=ending)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return Path(path)


def sample_log() -> io.BytesIO:
    """A log to try it with: a language model of 25 million parameters at a constant learning rate."""
    from solvable.inference import example_curves

    run = next(run for run in example_curves("schedules-25M") if run.name == _SAMPLE)
    lines = ["step,learning_rate,loss"]
    lines += [f"{step:g},3e-4,{loss:.4f}" for step, loss in zip(run.steps, run.loss, strict=True)]
    return io.BytesIO("\n".join(lines).encode())


def infer_log(path: str, name: str, law: str, horizon: str, warm_up: float = 0) -> str:
    """The report of a log, or of a table of runs, as HTML. The file is removed in any case."""
    try:
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            report, rows = _table(path, horizon) if law == "scaling-law" else _curves(path, name, law, horizon, warm_up)
            picture = _picture(report.plot() if law == "scaling-law" else report.plot(horizon))
    except ValueError as error:
        # The visitor knows the file by its own name.
        raise ValueError(str(error).replace(path, name).replace(Path(path).stem, Path(name).stem)) from error
    finally:
        Path(path).unlink(missing_ok=True)
    stem, shown = Path(path).stem, Path(name).stem
    notes = dict.fromkeys(str(one.message).replace(stem, shown) for one in raised)
    items = "".join(f"<li>{escape(row)}</li>" for row in rows)
    return (
        f"<h3>Forecast</h3><ul>{items.replace(stem, shown)}</ul>{picture}"
        f"<h3>Law: {escape(LAWS[law])}</h3><pre>{escape(report.summary().replace(stem, shown))}</pre>"
        + "".join(f"<p>{escape(note)}</p>" for note in notes)
    )


def _curves(path: str, name: str, law: str, horizon: str, warm_up: float) -> tuple[Any, list[str]]:
    from solvable.inference import infer, read_curves

    # A run without a name of its own has that of its file, which the visitor knows by another one.
    stems = {Path(path).stem: Path(name).stem}
    runs = [
        dataclasses.replace(run, name=stems.get(run.name, run.name), group=stems.get(run.group, run.group))
        for run in read_curves(path, warm_up=warm_up)
    ]
    report = infer(runs, law)
    rows = []
    for run in report.runs[:8]:
        found = report.predict(horizon, run=run.name).isel(time=-1)
        words = f" — {found.attrs['warnings']}" if found.attrs.get("warnings") else ""
        rows.append(
            f"{run.name}, step {float(found.time):.4g}: loss {float(found.loss):.4g}, 95 % interval "
            f"{float(found.low95):.4g} to {float(found.high95):.4g}{words}"
        )
    return report, rows


def _table(path: str, horizon: str) -> tuple[Any, list[str]]:
    from solvable.fits import scaling_law

    report = scaling_law(path, resamples=200)
    largest = float(report.table.values["compute"].max())
    best = report.compute_optimal(float(horizon.removesuffix("x")) * largest).isel(budget=0)
    return report, [
        f"compute {float(best.budget):.3g}: best size {float(best.optimal_parameters):.3g} parameters "
        f"({float(best.optimal_parameters_low95):.2g} to {float(best.optimal_parameters_high95):.2g}), loss "
        f"{float(best.loss):.4g}, 95 % interval {float(best.loss_low95):.4g} to {float(best.loss_high95):.4g}"
    ]


def _picture(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="Measured losses, the fitted law and its forecast" src="data:image/svg+xml;base64,{data}">'
