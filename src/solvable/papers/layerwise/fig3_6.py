"""Fig. 3.6: asked for the digit as a number, a network uses one feature; asked for its class, ten.

ResNet18 learns MNIST twice: with one output, the digit as a number, and with ten, its class. The images are the same,
so that features of their structure would be ten in both cases; features that follow from the rank of the target are one
and ten, possibly with a constant in addition. A number is right if it is nearer to its digit than to any other.

The measures treat the constant differently. κ_CKA is centred, so that exactly one non-constant feature, aligned with
the output, gives 0. Utilisation is not centred: digits are numbered from -1 to 1 here, with a mean near 0, so a
constant feature is hardly used and D_eff(Q̂) is near 1; with 0 to 9, as in the thesis, the same network would have 1.8.
The claims take both together, Π̂(2). D_eff(ρ) counts the first feature as one, whatever it is, so its least value is 2.

The thesis gives the network and the set. Our choices for the number: eight epochs in batches of 128, SGD with momentum
0.9, a learning rate that rises over 200 steps to 0.004 and falls to zero as a cosine, and weight decay 0.04. With the
squared error the last layer is stable up to a rate of 1.9/⟨|Φ|²⟩, which is 0.0053 for a new ResNet18: the thesis' 0.05
for classes diverges. What weight decay removes depends on rate times decay times steps, which is why the decay is
larger. The classes are those of Table 2.2. Images are padded to 32 x 32, and steps are in bfloat16.

Quick scale: a small network on scikit-learn's 8 x 8 digits.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise._image_pictures import (
    accuracy_claim,
    at_end,
    dimension_claim,
    feature_figure,
    furthest,
    minimum_feature_claim,
)
from solvable.papers.layerwise._image_training import Experiment, trained
from solvable.papers.layerwise.table2_2 import DIGITS, MNIST_ON_ITS_WAY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASSES = 10
NUMBER, CLASS = "regression", "classification"
# The number of features, with the constant, that a network needs for one output and for ten.
NEEDED = {NUMBER: 2, CLASS: CLASSES}
NUMBERS = Experiment(
    "resnet18", "mnist", targets="number", loss="mse", rate=0.004, decay=0.04, schedule="cosine", warmup=200
)
SETTINGS = {
    "quick": {
        NUMBER: NUMBERS._replace(
            network="resnet-small", images="digits", steps=300, batch=50, rate=0.02, decay=0.05, warmup=0, seeds=3
        ),
        CLASS: DIGITS,
    },
    "full": {NUMBER: NUMBERS._replace(steps=8 * 60_000 // 128, precision="bfloat16", seeds=3), CLASS: MNIST_ON_ITS_WAY},
}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The networks at the end of training, one dataset per task."""
    return {name: at_end(trained(experiment)) for name, experiment in SETTINGS[scale].items()}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """One non-constant feature for the number, ten features for the class."""
    number, classes = data[NUMBER], data[CLASS]
    made = [
        minimum_feature_claim(NUMBER, number),
        Claim(
            f"Π̂(2) of {NUMBER} (furthest of {number.sizes['seed']} seeds)",
            furthest(number.cumulative_utilisation.sel(mode=2), 1.0),
            1.0,
            0.05,
            "one non-constant feature and the constant make up the learned function; 5 % as for classes",
        ),
        Claim(
            f"D_eff(Q̂) above noise of {NUMBER} (largest of {number.sizes['seed']} seeds)",
            number.effective_dimension_utilisation_above_noise.max(skipna=False),
            1.0,
            1.0,
            "one feature, and at most the constant beside it",
            printed=2,
        ),
    ]
    made += [
        minimum_feature_claim(CLASS, classes),
        dimension_claim(CLASS, classes, CLASSES, 0.05, "as many features as classes, within 5 %"),
    ]
    if scale_of(data) == "quick":
        return [
            *made,
            accuracy_claim(NUMBER, number, 0.5, "the number is learned: a constant would be right in one of ten"),
            accuracy_claim(CLASS, classes, 0.97, "digits are told apart"),
        ]
    return [
        *made,
        Claim(
            f"share of ρ_2 in the intensity after the first, {NUMBER} (lowest of {number.sizes['seed']} seeds)",
            float(share_of_second(number).min(skipna=False)),
            1.0,
            0.5,
            "one feature is more than all others together, but for the first, the constant",
        ),
        accuracy_claim(NUMBER, number, 0.98, "the thesis prints no number; a classifier of MNIST has 99.4 %"),
        accuracy_claim(CLASS, classes, 0.99, "0.4 % below what 200 epochs give"),
    ]


def share_of_second(run: xr.Dataset) -> xr.DataArray:
    """ρ_2/Σ_{k>1} ρ_k for each seed: 1 if there is one feature beside the first, which is nearly constant."""
    return run.intensity.sel(mode=2) / run.intensity.sel(mode=slice(2, None)).sum("mode")


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The feature metrics."""
    return feature_figure({name: data[name] for name in NEEDED}, NEEDED)
