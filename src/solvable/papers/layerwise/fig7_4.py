"""Fig. 7.4: a ResNet18 falls into the minimum-feature regime early and stays; a fully connected network leaves again.

(a) ResNet18 and (b) a fully connected network of 4 layers and width 512 on CIFAR-10, their feature metrics at epochs 0,
1, 5, 30 and last. The ResNet18 is the one of Table 2.2, whose file says how it is trained in fewer than 200 epochs; its
epoch 30 lies later in the course of its rate than the thesis'. Of the fully connected network the thesis gives depth,
width and 200 epochs. Ours has 120, half the squared error (eq. 1.11), momentum, weight decay and rates as the thesis
has them for ResNet18, and no augmentation: the thesis' training and test accuracies part, and such a network cannot
learn by heart what moves. Whether the thesis' network had weight decay is not said, so (c) is the same without, and
takes the course that the thesis shows; with decay, κ_CKA rises from epoch 8 to 40 and falls again.

At quick scale both are small fully connected networks on 8 x 8 digits with squared error, (a) with weight decay; (b)
without it, and with two labels in five replaced by random ones. What the thesis sees where features are hard to learn,
few features first and more of them later, is there to be seen where labels have to be learned by heart.
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

CLASSES = 10
# When the thesis sees the first phase of the ResNet18 end, and when the fully connected network turns: epochs.
EARLY, TURN = 5.0, {"quick": 16.0, "full": 30.0}
# Π̂(k) is compared up to this k; a small network has 64 in all.
SEEN = {"quick": 20, "full": 100}


def reproduce(scale: Scale) -> Reproduction:
    rows = [experiments.FEW_FEATURES[scale], experiments.MANY_FEATURES[scale]]
    if scale == "full":
        rows.append(experiments.WITHOUT_DECAY)
    runs = {experiments.title(experiment): trained(experiment) for experiment in rows}
    figure, panels = new_figure(3, rows=len(runs), width=4.7)
    claims: list[Claim] = []
    for row, letter, (name, data) in zip(panels, "abc", runs.items(), strict=False):
        draw_features(row, moments(data, (0, 1, EARLY, TURN[scale], np.inf)), CLASSES)
        row[0].set_title(f"({letter}) {name}", fontsize="medium", loc="left")
        claims += few_claims(data, name, scale) if letter == "a" else many_claims(data, name, scale)
    return Reproduction(
        {f"panel-{letter}": data for letter, data in zip("abc", runs.values(), strict=False)}, figure, claims
    )


def few_claims(data: xr.Dataset, name: str, scale: Scale) -> list[Claim]:
    """(a): an early collapse that does most of the work, and nothing but these features afterwards."""
    early = at_epoch(data, EARLY)
    start, end = at_epoch(data, 0), at_end(data)
    held = [run.cumulative_quality.sel(mode=CLASSES, drop=True) for run in (start, early, end)]
    share = (held[1] - held[0]) / (held[2] - held[0])
    claims = [
        minimum_feature_claim(f"{name} at the end", end),
        share_claim(
            f"{name} at the end",
            end,
            CLASSES,
            0.05,
            "no features are used but the first ten; D_eff(Q̂) is promised to 5%",
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


def many_claims(data: xr.Dataset, name: str, scale: Scale) -> list[Claim]:
    """(b): towards few features first; at the end more of them are in use than when it turned."""
    turn, seen = TURN[scale], SEEN[scale]
    then, end = at_epoch(data, turn), at_end(data)
    start, nearest = at_epoch(data, 0).mp_distance, data.mp_distance.min("step")
    lower = end.cumulative_utilisation - then.cumulative_utilisation
    # Features that are gone at one of the two epochs have no place in the comparison.
    share = (lower < 0).where(lower.notnull()).sel(mode=slice(2, seen)).mean("mode")
    return [
        extended_feature_claim(f"{name} at the end", end),
        seeds_claim(
            f"κ_CKA of {name} falls below three quarters of its start",
            nearest < 0.75 * start,
            f"it first goes towards few features; from {told(start)} to {told(nearest)} at the least",
        ),
        change_claim(
            f"the share of the learned functions beyond the first {CLASSES} features of {name}",
            data, lambda run: beyond(run, CLASSES), turn, np.inf, True, "more features in use late, section 7.4",
        ),
        seeds_claim(
            f"Π̂(k) of {name} is smaller at the end than at {epoch_name(data, turn)} for all k from 2 to {seen}",
            share == 1,
            f"section 7.4: smaller across all k; shares of k where it is: {told(share)}",
        ),
        change_claim(
            f"κ_CKA of {name}", data, lambda run: run.mp_distance, turn, np.inf, True,
            f"section 7.4: it deviates from the regime below {THRESHOLD}",
        ),
    ]  # fmt: skip
