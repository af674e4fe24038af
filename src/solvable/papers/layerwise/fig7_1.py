"""Fig. 7.1: with more training images the test error falls faster once the network is minimum-feature.

Panel (a) has test error, test loss and κ_CKA of ResNet18 on CIFAR-10 over the number of training images, without
augmentation; panel (b) has feature metrics of networks trained with augmentation on few and many images. The thesis
gives neither its sizes nor the length of its trainings. Ours: eight sizes, balanced classes, trained as in Table 2.2
but shorter, with four times the weight decay, for as many steps as 12 epochs of all images have, and half as many up to
2500 images, which are memorised long before. All were chosen before any was trained. Seeds differ in initial weights
and in the order of images, not in the images. The largest augmented network is that of Table 2.2, which is trained
longer than the others.

An exponent is the slope of a straight line in logarithms, and the two lines meet at the size at which κ_CKA crosses
0.1. That fit does not look for the bend; a second one does, and gives the distance of its bend from there. At small
sizes the error cannot rise above that of guessing, 0.9, which makes the first line flatter.

At quick scale, small networks on three sizes of 8 x 8 digits, none of them augmented: enough to show features that
change with size, and too few for exponents.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise import _epoch_experiments as experiments
from solvable.papers.layerwise._image_pictures import THRESHOLD, at_end, draw_features
from solvable.papers.layerwise._image_training import Experiment, trained
from solvable.papers.layerwise._learning_curve import Bend, bend_at, best_bend, crossing, rank_correlation
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES = 10
# "Near" means within half a decade, slightly more than the distance between two sizes.
NEAR = 10**0.5
# The rank correlation that one in a hundred sets of eight unrelated pairs exceeds.
UNRELATED = 0.83
LABELS = {"error": "test error", "test_loss": "test loss", "mp_distance": "distance to minimum projection, κ_CKA"}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Learning curves without augmentation, and the trainings with it."""
    augmented = {f"augmented-{experiments.images_of(one)}": trained(one) for one in experiments.AUGMENTED_SIZES[scale]}
    return {"learning-curves": learning_curves(experiments.SIZES[scale])} | augmented


def learning_curves(plain: tuple[Experiment, ...]) -> xr.Dataset:
    """Test error, test loss and κ_CKA at the end of training, (size, seed); NaN where a size has fewer seeds."""
    ends = [at_end(trained(one))[["test_accuracy", "train_accuracy", "test_loss", "mp_distance"]] for one in plain]
    sizes = [experiments.images_of(one) for one in plain]
    data = xr.concat([end.drop_vars(["step", "epoch"], errors="ignore") for end in ends], "size", join="outer")
    error = (1 - data.test_accuracy).assign_attrs(long_name="test error", units="1")
    about = {"long_name": "number of training images", "units": "1", "symbol": "n"}
    return data.assign(error=error).assign_coords(size=("size", sizes, about))


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """What more images change in the error and in the features, and where the exponent changes."""
    curves = data["learning-curves"]
    return size_claims(curves) + transition_claims(curves, scale_of(data)) + augmented_claims(_augmented(data))


