"""One panel of a plane: cells coloured by number or by phase, contours, and hatching of cells without a value."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from solvable.plotting.style import describe, set_axis, unit

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Pale, so that lines and text on them are readable.
_PHASES = ("#F7D9C4", "#CFE5F2", "#D5EBD8", "#F3E6B3", "#E3D5EC", "#D9D9D9", "#F4CCD4", "#C9E8E4")
_NEVER, _MISSING, _NOT_POSITIVE = "never reached", "not computed or failed", "zero or negative"
# Smaller ranges are shown on a linear scale.
DECADE = 10.0
_SCALES = ("auto", "log", "linear", "signed")

Names = Mapping[Any, str] | Sequence[str]


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
    never_reached: xr.DataArray | None = None,
    norm: Any = None,
    colour_bar: bool = True,
    hatch: bool = True,
) -> "dict[str, Artist]":
    """Draw a plane into a panel, as in :func:`plot_plane`. Returns the handles of a legend by their labels.

    Parameters
    ----------
    figure
        The figure.
    ax
        The panel.
    values
        The plane, with two dimensions.
    x, y
        Names of the horizontal and the vertical dimension.
    log
        Names of the logarithmic axes.
    scale
        Scale of the colours: ``"log"``, ``"linear"``, ``"signed"`` (zero in the middle) or ``"auto"``.
    contours
        Number of thin contour lines, or a list of values, which are written on their lines.
    names
        Names of phases, by number or in the order of numbers.
    never_reached
        Cells that were never reached; by default all cells without a finite value.
    norm
        Normalisation of the colours, to share it between panels; by default that of this plane.
    colour_bar
        Whether to draw a colour bar.
    hatch
        Whether cells without a value are hatched; otherwise they are blank.
    """
    check_scale(scale)
    numeric = [name for name in (x, y) if is_numeric(values[name])]
    grid = values.transpose(y, x).sortby(numeric)
    numbers, labels = phases_of(grid, names)
    unreached = ~np.isfinite(numbers) if never_reached is None else never_reached.transpose(y, x).sortby(numeric).values
    places = [_Axis.of(grid[name], name in set(log)) for name in (x, y)]
    # Before anything is drawn, because contours place their labels by the limits of the axes.
    for which, axis in zip("xy", places, strict=True):
        axis.name(ax, which)
    ax.grid(False)
    norm = norm or (None if labels else make_norm(numbers[~unreached], scale))
    empty = np.isnan(numbers) & ~unreached
    finite = np.where(unreached | ~np.isfinite(numbers), np.nan, numbers)
    handles: dict[str, Artist] = {}
    if labels:
        handles |= _draw_phases(ax, places, finite, labels)
    elif norm is not None:
        hidden = (finite <= 0) & _is_log(norm)
        mesh = ax.pcolormesh(
            *(axis.edges for axis in places), np.where(hidden, np.nan, finite), norm=norm, cmap=_colours(norm),
            rasterized=True,
        )  # fmt: skip
        if colour_bar:
            draw_colour_bar(figure, mesh, ax, values)
        _draw_contours(ax, places, np.where(hidden, np.nan, finite), norm, contours)
        handles |= _hatch(ax, places, hidden, "...", "white", _NOT_POSITIVE)
    if hatch:
        handles |= _hatch(ax, places, unreached, "////", "none", _NEVER)
        handles |= _hatch(ax, places, empty, "xxx", "0.85", _MISSING)
    return handles


class _Axis(NamedTuple):
    """Positions of the cells along an axis. Names are placed at 0, 1, 2, ..."""

    values: xr.DataArray
    centres: np.ndarray
    edges: np.ndarray
    log: bool

    @classmethod
    def of(cls, values: xr.DataArray, log: bool) -> "_Axis":
        if not is_numeric(values):
            centres = np.arange(values.size, dtype=float)
            return cls(values, centres, _cell_edges(centres, False), False)
        centres = np.asarray(values.values, float)
        return cls(values, centres, _cell_edges(centres, log), log)

    def name(self, ax: "Axes", which: str) -> None:
        if is_numeric(self.values):
            set_axis(ax, which, self.values, log=self.log)
            # The axes end at the outermost cells.
            if not self.log or self.edges[0] > 0:
                getattr(ax, f"set_{which}lim")(self.edges[0], self.edges[-1])
            return
        getattr(ax, f"set_{which}ticks")(self.centres, [str(name) for name in self.values.values])
        getattr(ax, f"set_{which}label")(fill(describe(self.values), 40))


def _cell_edges(centres: np.ndarray, log: bool) -> np.ndarray:
    """Edges of the cells, halfway between their centres (in the logarithm, if the axis is logarithmic)."""
    log = log and bool((centres > 0).all())
    places = np.log(centres) if log else np.asarray(centres, float)
    if places.size == 1:
        inner = np.array([places[0] - 0.5, places[0] + 0.5])
    else:
        middle = (places[1:] + places[:-1]) / 2
        inner = np.concatenate([[2 * places[0] - middle[0]], middle, [2 * places[-1] - middle[-1]]])
    return np.exp(inner) if log else inner


def phases_of(grid: xr.DataArray, names: Names | None) -> tuple[np.ndarray, dict[float, str]]:
    """Values as numbers, and the names of the numbers if they are phases. Cells without a name are NaN."""
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


def _draw_phases(ax: "Axes", places: list[_Axis], numbers: np.ndarray, labels: dict[float, str]) -> "dict[str, Artist]":
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    if len(labels) > len(_PHASES):
        raise ValueError(f"{len(labels)} phases are more than the {len(_PHASES)} colours: draw numbers")
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


def check_scale(scale: str) -> None:
    if scale not in _SCALES:
        raise ValueError(f"scale must be one of {', '.join(map(repr, _SCALES))}, not {scale!r}")


def make_norm(numbers: np.ndarray, scale: str) -> Any:
    """Normalisation of the colours; None if there are no finite numbers."""
    from matplotlib.colors import CenteredNorm, LogNorm, Normalize

    finite = numbers[np.isfinite(numbers)]
    if scale == "log":
        finite = finite[finite > 0]
    if finite.size == 0:
        return None
    low, high = float(finite.min()), float(finite.max())
    if scale == "auto":
        scale = "signed" if low < 0 < high else "log" if low > 0 and high / low >= DECADE else "linear"
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


def draw_colour_bar(figure: "Figure", mesh: Any, ax: Any, values: xr.DataArray) -> None:
    figure.colorbar(mesh, ax=ax).set_label(fill(f"{describe(values)} {unit(values)}".strip(), 45))


def _draw_contours(
    ax: "Axes", places: list[_Axis], numbers: np.ndarray, norm: Any, contours: int | Sequence[float] | None
) -> None:
    """Draw thin lines at evenly spaced colours, or lines at given values, which are written on them."""
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
    """Hatch whole cells: the values at both edges of a cell are equal, so that contours follow the edges."""
    from matplotlib.patches import Patch

    if not cells.any():
        return {}
    x, y = (np.repeat(axis.edges, 2)[1:-1] for axis in places)
    shown = np.repeat(np.repeat(cells.astype(float), 2, axis=0), 2, axis=1)
    ax.contourf(x, y, shown, levels=[0.5, 1.5], colors=[colour], hatches=[pattern])
    return {label: Patch(facecolor=colour, edgecolor="black", hatch=pattern, linewidth=0.5)}


def is_numeric(values: xr.DataArray) -> bool:
    return values.dtype.kind in "fiu"
