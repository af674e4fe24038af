"""Curves over time: theory as lines, simulation as points with error bars."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.plotting.style import COLOURS, log_losses, new_figure, set_axis, unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FAMILIES = (("loss", ("train_loss", "test_loss")), ("accuracy", ("train_accuracy", "test_accuracy")))
_DASHED = ("train_loss", "train_accuracy")


def plot(
    *datasets: xr.Dataset,
    variables: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    log_time: bool | None = None,
) -> "Figure":
    """Plot curves over time: datasets of theory as lines, of simulation (dimension ``seed``) as points with error bars.

    Datasets of the same model and parameters, such as theory and its simulation, have the same colour. Training curves
    are dashed, or have hollow points. Losses share a panel with a logarithmic axis, and accuracies another one.

    Parameters
    ----------
    datasets
        The datasets, over time.
    variables
        Names of the variables to plot; by default losses and accuracies.
    labels
        Names of the datasets in the legend.
    title
        Title of the figure.
    log_time
        Whether the time axis is logarithmic; by default it is, unless times are evenly spaced.

    >>> import solvable
    >>> figure = solvable.plot(solvable.ScalarNetwork.small(10).predict([1, 2, 5]), title="a small start")
    >>> len(figure.axes)
    1
    """
    if not datasets:
        raise ValueError("nothing to plot: pass at least one dataset")
    for dataset in datasets:
        if not isinstance(dataset, xr.Dataset):
            raise ValueError(
                f"only datasets can be plotted, not {type(dataset).__name__}: pass them one after the other, "
                "plot(theory, runs), and choose curves by variables=[...]"
            )
        if "statistic" in dataset.dims:
            raise ValueError(
                "a comparison has no curves of its own to plot: pass what was compared, plot(theory, runs)"
            )
        if "time" not in dataset.dims:
            raise ValueError(f"only curves over 'time' can be plotted, not a dataset over {list(dataset.dims)}")
    if labels is not None and len(labels) != len(datasets):
        raise ValueError(f"{len(datasets)} datasets need {len(datasets)} labels, not {len(labels)}")
    families = _families(datasets, variables)
    if log_time is None:
        steps = np.diff(datasets[0]["time"].values)
        log_time = not (steps.size > 1 and np.allclose(steps, steps[0], rtol=1e-6, atol=0))
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
    """Draw a curve: a line or, for several seeds, points at the mean with its standard error.

    Parameters
    ----------
    ax
        The panel.
    values
        The curve.
    colour
        Its colour.
    label
        Its name in the legend.
    dashed
        Whether the line is dashed and points are hollow.
    dim
        The horizontal dimension.
    """
    style: dict[str, Any] = {"color": colour, "label": label}
    if "seed" not in values.dims:
        ax.plot(values[dim].values, values.values, linestyle="--" if dashed else "-", linewidth=1.6, **style)
        return
    mean = values.mean("seed")
    error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"]) if values.sizes["seed"] > 1 else None
    style |= {"marker": "s" if dashed else "o", "markersize": 3.8, "markerfacecolor": "white" if dashed else colour}
    style |= {"linestyle": "none", "capsize": 2, "elinewidth": 0.9, "zorder": 3}
    ax.errorbar(values[dim].values, mean.values, yerr=error, **style)


def _families(datasets: Sequence[xr.Dataset], variables: Sequence[str] | None) -> list[tuple[str, tuple[str, ...]]]:
    present = {str(name) for dataset in datasets for name in dataset.data_vars}
    if variables is None:
        found = [(family, tuple(name for name in names if name in present)) for family, names in _FAMILIES]
        found = [(family, names) for family, names in found if names]
        return found or [(name, (name,)) for name in sorted(present)]
    for name in variables:
        if name not in present:
            raise ValueError(f"no dataset has a variable {name!r}; there are {', '.join(sorted(present))}")
    grouped = {name for _, names in _FAMILIES for name in names}
    families = (*_FAMILIES, *((name, (name,)) for name in variables if name not in grouped))
    chosen = [(family, tuple(name for name in names if name in variables)) for family, names in families]
    return [(family, names) for family, names in chosen if names]


def _colours(datasets: Sequence[xr.Dataset]) -> list[str]:
    """One colour for each set of parameters."""
    parameters = [dataset.attrs.get("parameters", str(index)) for index, dataset in enumerate(datasets)]
    distinct = list(dict.fromkeys(parameters))
    return [COLOURS[distinct.index(text) % len(COLOURS)] for text in parameters]


def _label(dataset: xr.Dataset, name: str, label: str | None) -> str:
    kind = name.split("_")[0]
    source = "simulation" if "seed" in dataset[name].dims else "theory"
    return f"{label}, {kind}" if label else f"{kind}, {source}"
