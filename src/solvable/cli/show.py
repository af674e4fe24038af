"""Print datasets as tables, and convert them to JSON."""

import io
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

# Rows of a table over time. If there are more times, some are left out, and a line below the table says so.
_ROWS = 16
# The statistics of a comparison that have columns, and what follows the name of the quantity in their headings.
_STATISTICS = {"theory": "", "simulation": " sim", "relative_difference": " rel. diff.", "z_score": " z"}
# Variables with other dimensions than these are summarised below the table.
_TABULAR = {"time", "seed", "statistic"}


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], text_columns: int = 1) -> None:
    """Print a table. The first ``text_columns`` columns are text, the others are numbers, aligned to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False)
    cells = [[text(value) for value in row] for row in rows]
    for position, column in enumerate(columns):
        drawn.add_column(column, justify="left" if position < text_columns else "right", no_wrap=True)
    for row in cells:
        drawn.add_row(*row)
    # Rendered to a string first, because rich itself ends the program if the output is closed. The table is as wide as
    # its contents, because numbers must not be truncated to fit a terminal.
    page = io.StringIO()
    width = len(title) + sum(2 + max(map(len, column)) for column in zip(columns, *cells, strict=True))
    styled = sys.stdout is not None and sys.stdout.isatty()
    console = Console(file=page, width=width, force_terminal=styled, markup=False, emoji=False, highlight=False)
    if title:
        console.print(Text(title, style="bold"))
    console.print(drawn)
    print(page.getvalue(), end="")


def text(value: Any) -> str:
    """Format a value: numbers with five digits, NaN as a dash."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return "-" if math.isnan(value) else f"{value:.5g}"
    if isinstance(value, complex | np.complexfloating):
        return f"{value:.5g}"
    return str(value)


def dataset(data: xr.Dataset) -> None:
    """Print a dataset: a table over time, a table of the scalars, and a summary of all other variables."""
    names = [str(name) for name in data.data_vars]
    over_time = [name for name in names if _is_curve(data[name])] if data.sizes.get("time") else []
    # Logarithms and numerical errors of other columns are summarised below the table, to keep it readable.
    curves = [name for name in over_time if not _is_secondary(name, names)] or over_time
    single = [name for name in names if data[name].ndim == 0]
    rest = [name for name in names if name not in (*curves, *single)]
    if curves:
        _curves(data, curves)
    if single:
        rows = [[name, data[name].values.item(), data[name].attrs.get("units", "")] for name in single]
        table("" if curves else _title(data), ["quantity", "value", "units"], rows)
    if rest:
        _summaries("" if curves or single else _title(data), data, rest, bool(curves))
    if not names:
        print(f"{_title(data) or 'the dataset'}: no variables")
    if data.attrs.get("verdict"):
        print(data.attrs["verdict"])


def _is_secondary(name: str, names: Sequence[str]) -> bool:
    primary = (name.removeprefix("log_"), name.removesuffix("_error"), name.removesuffix("_spread"))
    return any(other != name and other in names for other in primary)


def _title(data: xr.Dataset) -> str:
    model, method = data.attrs.get("model", ""), data.attrs.get("method", "")
    return f"{model} ({method})" if method else str(model)


def _is_curve(values: xr.DataArray) -> bool:
    """Whether a variable can have columns in a table over time: means need numbers, and statistics known names."""
    if "time" not in values.dims or not set(values.dims) <= _TABULAR or values.size == 0:
        return False
    if "statistic" in values.dims and not _statistics(values):
        return False
    return values.sizes.get("seed", 1) == 1 or values.dtype.kind in "fiub"


def _statistics(values: xr.DataArray) -> list[str]:
    known = set(values["statistic"].values.tolist()) if "statistic" in values.coords else set()
    return [key for key in _STATISTICS if key in known]


