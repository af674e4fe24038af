"""Curves over time: theory as lines, simulation as points with error bars."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.plotting.style import COLOURS, log_losses, new_figure, set_axis, unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    log_time: bool | None = None,
) -> "Figure":
    """Draw curves over time: datasets of theory as lines, of simulation (dimension ``seed``) as points with error bars.

    Datasets of one model with the same parameters share a colour, so that theory and its simulation belong together
    at sight; training curves are dashed and hollow. Losses share a panel with a log axis, accuracies another.
    ``variables`` chooses what is drawn; ``labels`` name the datasets in the legend. The time axis is logarithmic unless
    the times are evenly spaced, or as ``log_time`` says. Returns the matplotlib figure.

    >>> import solvable
    >>> figure = solvable.plot(solvable.ScalarNetwork.small(10).predict([1, 2, 5]), title="a small start")
    >>> len(figure.axes)
    1
    """
    if not datasets:
        raise ValueError("nothing to plot: pass at least one dataset")
    for dataset in datasets:
        if "time" not in dataset.dims:
            raise ValueError(f"only curves over 'time' are drawn, not a dataset over {list(dataset.dims)}")
    if labels is not None and len(labels) != len(datasets):
        raise ValueError(f"{len(datasets)} datasets need {len(datasets)} labels, not {len(labels)}")
    families = _families(datasets, variables)
    log_time = not _is_even(datasets[0]["time"].values) if log_time is None else log_time
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
        ax.set_ylabel(f"{family} {unit(first)}".strip())
        if family == "loss":
            log_losses(ax)
        ax.legend(fontsize="small")
    if title:
        figure.suptitle(title)
    return figure


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


def _is_even(times: np.ndarray) -> bool:
    """Whether there are several times, one as far from the next as another: a linear axis shows what they resolve."""
    steps = np.diff(times)
    return steps.size > 1 and bool(np.allclose(steps, steps[0], rtol=1e-6, atol=0))


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
