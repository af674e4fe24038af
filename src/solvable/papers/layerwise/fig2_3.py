"""Fig. 2.3: a CNN trained whole uses as many features as there are classes; with its last layer alone, many more.

The thesis gives the width of the last layer (1024), the data (all of MNIST) and the two ways to train. The rest is our
choice: two convolutions of 32 and 64 channels with ReLU and pooling, a layer of 1024 neurons with ReLU and the output;
initial weights with PyTorch's variances; the squared error to one-hot targets, summed over outputs, which is the
thesis' loss where it names no other (eq. 1.11); SGD with momentum 0.9, and the learning rate 0.05 and weight decay
0.001 that the thesis states for another network (written here for half the squared error: twice the rate, half the
decay), with a cosine schedule to zero; batches of 128, 30 epochs, steps in bfloat16. Training the last layer alone is a
convex problem: it has no decay and 10 epochs. Seeds differ in initial weights and in the order of batches. A third
training has cross-entropy, rate 0.05 and decay 0.001: κ_CKA differs between the losses.

D_eff(Q̂) as measured includes chance: each of 1024 modes overlaps with the outputs by 1/n_test, a tenth in total, which
weighs more in an entropy than in a sum. A network that uses exactly 10 features would show 21, so the printed 10.5 must
be something else. D_eff(Q̂²), with the square of eq. 2.5 as printed, is hardly affected by chance; all are drawn.

The quick scale is a small CNN on 8 x 8 digits with squared error and AdamW, near κ_CKA = 0.1 and not surely below.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise._along_training import beyond
from solvable.papers.layerwise._image_pictures import (
    ABOVE_NOISE,
    DIMENSIONS,
    SQUARED,
    accuracy_claim,
    at_end,
    dimension_claim,
    draw_features,
    extended_feature_claim,
    minimum_feature_claim,
)
from solvable.papers.layerwise._image_training import Experiment, trained
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES = 10
WHOLE, LAST, ENTROPY = "all layers", "last layer only", "all layers, cross-entropy"
FULL = Experiment(
    network="cnn",
    images="mnist",
    loss="half-mse",
    steps=30 * 60_000 // 128,
    rate=0.1,
    decay=5e-4,
    schedule="cosine",
    precision="bfloat16",
)
QUICK = Experiment(
    network="cnn-small",
    images="digits",
    loss="mse",
    optimiser="adamw",
    schedule="cosine",
    steps=1500,
    batch=64,
    rate=3e-3,
    decay=0.5,
)
EXPERIMENTS: dict[Scale, dict[str, Experiment]] = {
    "quick": {WHOLE: QUICK, LAST: QUICK._replace(last_layer_only=True, rate=0.03, decay=0.0, steps=500)},
    "full": {
        WHOLE: FULL,
        LAST: FULL._replace(last_layer_only=True, decay=0.0, steps=10 * 60_000 // 128),
        ENTROPY: FULL._replace(loss="cross-entropy", rate=0.05, decay=1e-3),
    },
}
# The least test accuracy, and the factor by which trainings must differ.
ACCURACIES: dict[Scale, dict[str, float]] = {
    "quick": {WHOLE: 0.95, LAST: 0.8},
    "full": {WHOLE: 0.95, LAST: 0.95, ENTROPY: 0.95},
}
FACTORS: dict[Scale, float] = {"quick": 2.0, "full": 3.0}
# The dimensions that the thesis prints (section 2.3.1).
PRINTED = {WHOLE: {"utilisation": 10.5, "intensity": 11.19}, LAST: {"utilisation": 121.0, "intensity": 119.0}}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The trained networks, one dataset per way to train."""
    return {_file_name(name): trained(experiment) for name, experiment in EXPERIMENTS[scale].items()}


