"""Fig. 7.6: a fully connected network reaches the minimum-feature regime where features are easy to learn: on MNIST.

The network of Fig. 7.4(b), 4 layers of width 512, on MNIST in place of CIFAR-10, with the same recipe and 40 epochs.
The thesis gives no more than that it is similar, and reaches the regime. The loss decides it: with cross entropy the
same network has as few features, but of unequal strength, and ended at κ_CKA = 0.18 to 0.21 in three seeds. We ran that
first, having overlooked that the thesis takes the squared error where it names no other. At quick scale a small one on
8 x 8 digits, with squared error.
"""

from solvable.papers.claims import Reproduction, Scale
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

CLASSES = 10
# A fully connected network on MNIST has 98% without effort; on digits, with a few hundred images, nine of ten.
LEAST = {"quick": 0.9, "full": 0.98}


def reproduce(scale: Scale) -> Reproduction:
    experiment = experiments.EASY[scale]
    data = trained(experiment)
    name = experiments.title(experiment)
    end = at_end(data)
    claims = [
        extended_feature_claim(f"{name} at the start", data.isel(step=0)),
        minimum_feature_claim(f"{name} at the end", end),
        change_claim(
            f"Π*({CLASSES}) of {name}",
            data,
            lambda run: run.cumulative_quality.sel(mode=CLASSES, drop=True),
            0,
            float("inf"),
            True,
            "features are learned: as many of them as classes hold more of the target than at first",
        ),
        accuracy_claim(name, end, LEAST[scale], "what such networks are known to reach; the thesis gives no number"),
    ]
    figure = feature_figure(moments(data), CLASSES)
    figure.suptitle(name, fontsize="medium")
    return Reproduction({"features": data}, figure, claims)
