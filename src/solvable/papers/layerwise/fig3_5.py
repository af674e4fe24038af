"""Fig. 3.5: a network that fits random labels uses as few features as one that fits true ones.

ResNet18 learns 10,000 images of CIFAR-10, of which no label, one in ten, or every one was replaced by a class drawn at
random (possibly the true one). If the structure of the images made features few, random labels would destroy this; in
the theory of linear networks only the rank of the targets matters. The three networks fit their labels and all end in
the minimum-feature regime; their test accuracies are high, lower, and that of chance.

The thesis gives the network, the set, the number of images and the noise. Loss, momentum and learning rate are those of
our Table 2.2; 60 epochs in batches of 128, steps in bfloat16, four times the weight decay (for a fourth of the steps),
and no augmentation (each crop and mirror image would have to be memorised too) are our choices. The decay was chosen
after single trainings with all labels random: with 0.001, that of Table 2.2, κ_CKA was 0.22, with 0.004 it was 0.004.
Labels and images are drawn once; seeds differ in initial weights and in the order of batches.

The feature basis is that of the training set. κ_CKA and overlaps are measured on the test set and depend on the learned
function alone, not on the labels: for random labels they say whether a function that is right nowhere still consists of
C features. The claims are on D_eff(Q̂) counted once. The plain number is useless here: these networks have memorised
their training set, on which weak features are orthogonal to strong ones, while on other images they are not, so that
utilisations add up to 8 and more (see :class:`~solvable.diagnostics.FeatureReport`). That measure was added after the
run at full scale, whose ledger has no value of it.

Quick scale: a small network on 200 of scikit-learn's 8 x 8 digits, for 75 epochs.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise._image_comparisons import better_claim
from solvable.papers.layerwise._image_pictures import (
    ONCE,
    at_end,
    dimension_claim,
    feature_figure,
    minimum_feature_claim,
)
from solvable.papers.layerwise._image_training import trained
from solvable.papers.layerwise.table2_2 import CIFAR, DIGITS, SHORT_DECAY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASSES = 10
NAMES = {0.0: "true labels", 0.1: "10 % random", 1.0: "all random"}
SETTINGS = {
    "quick": DIGITS._replace(train=200, batch=50, steps=300),
    "full": CIFAR._replace(train=10_000, augmented=False, steps=60 * 10_000 // 128, decay=SHORT_DECAY, measured=()),
}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The trained networks, one dataset per label noise."""
    return {f"noise_{noise:g}": trained(SETTINGS[scale]._replace(label_noise=noise)) for noise in NAMES}


def _ends(data: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """The networks at the end of training, by the name of their labels."""
    return {name: at_end(data[f"noise_{noise:g}"]) for noise, name in NAMES.items()}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """All networks fit their labels with few features, and their test accuracies differ."""
    ends = _ends(data)
    made = [_fitted(name, end) for name, end in ends.items()]
    made += [minimum_feature_claim(name, end) for name, end in ends.items()]
    made += [
        dimension_claim(name, end, CLASSES, 0.1, "as many as classes: one feature", ONCE) for name, end in ends.items()
    ]
    return made + _accuracies(ends, scale_of(data))


def _fitted(name: str, end: xr.Dataset) -> Claim:
    return Claim(
        f"training accuracy, {name} (lowest of {end.sizes['seed']} seeds)",
        end.train_accuracy.min(skipna=False),
        1.0,
        0.01,
        "nearly every label is fitted: all but one in a hundred",
    )


def _accuracies(ends: dict[str, xr.Dataset], scale: Scale) -> list[Claim]:
    """The differences are large; the margins are a fraction of what fitting wrong labels can cost."""
    true, some, random = NAMES.values()
    full = scale == "full"
    wrong = "nine labels in a hundred are wrong and fitted: if each spoils as much of the test set, 0.09 is lost"
    return [
        better_claim(true, ends[true], some, ends[some], wrong, least=0.02, of="every seed" if full else "means"),
        better_claim(
            true, ends[true], random, ends[random], "labels that are right, against one in ten by chance", least=0.4
        ),
        Claim(
            f"test accuracy, {random} (mean of {ends[random].sizes['seed']} seeds)",
            ends[random].test_accuracy.mean(skipna=False),
            1 / CLASSES,
            0.03 if full else 0.08,
            "chance; images that look alike are guessed alike, so it varies more than independent guesses would",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The feature metrics."""
    return feature_figure(_ends(data), CLASSES)
