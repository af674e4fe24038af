"""Fig. 3.5: a network that fits random labels uses as few features as one that fits true ones.

ResNet18 learns 10,000 images of CIFAR-10 of which no label, one in ten, or every one was replaced by a class drawn at
random (the true one among them). If structure of the images made features few, random labels would spoil it; in the
theory of linear networks only the rank of the targets counts. The three networks fit their labels, all end in the
minimum-feature regime, and what they have learned is worth much, less, and nothing.

The thesis gives the network, the set, the number of images and the noise. Momentum 0.9 and weight decay 1e-3 are those
of its other networks; the rate is that of our Table 2.2; 60 epochs in batches of 128, steps in bfloat16, and no
augmentation (each crop and mirror image of a picture would have to be learned by heart too) are ours. Labels and images
are drawn once; seeds differ in initial weights and in the order of batches.

The feature basis is that of the training set. κ_CKA and overlaps are taken on the test set and know the learned
function alone, not the labels: for random ones they say whether a function that is right nowhere is still made of C
features. D_eff(Q̂) is not claimed. It asks for more than κ_CKA: between its clusters a network that guesses has small
parts along many features, which an entropy counts and a kernel does not.

Quick scale: a small network with the squared error on 200 of scikit-learn's 8 x 8 digits, for 75 epochs.
"""

from typing import TYPE_CHECKING

import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._image_comparisons import better_claim
from solvable.papers.layerwise._image_pictures import at_end, feature_figure, minimum_feature_claim
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


def reproduce(scale: Scale) -> Reproduction:
    runs = {noise: trained(SETTINGS[scale]._replace(label_noise=noise)) for noise in NAMES}
    return Reproduction({f"noise_{noise:g}": run for noise, run in runs.items()}, draw(runs), claims(runs, scale))


def draw(runs: dict[float, xr.Dataset]) -> "Figure":
    return feature_figure({NAMES[noise]: at_end(run) for noise, run in runs.items()}, CLASSES)


def claims(runs: dict[float, xr.Dataset], scale: Scale) -> list[Claim]:
    """``runs`` by label noise."""
    ends = {NAMES[noise]: at_end(run) for noise, run in runs.items()}
    made = [_fitted(name, end) for name, end in ends.items()]
    made += [minimum_feature_claim(name, end) for name, end in ends.items()]
    return made + _accuracies(ends, scale)


def _fitted(name: str, end: xr.Dataset) -> Claim:
    return Claim(
        f"training accuracy, {name} (lowest of {end.sizes['seed']} seeds)",
        end.train_accuracy.min(skipna=False),
        1.0,
        0.01,
        "nearly every label is fitted: all but one in a hundred",
    )


def _accuracies(ends: dict[str, xr.Dataset], scale: Scale) -> list[Claim]:
    """They differ markedly; margins are a fraction of what fitting wrong labels can cost."""
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
