"""Planes: maps of the quantities of a sweep over two of its parameters, one per panel."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from solvable.plotting.cells import (
    DECADE,
    Names,
    check_scale,
    draw_colour_bar,
    draw_plane,
    is_numeric,
    make_norm,
    phases_of,
)
from solvable.plotting.style import new_figure

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_PANELS = 12

Mark = tuple[float, float] | Sequence[tuple[float, float]] | Mapping[str, tuple[float, float]]


def plot_plane(
    data: xr.Dataset | xr.DataArray,
    variable: str | Sequence[str] | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    over: str | None = None,
    log: Iterable[str] | None = None,
    scale: str = "auto",
    contours: int | Sequence[float] | None = None,
    names: Names | None = None,
    mark: Mark | None = None,
    title: str | None = None,
) -> "Figure":
    """Map a quantity of a sweep over two of its parameters.

    Infinite cells, and cells where a variable ``..._reached`` is False, were never reached and are hatched. Cells
    without a value were not computed or failed, and are crossed out. Strings, few distinct integers, and numbers with
    ``names`` are drawn as phases, each with its own colour.

    Parameters
    ----------
    data
        The sweep.
    variable
        What to plot, in one panel each; by default every quantity with two dimensions.
    x, y
        Horizontal and vertical dimension; by default the second and the first.
    over
        A third dimension, with one panel for each of its values.
    log
        Names of the logarithmic axes; by default those with logarithmically spaced values.
    scale
        Scale of the colours: ``"log"``, ``"linear"``, ``"signed"`` (zero in the middle), or ``"auto"``, which chooses.
    contours
        Number of thin contour lines, or a list of values, which are written on their lines.
    names
        Names of phases, by number or in the order of numbers.
    mark
        A point (x, y), several points, or a mapping of labels to points.
    title
        Title of the figure.
    """
    dataset = data if isinstance(data, xr.Dataset) else data.to_dataset(name=data.name or "value")
    check_scale(scale)
    panels = _panels(dataset, variable, over, x, y)
    first = panels[0].values
    across, upwards = _axes(first, x, y)
    logs = _log_axes(first, (across, upwards), log)
    shared = None if over is None else _shared_norm([panel.values for panel in panels], names, scale)
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure, axes = new_figure(columns, rows, width=6.0 if len(panels) == 1 else 5.0, height=4.4)
    handles: dict[str, Artist] = {}
    for panel, ax in zip(panels, np.ravel(axes), strict=False):
        found = draw_plane(
            figure, ax, panel.values, across, upwards, logs, scale=scale, contours=contours, names=names,
            never_reached=panel.never_reached, norm=shared, colour_bar=shared is None,
        )  # fmt: skip
        handles |= found | _draw_marks(ax, mark)
        ax.set_title(panel.title, fontsize="medium")
    for ax in np.ravel(axes)[len(panels) :]:
        ax.set_visible(False)
    if shared is not None:
        mesh = next(ax.collections[0] for ax in np.ravel(axes) if ax.collections)
        draw_colour_bar(figure, mesh, list(np.ravel(axes)), first)
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize="small")
    if title:
        figure.suptitle(title)
    return figure


class _Panel(NamedTuple):
    values: xr.DataArray
    never_reached: xr.DataArray
    title: str


def _panels(
    dataset: xr.Dataset, variable: str | Sequence[str] | None, over: str | None, x: str | None, y: str | None
) -> list[_Panel]:
    """The panels: one per variable, or one per value of a third dimension."""
    if variable is None:
        chosen = _planes(dataset, 2 if over is None else 3)
    else:
        chosen = [variable] if isinstance(variable, str) else list(variable)
    for name in chosen:
        if name not in dataset.data_vars:
            raise ValueError(f"there is no variable {name!r}; there are {', '.join(map(str, dataset.data_vars))}")
        _check_dimensions(dataset[name], over)
    if over is None:
        titles = [""] if len(chosen) == 1 else [name.replace("_", " ") for name in chosen]
        pairs = zip(chosen, titles, strict=True)
        return [_Panel(dataset[name], _never_reached(dataset, name), text) for name, text in pairs]
    if len(chosen) > 1:
        raise ValueError(f"panels over {over!r} show one variable: choose one of {', '.join(chosen)}")
    values, never = dataset[chosen[0]], _never_reached(dataset, chosen[0])
    if values.sizes[over] > _MOST_PANELS:
        raise ValueError(f"{over} has {values.sizes[over]} values, more than {_MOST_PANELS} panels: select a few")
    return [
        _Panel(values.isel({over: place}), never.isel({over: place}), _at(values[over][place]))
        for place in range(values.sizes[over])
    ]


def _planes(dataset: xr.Dataset, dimensions: int) -> list[str]:
    """Variables with this number of dimensions, except errors and flags of other variables."""
    helpers = ("error", "_reached", "_low", "_high", "status")
    found = [str(name) for name in dataset.data_vars if dataset[name].ndim == dimensions]
    found = [name for name in found if not name.endswith(helpers)] or found
    if not found:
        shapes = ", ".join(f"{name} over {list(array.dims)}" for name, array in dataset.data_vars.items())
        raise ValueError(
            f"no variable has {dimensions} dimensions: there are {shapes or 'none'}; select values of the others, as "
            "in dataset.sel(...), or draw a third dimension panel by panel with over=..."
        )
    if len(found) > _MOST_PANELS:
        raise ValueError(f"{len(found)} variables are planes: choose some of {', '.join(found)}")
    return found


def _check_dimensions(values: xr.DataArray, over: str | None) -> None:
    wanted = 2 if over is None else 3
    if over is not None and over not in values.dims:
        raise ValueError(f"over={over!r} is not a dimension of {values.name}, which is over {list(values.dims)}")
    if values.ndim != wanted:
        raise ValueError(
            f"{values.name} is over {list(values.dims)}, and a plane has two dimensions: select values of the others, "
            "as in dataset.sel(...), or draw one of them panel by panel with over=..."
        )


def _never_reached(dataset: xr.Dataset, name: str) -> xr.DataArray:
    """Infinite cells, and cells without a value where a variable ``..._reached`` is False."""
    values = dataset[name]
    if values.dtype.kind not in "fiu":
        return xr.zeros_like(values, dtype=bool)
    never: xr.DataArray = xr.apply_ufunc(np.isinf, values)
    flags = [str(flag) for flag in dataset.data_vars if str(flag).endswith("_reached")]
    kinds = [flag for flag in flags if name.split("_")[0] == flag.split("_")[0]] or flags
    for flag in kinds:
        if set(dataset[flag].dims) == set(values.dims):
            never = never | (values.isnull() & ~dataset[flag].astype(bool))
    if "status" in dataset and set(dataset["status"].dims) <= set(values.dims):
        # Flags of cells that are not done (status 1) mean nothing.
        never = never & (dataset["status"] == 1)
    return never.transpose(*values.dims)


def _axes(values: xr.DataArray, x: str | None, y: str | None) -> tuple[str, str]:
    upwards, across = (str(dim) for dim in values.dims)
    for name in (x, y):
        if name is not None and name not in values.dims:
            raise ValueError(f"{name!r} is not a dimension of {values.name}, which is over {list(values.dims)}")
    if x is None:
        x = across if y != across else upwards
    if y is None:
        y = upwards if x != upwards else across
    if x == y:
        raise ValueError(f"x and y must be two different dimensions, not both {x!r}")
    return x, y


def _log_axes(values: xr.DataArray, axes: tuple[str, str], log: Iterable[str] | None) -> list[str]:
    if log is None:
        return [name for name in axes if is_numeric(values[name]) and _is_log_spaced(values[name].values)]
    chosen = [log] if isinstance(log, str) else list(log)
    for name in chosen:
        if name not in axes:
            raise ValueError(f"log={name!r} is not an axis of this plane; its axes are {axes[0]} and {axes[1]}")
    return chosen


def _is_log_spaced(places: np.ndarray) -> bool:
    """Whether values are spaced more evenly in the logarithm."""
    places = np.sort(np.asarray(places, float))
    if places.size < 2 or places[0] <= 0:
        return False
    if places.size == 2:
        return bool(places[1] / places[0] >= DECADE)
    plain, logs = np.diff(places), np.diff(np.log(places))
    return bool(np.std(logs) / np.mean(logs) < 0.8 * np.std(plain) / np.mean(plain))


def _draw_marks(ax: "Axes", mark: Mark | None) -> "dict[str, Artist]":
    if mark is None:
        return {}
    named: dict[str, Any] = dict(mark) if isinstance(mark, Mapping) else {"": mark}
    handles: dict[str, Artist] = {}
    for symbol, (label, points) in zip("*oDsP^vX", named.items(), strict=False):
        x, y = np.atleast_2d(np.asarray(points, float)).T
        (line,) = ax.plot(x, y, symbol, markersize=10 if symbol == "*" else 7, color="white",
                          markeredgecolor="black", linestyle="none", zorder=4)  # fmt: skip
        if label:
            handles[label] = line
    return handles


def _at(coordinate: xr.DataArray) -> str:
    value = coordinate.item()
    symbol = coordinate.attrs.get("symbol") or str(coordinate.name).replace("_", " ")
    return f"{symbol} = {value:g}" if isinstance(value, int | float) else f"{symbol}: {value}"


def _shared_norm(panels: list[xr.DataArray], names: Names | None, scale: str) -> Any:
    """The same normalisation for all panels; None for phases, which have fixed colours."""
    numbers = [phases_of(values, names) for values in panels]
    return None if any(labels for _, labels in numbers) else make_norm(np.ravel([array for array, _ in numbers]), scale)
