"""Fig. 7.4: a ResNet18 falls into the minimum-feature regime early and stays; a fully connected network leaves again.

(a) ResNet18 and (b) a fully connected network of 4 layers and width 512 on CIFAR-10, their feature metrics at epochs 0,
1, 5, 30 and last. The ResNet18 is that of Table 2.2, whose file says how it is trained in fewer than 200 epochs; its
epoch 30 lies later in its learning-rate schedule than the thesis'. Of the fully connected network the thesis gives
depth, width and 200 epochs. Ours has 120 epochs, half the squared error (eq. 1.11), momentum, weight decay and rates as
the thesis has them for ResNet18, and no augmentation: the thesis' training and test accuracies diverge, and such a
network cannot memorise images that are shifted. The thesis does not say whether its network had weight decay, so (c) is
the same without it, and behaves as the thesis shows; with decay, κ_CKA rises from epoch 8 to 40 and falls again.

At quick scale both are small fully connected networks on 8 x 8 digits with squared error, (a) with weight decay; (b)
without it, and with two labels in five replaced by random ones. The behaviour that the thesis finds where features are
hard to learn, few features first and more of them later, appears there because labels have to be memorised.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise import _epoch_experiments as experiments
from solvable.papers.layerwise._along_training import (
    at_epoch,
    beyond,
    change_claim,
    epoch_name,
    listed,
    moments,
    seeds_claim,
)
from solvable.papers.layerwise._image_pictures import (
    THRESHOLD,
    at_end,
    draw_features,
    extended_feature_claim,
    minimum_feature_claim,
    share_claim,
)
from solvable.papers.layerwise._image_training import Experiment, trained
from solvable.plotting import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASSES = 10
# Epochs at which the first phase of the ResNet18 ends in the thesis, and at which the fully connected network turns.
EARLY, TURN = 5.0, {"quick": 16.0, "full": 30.0}
# Π̂(k) is compared up to this k; a small network has 64 in all.
SEEN = {"quick": 20, "full": 100}


def _rows(scale: Scale) -> list[Experiment]:
    rows = [experiments.FEW_FEATURES[scale], experiments.MANY_FEATURES[scale]]
    return [*rows, experiments.WITHOUT_DECAY] if scale == "full" else rows


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The trainings, one dataset per row of panels."""
    return {f"panel-{letter}": trained(experiment) for letter, experiment in zip("abc", _rows(scale), strict=False)}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Few features early in (a); in (b) and (c), first towards few features and then away from them."""
    scale = scale_of(data)
    first, *others = (experiments.title(experiment) for experiment in _rows(scale))
    found = few_claims(data["panel-a"], first, scale)
    for letter, name in zip("bc", others, strict=False):
        found += many_claims(data[f"panel-{letter}"], name, scale)
    return found


def few_claims(data: xr.Dataset, name: str, scale: Scale) -> list[Claim]:
    """(a): most features are learned in an early collapse, and no others are used afterwards."""
    early = at_epoch(data, EARLY)
    start, end = at_epoch(data, 0), at_end(data)
    held = [run.cumulative_quality.sel(mode=CLASSES, drop=True) for run in (start, early, end)]
    share = (held[1] - held[0]) / (held[2] - held[0])
    found = [
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
            f"the thesis' first phase, with most of the feature learning; the share is {listed(share)}",
        ),
    ]
    if scale == "full":
        found.append(minimum_feature_claim(f"{name} at {epoch_name(data, EARLY)}", early))
    return found


def many_claims(data: xr.Dataset, name: str, scale: Scale) -> list[Claim]:
    """(b): first towards few features; at the end more of them are in use than at the turning point."""
    turn, seen = TURN[scale], SEEN[scale]
    then, end = at_epoch(data, turn), at_end(data)
    start, nearest = at_epoch(data, 0).mp_distance, data.mp_distance.min("step")
    lower = end.cumulative_utilisation - then.cumulative_utilisation
    # Features that are absent at one of the two epochs are not compared.
    share = (lower < 0).where(lower.notnull()).sel(mode=slice(2, seen)).mean("mode")
    return [
        extended_feature_claim(f"{name} at the end", end),
        seeds_claim(
            f"κ_CKA of {name} falls below three quarters of its start",
            nearest < 0.75 * start,
            f"it first goes towards few features; from {listed(start)} to {listed(nearest)} at the least",
        ),
        change_claim(
            f"the share of the learned functions beyond the first {CLASSES} features of {name}",
            data, lambda run: beyond(run, CLASSES), turn, np.inf, True, "more features in use late, section 7.4",
        ),
        seeds_claim(
            f"Π̂(k) of {name} is smaller at the end than at {epoch_name(data, turn)} for all k from 2 to {seen}",
            share == 1,
            f"section 7.4: smaller across all k; shares of k where it is: {listed(share)}",
        ),
        change_claim(
            f"κ_CKA of {name}", data, lambda run: run.mp_distance, turn, np.inf, True,
            f"section 7.4: it deviates from the regime below {THRESHOLD}",
        ),
    ]  # fmt: skip


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The feature metrics at some epochs, one row of panels per network."""
    scale = scale_of(data)
    rows = _rows(scale)
    figure, panels = new_figure(3, rows=len(rows), width=4.7)
    for row, letter, experiment in zip(panels, "abc", rows, strict=False):
        draw_features(row, moments(data[f"panel-{letter}"], (0, 1, EARLY, TURN[scale], np.inf)), CLASSES)
        row[0].set_title(f"({letter}) {experiments.title(experiment)}", fontsize="medium", loc="left")
    return figure
