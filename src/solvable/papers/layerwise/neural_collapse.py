"""Neural collapse of a linear network: features fall onto one direction for each output, whatever the labels."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from solvable.models.linear_network import LinearNetwork
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES, CLASSES, WIDTH, SMALL, LARGE = 60, 4, 80, 1e-3, 2.0
# Number of outputs of each task.
OUTPUTS = {"true labels": CLASSES, "random labels": CLASSES, "regression": 1}
SIMPLEX = "a simplex; what the start leaves tilts it by its size times the root of the width"


class Task(NamedTuple):
    """Whitened samples and what is asked of them."""

    inputs: np.ndarray
    targets: np.ndarray
    classes: np.ndarray


def tasks(key: int = 0) -> dict[str, Task]:
    """Clusters with their labels, the same samples with random labels, and a scalar to be regressed (section 3.5)."""
    generator = np.random.default_rng(key)
    classes = np.repeat(np.arange(CLASSES), SAMPLES // CLASSES)
    centres = 3 * generator.normal(size=(CLASSES, SAMPLES))
    left, _, right = np.linalg.svd(centres[classes] + generator.normal(size=(SAMPLES, SAMPLES)))
    inputs = np.sqrt(SAMPLES) * left @ right
    shuffled = generator.permutation(classes)
    one_hot = np.eye(CLASSES)
    return {
        "true labels": Task(inputs, one_hot[classes], classes),
        "random labels": Task(inputs, one_hot[shuffled], shuffled),
        "regression": Task(inputs, classes[:, None].astype(float) + 1, classes),
    }


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Train networks on each task from random layers, small and large; theory for balanced layers."""
    seeds = 4 if scale == "quick" else 40
    data = {}
    for name, task in tasks().items():
        model = LinearNetwork.from_data(task.inputs, task.targets, width=WIDTH, initial_scale=SMALL)
        times = np.linspace(0, 40 if OUTPUTS[name] > 1 else 6, 81)
        runs = model.simulate(times, initial="random", seeds=seeds, key=6, weights=True)
        measures = collapse_measures(task, runs.isel(time=-1))
        strongest = variable((), model.modes[0], "strongest singular value of the correlation")
        data[_file(name)] = runs.drop_vars(["first", "second"]).assign({"strongest_mode": strongest, **measures})
        if OUTPUTS[name] > 1:
            data[f"{_file(name)}-balanced"] = model.predict(times)
    task = tasks()["true labels"]
    large = LinearNetwork.from_data(task.inputs, task.targets, width=WIDTH, initial_scale=LARGE)
    data["large-start"] = large.simulate([0.0, 100.0], initial="random", seeds=seeds, key=6)
    return data


def _file(name: str) -> str:
    return name.replace(" ", "-")


