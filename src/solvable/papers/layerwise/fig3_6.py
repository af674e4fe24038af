"""Fig. 3.6: asked for the digit as a number, a network uses one feature; asked for its class, ten.

ResNet18 learns MNIST twice: with one output, the digit as a number (squared error), and with ten, its class
(cross-entropy). The images are the same, so that features of their structure would be ten in both; features that
follow from the rank of the target are one and ten, a constant among them or beside it. A number is right if it is
nearer to its digit than to any other.

Which measure knows of the constant: κ_CKA is centred, so that exactly one non-constant feature, in line with the
output, gives 0. Utilisation is not centred: digits are numbered from -1 to 1 here, with a mean near 0, so a constant
feature is hardly used and D_eff(Q̂) is near 1; with 0 to 9, as in the thesis, the same network would have 1.8. The
claims take both together, Π̂(2). D_eff(ρ) counts the first feature as one, whatever it is, so here 2 is the least.

The thesis gives the network and the set. Our choices: images padded to 32 x 32, five epochs in batches of 128 (the thesis
trains classifiers of MNIST for 200), bfloat16 for the steps.
Quick scale: a small network on scikit-learn's 8 x 8 digits, both with squared error.
"""

from typing import TYPE_CHECKING

import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._image_pictures import (
    accuracy_claim,
    at_end,
    dimension_claim,
    feature_figure,
    furthest,
    minimum_feature_claim,
)
from solvable.papers.layerwise._image_training import Experiment, trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASSES = 10
NUMBER, CLASS = "regression", "classification"
# Both with the constant: features that a network needs for one output and for ten.
NEEDED = {NUMBER: 2, CLASS: CLASSES}
SETTINGS = {
    "quick": {
        NUMBER: Experiment("cnn-small", "digits", targets="number", loss="mse", steps=1200, batch=50, seeds=3),
        CLASS: Experiment("cnn-small", "digits", loss="mse", steps=1200, batch=50, seeds=3),
    },
    "full": {
        NUMBER: Experiment(images="mnist", targets="number", loss="mse", steps=5 * 468, precision="bfloat16", seeds=3),
        CLASS: Experiment(images="mnist", steps=5 * 468, precision="bfloat16", seeds=3),
    },
}


def reproduce(scale: Scale) -> Reproduction:
    runs = {name: at_end(trained(experiment)) for name, experiment in SETTINGS[scale].items()}
    return Reproduction(dict(runs), draw(runs), claims(runs, scale))


def draw(runs: dict[str, xr.Dataset]) -> "Figure":
    return feature_figure(runs, NEEDED)


def claims(runs: dict[str, xr.Dataset], scale: Scale) -> list[Claim]:
    """``runs`` by name, at the end of training."""
    number, classes = runs[NUMBER], runs[CLASS]
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
            number.effective_dimension_utilisation_above_noise.max(),
            1.0,
            1.0,
            "one feature, and at most the constant beside it",
            printed=2,
        ),
        Claim(
            f"share of ρ_2 in the intensity after the first, {NUMBER} (lowest of {number.sizes['seed']} seeds)",
            share_of_second(number).min(),
            1.0,
            0.1,
            "the rank of the target is one; a tenth, as for κ_CKA, may be elsewhere",
        ),
    ]
    if scale == "full":
        made += [
            accuracy_claim(NUMBER, number, 0.98, "the thesis prints no number; a classifier of MNIST has 99.4 %"),
            minimum_feature_claim(CLASS, classes),
            dimension_claim(CLASS, classes, CLASSES, 0.05, "as many features as classes, within 5 %"),
            accuracy_claim(CLASS, classes, 0.99, "0.4 % below what 200 epochs give"),
        ]
    else:
        made += [
            accuracy_claim(NUMBER, number, 0.7, "fitted and not only on the training images; chance is below 0.2"),
            dimension_claim(CLASS, classes, CLASSES, 0.1, "as many features as classes"),
        ]
    return made


def share_of_second(run: xr.Dataset) -> xr.DataArray:
    """ρ_2/Σ_{k>1} ρ_k for each seed: 1 if there is one feature beside the first, which is nearly constant."""
    return run.intensity.sel(mode=2) / run.intensity.sel(mode=slice(2, None)).sum("mode")
