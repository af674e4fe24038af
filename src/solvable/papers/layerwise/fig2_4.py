"""Fig. 2.4: the number of features is the number of classes.

The thesis trains ResNet18 on 10, 20 and 100 classes of CIFAR-100. Those images must be added by you and were not here;
it uses the first 2, 3, 5, 7 and all 10 classes of CIFAR-10, with all 5000 training images of each. Fewer classes are
trained for 4400 steps (56 epochs of two classes, 16 of seven), since the effect of weight decay depends on the number
of steps; all ten are the network of Table 2.2, whose file describes its training. There is one seed for each number of
classes below ten. The loss is half the sum of squares with a fifth of the rate and five times the decay: for ten
classes that is the training of Table 2.2 (for a fourth of the steps, with four times the decay), and the largest rate
at which the last layer is stable does not depend on the number of outputs.

The number of features in use is D_eff(Q̂²), see Table 2.2. The outputs of C classes span C functions: C - 1 that
distinguish classes, and their sum.

The first feature is close to a constant where there are ten classes. With two or three it need not be: the constant is
then no stronger than what tells the classes apart, and the strongest feature is any mixture of them.

The quick scale has a small ResNet on 2, 3, 5 and 10 classes of 8 x 8 digits. With so few test images the overlaps
scatter, and the claim is that D_eff, above noise and of intensities, rounds to the number of classes.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise._image_pictures import (
    ABOVE_NOISE,
    DIMENSIONS,
    SQUARED,
    at_end,
    constant_claim,
    dimension_claim,
    draw_features,
    minimum_feature_claim,
    share_claim,
)
from solvable.papers.layerwise._image_training import Experiment, trained
from solvable.papers.layerwise.table2_2 import CIFAR, DIGITS, SHORT_DECAY
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = CIFAR._replace(loss="half-mse", rate=0.01, decay=5 * SHORT_DECAY, steps=4400, seeds=1, measured=())
_COUNTED = (ABOVE_NOISE, "intensity")
EXPERIMENTS: dict[Scale, dict[int, Experiment]] = {
    "quick": {classes: DIGITS._replace(classes=classes) for classes in (2, 3, 5)} | {10: DIGITS},
    "full": {classes: FEW._replace(classes=classes) for classes in (2, 3, 5, 7)} | {10: CIFAR},
}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The trained networks, one dataset per number of classes."""
    return {f"classes-{classes}": trained(experiment) for classes, experiment in EXPERIMENTS[scale].items()}


def _ends(data: Mapping[str, xr.Dataset]) -> dict[int, xr.Dataset]:
    """The networks at the end of training, by number of classes."""
    return {classes: at_end(data[f"classes-{classes}"]) for classes in EXPERIMENTS[scale_of(data)]}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """As many features as classes, for every number of classes."""
    made, ends = _full_claims if scale_of(data) == "full" else _quick_claims, _ends(data)
    return [claim for classes, end in ends.items() for claim in made(classes, end)] + [_constant_claim(ends)]


def _constant_claim(ends: Mapping[int, xr.Dataset]) -> Claim:
    """The first feature is nearly constant with ten classes, the fewest in the thesis; the reason has fewer."""
    made = constant_claim("10 classes", ends[10])
    fewer = ", ".join(
        f"{float(end.constant_overlap.min()):.2f} with {classes}" for classes, end in ends.items() if classes < 10
    )
    return dataclasses.replace(
        made, because=f"{made.because}. With fewer classes, which the thesis does not train, it is {fewer}"
    )


def _full_claims(classes: int, end: xr.Dataset) -> list[Claim]:
    name, because = f"{classes} classes", "as many as classes, as in Table 2.2"
    return [
        minimum_feature_claim(name, end),
        dimension_claim(name, end, classes, 0.05, because, SQUARED),
        dimension_claim(name, end, classes, 0.1, because, "intensity"),
        share_claim(name, end, classes, 0.05, "no others are used (Fig. 2.4 b); as for D_eff"),
    ]


def _quick_claims(classes: int, end: xr.Dataset) -> list[Claim]:
    name, half = f"{classes} classes", 0.5 / classes
    return [
        minimum_feature_claim(name, end),
        *(dimension_claim(name, end, classes, half, "rounds to the number of classes", kind) for kind in _COUNTED),
        share_claim(name, end, classes, 0.05, "no others are used (Fig. 2.4 b)"),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The feature metrics, and effective dimensions over the number of classes."""
    ends = _ends(data)
    figure, grid = new_figure(2, rows=2)
    names = {classes: f"C = {classes}" for classes in ends}
    runs = {names[classes]: end for classes, end in ends.items()}
    draw_features(grid.ravel()[:3], runs, {name: classes for classes, name in names.items()})
    _draw_dimensions(grid[1, 1], ends)
    return figure


def _draw_dimensions(panel: "Axes", ends: Mapping[int, xr.Dataset]) -> None:
    """Effective dimensions over the number of classes, one point per seed."""
    line = np.array([0, max(ends)])
    panel.plot(line, line, color="0.4", linestyle=":", linewidth=1.2, label="number of classes")
    kinds = (("intensity", "o", COLOURS[0]), (SQUARED, "s", COLOURS[1]), (ABOVE_NOISE, "^", COLOURS[2]))
    for kind, marker, colour in kinds:
        for index, (classes, end) in enumerate(ends.items()):
            values = end[f"effective_dimension_{kind}"]
            label = DIMENSIONS[kind] if index == 0 else None
            panel.plot([classes] * values.size, values, marker, color=colour, alpha=0.7, label=label)
    panel.set_xlabel("number of classes, C")
    panel.set_ylabel("effective number of features")
    panel.set_xlim(left=0)
    panel.set_ylim(bottom=0)
    panel.legend(fontsize="small")
