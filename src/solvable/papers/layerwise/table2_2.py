"""Table 2.2: ResNet18 and VGG16 on images are in the minimum-feature regime.

As in the thesis: the squared error, SGD with momentum 0.9, the learning rate 0.05 of ResNet18 and its weight decay
0.001, crops and flips for CIFAR-10, MNIST padded to 32 x 32. Different: 50 epochs of CIFAR-10, 10 of MNIST and 12 of
Fashion-MNIST in place of 200; batches of 128 images, which the thesis does not state; steps in bfloat16; a rate that
rises over 200 steps (400 for VGG16, which has 0.01 in the thesis) and falls to zero as a cosine. Weight decay removes
features that are not used, by a factor that depends on the sum of rate times decay: for the short trainings on MNIST
and Fashion-MNIST the decay is 0.008, chosen after single trainings with 0.004 and 0.008 (the first ended with 10.8
features above noise, the second with 10.3). Fashion-MNIST is not in the thesis. The rows of CIFAR-100
are computed where its images were added (`solvable data add cifar-100 FILE`), with the training of CIFAR-10; elsewhere
they are skipped with a warning, and claims are those on the rows that are there. They have not been run at full scale.

D_eff(Q̂) as measured includes chance: each of 512 modes overlaps with the outputs by 1/n_test, and a network that uses
exactly 10 features would show 14.6 on 10,000 test images. The printed 10.0 cannot be that. Eq. 2.5 as printed has a
square, which gives small overlaps no weight: D_eff(Q̂²) can be compared with the table. D_eff(Q̂) above noise is claimed
in addition. It counts twice those weak features that overlap with strong ones on new images, as they do in networks
that have memorised their training set; D_eff(Q̂) counted once does not. That measure was added after the trainings at
full scale were run, so their ledger has no value of it.

The quick scale has small networks on 8 x 8 digits. They reach the regime in seconds; rate, decay and length were chosen
among a dozen trials on these digits. With cross-entropy the same ResNet ended at κ_CKA = 0.06 to 0.12, with the squared
error at 0.024 to 0.027.
"""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from solvable.networks.data import stored_images
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise._image_pictures import (
    ABOVE_NOISE,
    ONCE,
    SQUARED,
    accuracy_claim,
    at_end,
    constant_claim,
    dimension_claim,
    distance_axis,
    draw_features,
    minimum_feature_claim,
    share_claim,
)
from solvable.papers.layerwise._image_training import Experiment, trained
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES = 10


class Printed(NamedTuple):
    """A row of the thesis' table."""

    intensity: float
    utilisation: float
    distance: float
    accuracy: float


class Row(NamedTuple):
    """A network on a set of images, its row of the thesis' table, and the accuracy that every seed must reach."""

    name: str
    experiment: Experiment
    printed: Printed | None = None
    accuracy: float | None = None
    classes: int = CLASSES

    @property
    def file_name(self) -> str:
        """The name of its dataset."""
        return self.name.lower().replace(", ", "-").replace(" ", "-")


def epochs(number: float, images: int = 50_000, batch: int = 128) -> int:
    """The number of steps in so many epochs, rounded down."""
    return int(number * images) // batch


# Figures along epochs show these trainings: at short intervals at first, and again when the training set is fitted.
_CIFAR_EPOCHS = (1, 2, 3, 5, 8, 12, 18, 24, 30, 34, 38, 42, 45, 48)
_MNIST_EPOCHS = (0.25, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9)

