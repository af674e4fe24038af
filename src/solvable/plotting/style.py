"""What all pictures share: colours, empty figures, axes with names and units, and files written whole."""

import os
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.files import check_writable, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe-Ito: told apart by readers with any colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

FIGURE_EXTENSIONS = (".png", ".svg", ".pdf")


def new_figure(columns: int = 1, rows: int = 1, width: float = 5.2, height: float = 3.9) -> "tuple[Figure, Any]":
    """A figure and its panels, flat if there is one row; notebooks show it without preparation."""
    from solvable.plotting.figure import ShownFigure

    figure = ShownFigure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes[0] if rows == 1 else axes


def set_axis(ax: "Axes", which: str, values: xr.DataArray, log: bool = False) -> None:
    """Name an axis after what it shows, with its unit; log where asked and possible."""
    getattr(ax, f"set_{which}label")(fill(f"{describe(values)} {unit(values)}".strip(), 40))
    if log and float(values.max()) > 0:
        getattr(ax, f"set_{which}scale")("log" if float(values.min()) > 0 else "symlog", **_threshold(values))


def log_losses(ax: "Axes") -> None:
    """A log axis, not deeper than 16 decades below its top: what is under that is rounding or irrelevant.

    The margins are made here: matplotlib's are a share of all decades, and a loss of 1e-300 would push the top to 1e15.
    """
    ax.set_yscale("log")
    low, high = ax.dataLim.minposy, ax.dataLim.y1
    if 0 < low <= high < np.inf:
        low = max(low, high * 1e-16)
        margin = max(high / low, 10) ** 0.05
        ax.set_ylim(low / margin, high * margin)


def few_ticks(axis: "Axis") -> None:
    """Ticks of a log axis at 1, 2 and 5 in plain numbers: for a decade or two, where powers of ten name too little."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def save_figure(figure: "Figure", path: str | os.PathLike[str]) -> Path:
    """Write a figure whole or not at all; the ending, in upper or lower case, chooses the format."""
    import io

    path = check_figure_path(path)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:].lower(), dpi=150)
    return write_atomically(path, buffer.getvalue())


def check_figure_path(path: str | os.PathLike[str]) -> Path:
    """Raise unless :func:`save_figure` could write a picture at this path now; meant to be called before the work.

    >>> from solvable.plotting import check_figure_path
    >>> check_figure_path("curve.gif")
    Traceback (most recent call last):
        ...
    ValueError: 'curve.gif' must end in one of .png, .svg, .pdf
    """
    path = Path(path)
    if path.suffix.lower() not in FIGURE_EXTENSIONS:
        raise ValueError(f"{path.name!r} must end in one of {', '.join(FIGURE_EXTENSIONS)}")
    check_writable(path)
    return path


def describe(values: xr.DataArray) -> str:
    """The name of a variable for people, with its symbol where it has one."""
    name = values.attrs.get("long_name", str(values.name))
    symbol = values.attrs.get("symbol")
    return f"{name}, {symbol}" if symbol and len(name) < 60 else name


def unit(values: xr.DataArray) -> str:
    unit = values.attrs.get("units", "1")
    return "" if unit == "1" else f"({unit})"


def _threshold(values: xr.DataArray) -> Mapping[str, float]:
    """Where the linear part of a symlog axis ends, for axes that include zero."""
    if float(values.min()) > 0:
        return {}
    positive = values.values[values.values > 0]
    return {"linthresh": float(positive.min())}
