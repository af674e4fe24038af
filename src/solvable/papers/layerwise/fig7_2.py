"""Fig. 7.2: learning rate and weight decay: what trains better uses fewer features.

(a) ResNet18 with three learning rates: the lowest leaves the network in the extended-feature regime and is the worst;
the middle one is the best and the tightest. (b) With three weight decays: a larger decay is tighter and better; without
any the network is in the minimum-feature regime too, so that decay helps but is not the cause.

The thesis has panel (a) on CIFAR-100, which has not been run here: both panels are on CIFAR-10. It prints
neither rates nor decays. Ours: rates of 0.002, 0.02 and 0.1 over 100 epochs, constant but for a warm-up over the first
half epoch and a fall to zero over the last fifth (the thesis trains CIFAR-100 at a constant rate, for 600 epochs), with
a decay of 1e-3; decays of 0, 1e-3 and 4e-3 with the thesis' rate of 0.05 and its schedule, over 50 epochs in place of
200. The effect of decay grows with rate times steps, so that one of the decays is larger than the thesis'. Batches of
128, momentum 0.9, steps in bfloat16, no crops or flips: a network that sees other images every epoch needs several
times as many epochs to know them. A claim at full scale asks every network for 99 % of its training set.

The run of 2026-11-16 had five epochs at the constant rates 0.0005, 0.02 and 0.1, and eight for the decays, with crops
and flips. Its networks knew 27 to 67 % of their training sets (87 % with the largest decay), so that it said nothing of
the ranking of rates; 0.0005 would have taken 400 epochs. Before that the larger two rates were 0.05 and 0.2, until a
single training with 0.2 ended at 44 % and κ_CKA = 0.34. The new lengths are an estimate: without crops and flips a
ResNet18 knew 98.8 % after 12 epochs with a rate of 0.05 that fell as a cosine and a decay of 4e-3, for which rate times
steps is 117. Here it is 70, 702 and 3510, and 365 for the decays.

Quick scale: the small ResNet of Table 2.2 on scikit-learn's 8 x 8 digits, with rates of 0.001, 0.05 and 0.2 and decays
of 0, 0.001 and 0.005, chosen among a few. Without decay κ_CKA ends close to 0.1, on either side.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise._image_comparisons import Comparison, better_claim, tighter_claim
from solvable.papers.layerwise._image_pictures import (
    at_end,
    distance_axis,
    draw_features,
    extended_feature_claim,
    minimum_feature_claim,
)
from solvable.papers.layerwise._image_training import Experiment, trained
from solvable.papers.layerwise.table2_2 import DIGITS
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES, EPOCH = 10, 390
# What every network at full scale must know of its training set, to be compared.
FITTED = 0.99
FULL = Experiment(precision="bfloat16", warmup=200, seeds=3)
RATES: dict[Scale, list[Experiment]] = {
    "quick": [DIGITS._replace(rate=rate, schedule="constant") for rate in (1e-3, 0.05, 0.2)],
    "full": [FULL._replace(rate=rate, schedule="held", steps=100 * EPOCH) for rate in (2e-3, 0.02, 0.1)],
}
DECAYS: dict[Scale, list[Experiment]] = {
    "quick": [DIGITS._replace(decay=decay) for decay in (0.0, 1e-3, 5e-3)],
    "full": [FULL._replace(decay=decay, steps=50 * EPOCH) for decay in (0.0, 1e-3, 4e-3)],
}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The networks at the end of training, one dataset per learning rate and per weight decay."""
    data = {f"rate_{experiment.rate:g}": at_end(trained(experiment)) for experiment in RATES[scale]}
    return data | {f"decay_{experiment.decay:g}": at_end(trained(experiment)) for experiment in DECAYS[scale]}


def _rates(data: Mapping[str, xr.Dataset]) -> dict[float, xr.Dataset]:
    return {one.rate: data[f"rate_{one.rate:g}"] for one in RATES[scale_of(data)]}


def _decays(data: Mapping[str, xr.Dataset]) -> dict[float, xr.Dataset]:
    return {one.decay: data[f"decay_{one.decay:g}"] for one in DECAYS[scale_of(data)]}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """(a), the learning rates, and (b), the weight decays."""
    scale = scale_of(data)
    found = rate_claims(_rates(data), scale) + decay_claims(_decays(data), scale)
    return [*found, fitted_claim(data)] if scale == "full" else found


