"""Shared by the figures of features along training: moments of a training, and claims on how measures change.

All functions take datasets of :func:`trained` (dims seed, step, mode; coordinate epoch over step).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The epochs that the thesis shows; infinity stands for the end.
EPOCHS = (0.0, 1.0, 5.0, 30.0, np.inf)


def step_near(data: xr.Dataset, epoch: float) -> int:
    """The measured step nearest to an epoch; the last step for infinity."""
    epochs = data.epoch.values
    return int(data.step.values[-1 if np.isinf(epoch) else np.argmin(np.abs(epochs - epoch))])


def at_epoch(data: xr.Dataset, epoch: float) -> xr.Dataset:
    """The networks at the measured step nearest to an epoch."""
    return data.sel(step=step_near(data, epoch))


def epoch_name(data: xr.Dataset, epoch: float) -> str:
    """The epoch of the nearest measurement, which need not be the requested one, as a label."""
    return f"epoch {float(at_epoch(data, epoch).epoch):.3g}"


def moments(data: xr.Dataset, epochs: Sequence[float] = EPOCHS) -> dict[str, xr.Dataset]:
    """The networks at some epochs, by label; epochs that share a measured step appear once."""
    steps = sorted({step_near(data, epoch) for epoch in epochs})
    return {epoch_name(data, float(data.epoch.sel(step=step))): data.sel(step=step) for step in steps}


def seeds_claim(text: str, holds: xr.DataArray | np.ndarray, because: str) -> Claim:
    """A statement about every seed; measured is the number of seeds for which it holds."""
    holds = np.asarray(holds, bool)
    counted = f"each of {holds.size} seeds" if holds.size > 1 else "one seed"
    return Claim(f"seeds in which {text}", int(holds.sum()), holds.size, 0, f"a count, {counted}; {because}")


def listed(values: xr.DataArray | np.ndarray) -> str:
    """The values of the seeds, for the reason of a claim."""
    return ", ".join(f"{value:.3g}" for value in np.atleast_1d(np.asarray(values, float)))


def change_claim(
    name: str,
    data: xr.Dataset,
    measure: Callable[[xr.Dataset], xr.DataArray],
    begin: float,
    end: float,
    rises: bool,
    because: str,
) -> Claim:
    """A measure rises (or falls) from one epoch to another, in every seed."""
    first, last = (measure(at_epoch(data, epoch)) for epoch in (begin, end))
    way = "rises" if rises else "falls"
    return seeds_claim(
        f"{name} {way} from {epoch_name(data, begin)} to {epoch_name(data, end)}",
        (last > first) if rises else (last < first),
        f"{because}; from {listed(first)} to {listed(last)}",
    )


def beyond(data: xr.Dataset, classes: int) -> xr.DataArray:
    """1 - Π̂(C): the fraction of the learned functions that features after the first C carry."""
    return 1 - data.cumulative_utilisation.sel(mode=classes, drop=True)


def first_step(values: xr.DataArray, level: float, dim: str = "step") -> xr.DataArray:
    """The first measured step at which a value is reached; infinity if it never is."""
    return values[dim].where(values >= level, np.inf).min(dim)


def log_epochs(data: xr.Dataset | xr.DataArray) -> np.ndarray:
    """Epochs for a logarithmic axis: the start is drawn at half of the first measured epoch."""
    epochs = np.array(data.epoch.values, float)
    return np.where(epochs > 0, epochs, epochs[epochs > 0].min() / 2)


def epoch_axis(panel: "Axes", data: xr.Dataset, start: bool = True) -> None:
    """A logarithmic axis of epochs, on which the start is labelled 0 if it is shown."""
    where = log_epochs(data)
    ticks = [tick for tick in (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000) if 1.3 * where[0] < tick <= where[-1]]
    begin = ([where[0]], ["0"]) if start else ([], [])
    panel.set_xscale("log")
    panel.set_xticks([*begin[0], *ticks], [*begin[1], *(f"{tick:g}" for tick in ticks)])
    panel.set_xticks([], minor=True)
    panel.set_xlabel("epoch")


def draw_epochs(panel: "Axes", values: xr.DataArray, colour: str, label: str, style: str = "-") -> None:
    """Thin lines for the seeds over epochs, and a thick line with markers for their mean."""
    x = log_epochs(values)
    for seed in range(values.sizes["seed"]) if values.sizes["seed"] > 1 else ():
        panel.plot(x, values.isel(seed=seed), style, color=colour, linewidth=0.6, alpha=0.5)
    panel.plot(x, values.mean("seed"), style, marker="o", markersize=3, color=colour, linewidth=1.6, label=label)