def _curves(data: xr.Dataset, names: Sequence[str]) -> None:
    columns = {heading: column for name in names for heading, column in _columns(data[name])}
    times = data["time"].values if "time" in data.coords else np.arange(data.sizes["time"])
    shown = np.unique(np.linspace(0, times.size - 1, min(_ROWS, times.size)).round().astype(int))
    title = _title(data)
    if any("seed" in data[name].dims for name in names):
        seeds = data.sizes["seed"]
        title += f", mean of {seeds} seeds" if seeds > 1 else ", one seed: no standard errors"
    # Columns of standard errors follow those of their quantities, whose names they do not repeat.
    headings = ["time", *("± standard error" if heading.endswith(" ±") else heading for heading in columns)]
    table(title, headings, [[times[i], *(column[i] for column in columns.values())] for i in shown])
    if shown.size < times.size:
        print(f"{shown.size} of {times.size} times shown; --out or --json keeps all")


def _columns(values: xr.DataArray) -> Iterator[tuple[str, np.ndarray]]:
    """The columns of one quantity: values, mean over seeds with standard error, or statistics."""
    name = str(values.name).replace("_", " ")
    if "statistic" in values.dims:
        for key in _statistics(values):
            yield from _seeded(f"{name}{_STATISTICS[key]}", values.sel(statistic=key))
    else:
        yield from _seeded(name, values)


def _seeded(heading: str, values: xr.DataArray) -> Iterator[tuple[str, np.ndarray]]:
    if "seed" not in values.dims:
        yield heading, values.values
        return
    if values.sizes["seed"] == 1:
        yield heading, values.isel(seed=0).values
        return
    numbers = values.astype(float)
    mean, count = numbers.mean("seed"), numbers.notnull().sum("seed")
    yield heading, mean.values
    # Runs with NaN are left out of the mean and of its error.
    squares = ((numbers - mean) ** 2).sum("seed")
    known = (count > 1) & np.isfinite(mean)
    yield f"{heading} ±", ((squares / (count * (count - 1)).where(known)) ** 0.5).values


def _summaries(title: str, data: xr.Dataset, names: Sequence[str], beside: bool) -> None:
    """Print a row for each variable without a column: its dimensions and extremes."""
    rows = []
    for name in names:
        values = data[name]
        if "statistic" in values.dims and "z_score" in _statistics(values):
            # Extremes over different statistics are meaningless; those of the z-score say how well both agree.
            name, values = f"{name} z", values.sel(statistic="z_score")
        over = " x ".join(f"{size} {dim}" for dim, size in values.sizes.items())
        rows.append([name, over, *_extremes(values.values)])
    if beside:
        print("not in the table (--out or --json has all values):")
    table(title, ["quantity", "over", "minimum", "maximum"], rows, text_columns=2)


def _extremes(array: np.ndarray) -> list[Any]:
    """Minimum and maximum, if the values have an order."""
    if array.dtype.kind == "f":
        array = array[~np.isnan(array)]
    if array.dtype.kind == "b" and array.size:
        return [f"{int(array.sum())} of {array.size} true", ""]
    if array.size == 0 or array.dtype.kind not in "fiuMm":
        return ["", ""]
    return [array.min(), array.max()]


def plane(data: xr.Dataset) -> None:
    """Print a summary of a phase diagram: its size, how much of it groks, and the extremes."""
    delay = data["delay"]
    rows: list[list[Any]] = [["cells", delay.size], ["test accuracy reached", int(data["test_reached"].sum())]]
    if np.isfinite(delay.values).any():
        for label, index in (("smallest delay", delay.argmin(...)), ("largest delay", delay.argmax(...))):
            cell = delay.isel(index)
            where = ", ".join(f"{dim} = {text(cell[dim].item())}" for dim in delay.dims)
            rows.append([label, f"{text(cell.item())} at {where}"])
    table(f"{data.attrs.get('model', '')} over {' x '.join(map(str, delay.dims))}", ["", ""], rows, text_columns=2)


def as_json(data: xr.Dataset) -> dict[str, Any]:
    """Convert a dataset to JSON. Numbers that are not finite become null."""

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): clean(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [clean(inner) for inner in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        if isinstance(value, np.generic | np.ndarray):
            return clean(value.tolist())
        return value if value is None or isinstance(value, bool | int | float | str) else str(value)

    return clean(data.to_dict())
