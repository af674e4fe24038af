"""Fig. 7.4: a ResNet18 falls into the minimum-feature regime early and stays; a fully connected network leaves again.

(a) ResNet18 and (b) a fully connected network of 4 layers and width 512 on CIFAR-10, their feature metrics at epochs 0,
1, 5, 30 and last. The ResNet18 is the one of Table 2.2, so its epochs are fewer than the 200 of the thesis and its rate
falls after the same shares of them. Of the fully connected network the thesis gives depth, width and 200 epochs. Our
choices: the recipe of the ResNet18 but no augmentation (the thesis' training and test accuracies part, and a fully
connected network cannot fit images that move), and no weight decay.

At quick scale both are small networks on 8 x 8 digits. There it is the loss that makes the difference, not the
architecture: (a) squared error, which ends minimum-feature, and (b) cross-entropy, which does not.
"""

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise import _epoch_experiments as experiments
from solvable.papers.layerwise._along_training import (
    at_epoch,
    beyond,
    change_claim,
    epoch_name,
    moments,
    seeds_claim,
    told,
)
from solvable.papers.layerwise._image_pictures import (
    THRESHOLD,
    at_end,
    draw_features,
    extended_feature_claim,
    minimum_feature_claim,
    share_claim,
)
from solvable.papers.layerwise._image_training import trained
from solvable.plotting import new_figure

CLASSES, SEEN = 10, 100
# When the thesis sees the first phase of the ResNet18 end, and when the fully connected network turns.
EARLY, TURN = 5.0, 30.0


def reproduce(scale: Scale) -> Reproduction:
    pair = experiments.FEW_FEATURES[scale], experiments.MANY_FEATURES[scale]
    few, many = (trained(experiment) for experiment in pair)
    figure, panels = new_figure(3, rows=2, width=4.7)
    for row, letter, data, experiment in zip(panels, "ab", (few, many), pair, strict=True):
        draw_features(row, moments(data), CLASSES)
        row[0].set_title(f"({letter}) {experiments.title(experiment)}", fontsize="medium")
    claims = few_claims(few, scale) + many_claims(many, scale)
    return Reproduction({"few-features": few, "many-features": many}, figure, claims)


def few_claims(data: xr.Dataset, scale: Scale) -> list[Claim]:
    """(a): an early collapse that does most of the work, and nothing but these features afterwards."""
    name = experiments.title(experiments.FEW_FEATURES[scale])
    early = at_epoch(data, EARLY)
    start, end = at_epoch(data, 0), at_end(data)
    held = [run.cumulative_quality.sel(mode=CLASSES, drop=True) for run in (start, early, end)]
    share = (held[1] - held[0]) / (held[2] - held[0])
    claims = [
        minimum_feature_claim(f"{name} at the end", end),
        share_claim(
            f"{name} at the end", end, CLASSES, 0.05, "no features are used but the first ten; D_eff(Q̂) is promised to 5%"
        ),
        seeds_claim(
            f"half of the rise of Π*({CLASSES}) of {name} is made by {epoch_name(data, EARLY)}",
            share >= 0.5,
            f"the thesis' first phase, with most of the feature learning; the share is {told(share)}",
        ),
    ]
    if scale == "full":
        claims.append(minimum_feature_claim(f"{name} at {epoch_name(data, EARLY)}", early))
    return claims


def many_claims(data: xr.Dataset, scale: Scale) -> list[Claim]:
    """(b): towards few features first; later more of them are used than at epoch 30."""
    name = experiments.title(experiments.MANY_FEATURES[scale])
    turn, end = at_epoch(data, TURN), at_end(data)
    nearest = data.mp_distance.min("step")
    start = at_epoch(data, 0).mp_distance
    claims = [
        extended_feature_claim(f"{name} at the end", end),
        seeds_claim(
            f"κ_CKA of {name} falls below half of its start",
            nearest < start / 2,
            f"it first goes towards few features; from {told(start)} to {told(nearest)} at the least",
        ),
    ]
    if scale == "quick":
        return claims
    modes = slice(2, SEEN)
    lower = end.cumulative_utilisation.sel(mode=modes) < turn.cumulative_utilisation.sel(mode=modes)
    return [
        *claims,
        change_claim(
            f"the share of the learned functions beyond the first {CLASSES} features of {name}",
            data, lambda run: beyond(run, CLASSES), TURN, np.inf, True, "more features in use late, section 7.4",
        ),
        seeds_claim(
            f"Π̂(k) of {name} is smaller at the end than at {epoch_name(data, TURN)} for all k from 2 to {SEEN}",
            lower.all("mode"),
            f"section 7.4: smaller across all k; shares of k where it is: {told(lower.mean('mode'))}",
        ),
        change_claim(
            f"κ_CKA of {name}", data, lambda run: run.mp_distance, TURN, np.inf, True,
            f"section 7.4: it deviates from the regime below {THRESHOLD}",
        ),
    ]  # fmt: skip
