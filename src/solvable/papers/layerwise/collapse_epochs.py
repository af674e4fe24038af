"""Neural collapse through the terminal phase: NC1 to NC4 keep falling after the training set is known.

Section 2.5 and Appendix D: the four measures of neural collapse on the training set, with κ_CKA beside them, along the
trainings of ResNet18 on CIFAR-10 and MNIST of Table 2.2. The thesis prints no curves of them. The claims test what it
takes from Papyan, Han and Donoho: in the terminal phase of training, when almost every training image is classified
correctly, all four fall. Accuracy and collapse are measured on clean training images, although CIFAR-10 is trained with
augmentation; before the end, on some thousands of them.

At quick scale, two small networks on 8 x 8 digits. They are too few to decide whether every measure falls: of 20 seeds
on a CPU, NC1 and NC4 fell in all, the three measures of NC2 in 16 to 18, and NC3 in 15.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise import _epoch_experiments as experiments
from solvable.papers.layerwise._along_training import draw_epochs, epoch_axis, first_step, listed, seeds_claim
from solvable.papers.layerwise._image_pictures import THRESHOLD
from solvable.papers.layerwise._image_training import trained
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = {
    "within_class": "NC1, variance within over between classes",
    "mean_norms": "NC2, spread of norms of class means",
    "mean_angles": "NC2, class means from equal angles",
    "weight_angles": "NC2, weights from equal angles",
    "self_duality": "NC3, weights from class means",
    "nearest_class": "NC4, disagreement with nearest class mean",
    "mp_distance": "κ_CKA, on the test set",
}
# Training accuracy at which the terminal phase begins.
KNOWN: dict[Scale, float] = {"quick": 0.99, "full": 0.995}
# NC4 need not fall any further if it is this fraction of the training set or less.
A_FEW = 5e-4


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The trainings, measured along the way."""
    return {f"network-{i}": trained(experiment) for i, experiment in enumerate(experiments.COLLAPSING[scale])}


def _titled(data: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """The trainings by the title of their experiment."""
    pairs = enumerate(experiments.COLLAPSING[scale_of(data)])
    return {experiments.title(experiment): data[f"network-{i}"] for i, experiment in pairs}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Every network has a terminal phase, in which all measures fall."""
    known = KNOWN[scale_of(data)]
    return [claim for name, run in _titled(data).items() for claim in terminal_claims(run, name, known)]


def terminal_claims(data: xr.Dataset, name: str, known: float) -> list[Claim]:
    """Each measure at the end against its value at the beginning of the terminal phase, seed by seed."""
    begins = first_step(data.train_accuracy, known)
    last = float(data.step[-1])
    reached = begins < last
    epochs = data.epoch.sel(step=begins.where(reached, last))
    found = [
        seeds_claim(
            f"{name} has a terminal phase: training accuracy {known:.1%} before the end",
            reached,
            f"it begins at epochs {listed(epochs)}; the last is {float(data.epoch[-1]):.3g}",
        )
    ]
    for measure, text in MEASURES.items():
        if measure == "mp_distance":
            continue
        begin, end = data[measure].sel(step=begins.where(reached, last)), data[measure].isel(step=-1)
        falls, because = end < begin, "all four fall, section 2.5"
        if measure == "nearest_class":
            falls, because = falls | (end <= A_FEW), f"{because}, or no more than {A_FEW:.2%} of images are left"
        found.append(
            seeds_claim(
                f"{text.split(',')[0]} of {name} ({measure}) falls in the terminal phase",
                falls & reached,
                f"{because}; from {listed(begin)} to {listed(end)}",
            )
        )
    return found


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The measures over epochs, with the terminal phase shaded."""
    runs = _titled(data)
    figure, panels = new_figure(len(runs), width=6.2, height=5.4)
    for panel, (name, run) in zip(panels, runs.items(), strict=True):
        _draw_measures(panel, run, KNOWN[scale_of(data)])
        panel.set_title(name, fontsize="medium")
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize="small", loc="outside lower center", ncols=2)
    return figure


def _draw_measures(panel: "Axes", data: xr.Dataset, known: float) -> None:
    for colour, (measure, text) in zip(COLOURS, MEASURES.items(), strict=True):
        values = data[measure].isel(step=slice(1, None))
        style = "--" if measure == "mp_distance" else "-"
        # NC4 reaches zero, which a logarithmic axis cannot show.
        draw_epochs(panel, values.where(values > 0), colour, text, style)
    begins = first_step(data.train_accuracy, known)
    begins = begins.where(np.isfinite(begins), drop=True)
    if begins.size:
        panel.axvspan(
            float(data.epoch.sel(step=begins).mean()), float(data.epoch[-1]), color="0.93", zorder=0,
            label=f"training accuracy ≥ {known:.1%}",
        )  # fmt: skip
    panel.axhline(THRESHOLD, color="grey", linestyle=":", linewidth=1)
    panel.set_yscale("log")
    panel.set_ylabel("distance from collapse")
    epoch_axis(panel, data, start=False)
