"""Minimum features depend on weight decay: κ_CKA and used features over decay, loss, labels and epochs.

Not a figure of the thesis, which trains with one decay per network and calls decay helpful, not the cause (Fig. 7.2).
A fully connected network of four layers of 64 learns the 8 x 8 digits of scikit-learn, all 1400 with their labels, or
200 with labels drawn at random, with the squared error or with cross-entropy. The rate falls as a cosine, so that every
number of epochs is a training of its own. Epochs are those of 1400 images, whatever the training set.

Used features are D_eff(Q̂) counted once (:class:`~solvable.diagnostics.FeatureReport`). The rates, 0.2 and 0.05, and
the largest decay were chosen in a pilot: with a decay of 0.003 the squared error no longer lets random labels be
fitted, and with 0.01 not even true ones.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise._image_pictures import THRESHOLD
from solvable.papers.layerwise._image_training import Experiment, trained
from solvable.papers.layerwise._variables import variable
from solvable.plotting import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES, BATCH = 10, 64
STEPS_PER_EPOCH = 1400 / BATCH
RATES = {"mse": 0.2, "cross-entropy": 0.05}
LARGEST = 1e-3
DECAYS: dict[Scale, tuple[float, ...]] = {"quick": (0.0, LARGEST), "full": (0.0, 1e-4, 3e-4, LARGEST)}
SEEDS = {"quick": 2, "full": 4}
MEASURES = {
    "mp_distance": "distance to the minimum projection, κ_CKA",
    "effective_dimension_utilisation_once": "used features",
    "effective_dimension_intensity": "strong features, D_eff(ρ)",
    "train_accuracy": "training accuracy",
    "test_accuracy": "test accuracy",
}
USED = "effective_dimension_utilisation_once"


class Group(NamedTuple):
    """Trainings that differ in decay and length only."""

    loss: str
    random: bool
    epochs: tuple[int, ...]

    @property
    def title(self) -> str:
        loss = "squared error" if self.loss == "mse" else self.loss
        return f"{loss}, {'random' if self.random else 'true'} labels"


_ALL = (10, 30, 100, 300)
GROUPS: dict[Scale, dict[str, Group]] = {
    "quick": {
        "squared-true": Group("mse", False, (10, 100)),
        "squared-random": Group("mse", True, (100,)),
        "entropy-true": Group("cross-entropy", False, (100,)),
    },
    "full": {
        "squared-true": Group("mse", False, _ALL),
        "squared-random": Group("mse", True, _ALL),
        "entropy-true": Group("cross-entropy", False, _ALL),
        "entropy-random": Group("cross-entropy", True, _ALL),
    },
}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Networks at the end of their trainings: one dataset per loss and labels, over decay, epochs and seed."""
    return {name: _group(group, scale) for name, group in GROUPS[scale].items()}


def _group(group: Group, scale: Scale) -> xr.Dataset:
    decays = DECAYS[scale]
    ends = [[_end(group, decay, epochs, SEEDS[scale]) for epochs in group.epochs] for decay in decays]
    dims = ("decay", "epochs", "seed")
    variables = {
        name: variable(dims, np.array([[end[name].values for end in row] for row in ends]), words)
        for name, words in MEASURES.items()
    }
    return xr.Dataset(variables, {"decay": list(decays), "epochs": list(group.epochs)})


