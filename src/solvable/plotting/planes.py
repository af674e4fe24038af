"""Planes: a quantity over two parameters as a map, with contours, and hatched where there is nothing to show."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from solvable.plotting.style import describe, new_figure, set_axis, unit

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Pale, so that lines and words can be read on them.
_PHASES = ("#F7D9C4", "#CFE5F2", "#D5EBD8", "#F3E6B3", "#E3D5EC", "#D9D9D9", "#F4CCD4", "#C9E8E4")
_NEVER, _MISSING, _NOT_POSITIVE = "never reached", "not computed or failed", "zero or negative"
# Spans of less than this are shown on a linear scale.
_A_DECADE = 10.0
_MOST_PANELS = 12
_SCALES = ("auto", "log", "linear", "signed")

Names = Mapping[Any, str] | Sequence[str]
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
    """Map a quantity of a sweep over two of its parameters; without ``variable``, every quantity that is a plane.

    Infinite cells, and those that a variable ``..._reached`` of the data says no to, were never reached and are
    hatched; cells without a value were not computed or failed, and are crossed out. Names (or numbers with ``names``,
    or few whole numbers) are drawn as phases, each with its colour.

    ``x`` and ``y`` are the dimensions across and upwards (default: the second and the first). A third dimension is
    selected beforehand, or drawn panel by panel with ``over``. ``log`` names the logarithmic axes (default: those with
    values spaced like that). ``scale`` of the colours: "log", "linear", "signed" (zero in the middle), or what suits.
    ``contours`` is a number of thin lines, or a list of values, which are written on theirs. ``mark`` is a point
    (x, y), several, or a mapping of labels to points.
    """
    dataset = _as_dataset(data)
    _check_scale(scale)
    panels = _panels(dataset, variable, over, x, y)
    first = panels[0].values
    across, upwards = _axes(first, x, y)
    logs = _logarithmic(first, (across, upwards)) if log is None else _known(log, (across, upwards))
    shared = None if over is None else _shared_norm([panel.values for panel in panels], names, scale)
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure, axes = new_figure(columns, rows, width=6.0 if len(panels) == 1 else 5.0, height=4.4)
    handles: dict[str, Artist] = {}
    for panel, ax in zip(panels, np.ravel(axes), strict=False):
        found = draw_plane(
            figure, ax, panel.values, across, upwards, logs, scale=scale, contours=contours, names=names,
            never=panel.never, norm=shared, bar=shared is None,
        )  # fmt: skip
        handles |= found | _draw_marks(ax, mark)
        ax.set_title(panel.title, fontsize="medium")
    for ax in np.ravel(axes)[len(panels) :]:
        ax.set_visible(False)
    if shared is not None:
        mesh = next(ax.collections[0] for ax in np.ravel(axes) if ax.collections)
        _colour_bar(figure, mesh, list(np.ravel(axes)), first)
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize="small")
    if title:
        figure.suptitle(title)
    return figure


def draw_plane(
    figure: "Figure",
    ax: "Axes",
    values: xr.DataArray,
    x: str,
    y: str,
    log: Iterable[str] = (),
    *,
    scale: str = "log",
    contours: int | Sequence[float] | None = 8,
    names: Names | None = None,
    never: xr.DataArray | None = None,
    norm: Any = None,
    bar: bool = True,
    hatch: bool = True,
) -> "dict[str, Artist]":
    """Draw a plane into a panel; gives what a legend should explain, by its label.

    As :func:`plot_plane` does it, but on a log colour scale with thin contours. ``never`` marks the cells that were
    never reached (default: all without a finite value); ``hatch=False`` leaves cells with nothing to show blank.
    """
    _check_scale(scale)
    grid = values.transpose(y, x).sortby([name for name in (x, y) if _is_numeric(values[name])])
    numbers, labels = _phases(grid, names)
    unreached = ~np.isfinite(numbers) if never is None else never.transpose(y, x).reindex_like(grid).values
    places = [_Axis.of(grid[name], name in set(log)) for name in (x, y)]
    # Before anything is drawn: contours put their labels where there is room on the axes as they are then.
    for which, axis in zip("xy", places, strict=True):
        axis.name(ax, which)
    ax.grid(False)
    norm = norm or (None if labels else _norm(numbers[~unreached], scale))
    empty = np.isnan(numbers) & ~unreached
    finite = np.where(unreached | ~np.isfinite(numbers), np.nan, numbers)
    handles: dict[str, Artist] = {}
    if labels:
        handles |= _draw_phases(ax, places, finite, labels)
    elif norm is not None:
        positive = getattr(norm, "vmin", 1) > 0
        hidden = (finite <= 0) & (_is_log(norm) and positive)
        mesh = ax.pcolormesh(
            *(axis.edges for axis in places), np.where(hidden, np.nan, finite), norm=norm, cmap=_colours(norm),
            rasterized=True,
        )  # fmt: skip
        if bar:
            _colour_bar(figure, mesh, ax, values)
        _draw_contours(ax, places, np.where(hidden, np.nan, finite), norm, contours)
        handles |= _hatch(ax, places, hidden, "...", "white", _NOT_POSITIVE)
    if hatch:
        handles |= _hatch(ax, places, unreached, "////", "none", _NEVER)
        handles |= _hatch(ax, places, empty, "xxx", "0.85", _MISSING)
    return handles


class _Panel(NamedTuple):
    values: xr.DataArray
    never: xr.DataArray
    title: str


def _panels(
    dataset: xr.Dataset, variable: str | Sequence[str] | None, over: str | None, x: str | None, y: str | None
) -> list[_Panel]:
    """What is drawn in each panel: one variable each, or one variable at each value of a third dimension."""
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
        return [
            _Panel(dataset[name], _never(dataset, name), text) for name, text in zip(chosen, titles, strict=True)
        ]
    if len(chosen) > 1:
        raise ValueError(f"panels over {over!r} show one variable: choose one of {', '.join(chosen)}")
    values, never = dataset[chosen[0]], _never(dataset, chosen[0])
    if values.sizes[over] > _MOST_PANELS:
        raise ValueError(f"{over} has {values.sizes[over]} values, more than {_MOST_PANELS} panels: select a few")
    return [
        _Panel(values.isel({over: place}), never.isel({over: place}), _at(values[over][place]))
        for place in range(values.sizes[over])
    ]


def _planes(dataset: xr.Dataset, dimensions: int) -> list[str]:
    """Variables with as many dimensions, without errors and what says of others whether they have a value."""
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
        raise ValueError(f"{len(found)} variables are planes, choose of {', '.join(found)}")
    return found


def _check_dimensions(values: xr.DataArray, over: str | None) -> None:
    wanted = 2 if over is None else 3
    if over is not None and over not in values.dims:
        raise ValueError(f"over={over!r} is no dimension of {values.name}, which is over {list(values.dims)}")
    if values.ndim != wanted:
        raise ValueError(
            f"{values.name} is over {list(values.dims)}, and a plane has two dimensions: select values of the others, "
            "as in dataset.sel(...), or draw one of them panel by panel with over=..."
        )


def _never(dataset: xr.Dataset, name: str) -> xr.DataArray:
    """Infinite cells, and cells without a value of which a variable ``..._reached`` says that they never were."""
    values = dataset[name]
    if values.dtype.kind not in "fiu":
        return xr.zeros_like(values, dtype=bool)
    never = np.isinf(values)
    flags = [str(flag) for flag in dataset.data_vars if str(flag).endswith("_reached")]
    kinds = [flag for flag in flags if name.split("_")[0] == flag.split("_")[0]] or flags
    for flag in kinds:
        if set(dataset[flag].dims) == set(values.dims):
            never = never | (np.isnan(values) & ~dataset[flag].astype(bool))
    return never.transpose(*values.dims)


def _axes(values: xr.DataArray, x: str | None, y: str | None) -> tuple[str, str]:
    upwards, across = (str(dim) for dim in values.dims)
    for name in (x, y):
        if name is not None and name not in values.dims:
            raise ValueError(f"{name!r} is no dimension of {values.name}, which is over {list(values.dims)}")
    if x is None:
        x = across if y != across else upwards
    if y is None:
        y = upwards if x != upwards else across
    if x == y:
        raise ValueError(f"x and y must be two different dimensions, not both {x!r}")
    return x, y


def _known(log: Iterable[str], axes: tuple[str, str]) -> list[str]:
    chosen = [log] if isinstance(log, str) else list(log)
    for name in chosen:
        if name not in axes:
            raise ValueError(f"log={name!r} is not an axis of this plane; its axes are {axes[0]} and {axes[1]}")
    return chosen


def _logarithmic(values: xr.DataArray, axes: tuple[str, str]) -> list[str]:
    """Axes whose values are spaced more evenly in the logarithm."""
    return [name for name in axes if _is_numeric(values[name]) and _spaced_in_log(values[name].values)]


def _spaced_in_log(places: np.ndarray) -> bool:
    places = np.sort(np.asarray(places, float))
    if places.size < 2 or places[0] <= 0:
        return False
    if places.size == 2:
        return bool(places[1] / places[0] >= _A_DECADE)
    plain, logs = np.diff(places), np.diff(np.log(places))
    return bool(np.std(logs) / np.mean(logs) < 0.8 * np.std(plain) / np.mean(plain))


class _Axis(NamedTuple):
    """Where cells lie along an axis; names are placed one after the other."""

    values: xr.DataArray
    centres: np.ndarray
    edges: np.ndarray
    log: bool

    @classmethod
    def of(cls, values: xr.DataArray, log: bool) -> "_Axis":
        if not _is_numeric(values):
            centres = np.arange(values.size, dtype=float)
            return cls(values, centres, _cell_edges(centres, False), False)
        centres = np.asarray(values.values, float)
        return cls(values, centres, _cell_edges(centres, log), log)

    def name(self, ax: "Axes", which: str) -> None:
        if _is_numeric(self.values):
            set_axis(ax, which, self.values, log=self.log)
            # The map fills its panel: axes end where the cells do.
            if not self.log or self.edges[0] > 0:
                getattr(ax, f"set_{which}lim")(self.edges[0], self.edges[-1])
            return
        getattr(ax, f"set_{which}ticks")(self.centres, [str(name) for name in self.values.values])
        getattr(ax, f"set_{which}label")(fill(describe(self.values), 40))


def _cell_edges(centres: np.ndarray, log: bool) -> np.ndarray:
    """Edges halfway between the centres, on a log axis in the logarithm, and as far outside at both ends."""
    log = log and bool((centres > 0).all())
    places = np.log(centres) if log else np.asarray(centres, float)
    if places.size == 1:
        inner = np.array([places[0] - 0.5, places[0] + 0.5])
    else:
        middle = (places[1:] + places[:-1]) / 2
        inner = np.concatenate([[2 * places[0] - middle[0]], middle, [2 * places[-1] - middle[-1]]])
    return np.exp(inner) if log else inner


def _phases(grid: xr.DataArray, names: Names | None) -> tuple[np.ndarray, dict[float, str]]:
    """Values as numbers, and what they are called where they are phases; a cell without a name is not computed."""
    values = grid.values
    if values.dtype.kind in "OUS":
        text = np.where(values == np.array(None), "", values).astype(str)
        known = sorted(set(text.ravel()) - {"", "nan"}) if names is None else list(_by_number(names).values())
        numbers = np.full(values.shape, np.nan)
        for number, name in enumerate(known):
            numbers[text == name] = number
        return numbers, dict(enumerate(known))
    numbers = values.astype(float)
    if names is not None:
        return numbers, _by_number(names)
    if "flag_meanings" in grid.attrs:
        meanings = grid.attrs["flag_meanings"].split()
        return numbers, dict(zip(grid.attrs.get("flag_values", range(len(meanings))), meanings, strict=True))
    if values.dtype.kind == "b":
        return numbers, {0: "no", 1: "yes"}
    if values.dtype.kind in "iu" and np.unique(values).size <= len(_PHASES):
        return numbers, {number: str(number) for number in np.unique(values)}
    return numbers, {}


def _by_number(names: Names) -> dict[float, str]:
    return dict(names) if isinstance(names, Mapping) else dict(enumerate(names))


def _draw_phases(
    ax: "Axes", places: list[_Axis], numbers: np.ndarray, labels: dict[float, str]
) -> "dict[str, Artist]":
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    if len(labels) > len(_PHASES):
        raise ValueError(f"{len(labels)} phases are more than there are colours, {len(_PHASES)}: draw numbers")
    index = np.full(numbers.shape, np.nan)
    for place, number in enumerate(labels):
        index[numbers == number] = place
    colours = _PHASES[: len(labels)]
    ax.pcolormesh(
        *(axis.edges for axis in places), index, cmap=ListedColormap(list(colours)), vmin=-0.5,
        vmax=len(labels) - 0.5, rasterized=True,
    )  # fmt: skip
    return {
        name: Patch(facecolor=colour, edgecolor="0.5", linewidth=0.5)
        for name, colour in zip(labels.values(), colours, strict=True)
    }


def _check_scale(scale: str) -> None:
    if scale not in _SCALES:
        raise ValueError(f"scale must be one of {', '.join(map(repr, _SCALES))}, not {scale!r}")


def _norm(numbers: np.ndarray, scale: str) -> Any:
    """How numbers become colours; None if there are none."""
    from matplotlib.colors import CenteredNorm, LogNorm, Normalize

    finite = numbers[np.isfinite(numbers)]
    if scale == "log":
        finite = finite[finite > 0]
    if finite.size == 0:
        return None
    low, high = float(finite.min()), float(finite.max())
    if scale == "auto":
        scale = "signed" if low < 0 < high else "log" if low > 0 and high / low >= _A_DECADE else "linear"
    if scale == "log":
        return LogNorm(low, high)
    if scale == "signed":
        return CenteredNorm(0, halfrange=max(-low, high) or 1.0)
    return Normalize(low, high)


def _is_log(norm: Any) -> bool:
    from matplotlib.colors import LogNorm

    return isinstance(norm, LogNorm)


def _colours(norm: Any) -> str:
    from matplotlib.colors import CenteredNorm

    return "RdBu_r" if isinstance(norm, CenteredNorm) else "viridis"


def _colour_bar(figure: "Figure", mesh: Any, ax: Any, values: xr.DataArray) -> None:
    figure.colorbar(mesh, ax=ax).set_label(fill(f"{describe(values)} {unit(values)}".strip(), 45))


def _draw_contours(
    ax: "Axes", places: list[_Axis], numbers: np.ndarray, norm: Any, contours: int | Sequence[float] | None
) -> None:
    """Thin lines at evenly spaced colours, or lines at given values with these written on them."""
    if contours is None or min(numbers.shape) < 2 or norm.vmin == norm.vmax:
        return
    x, y = (axis.centres for axis in places)
    if isinstance(contours, int | np.integer):
        space = np.geomspace if _is_log(norm) else np.linspace
        levels = space(norm.vmin, norm.vmax, int(contours) + 2)[1:-1]
        ax.contour(x, y, numbers, levels=levels, colors="white", linewidths=0.5)
        return
    levels = np.sort(np.asarray(contours, float))
    inside = levels[(levels > np.nanmin(numbers)) & (levels < np.nanmax(numbers))]
    if inside.size:
        lines = ax.contour(x, y, numbers, levels=inside, colors="white", linewidths=1.1)
        ax.clabel(lines, fmt=lambda value: f"{value:g}", fontsize="small")


def _hatch(
    ax: "Axes", places: list[_Axis], cells: np.ndarray, pattern: str, colour: str, label: str
) -> "dict[str, Artist]":
    """Hatch whole cells: every cell is drawn from edge to edge, with no slope between it and the next."""
    from matplotlib.patches import Patch

    if not cells.any():
        return {}
    x, y = (np.repeat(axis.edges, 2)[1:-1] for axis in places)
    shown = np.repeat(np.repeat(cells.astype(float), 2, axis=0), 2, axis=1)
    ax.contourf(x, y, shown, levels=[0.5, 1.5], colors=[colour], hatches=[pattern])
    return {label: Patch(facecolor=colour, edgecolor="black", hatch=pattern, linewidth=0.5)}


def _draw_marks(ax: "Axes", mark: Mark | None) -> "dict[str, Artist]":
    if mark is None:
        return {}
    if isinstance(mark, Mapping):
        named = dict(mark)
    else:
        points = [mark] if np.ndim(mark) == 1 else list(mark)  # type: ignore[list-item]
        named = {"": points}  # type: ignore[dict-item]
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
    """The same colours in all panels; phases have theirs anyway."""
    numbers = [_phases(values, names) for values in panels]
    return None if any(labels for _, labels in numbers) else _norm(np.ravel([array for array, _ in numbers]), scale)


def _is_numeric(values: xr.DataArray) -> bool:
    return values.dtype.kind in "fiu"


def _as_dataset(data: xr.Dataset | xr.DataArray) -> xr.Dataset:
    return data if isinstance(data, xr.Dataset) else data.to_dataset(name=data.name or "value")