def _file_name(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


def _ends(data: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """The networks at the end of training, by the way they were trained."""
    return {name: at_end(data[_file_name(name)]) for name in EXPERIMENTS[scale_of(data)]}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """As many features as classes with all layers, and many more with the last layer alone."""
    scale, runs = scale_of(data), _ends(data)
    whole, last, factor = runs[WHOLE], runs[LAST], FACTORS[scale]
    because = "the thesis: above 95 % with both" if scale == "full" else "digits are told apart; chance is a tenth"
    found = [accuracy_claim(name, run, ACCURACIES[scale][name], because) for name, run in runs.items()]
    found += [
        extended_feature_claim(LAST, last),
        _apart("κ_CKA", whole.mp_distance, last.mp_distance, factor),
        _apart(
            f"share of the outputs beyond {CLASSES} features", beyond(whole, CLASSES), beyond(last, CLASSES), factor
        ),
        dimension_claim(
            WHOLE,
            whole,
            CLASSES,
            0.1,
            "eq. 2.7, with the square of eq. 2.5 as printed: one feature; the thesis is half a feature off",
            kind=SQUARED,
            printed=PRINTED[WHOLE]["utilisation"] if scale == "full" else None,
        ),
    ]
    return found + _full_claims(whole, last, runs[ENTROPY]) if scale == "full" else found


def _full_claims(whole: xr.Dataset, last: xr.Dataset, entropy: xr.Dataset) -> list[Claim]:
    """Claims that need more images than the digits."""
    return [
        minimum_feature_claim(WHOLE, whole),
        _apart(
            DIMENSIONS["intensity"],
            whole.effective_dimension_intensity,
            last.effective_dimension_intensity,
            FACTORS["full"],
        ),
        Claim(
            "seeds in which κ_CKA is larger with cross-entropy than with the squared error",
            int((entropy.mp_distance > whole.mp_distance).sum()),
            whole.sizes["seed"],
            0,
            "a count; 0.17 and 0.08 in a trial on images of half the size, where one seed was trained",
        ),
    ]


def _apart(name: str, whole: xr.DataArray, last: xr.DataArray, factor: float) -> Claim:
    """Every seed with all layers trained is below every seed with the last layer alone, by a factor."""
    return Claim(
        f"{name}, {WHOLE} (largest seed) over {LAST} (smallest seed)",
        float(whole.max(skipna=False) / last.min(skipna=False)),
        0.0,
        1 / factor,
        f"clearly apart: a factor of {factor:g} between any two of {whole.size} seeds each; ten in the thesis",
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The feature metrics, and the effective dimensions."""
    runs = _ends(data)
    figure, grid = new_figure(2, rows=2)
    draw_features(grid.ravel()[:3], runs, CLASSES)
    _draw_dimensions(grid.ravel()[3], runs, PRINTED if scale_of(data) == "full" else {})
    return figure


def _draw_dimensions(panel: "Axes", runs: Mapping[str, xr.Dataset], printed: Mapping[str, Mapping[str, float]]) -> None:
    """Effective dimensions, one point per seed, with the printed values."""
    kinds = ("intensity", "utilisation", ABOVE_NOISE, SQUARED)
    for colour, (name, run) in zip(COLOURS, runs.items(), strict=False):
        for index, kind in enumerate(kinds):
            values = run[f"effective_dimension_{kind}"]
            panel.plot([index] * values.size, values, "o", color=colour, label=name if index == 0 else None)
    for name, numbers in printed.items():
        label = "printed in the thesis" if name == WHOLE else None
        panel.plot([0, 1], [numbers[kind] for kind in kinds[:2]], "x", color="black", markersize=9, label=label)
    panel.axhline(CLASSES, color="0.4", linestyle=":", linewidth=1.2, label=f"C = {CLASSES}")
    panel.set_yscale("log")
    panel.set_xticks(range(len(kinds)), [DIMENSIONS[kind].replace(" above", "\nabove") for kind in kinds])
    panel.set_xlim(-0.5, len(kinds) - 0.5)
    panel.set_ylabel("effective number of features")
    panel.legend(fontsize="small", title="one point per seed", title_fontsize="small")
