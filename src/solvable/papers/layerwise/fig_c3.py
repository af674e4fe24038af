"""Fig. C.3: the first 20 features along training at a slower learning rate: few are learned, or many come into use.

The trainings of Fig. 7.5, whose file says how they differ from the thesis', at a fifth of their learning rates: the
thesis gives neither its rates nor the other settings of this figure. (a) ResNet18 on CIFAR-10, 50 epochs, a rate of
0.01; (b) the fully connected network of 4 layers and width 512 without weight decay, 120 epochs, 0.01. Neither was
lengthened for the slower rate.

The caption says that (a) is in the minimum-feature regime and is driven by feature learning, and that (b) is in the
extended-feature regime: feature learning slows down there, and the loss is lowered further by coefficient learning.
Here feature learning is a rise of Π*(10), the part of the target that the first ten features hold; coefficient learning
is a rise of 1 - Π̂(10), the part of the learned functions that the other features carry.

Quick scale: a small ResNet on 8 x 8 digits, and the small fully connected network of Fig. 7.5 with two labels in five
replaced by random ones.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise import _epoch_experiments as experiments
from solvable.papers.layerwise._along_training import beyond, change_claim, listed, seeds_claim
from solvable.papers.layerwise._image_pictures import (
    at_end,
    constant_claim,
    extended_feature_claim,
    minimum_feature_claim,
)
from solvable.papers.layerwise._image_training import Experiment, trained
from solvable.papers.layerwise.fig7_5 import CLASSES, fewest, first_features_figure, others_claim

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _experiments(scale: Scale) -> dict[str, Experiment]:
    return {"few-features": experiments.SLOW_FEW[scale], "many-features": experiments.SLOW_LEAVING[scale]}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The two trainings."""
    return {name: trained(experiment) for name, experiment in _experiments(scale).items()}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """(a): few features, which are learned. (b): many features, and coefficient learning after feature learning."""
    few, many = (experiments.title(experiment) for experiment in _experiments(scale_of(data)).values())
    return feature_claims(data["few-features"], few) + coefficient_claims(data["many-features"], many)


def held(data: xr.Dataset) -> xr.DataArray:
    """Π*(C): the part of the target that the first C features hold."""
    return data.cumulative_quality.sel(mode=CLASSES, drop=True)


def feature_claims(data: xr.Dataset, name: str) -> list[Claim]:
    """(a): the minimum-feature regime, reached by feature learning."""
    outside = beyond(data, CLASSES)
    return [
        minimum_feature_claim(f"{name} at the end", at_end(data)),
        constant_claim(f"{name} at the end", at_end(data)),
        change_claim(
            f"Π*({CLASSES}) of {name}", data, held, 0, float("inf"), True, "the caption: driven by feature learning"
        ),
        seeds_claim(
            f"features beyond the first {CLASSES} of {name} carry less of its functions at the end than at the start",
            outside.isel(step=-1) < outside.isel(step=0),
            f"no coefficient learning; from {listed(outside.isel(step=0))} to {listed(outside.isel(step=-1))}",
        ),
    ]


def coefficient_claims(data: xr.Dataset, name: str) -> list[Claim]:
    """(b): the extended-feature regime. After the first ten features are used most, the others lower the loss."""
    turn, quality = fewest(data), held(data)
    start, then, end = quality.isel(step=0), quality.isel(step=turn), quality.isel(step=-1)
    loss, final = data.train_loss.isel(step=turn), data.train_loss.isel(step=-1)
    when = listed(data.epoch.isel(step=turn))
    return [
        extended_feature_claim(f"{name} at the end", at_end(data)),
        seeds_claim(
            f"Π*({CLASSES}) of {name} rises more before 1 - Π̂({CLASSES}) is least than after it",
            then - start > end - then,
            f"feature learning slows down; {listed(start)} at first, {listed(then)} at epochs {when}, {listed(end)} at "
            "the end",
        ),
        seeds_claim(
            f"the training loss of {name} falls further after that",
            final < loss,
            f"the caption: further lowering of the loss; from {listed(loss)} to {listed(final)}",
        ),
        others_claim(data, name),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The first features, and the accuracies, over epochs."""
    return first_features_figure(data, _experiments(scale_of(data)))