def fitted_claim(data: Mapping[str, xr.Dataset]) -> Claim:
    """Every network knows its training set."""
    return Claim.at_least(
        "training accuracy (lowest of all trainings)",
        min(float(run.train_accuracy.min(skipna=False)) for run in data.values()),
        FITTED,
        "the thesis compares networks that know their training set, all but one image in a hundred; lowest seeds: "
        + ", ".join(f"{name} {float(run.train_accuracy.min()):.3f}" for name, run in data.items()),
    )


def rate_claims(runs: dict[float, xr.Dataset], scale: Scale) -> list[Claim]:
    """``runs`` by learning rate, three in rising order."""
    names = [f"rate {rate:g}" for rate in runs]
    slow, best, fast = runs.values()
    of: Comparison = "every seed" if scale == "full" else "means"
    made = [
        better_claim(names[1], best, names[0], slow, "the lowest rate is the worst"),
        tighter_claim(names[1], best, names[0], slow, "the lowest rate has the most features"),
        extended_feature_claim(names[0], slow),
        minimum_feature_claim(names[1], best),
        better_claim(names[2], fast, names[0], slow, "the lowest rate is the worst"),
        better_claim(names[1], best, names[2], fast, "the middle rate is the best of three", of=of),
        tighter_claim(names[1], best, names[2], fast, "the middle rate has the smallest κ_CKA", of="means"),
    ]
    return [*made, minimum_feature_claim(names[2], fast)] if scale == "full" else made


def decay_claims(runs: dict[float, xr.Dataset], scale: Scale) -> list[Claim]:
    """``runs`` by weight decay, in rising order from none."""
    names = [f"decay {decay:g}" for decay in runs]
    without, *_, much = runs.values()
    ends = names[-1], much, names[0], without
    made = [
        tighter_claim(*ends, "a larger decay is tighter: the largest against none"),
        better_claim(*ends, "a larger decay is better: the largest against none"),
        _monotone("κ_CKA falls", [-run.mp_distance for run in runs.values()]),
        _monotone("test accuracy rises", [run.test_accuracy for run in runs.values()]),
        flatter_claim(*ends),
    ]
    return [minimum_feature_claim(names[0], without), *made] if scale == "full" else made


def flatness(run: xr.Dataset, classes: int = CLASSES) -> xr.DataArray:
    """ρ_2/ρ_C for each seed: 1 if the features of the classes, without the constant, have the same intensity."""
    return run.intensity.sel(mode=2) / run.intensity.sel(mode=classes)


def flatter_claim(name: str, run: xr.Dataset, other: str, steeper: xr.Dataset) -> Claim:
    """ρ_2/ρ_C of ``run`` is below that of ``steeper``, in means over seeds."""
    return Claim(
        f"ρ_2/ρ_{CLASSES}, {name} over {other}, below 1 (means over seeds)",
        float(flatness(run).mean(skipna=False) / flatness(steeper).mean(skipna=False)),
        0.0,
        1.0,
        "the first eigenvalues are flatter; the first of all belongs to the constant",
    )


def _monotone(what: str, values: list[xr.DataArray]) -> Claim:
    means = [float(value.mean(skipna=False)) for value in values]
    return Claim(
        f"steps from one decay to the next larger in which {what} (means over seeds)",
        float(np.sum(np.diff(means) > 0)),
        len(values) - 1,
        0.0,
        "the thesis: larger decay, tighter and better; means, since neighbours lie within the spread of seeds",
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The feature metrics, and test error over κ_CKA."""
    figure, panels = new_figure(4, rows=2, width=4.4)
    for row, (what, runs) in zip(panels, (("rate", _rates(data)), ("weight decay", _decays(data))), strict=True):
        draw_features(row[:3], {f"{what} {value:g}": run for value, run in runs.items()}, CLASSES)
        _draw_scores(row[3], what, runs)
    return figure


def _draw_scores(panel: "Axes", what: str, runs: dict[float, xr.Dataset]) -> None:
    """Test error over κ_CKA, one point per seed: smaller is better on both axes."""
    for colour, (value, run) in zip(COLOURS, runs.items(), strict=False):
        style: dict[str, Any] = {"color": colour, "alpha": 0.8, "clip_on": False, "label": f"{what} {value:g}"}
        panel.plot(run.mp_distance, 1 - run.test_accuracy, "o", **style)
    distance_axis(panel)
    panel.set_ylim(bottom=0)
    panel.set_ylabel("test error")
    panel.legend(fontsize="small")