# What weight decay removes depends on rate times decay times steps: this is for a fourth of the steps.
SHORT_DECAY = 4e-3
CIFAR = Experiment(
    "resnet18",
    "cifar-10",
    augmented=True,
    steps=epochs(50),
    schedule="cosine",
    warmup=200,
    precision="bfloat16",
    measured=tuple(map(epochs, _CIFAR_EPOCHS)),
    points=10_000,  # the whole test set: chance overlaps are the same along training and at the end
)
MNIST = CIFAR._replace(images="mnist", augmented=False, steps=epochs(10, 60_000), decay=8e-3, measured=())
MNIST_ON_ITS_WAY = MNIST._replace(measured=tuple(epochs(epoch, 60_000) for epoch in _MNIST_EPOCHS))
FASHION = MNIST._replace(images="fashion-mnist", steps=epochs(12, 60_000))
VGG = {"network": "vgg16", "warmup": 400}
VGG_MNIST, VGG_CIFAR, VGG_FASHION = (one._replace(**VGG) for one in (MNIST, CIFAR, FASHION))  # type: ignore[arg-type]
DIGITS = Experiment("resnet-small", "digits", loss="mse", steps=450, batch=32, rate=0.2, decay=5e-3, schedule="cosine")
ROWS: dict[Scale, tuple[Row, ...]] = {
    "quick": (
        Row("small ResNet, digits", DIGITS, accuracy=0.97),
        Row("small VGG, digits", DIGITS._replace(network="vgg-small", warmup=100), accuracy=0.97),
    ),
    "full": (
        Row("ResNet18, MNIST", MNIST_ON_ITS_WAY, Printed(10.1, 10.0, 4.4e-3, 0.997), 0.994),
        Row("VGG16, MNIST", VGG_MNIST, Printed(10.0, 10.0, 1.8e-2, 0.994), 0.994),
        Row("ResNet18, CIFAR-10", CIFAR, Printed(10.4, 10.0, 3.1e-3, 0.948), 0.93),
        Row("VGG16, CIFAR-10", VGG_CIFAR, Printed(10.0, 10.0, 1.1e-3, 0.933), 0.92),
        Row("ResNet18, Fashion-MNIST", FASHION),
        Row("VGG16, Fashion-MNIST", VGG_FASHION),
    ),
}
# These need images that nobody can fetch, only add.
HUNDRED = tuple(
    Row(f"{name}, CIFAR-100", experiment._replace(images="cifar-100", classes=100), classes=100)
    for name, experiment in (("ResNet18", CIFAR), ("VGG16", VGG_CIFAR))
)


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The trained networks, one dataset per row."""
    rows = ROWS[scale]
    if scale == "full":
        if "cifar-100" in stored_images():
            rows += HUNDRED
        else:
            warnings.warn(
                "the rows of CIFAR-100 are skipped, and claims on them: its images are not here. Run `solvable data "
                "add cifar-100 cifar-100-binary.tar.gz` first",
                stacklevel=2,
            )
    return {row.file_name: trained(row.experiment) for row in rows}


def rows_in(data: Mapping[str, xr.Dataset]) -> tuple[Row, ...]:
    """The rows that were computed: those of CIFAR-100 only where its images are."""
    return ROWS[scale_of(data)] + tuple(row for row in HUNDRED if row.file_name in data)


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Every network is minimum-feature, with as many features as classes."""
    scale = scale_of(data)
    return [claim for row in rows_in(data) for claim in row_claims(row, at_end(data[row.file_name]), scale)]


