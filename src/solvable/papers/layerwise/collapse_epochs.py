"""Neural collapse through the terminal phase: NC1 to NC4 keep falling after the training set is known.

Section 2.5 and Appendix D: the four measures of neural collapse on the training set, with κ_CKA beside them, along the
trainings of ResNet18 on CIFAR-10 and MNIST of Table 2.2. The thesis prints no curves of them; what is tested is what it
takes from Papyan, Han and Donoho, that in the terminal phase of training, when next to no training image is mistaken,
all four fall. Accuracy and collapse are measured on clean training images, though CIFAR-10 is trained augmented; before
the end, on some thousands of them. At quick scale small networks on 8 x 8 digits.
"""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise import _epoch_experiments as experiments
from solvable.papers.layerwise._along_training import draw_epochs, epoch_axis, first_step, seeds_claim, told
from solvable.papers.layerwise._image_pictures import THRESHOLD
from solvable.papers.layerwise._image_training import trained
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
KNOWN = {"quick": 0.99, "full": 0.995}
# So few images of a whole training set that NC4 need not fall any more.
A_FEW = 5e-4


def reproduce(scale: Scale) -> Reproduction:
    datasets = {experiments.title(experiment): trained(experiment) for experiment in experiments.COLLAPSING[scale]}
    figure, panels = new_figure(len(datasets), width=6.2, height=5.4)
    claims: list[Claim] = []
    for panel, (name, data) in zip(panels, datasets.items(), strict=True):
        _draw(panel, data, KNOWN[scale])
        panel.set_title(name, fontsize="medium")
        claims += terminal_claims(data, name, KNOWN[scale])
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize="small", loc="outside lower center", ncols=2)
    return Reproduction({f"network-{i}": data for i, data in enumerate(datasets.values())}, figure, claims)


def terminal_claims(data: xr.Dataset, name: str, known: float) -> list[Claim]:
    """Each measure at the end against its value where the terminal phase begins, seed by seed."""
    begins = first_step(data.train_accuracy, known)
    last = float(data.step[-1])
    reached = begins < last
    epochs = data.epoch.sel(step=begins.where(reached, last))
    claims = [
        seeds_claim(
            f"{name} has a terminal phase: training accuracy {known:.1%} before the end",
            reached,
            f"it begins at epochs {told(epochs)}; the last is {float(data.epoch[-1]):.3g}",
        )
    ]
    for measure, text in MEASURES.items():
        if measure == "mp_distance":
            continue
        begin, end = data[measure].sel(step=begins.where(reached, last)), data[measure].isel(step=-1)
        falls, because = end < begin, "all four fall, section 2.5"
        if measure == "nearest_class":
            falls, because = falls | (end <= A_FEW), f"{because}, or no more than {A_FEW:.2%} of images are left"
        claims.append(
            seeds_claim(
                f"{text.split(',')[0]} of {name} ({measure}) falls in the terminal phase",
                falls & reached,
                f"{because}; from {told(begin)} to {told(end)}",
            )
        )
    return claims


def _draw(panel: "Axes", data: xr.Dataset, known: float) -> None:
    for colour, (measure, text) in zip(COLOURS, MEASURES.items(), strict=True):
        values = data[measure].isel(step=slice(1, None))
        style = "--" if measure == "mp_distance" else "-"
        # NC4 reaches zero, which a log axis has no place for.
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