def collapse_measures(task: Task, last: xr.Dataset) -> dict[str, tuple]:
    """Each seed's scatter within over between classes, largest cosine of class means, misalignment of layers."""
    measures = []
    for first, second in zip(last["first"].values, last["second"].values, strict=True):
        features = task.inputs @ first
        means = np.stack([features[task.classes == c].mean(axis=0) for c in range(CLASSES)])
        centred = means - means.mean(axis=0)
        within = np.sum((features - means[task.classes]) ** 2) / len(features)
        between = np.sum(centred**2) / CLASSES
        unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
        cosines = (unit @ unit.T)[~np.eye(CLASSES, dtype=bool)]
        gram, back = first.T @ first, second @ second.T
        cosine = np.sum(gram * back) / (np.linalg.norm(gram) * np.linalg.norm(back))
        measures.append((within / between, cosines.max(), 1 - cosine))
    scatter, cosine, misalignment = np.transpose(measures)
    return {
        "scatter": variable("seed", scatter, "scatter within classes over that between, after training"),
        "mean_cosine": variable("seed", cosine, "largest cosine between centred class means, after training"),
        "misalignment": variable("seed", misalignment, "1 - cos(W1^T W1, W2 W2^T), after training"),
    }


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Small starts collapse whatever the labels; from a large start the same network interpolates without it."""
    made = [claim for name in OUTPUTS for claim in _claims(name, data[_file(name)])]
    last = data["large-start"].isel(time=-1)
    loss, rank = float(last.test_loss.max()), float(last["rank"].min())
    return [
        *made,
        Claim("large start: loss after training", loss, 0.0, 1e-10, "it fits as well as the small start"),
        Claim("large start: rank of the features", rank, SAMPLES, 0, "a count: nothing collapses"),
    ]


def _claims(name: str, runs: xr.Dataset) -> list[Claim]:
    rank, cosine = runs["rank"], float(runs.mean_cosine.max())
    why = "second order in the size of the start"
    made = [
        Claim(f"{name}: rank of the features at the start", float(rank[:, 0].min()), SAMPLES, 0, "a count"),
        Claim(f"{name}: rank of the features after training", float(rank[:, -1].max()), OUTPUTS[name], 0, "a count"),
        Claim(f"{name}: drift of the conserved difference", float(runs.drift.max()), 0, 1e-10, "tolerance 1e-12"),
        Claim(f"{name}: layers aligned, 1 - cos(W1^T W1, W2 W2^T)", float(runs.misalignment.max()), 0.0, SMALL**2, why),
    ]
    if OUTPUTS[name] > 1:
        made += [
            Claim(
                f"{name}: scatter within classes over that between (mean)",
                float(runs.scatter.mean()),
                SMALL**2 * (SAMPLES - CLASSES) * (1 - CLASSES / WIDTH) / (1 - 1 / CLASSES),
                4 * np.sqrt(2 / ((SAMPLES - CLASSES) * (WIDTH - CLASSES) * runs.sizes["seed"])),
                "what the start leaves outside of the modes, over class means of square 2 (1 - 1/c); 4 standard errors",
                relative=True,
            ),
            Claim(f"{name}: cosine between centred class means", cosine, -1 / (CLASSES - 1), 10 * SMALL, SIMPLEX),
            Claim(
                f"{name}: strongest singular value of the correlation",
                float(runs.strongest_mode),
                1 / np.sqrt(CLASSES),
                1e-12,
                "whitened interpolated samples: the square root of a class's share, whatever the labels",
            ),
        ]
    return made


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Effective dimension of the features, strength of the first mode, and loss over time."""
    figure, (dimension_panel, strength_panel, loss_panel) = new_figure(3)
    for colour, name in zip(COLOURS, OUTPUTS, strict=False):
        runs = data[_file(name)]
        share = runs.time / runs.time[-1]
        # The curves of true and random labels coincide.
        style = {"color": colour, "linestyle": "--" if name == "random labels" else "-", "label": name}
        dimension_panel.plot(share, runs.feature_dimension.mean("seed"), **style)
        loss_panel.plot(share, runs.test_loss.mean("seed") / runs.test_loss[:, 0].mean(), **style)
        if OUTPUTS[name] > 1:
            style["label"] = f"{name}, random start"
            strength_panel.plot(runs.time, runs.strength.mean("seed")[:, 0], **style)
    theory = data["random-labels-balanced"]
    strength_panel.plot(theory.time, theory.strength[:, 0], color=COLOURS[6], linestyle=":", label="eq. 3.15")
    dimension_panel.axhline(CLASSES, color="grey", linestyle=":", linewidth=1, label=f"{CLASSES} classes")
    dimension_panel.set_ylabel("effective dimension of the features, D_eff")
    loss_panel.set_ylabel("loss / initial loss")
    for panel in (dimension_panel, loss_panel):
        panel.set_xlabel("training time / last time")
    dimension_panel.set_yscale("log")
    strength_panel.set_xlabel("training time, t")
    strength_panel.set_ylabel("strength of the first mode, α²")
    for panel in (dimension_panel, strength_panel, loss_panel):
        panel.legend(fontsize="small")
    return figure
