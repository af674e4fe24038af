"""One visual language: theory as lines, simulation as points with error bars, axes with names and units."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe-Ito: told apart by readers with any colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_FAMILIES = (
    ("loss", ("train_loss", "test_loss")),
    ("accuracy", ("train_accuracy", "test_accuracy")),
)
_DASHED = ("train_loss", "train_accuracy")


def plot(
    *datasets: xr.Dataset,
    variables: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    log_time: bool = True,
) -> "Figure":
    """Draw curves over time: datasets of theory as lines, of simulation (dimension ``seed``) as points with error bars.

    Datasets of one model with the same parameters share a colour, so that theory and its simulation belong together
    at sight; training curves are dashed and hollow. Losses share a panel with a log axis, accuracies another.
    ``variables`` chooses what is drawn; ``labels`` name the datasets in the legend. Returns the matplotlib figure.
    """
    if not datasets:
        raise ValueError("nothing to plot: pass at least one dataset")
    for dataset in datasets:
        if "time" not in dataset.dims:
            raise ValueError(f"only curves over 'time' are drawn, not a dataset over {list(dataset.dims)}")
    if labels is not None and len(labels) != len(datasets):
        raise ValueError(f"{len(datasets)} datasets need {len(datasets)} labels, not {len(labels)}")
    families = _families(datasets, variables)
    figure, axes = new_figure(len(families))
    colours = _colours(datasets)
    for (family, names), ax in zip(families, axes, strict=True):
        for index, dataset in enumerate(datasets):
            for name in names:
                if name in dataset:
                    label = _label(dataset, name, None if labels is None else labels[index])
                    draw_curve(ax, dataset[name], colours[index], label=label, dashed=name in _DASHED)
        first = next(dataset[names[0]] for dataset in datasets if names[0] in dataset)
        set_axis(ax, "x", datasets[0]["time"], log=log_time)
        ax.set_ylabel(f"{family} {_unit(first)}".strip())
        if family == "loss":
            log_losses(ax)
        ax.legend(fontsize="small")
    if title:
        figure.suptitle(title)
    return figure


def new_figure(columns: int = 1, rows: int = 1, width: float = 5.2, height: float = 3.9) -> "tuple[Figure, Any]":
    """A figure and its panels, flat if there is one row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes[0] if rows == 1 else axes


def draw_curve(
    ax: "Axes", values: xr.DataArray, colour: str, label: str | None = None, dashed: bool = False, dim: str = "time"
) -> None:
    """A line without seeds; with seeds, their mean with the standard error of the mean."""
    style: dict[str, Any] = {"color": colour, "label": label}
    if "seed" not in values.dims:
        ax.plot(values[dim].values, values.values, linestyle="--" if dashed else "-", linewidth=1.6, **style)
        return
    mean = values.mean("seed")
    error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"]) if values.sizes["seed"] > 1 else None
    face = "white" if dashed else colour
    ax.errorbar(
        values[dim].values,
        mean.values,
        yerr=error,
        linestyle="none",
        marker="s" if dashed else "o",
        markersize=3.8,
        markerfacecolor=face,
        capsize=2,
        elinewidth=0.9,
        zorder=3,
        **style,
    )


def set_axis(ax: "Axes", which: str, values: xr.DataArray, log: bool = False) -> None:
    """Name an axis after what it shows, with its unit; log where asked and possible."""
    getattr(ax, f"set_{which}label")(fill(f"{describe(values)} {_unit(values)}".strip(), 40))
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


def draw_plane(
    figure: "Figure", ax: "Axes", values: xr.DataArray, x: str, y: str, log: Iterable[str] = (), levels: int = 8
) -> None:
    """A map of a quantity over two parameters on a log colour scale; cells that are never reached are hatched."""
    from matplotlib.colors import LogNorm

    log = set(log)
    grid = values.transpose(y, x)
    shown = np.where(grid.values > 0, grid.values, np.nan)
    if np.isfinite(shown).any():
        norm = LogNorm(np.nanmin(shown), np.nanmax(shown))
        edges_x, edges_y = (_cell_edges(grid[name].values, name in log) for name in (x, y))
        mesh = ax.pcolormesh(edges_x, edges_y, shown, norm=norm, cmap="viridis", rasterized=True)
        bar = figure.colorbar(mesh, ax=ax)
        bar.set_label(f"{describe(values)} {_unit(values)}".strip())
        edges = np.geomspace(np.nanmin(shown), np.nanmax(shown), levels + 2)[1:-1]
        ax.contour(grid[x], grid[y], shown, levels=edges, colors="white", linewidths=0.5)
    never = ~np.isfinite(grid.values)
    if never.any():
        ax.contourf(grid[x], grid[y], never.astype(float), levels=[0.5, 1.5], colors="none", hatches=["////"])
    for name, which in ((x, "x"), (y, "y")):
        set_axis(ax, which, grid[name], log=name in log)


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


def save_figure(figure: "Figure", path: str | os.PathLike[str]) -> Path:
    """Write a figure whole or not at all; the ending chooses the format."""
    import io

    path = Path(path)
    endings = (".png", ".svg", ".pdf")
    if path.suffix not in endings:
        raise ValueError(f"{path.name!r} must end in one of {', '.join(endings)}")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:], dpi=150)
    return write_atomically(path, buffer.getvalue())


def describe(values: xr.DataArray) -> str:
    """The name of a variable for people, with its symbol where it has one."""
    name = values.attrs.get("long_name", str(values.name))
    symbol = values.attrs.get("symbol")
    return f"{name}, {symbol}" if symbol and len(name) < 60 else name


def _unit(values: xr.DataArray) -> str:
    unit = values.attrs.get("units", "1")
    return "" if unit == "1" else f"({unit})"


def _threshold(values: xr.DataArray) -> Mapping[str, float]:
    """Where the linear part of a symlog axis ends, for axes that include zero."""
    if float(values.min()) > 0:
        return {}
    positive = values.values[values.values > 0]
    return {"linthresh": float(positive.min())}


def _families(datasets: Sequence[xr.Dataset], variables: Sequence[str] | None) -> list[tuple[str, tuple[str, ...]]]:
    present = {str(name) for dataset in datasets for name in dataset.data_vars}
    if variables is None:
        found = [(family, tuple(name for name in names if name in present)) for family, names in _FAMILIES]
        found = [(family, names) for family, names in found if names]
        return found or [(name, (name,)) for name in sorted(present)]
    for name in variables:
        if name not in present:
            raise ValueError(f"no dataset has a variable {name!r}; there are {', '.join(sorted(present))}")
    return [
        (family, chosen)
        for family, names in (*_FAMILIES, *((name, (name,)) for name in variables if not _in_family(name)))
        if (chosen := tuple(name for name in names if name in variables))
    ]


def _in_family(name: str) -> bool:
    return any(name in names for _, names in _FAMILIES)


def _colours(datasets: Sequence[xr.Dataset]) -> list[str]:
    """One colour for each set of parameters."""
    seen: dict[str, int] = {}
    for index, dataset in enumerate(datasets):
        seen.setdefault(dataset.attrs.get("parameters", str(index)), len(seen))
    return [
        COLOURS[seen[dataset.attrs.get("parameters", str(index))] % len(COLOURS)]
        for index, dataset in enumerate(datasets)
    ]


def _label(dataset: xr.Dataset, name: str, label: str | None) -> str:
    kind = name.split("_")[0]
    source = "simulation" if "seed" in dataset[name].dims else "theory"
    return f"{label}, {kind}" if label else f"{kind}, {source}"