def _end(group: Group, decay: float, epochs: int, seeds: int) -> xr.Dataset:
    experiment = Experiment(
        "fcn-small",
        "digits",
        train=200 if group.random else None,
        label_noise=float(group.random),
        loss=group.loss,
        rate=RATES[group.loss],
        decay=decay,
        steps=round(epochs * STEPS_PER_EPOCH),
        batch=BATCH,
        schedule="cosine",
        seeds=seeds,
    )
    return trained(experiment).isel(step=-1)


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Decay makes features few with the squared error, most with random labels; cross-entropy stays extended."""
    true, noise = data["squared-true"], data["squared-random"]
    after = {name: part.isel(epochs=-1) for name, part in data.items()}
    last = int(true.epochs[-1])
    made = [_fitted(GROUPS[scale_of(data)][name].title, part) for name, part in after.items()]
    made += [
        _less(f"squared error, true labels, {last} epochs: κ_CKA", after["squared-true"].mp_distance),
        Claim.at_most(
            f"squared error, true labels, {last} epochs, decay {LARGEST:g}: κ_CKA (largest seed)",
            float(after["squared-true"].mp_distance.sel(decay=LARGEST).max()),
            THRESHOLD,
            "minimum-feature by Definition 2",
        ),
        _less(f"squared error, random labels, {last} epochs: used features", after["squared-random"][USED]),
        Claim.at_most(
            f"squared error, random labels, {last} epochs, decay {LARGEST:g}: used features (largest seed)",
            float(noise[USED].isel(epochs=-1).sel(decay=LARGEST).max()),
            1.1 * CLASSES,
            "as many as classes, to one feature",
        ),
        Claim.at_least(
            f"squared error, random labels, {last} epochs, no decay: used features (smallest seed)",
            float(noise[USED].isel(epochs=-1).sel(decay=0.0).min()),
            1.3 * CLASSES,
            "the same labels are fitted with features that nothing removes",
        ),
        Claim.ordered(
            f"squared error, true labels, decay {LARGEST:g}: κ_CKA falls with epochs (means)",
            true.mp_distance.sel(decay=LARGEST).mean("seed").values[::-1],
            "what decay removes goes with rate times decay times steps",
        ),
        Claim.at_least(
            f"cross-entropy, true labels, {last} epochs: κ_CKA at any decay (smallest)",
            float(after["entropy-true"].mp_distance.min()),
            THRESHOLD,
            "extended-feature: features are of unequal strength, which decay does not change",
        ),
    ]
    return made


def _fitted(title: str, part: xr.Dataset) -> Claim:
    return Claim.at_least(
        f"{title}: training accuracy at any decay (smallest)",
        float(part.train_accuracy.min()),
        0.97,
        "what is compared has learned its labels",
    )


def _less(what: str, values: xr.DataArray) -> Claim:
    return Claim.ordered(
        f"{what}, decay {LARGEST:g} below none (largest seed against smallest)",
        [float(values.sel(decay=LARGEST).max()), float(values.sel(decay=0.0).min())],
        "decay takes away what random layers left in the features and the outputs do not need",
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """κ_CKA and used features over epochs, one column for each loss and labels and one colour for each decay."""
    groups = GROUPS[scale_of(data)]
    figure, grid = new_figure(len(groups), rows=2, width=3.6, height=3.2)
    rows = (("mp_distance", "κ_CKA", "log", THRESHOLD), (USED, "used features", "linear", CLASSES))
    for row, (measure, label, scale, mark) in enumerate(rows):
        values = [data[name][measure] for name in groups]
        lowest = min(float(one.min()) for one in values)
        highest = max(float(one.max()) for one in values)
        for panel, group, one in zip(grid[row], groups.values(), values, strict=True):
            _draw_seeds(panel, one)
            panel.axhline(mark, color="0.4", linestyle=":", linewidth=1.2)
            panel.set(xscale="log", yscale=scale, xlabel="epochs of 1400 images", ylabel=label)
            panel.set_ylim(0.9 * min(lowest, mark), 1.1 * highest)
            panel.set_title(group.title, fontsize="medium")
    grid[0, 0].legend(fontsize="small", title="weight decay", title_fontsize="small")
    return figure


def _draw_seeds(panel: "Axes", values: xr.DataArray) -> None:
    from matplotlib import colormaps

    colours = colormaps["viridis"](np.linspace(0.85, 0.1, values.sizes["decay"]))
    for colour, decay in zip(colours, values.decay.values, strict=True):
        one = values.sel(decay=decay)
        panel.plot(one.epochs, one.mean("seed"), "o-", color=colour, markersize=4, linewidth=1.4, label=f"{decay:g}")
        for seed in range(one.sizes["seed"]):
            panel.plot(one.epochs, one.isel(seed=seed), ".", color=colour, markersize=3, alpha=0.6)