def _augmented(data: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """The augmented networks at the end of training, by the number of their images."""
    sizes = [experiments.images_of(one) for one in experiments.AUGMENTED_SIZES[scale_of(data)]]
    return {f"{size:,} images": at_end(data[f"augmented-{size}"]) for size in sizes}


def points(curves: xr.Dataset, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Sizes and values of all trainings, as two flat arrays."""
    both = curves[name].stack(run=("size", "seed")).dropna("run")
    return both["size"].values.astype(float), both.values


def means(curves: xr.Dataset, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Sizes, and means over seeds."""
    return curves["size"].values.astype(float), curves[name].mean("seed").values


def size_claims(curves: xr.Dataset) -> list[Claim]:
    """More images give less error, and a smaller distance to the minimum projection."""
    sizes, error = means(curves, "error")
    distance = means(curves, "mp_distance")[1]
    seeds = curves.error.notnull().sum("seed").values
    trainings = f"means over {' to '.join(map(str, sorted({seeds.min(), seeds.max()})))} seeds a size"
    return [
        Claim(
            "sizes at which the test error is below that of the next smaller size",
            int((np.diff(error) < 0).sum()),
            sizes.size - 1,
            0,
            f"a count, {trainings}; from {error[0]:.3f} to {error[-1]:.3f}",
        ),
        Claim(
            "rank correlation of size and κ_CKA",
            rank_correlation(sizes, distance),
            -1.0,
            1 - UNRELATED if sizes.size == 8 else 1e-9,
            f"one in a hundred sets of 8 unrelated pairs is beyond {UNRELATED}; fewer must all be in order. "
            f"{trainings}, from {distance[0]:.3f} to {distance[-1]:.3f}",
        ),
        Claim(
            "training accuracy (lowest of all trainings)",
            curves.train_accuracy.min(),
            1.0,
            0.01,
            "networks that know their training set are compared, all but one image in a hundred",
        ),
    ]


def transition_claims(curves: xr.Dataset, scale: Scale) -> list[Claim]:
    """Features are extended at the smallest size and minimum at the largest; the exponent changes in between."""
    sizes, distance = means(curves, "mp_distance")
    at = crossing(sizes, distance, THRESHOLD)
    reason = f"it passes 0.1 at {at:,.0f} images, between the measured sizes by a straight line in logarithms"
    if np.isnan(at):
        reason = "it does not pass 0.1 between these sizes"
    found = [
        Claim(
            f"κ_CKA with {sizes[0]:,.0f} images",
            distance[0],
            1.0,
            1 - THRESHOLD,
            f"extended-feature above 0.1; {reason}",
        ),
        Claim(f"κ_CKA with {sizes[-1]:,.0f} images", distance[-1], 0.0, THRESHOLD, "minimum-feature below 0.1"),
    ]
    if scale == "quick":
        return found
    bends = {name: bend_at(*points(curves, name), at) for name in ("error", "test_loss")}
    for name, bend in bends.items():
        found.append(
            Claim(
                f"exponent of the {LABELS[name]} before κ_CKA passes 0.1 over that after it",
                bend.before / bend.after if bend.after > 0 else np.nan,
                0.0,
                1.0,
                f"faster after, section 7.2; {_exponents(bend)}",
            )
        )
    found.append(
        Claim(
            "of test error and test loss, how many fall faster afterwards by more than two standard errors",
            sum(bend.faster_after > 2 for bend in bends.values()),
            len(bends),
            0,
            "a count; errors are from the scatter about the two lines: "
            + ", ".join(f"{bend.faster_after:.1f}" for bend in bends.values()),
        )
    )
    bend = best_bend(*points(curves, "error"))
    found.append(
        Claim(
            "decades from the size at which κ_CKA passes 0.1 to the bend of the test error",
            np.log10(bend.at / at),
            0.0,
            np.log10(NEAR),
            f"the two coincide, section 7.2; the bend of least scatter is at {bend.at:,.0f} images, from exponent "
            f"{bend.before:.3f} to {bend.after:.3f}. Sizes are a third to half a decade apart",
        )
    )
    return found


def _exponents(bend: Bend) -> str:
    before, after = f"{bend.before:.3f}({bend.before_error:.3f})", f"{bend.after:.3f}({bend.after_error:.3f})"
    return f"before {before}, after {after}, standard errors in brackets"


def augmented_claims(runs: dict[str, xr.Dataset]) -> list[Claim]:
    """(b): more data concentrate quality and utilisation in the first C features."""
    found = []
    measures = {
        f"Π*({CLASSES})": [float(run.cumulative_quality.sel(mode=CLASSES).mean()) for run in runs.values()],
        "1 - κ_CKA": [1 - float(run.mp_distance.mean()) for run in runs.values()],
    }
    for name, values in measures.items():
        found.append(
            Claim(
                f"sizes at which {name} in (b) is above that of the next smaller size",
                int((np.diff(values) > 0).sum()),
                len(values) - 1,
                0,
                "a count, means over seeds; " + ", ".join(f"{value:.4g}" for value in values),
            )
        )
    return found


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Learning curves, and the feature metrics of the augmented networks."""
    scale = scale_of(data)
    plain, augmented = experiments.SIZES[scale][-1], experiments.AUGMENTED_SIZES[scale][-1]
    figure, panels = new_figure(3, rows=2, width=4.7)
    for panel, name in zip(panels[0], LABELS, strict=True):
        _draw_curve(panel, data["learning-curves"], name)
    draw_features(panels[1], _augmented(data), CLASSES)
    panels[0][0].set_title(f"(a) {experiments.title(plain)}", fontsize="medium", loc="left")
    how = ", augmented" if augmented.augmented else ""
    panels[1][0].set_title(f"(b) {experiments.title(augmented)}{how}", fontsize="medium", loc="left")
    return figure


def _draw_curve(panel: "Axes", curves: xr.Dataset, name: str) -> None:
    sizes, values = points(curves, name)
    panel.plot(sizes, values, "o", markersize=4, color=COLOURS[0], label="trainings")
    at = crossing(*means(curves, "mp_distance"), THRESHOLD)
    if np.isfinite(at):
        panel.axvline(at, color="grey", linestyle=":", linewidth=1.2, label=f"κ_CKA = {THRESHOLD} at {at:,.0f}")
    if name == "mp_distance":
        panel.plot(*means(curves, name), "-", color=COLOURS[0], linewidth=1)
        panel.axhline(THRESHOLD, color="grey", linestyle="--", linewidth=1, label="minimum-feature below")
    else:
        bend = bend_at(sizes, values, at)
        if np.isfinite(bend.before):
            _draw_bend(panel, bend, sizes)
    panel.set(xscale="log", yscale="log", xlabel="training images, n", ylabel=LABELS[name])
    panel.legend(fontsize="small")


def _draw_bend(panel: "Axes", bend: Bend, sizes: np.ndarray) -> None:
    for low, high, exponent, colour in (
        (sizes.min(), bend.at, bend.before, COLOURS[2]),
        (bend.at, sizes.max(), bend.after, COLOURS[1]),
    ):
        ends = np.array([low, high])
        panel.plot(ends, bend.height * (ends / bend.at) ** -exponent, color=colour, label=f"exponent {exponent:.2f}")
