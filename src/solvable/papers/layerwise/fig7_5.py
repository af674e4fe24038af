"""Fig. 7.5: the first 20 features along training: ten of them separate from the rest, or others come into use.

Quality, utilisation and intensity of each of the first 20 features, and the accuracies, over epochs, from the trainings
of Fig. 7.4, whose file says how they differ from the thesis. Of its two fully connected networks this is the one
without weight decay, chosen after both were trained: with decay, features beyond the classes fade from epoch 40 on. The
thesis smooths its curves with a Gaussian filter; these are means over seeds at the measured epochs, without smoothing.
At each epoch features are numbered by their intensity at that epoch.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise import _epoch_experiments as experiments
from solvable.papers.layerwise._along_training import beyond, draw_epochs, epoch_axis, listed, log_epochs, seeds_claim
from solvable.papers.layerwise._image_pictures import at_end
from solvable.papers.layerwise._image_training import Experiment, trained
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES, SHOWN = 10, 20
PANELS = {"quality": "quality, Q*_k", "utilisation": "utilisation, Q̂_k", "intensity": "intensity, ρ_k / ρ_1"}


def _experiments(scale: Scale) -> dict[str, Experiment]:
    return {"few-features": experiments.FEW_FEATURES[scale], "many-features": experiments.LEAVING[scale]}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The two trainings."""
    return {name: trained(experiment) for name, experiment in _experiments(scale).items()}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """(a): ten features separate from the rest. (b): others come into use."""
    few, many = (experiments.title(experiment) for experiment in _experiments(scale_of(data)).values())
    return parted_claims(data["few-features"], few) + later_claims(data["many-features"], many)


def parted_claims(data: xr.Dataset, name: str) -> list[Claim]:
    """(a): at the end the first ten features are separated from the next ten by a gap."""
    use = at_end(data).utilisation.sel(mode=slice(1, SHOWN))
    first, rest = use.sel(mode=slice(1, CLASSES)), use.sel(mode=slice(CLASSES + 1, SHOWN))
    ratio = rest.max("mode") / first.min("mode")
    return [
        Claim(
            f"utilisation of {name} at the end: largest of features {CLASSES + 1} to {SHOWN} over smallest of the "
            f"first {CLASSES} (largest of {ratio.size} seeds)",
            ratio.max(skipna=False),
            0.0,
            0.5,
            "the thesis sees two groups with a gap between them; a half leaves one",
        )
    ]


def fewest(data: xr.Dataset) -> xr.DataArray:
    """The index of the measured step, for each seed, at which features beyond the classes are used least."""
    return beyond(data, CLASSES).transpose("seed", "step").argmin("step")


def others_claim(data: xr.Dataset, name: str) -> Claim:
    """(b): after a while other features than those of the classes come into use."""
    outside, least = beyond(data, CLASSES), fewest(data)
    first, last = outside.isel(step=least), outside.isel(step=-1)
    when, least_share, end_share = map(listed, (data.epoch.isel(step=least), first, last))
    return seeds_claim(
        f"features beyond the first {CLASSES} of {name} come into use: 1 - Π̂({CLASSES}) rises by a tenth or more "
        "from its least",
        last >= 1.1 * first,
        f"the other features gain utilisation; from {least_share} at epochs {when} to {end_share} at the end",
    )


def later_claims(data: xr.Dataset, name: str) -> list[Claim]:
    """(b): after a while other features come into use, and training and test accuracy diverge."""
    gap = data.train_accuracy - data.test_accuracy
    opened, wide = gap.isel(step=fewest(data)), gap.isel(step=-1)
    return [
        others_claim(data, name),
        seeds_claim(
            f"training and test accuracy of {name} part after that: their difference grows",
            wide > opened,
            f"the thesis sees both at the same time; from {listed(opened)} to {listed(wide)}",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The first features, and the accuracies, over epochs."""
    return first_features_figure(data, _experiments(scale_of(data)))


def first_features_figure(data: Mapping[str, xr.Dataset], rows: Mapping[str, Experiment]) -> "Figure":
    """One row of panels for each of two trainings, by the names of their datasets."""
    figure, panels = new_figure(4, rows=2, width=4.2, height=3.4)
    for row, letter, (name, experiment) in zip(panels, "ab", rows.items(), strict=True):
        for panel, variable in zip(row, PANELS, strict=False):
            _draw_features(panel, data[name], variable)
        _draw_accuracies(row[3], data[name])
        row[0].set_title(f"({letter}) {experiments.title(experiment)}", fontsize="medium", loc="left")
    return figure


def _draw_features(panel: "Axes", data: xr.Dataset, variable: str) -> None:
    """One line per feature: the first ten in colours from dark to light, the next ten in grey, the first one dashed."""
    from matplotlib import colormaps

    values = data[variable]
    if variable == "intensity":
        values = values / values.isel(mode=0)
    values = values.sel(mode=slice(1, SHOWN)).mean("seed")
    for mode in reversed(range(values.sizes["mode"])):
        inside = mode < CLASSES
        colour: Any = colormaps["viridis"](mode / CLASSES) if inside else "0.65"
        label = {0: "k = 1", CLASSES - 1: f"k = {CLASSES}", CLASSES: f"k = {CLASSES + 1} … {SHOWN}"}.get(mode)
        panel.plot(
            log_epochs(data), values.isel(mode=mode), "--" if mode == 0 else "-", color=colour, label=label, lw=1.2
        )
    panel.set_ylabel(PANELS[variable])
    if variable == "intensity":
        panel.set_yscale("log")
        panel.set_ylim(bottom=max(1e-6, panel.get_ylim()[0]))
        panel.legend(fontsize="small")
    else:
        panel.set_ylim(bottom=0)
    epoch_axis(panel, data)


def _draw_accuracies(panel: "Axes", data: xr.Dataset) -> None:
    draw_epochs(panel, data.train_accuracy, COLOURS[0], "training set")
    draw_epochs(panel, data.test_accuracy, COLOURS[1], "test set")
    panel.set_ylabel("accuracy")
    panel.set_ylim(0, 1.03)
    epoch_axis(panel, data)
    panel.legend(fontsize="small", loc="lower right")
