"""Fig. 2.3: a CNN trained whole uses as many features as there are classes; with its last layer alone, many more.

The thesis gives the width of the last layer (1024), the data (all of MNIST) and the two ways to train. The rest is our
choice: two convolutions of 32 and 64 channels with ReLU and pooling, a layer of 1024 neurons with ReLU and the output;
cross-entropy; SGD with momentum 0.9, weight decay 0.001, rate 0.05 and the falling rate that the thesis states for its
other networks, 30 epochs in batches of 128, steps in bfloat16. The last layer alone has no decay. Seeds differ in
initial weights and in the order of batches.

D_eff(Q̂) as measured counts chance: each of 1024 modes overlaps with the outputs by 1/n_test, together a tenth, which
weighs more in an entropy than in a sum. A network that uses 10 features exactly would show about 20. The claims are on
D_eff(Q̂) above noise; the printed 10.5 must be without that bias too.

The quick scale is a small CNN on 8 x 8 digits with square loss and AdamW: with cross-entropy, digits are too few for
κ_CKA to fall below 0.1.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._image_pictures import (
    ABOVE_NOISE,
    DIMENSIONS,
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
WHOLE, LAST = "all layers", "last layer only"


class Setting(NamedTuple):
    """The two trainings, the accuracy asked of both, and how far apart they must be in κ_CKA and D_eff."""

    whole: Experiment
    last: Experiment
    accuracy: float
    factor: float


FULL = Experiment(network="cnn", images="mnist", steps=30 * 60_000 // 128, precision="bfloat16")
QUICK = Experiment(
    network="cnn-small",
    images="digits",
    loss="mse",
    optimiser="adamw",
    schedule="cosine",
    steps=1000,
    batch=64,
    rate=3e-3,
    decay=0.1,
)
SETTINGS = {
    "quick": Setting(QUICK, QUICK._replace(last_layer_only=True, rate=1e-2, decay=0.0), 0.9, 2.0),
    "full": Setting(FULL, FULL._replace(last_layer_only=True, decay=0.0, steps=10 * 60_000 // 128), 0.95, 3.0),
}
# What the thesis reads off its networks (section 2.3.1).
PRINTED = {WHOLE: {"utilisation": 10.5, "intensity": 11.19}, LAST: {"utilisation": 121.0, "intensity": 119.0}}


def reproduce(scale: Scale) -> Reproduction:
    setting = SETTINGS[scale]
    data = {WHOLE: trained(setting.whole), LAST: trained(setting.last)}
    runs = {name: at_end(one) for name, one in data.items()}
    datasets = {name.replace(" ", "-"): one for name, one in data.items()}
    return Reproduction(datasets, _draw(runs), claims(runs, scale))


def claims(runs: Mapping[str, xr.Dataset], scale: Scale) -> list[Claim]:
    setting = SETTINGS[scale]
    whole, last = runs[WHOLE], runs[LAST]
    both = "the thesis: above 95 % with both" if scale == "full" else "digits are told apart with both"
    found = [accuracy_claim(name, run, setting.accuracy, both) for name, run in runs.items()]
    found += [
        minimum_feature_claim(WHOLE, whole),
        extended_feature_claim(LAST, last),
        _apart("κ_CKA", whole.mp_distance, last.mp_distance, setting.factor),
    ]
    if scale == "full":
        for kind in ("intensity", ABOVE_NOISE):
            found.append(_apart(DIMENSIONS[kind], *(run[f"effective_dimension_{kind}"] for run in (whole, last)), 3.0))
        found += _dimension_claims(whole)
    return found


def _apart(name: str, whole: xr.DataArray, last: xr.DataArray, factor: float) -> Claim:
    """Every seed that is trained whole is below every seed with its last layer alone, by a factor."""
    return Claim(
        f"{name} with {WHOLE} (largest seed) over that with {LAST} (smallest seed)",
        whole.max() / last.min(),
        0.0,
        1 / factor,
        f"clearly apart: a factor of {factor:g} between any two of {whole.size} seeds each; ten in the thesis",
    )


def _dimension_claims(whole: xr.Dataset) -> list[Claim]:
    """Eq. 2.7: both effective dimensions are near the number of classes."""
    because = (
        f"eq. 2.7; the thesis' own network is {{:.0%}} off, and a fifth is clear of any other whole number {CLASSES}"
    )
    printed = PRINTED[WHOLE]
    return [
        dimension_claim(WHOLE, whole, CLASSES, 0.2, because, kind=kind, printed=value)
        for kind, value in ((ABOVE_NOISE, printed["utilisation"]), ("intensity", printed["intensity"]))
    ]


def _draw(runs: Mapping[str, xr.Dataset]) -> "Figure":
    figure, grid = new_figure(2, rows=2)
    draw_features(grid.ravel()[:3], runs, CLASSES)
    _draw_dimensions(grid.ravel()[3], runs)
    return figure


def _draw_dimensions(panel: "Axes", runs: Mapping[str, xr.Dataset]) -> None:
    """Effective dimensions, a point a seed, with what the thesis prints."""
    kinds = ("intensity", "utilisation", ABOVE_NOISE)
    for colour, (name, run) in zip(COLOURS, runs.items(), strict=False):
        for index, kind in enumerate(kinds):
            values = run[f"effective_dimension_{kind}"]
            panel.plot([index] * values.size, values, "o", color=colour, label=name if index == 0 else None)
        printed = [PRINTED[name][kind] for kind in kinds[:2]]
        label = "thesis (all of MNIST)" if name == WHOLE else None
        panel.plot([0, 1], printed, "x", color="black", markersize=9, label=label)
    panel.axhline(CLASSES, color="0.4", linestyle=":", linewidth=1.2, label=f"C = {CLASSES}")
    panel.set_yscale("log")
    panel.set_xticks(range(len(kinds)), [DIMENSIONS[kind].replace(" above", "\nabove") for kind in kinds])
    panel.set_xlim(-0.5, len(kinds) - 0.5)
    panel.set_ylabel("effective number of features (one point a seed)")
    panel.legend(fontsize="small")