def row_claims(row: Row, end: xr.Dataset, scale: Scale) -> list[Claim]:
    """The claims on one row, from its networks at the end of training."""
    printed = row.printed
    found = []
    if row.accuracy is not None:
        shorter = "the thesis' value after 200 epochs, less what a shorter training costs"
        because = shorter if scale == "full" else "digits are told apart; chance is a tenth"
        found.append(accuracy_claim(row.name, end, row.accuracy, because, printed.accuracy if printed else None))
    kinds = {
        ABOVE_NOISE: "as many as classes: half a feature",
        SQUARED: "the same, of squares as eq. 2.5 prints them",
        ONCE: "the same, each part of the outputs counted for the strongest feature that has it",
    }
    return [
        *found,
        minimum_feature_claim(row.name, end, printed.distance if printed else None),
        share_claim(row.name, end, row.classes, 0.05, "no others are used; as for D_eff"),
        constant_claim(row.name, end),
        *(
            dimension_claim(row.name, end, row.classes, 0.05, because, kind, printed.utilisation if printed else None)
            for kind, because in kinds.items()
        ),
        dimension_claim(
            row.name,
            end,
            row.classes,
            0.1,
            "as many as classes: one feature; the thesis' rows are up to 4 % off after 200 epochs or more",
            kind="intensity",
            printed=printed.intensity if printed else None,
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The columns of the table as points, and the feature metrics."""
    rows = rows_in(data)
    runs = {row.name: at_end(data[row.file_name]) for row in rows}
    figure, grid = new_figure(3, rows=2, width=5.2)
    _draw_dimensions(grid[0, 0], rows, runs)
    _draw_points(grid[0, 1], rows, [runs[row.name].mp_distance for row in rows], "distance")
    distance_axis(grid[0, 1])
    _draw_points(grid[0, 2], rows, [runs[row.name].test_accuracy for row in rows], "accuracy")
    grid[0, 2].set_xlabel("test accuracy")
    grid[0, 1].legend(fontsize="small")
    shown = {name: run for name, run in runs.items() if "CIFAR" in name} or runs
    classes = {row.name: row.classes for row in rows if row.name in shown}
    draw_features(grid[1], shown, classes if set(classes.values()) != {CLASSES} else CLASSES)
    return figure


def _draw_points(panel: "Axes", rows: tuple[Row, ...], values: list[xr.DataArray], column: str) -> None:
    """One height per row of the table, one point per seed, and a cross for the thesis' value."""
    heights = np.arange(len(rows))[::-1]
    for height, one in zip(heights, values, strict=True):
        label = "one point per seed" if height == 0 else None
        panel.plot(one, [height] * one.size, "o", color=COLOURS[0], alpha=0.8, label=label)
    printed = [(getattr(row.printed, column), height) for row, height in zip(rows, heights, strict=True) if row.printed]
    if printed:
        panel.plot(*zip(*printed, strict=True), "x", color="black", markersize=9, label="thesis, 200 epochs")
    _name_rows(panel, rows)


def _draw_dimensions(panel: "Axes", rows: tuple[Row, ...], runs: Mapping[str, xr.Dataset]) -> None:
    """D_eff of intensity and of utilisation: squared, above noise, and as measured."""
    heights = np.arange(len(rows))[::-1]
    kinds: tuple[tuple[str, str, dict[str, Any], float], ...] = (
        ("intensity", "D_eff(ρ)", {"marker": "o", "color": COLOURS[0]}, 0.2),
        (SQUARED, "D_eff(Q̂²), eq. 2.5 as printed", {"marker": "s", "color": COLOURS[1]}, 0),
        (ABOVE_NOISE, "D_eff(Q̂) above noise", {"marker": "^", "color": COLOURS[2]}, -0.2),
        ("utilisation", "D_eff(Q̂) with chance", {"marker": "^", "color": COLOURS[2], "fillstyle": "none"}, -0.2),
    )
    printed = {"intensity": "intensity", SQUARED: "utilisation"}
    for kind, label, style, shift in kinds:
        for index, (row, height) in enumerate(zip(rows, heights, strict=True)):
            values = runs[row.name][f"effective_dimension_{kind}"]
            name = label if index == 0 else None
            panel.plot(values, [height + shift] * values.size, linestyle="none", label=name, **style)
            if row.printed and kind in printed:
                panel.plot(getattr(row.printed, printed[kind]), height + shift, "x", color="black", markersize=9)
    panel.axvline(CLASSES, color="0.4", linestyle=":", linewidth=1.2, label=f"C = {CLASSES}")
    panel.set_xlabel("effective number of features")
    panel.legend(fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    _name_rows(panel, rows)


def _name_rows(panel: "Axes", rows: tuple[Row, ...]) -> None:
    panel.set_yticks(range(len(rows)), [row.name.replace(", ", "\n") for row in reversed(rows)])
    panel.set_ylim(-0.6, len(rows) - 0.4)
