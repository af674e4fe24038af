"""Common style of all figures: colours, empty panels, axes with names and units, and atomic writing of files."""

import io
import os
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

# The palette of Okabe and Ito, which can be distinguished with any colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

FIGURE_EXTENSIONS = (".png", ".svg", ".pdf")


def new_figure(columns: int = 1, rows: int = 1, width: float = 5.2, height: float = 3.9) -> "tuple[Figure, Any]":
    """Create a figure and its panels, as a flat array if there is one row.

    Parameters
    ----------
    columns, rows
        Number of panels across and down.
    width, height
        Size of one panel in inches.
    """
    from solvable.plotting.figure import NotebookFigure

    figure = NotebookFigure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes[0] if rows == 1 else axes


def set_axis(ax: "Axes", which: str, values: xr.DataArray, log: bool = False) -> None:
    """Label an axis with the name and the unit of what it shows.

    Parameters
    ----------
    ax
        The panel.
    which
        ``"x"`` or ``"y"``.
    values
        What the axis shows.
    log
        Whether the axis is logarithmic; it is linear near zero if there are values that are not positive.
    """
    getattr(ax, f"set_{which}label")(fill(f"{describe(values)} {unit(values)}".strip(), 40))
    if log and float(values.max()) > 0:
        if float(values.min()) > 0:
            getattr(ax, f"set_{which}scale")("log")
        else:
            smallest = float(values.values[values.values > 0].min())
            getattr(ax, f"set_{which}scale")("symlog", linthresh=smallest)


def log_losses(ax: "Axes") -> None:
    """Make the vertical axis of losses logarithmic, with at most 16 decades; smaller values are rounding errors.

    The margins of matplotlib are a fraction of all decades: with a loss of 1e-300, the axis would end at 1e15.

    Parameters
    ----------
    ax
        The panel, after its curves have been drawn.
    """
    ax.set_yscale("log")
    low, high = ax.dataLim.minposy, ax.dataLim.y1
    if 0 < low <= high < np.inf:
        low = max(low, high * 1e-16)
        margin = max(high / low, 10) ** 0.05
        ax.set_ylim(low / margin, high * margin)


def few_ticks(axis: "Axis") -> None:
    """Label a logarithmic axis at 1, 2 and 5 in plain numbers, if it covers only a decade or two.

    Parameters
    ----------
    axis
        The axis, such as ``ax.xaxis``.
    """
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def save_figure(figure: "Figure", path: str | os.PathLike[str]) -> Path:
    """Write a figure atomically and return the path.

    Parameters
    ----------
    figure
        The figure.
    path
        Where to write; the extension chooses the format.
    """
    path = check_figure_path(path)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:].lower(), dpi=150)
    return write_atomically(path, buffer.getvalue())


def check_figure_path(path: str | os.PathLike[str]) -> Path:
    """Raise an error unless :func:`save_figure` can write at this path; meant to be called before the work.

    Parameters
    ----------
    path
        Where the figure would be written.

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
    """The long name of a variable, with its symbol if it has one.

    Parameters
    ----------
    values
        The variable.
    """
    name = values.attrs.get("long_name", str(values.name))
    symbol = values.attrs.get("symbol")
    return f"{name}, {symbol}" if symbol and len(name) < 60 else name


def unit(values: xr.DataArray) -> str:
    unit = values.attrs.get("units", "1")
    return "" if unit == "1" else f"({unit})"
