"""Fig. 7.6: a fully connected network reaches the minimum-feature regime where features are easy to learn: on MNIST.

The network of Fig. 7.4(b), 4 layers of width 512, on MNIST in place of CIFAR-10, with the same hyperparameters and 40
epochs. The thesis only says that the network is similar and reaches the regime. The result depends on the loss: with
cross-entropy the same network has as few features, but of unequal strength, and ended at κ_CKA = 0.18 to 0.21 in three
seeds. We ran that first, having overlooked that the thesis takes the squared error where it names no other loss. At
quick scale, a small network on 8 x 8 digits with squared error, which ends near the threshold: of 20 seeds on a CPU, 11
ended below κ_CKA = 0.1, and the largest was 0.109.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise import _epoch_experiments as experiments
from solvable.papers.layerwise._along_training import change_claim, moments
from solvable.papers.layerwise._image_pictures import (
    accuracy_claim,
    at_end,
    extended_feature_claim,
    feature_figure,
    minimum_feature_claim,
)
from solvable.papers.layerwise._image_training import trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASSES = 10
# A fully connected network easily reaches 98% on MNIST, and nine of ten on digits, with a few hundred images.
LEAST = {"quick": 0.9, "full": 0.98}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The training, measured along the way."""
    return {"features": trained(experiments.EASY[scale])}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """From the extended-feature to the minimum-feature regime."""
    scale, run = scale_of(data), data["features"]
    name, end = experiments.title(experiments.EASY[scale]), at_end(run)
    return [
        extended_feature_claim(f"{name} at the start", run.isel(step=0)),
        minimum_feature_claim(f"{name} at the end", end),
        change_claim(
            f"Π*({CLASSES}) of {name}",
            run,
            lambda moment: moment.cumulative_quality.sel(mode=CLASSES, drop=True),
            0,
            float("inf"),
            True,
            "features are learned: as many of them as classes hold more of the target than at first",
        ),
        accuracy_claim(name, end, LEAST[scale], "what such networks are known to reach; the thesis gives no number"),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The feature metrics at some epochs."""
    figure = feature_figure(moments(data["features"]), CLASSES)
    figure.suptitle(experiments.title(experiments.EASY[scale_of(data)]), fontsize="medium")
    return figure
