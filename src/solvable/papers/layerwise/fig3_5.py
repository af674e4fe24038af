"""Fig. 3.5: a network that fits random labels uses as few features as one that fits true ones.

ResNet18 learns 10,000 images of CIFAR-10 of which no label, one in ten, or every one was replaced by a class drawn at
random (the true one among them). If structure of the images made features few, random labels would spoil it; in the
theory of linear networks only the rank of the targets counts. The three networks fit their labels, all end in the
minimum-feature regime, and what they have learned is worth much, less, and nothing.

The thesis gives the network, the set, the number of images and the noise. Our choices: no augmentation (each crop or
mirror image of a picture would have to be learned by heart too); 60 epochs in batches of 100, SGD with momentum 0.9, a
rate that falls from 0.02 to zero as a cosine and a weight decay of 5e-4. Learning by heart takes a lower rate and a
weaker decay than those of the thesis' other networks (0.05 and 1e-3); all three are trained alike. bfloat16 for the
steps. Labels and images are drawn once; seeds differ in initial weights and in the order of batches.

The feature basis is that of the training set. κ_CKA and overlaps are taken on the test set and know the learned function
alone, not the labels: for random ones they say whether a function that is right nowhere is still made of C features.

Quick scale: a small network and 400 of scikit-learn's 8 x 8 digits. It is too small for κ_CKA < 0.1, and claims that
fitting moves the features towards the minimum-feature regime, whatever the labels.
"""

from typing import TYPE_CHECKING

import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._image_comparisons import better_claim
from solvable.papers.layerwise._image_pictures import (
    at_end,
    dimension_claim,
    feature_figure,
    minimum_feature_claim,
)
from solvable.papers.layerwise._image_training import Experiment, trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASSES = 10
NAMES = {0.0: "true labels", 0.1: "10 % random", 1.0: "all random"}
SETTINGS = {
    "quick": Experiment("cnn-small", "digits", train=400, steps=1200, batch=50, seeds=3),
    "full": Experiment(
        train=10_000, steps=60 * 100, batch=100, rate=0.02, decay=5e-4, schedule="cosine", precision="bfloat16", seeds=3
    ),
}


def reproduce(scale: Scale) -> Reproduction:
    runs = {noise: trained(SETTINGS[scale]._replace(label_noise=noise)) for noise in NAMES}
    return Reproduction({f"noise_{noise:g}": run for noise, run in runs.items()}, draw(runs), claims(runs, scale))


def draw(runs: dict[float, xr.Dataset]) -> "Figure":
    return feature_figure({NAMES[noise]: at_end(run) for noise, run in runs.items()}, CLASSES)


def claims(runs: dict[float, xr.Dataset], scale: Scale) -> list[Claim]:
    """``runs`` by label noise."""
    ends = {NAMES[noise]: at_end(run) for noise, run in runs.items()}
    made = [_fitted(name, end) for name, end in ends.items()]
    if scale == "full":
        made += [minimum_feature_claim(name, end) for name, end in ends.items()]
        because = "as many features as classes, within the 5 % asked of networks with true labels"
        made += [dimension_claim(name, end, CLASSES, 0.05, because) for name, end in ends.items()]
    else:
        made += [_nearer(NAMES[noise], run) for noise, run in runs.items()]
    return made + _accuracies(ends, scale)


def _fitted(name: str, end: xr.Dataset) -> Claim:
    return Claim(
        f"training accuracy, {name} (lowest of {end.sizes['seed']} seeds)",
        end.train_accuracy.min(),
        1.0,
        0.01,
        "nearly every label is fitted: all but one in a hundred",
    )


def _nearer(name: str, run: xr.Dataset) -> Claim:
    return Claim(
        f"κ_CKA when fitted over that at the start, {name} (largest of {run.sizes['seed']} seeds)",
        (run.mp_distance.isel(step=-1) / run.mp_distance.isel(step=0)).max(),
        0.0,
        0.8,
        "training makes the used features fewer, whatever the labels",
    )


def _accuracies(ends: dict[str, xr.Dataset], scale: Scale) -> list[Claim]:
    """They differ markedly; the margins are a fraction of what fitting wrong labels can cost at most."""
    none, some, everything = NAMES.values()
    chance = 1 / CLASSES
    return [
        better_claim(
            none,
            ends[none],
            some,
            ends[some],
            "nine labels in a hundred are wrong and fitted; if each spoils as much of the test set, 0.09 is lost",
            least=0.02,
        ),
        better_claim(
            some,
            ends[some],
            everything,
            ends[everything],
            "nine labels in ten are right, against one in ten",
            least=0.4,
        ),
        Claim(
            f"test accuracy, {everything} (mean of {ends[everything].sizes['seed']} seeds)",
            ends[everything].test_accuracy.mean(),
            chance,
            0.03 if scale == "full" else 0.08,
            "chance; images that look alike are guessed alike, so it varies more than independent guesses would",
        ),
    ]
