"""Downloads: data files that ``solvable.load`` reads, and pictures."""

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from solvable.files import save
from solvable.plotting import COLOURS, new_figure
from solvable.plotting.series import Curve


def data_file(dataset: xr.Dataset, ending: str) -> io.BytesIO:
    """A dataset as the bytes of a .nc or .csv file; in .csv files each mode, seed, ... has a column of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = save(flat(dataset) if ending == ".csv" else dataset, Path(folder) / f"data{ending}")
        return io.BytesIO(path.read_bytes())


def flat(dataset: xr.Dataset) -> xr.Dataset:
    """The curves over time only; of variables with more dimensions, one curve for each seed, mode, ..."""
    columns: dict[str, Any] = {}
    for name, values in dataset.data_vars.items():
        if "time" not in values.dims:
            continue
        others = [dim for dim in values.dims if dim != "time"]
        for place in np.ndindex(*(values.sizes[dim] for dim in others)):
            names = list(zip(others, place, strict=True))
            chosen = values.isel(dict(names))
            label = "".join(f"_{dim}_{chosen[dim].item() if dim in chosen.coords else at}" for dim, at in names)
            columns[f"{name}{label}"] = (("time",), chosen.values, values.attrs)
    return xr.Dataset(columns, coords={"time": dataset["time"]}, attrs=dataset.attrs)


def picture(panels: list[dict[str, Any]], ending: str, title: str) -> io.BytesIO:
    """The panels of the page, drawn by matplotlib with the same curves, points, scales and ranges."""
    figure, axes = new_figure(len(panels))
    for panel, ax in zip(panels, axes, strict=True):
        for curve, other in panel["lines"]:
            colour = COLOURS[curve.colour % len(COLOURS)]
            whose = panel["whose"][other]
            label = f"{curve.name} ({whose})" if whose else curve.name
            ax.plot(curve.x, curve.y, color=colour, linestyle="--" if other else "-", linewidth=1.6, label=label)
        for curve in panel["points"]:
            _draw_points(ax, curve, panel["hollow"])
        ax.set_xscale("log" if panel["x_log"] else "linear")
        ax.set_yscale("log" if panel["y_log"] else "linear")
        ax.set_ylim(*panel["y_range"])
        ax.set_xlabel(panel["x_label"])
        ax.set_ylabel(panel["y_label"])
        ax.legend(fontsize="small")
    figure.suptitle(title, fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=ending[1:], dpi=150)
    buffer.seek(0)
    return buffer


def _draw_points(ax: Any, curve: Curve, hollow: bool) -> None:
    colour = COLOURS[curve.colour % len(COLOURS)]
    style = {"markerfacecolor": "white" if hollow else colour, "capsize": 2, "markersize": 3.8}
    ax.errorbar(
        curve.x,
        curve.y,
        yerr=curve.error,
        linestyle="none",
        marker="o",
        color=colour,
        label=f"{curve.name}, simulation",
        **style,
    )
