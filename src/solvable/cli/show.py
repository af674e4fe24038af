"""Datasets as tables for people and as JSON for machines."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from rich.console import Console
from rich.table import Table

_ROWS = 16


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], words: int = 1) -> None:
    """A plain table on stdout, as wide as it needs to be; the first ``words`` columns are text, the rest numbers."""
    drawn = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for position, column in enumerate(columns):
        drawn.add_column(column, justify="left" if position < words else "right", no_wrap=True)
    for row in rows:
        drawn.add_row(*(text(value) for value in row))
    # Never cut a number to fit a terminal: a table is as wide as its contents.
    Console(width=400).print(drawn)


def text(value: Any) -> str:
    """A number to five digits; a dash where there is none."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return "-" if math.isnan(value) else f"{value:.5g}"
    return str(value)


def dataset(data: xr.Dataset) -> None:
    """The dataset as a table: over time if it has times (a few rows of it), else a row per variable."""
    if "time" not in data.dims:
        rows = [[name, data[name].item(), data[name].attrs.get("units", "")] for name in data.data_vars]
        table(data.attrs.get("model", ""), ["quantity", "value", "units"], rows)
        return
    columns: dict[str, np.ndarray] = {}
    for key, values in data.data_vars.items():
        # The numerical errors of runs are for comparisons; next to their spread they would only widen the table.
        if str(key).startswith("log_") or (str(key).endswith("_error") and "seed" in values.dims):
            continue
        name = str(key).replace("_", " ")
        if set(values.dims) - {"time", "seed", "statistic"}:
            continue
        if "statistic" in values.dims:
            for statistic, short in (("theory", ""), ("simulation", " sim"), ("z_score", " z")):
                columns[f"{name}{short}"] = values.sel(statistic=statistic).values
        elif "seed" in values.dims:
            columns[name] = values.mean("seed").values
            columns[f"{name} ±"] = values.std("seed").values
        elif values.dims == ("time",):
            columns[name] = values.values
    times = data["time"].values
    shown = np.unique(np.linspace(0, times.size - 1, min(_ROWS, times.size)).round().astype(int))
    title = f"{data.attrs.get('model', '')} ({data.attrs.get('method', '')})"
    headers = ["time", *("±" if heading.endswith(" ±") else heading for heading in columns)]
    table(title, headers, [[times[i], *(column[i] for column in columns.values())] for i in shown])
    if "verdict" in data.attrs:
        print(f"\n{data.attrs['verdict']}")


def plane(data: xr.Dataset) -> None:
    """A phase diagram in a few lines: its size, how much of it groks, and the extremes."""
    delay = data["delay"]
    rows: list[list[Any]] = [["cells", delay.size], ["test accuracy reached", int(data["test_reached"].sum())]]
    if np.isfinite(delay.values).any():
        for label, index in (("smallest delay", delay.argmin(...)), ("largest delay", delay.argmax(...))):
            cell = delay.isel(index)
            where = ", ".join(f"{dim} = {text(cell[dim].item())}" for dim in delay.dims)
            rows.append([label, f"{text(cell.item())} at {where}"])
    table(f"{data.attrs.get('model', '')} over {' x '.join(map(str, delay.dims))}", ["", ""], rows, words=2)


def as_json(data: xr.Dataset) -> dict[str, Any]:
    """The dataset as JSON: numbers that are not finite become null."""

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): clean(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [clean(inner) for inner in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value

    return clean(data.to_dict())
