"""Neural collapse of a linear network: features fall onto one direction for each output, whatever the labels."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from solvable.models.linear_network import LinearNetwork
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, new_figure

SAMPLES, CLASSES, WIDTH, SMALL, LARGE = 60, 4, 80, 1e-3, 2.0
SIMPLEX = "a simplex; what the start leaves tilts it by its size times the root of the width"


class Task(NamedTuple):
    """Whitened samples and what is asked of them."""

    inputs: np.ndarray
    targets: np.ndarray
    classes: np.ndarray
    outputs: int


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
        "true labels": Task(inputs, one_hot[classes], classes, CLASSES),
        "random labels": Task(inputs, one_hot[shuffled], shuffled, CLASSES),
        "regression": Task(inputs, classes[:, None].astype(float) + 1, classes, 1),
    }


def reproduce(scale: Scale) -> Reproduction:
    seeds = 4 if scale == "quick" else 40
    figure, (dimension_panel, strength_panel, loss_panel) = new_figure(3)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for colour, (name, task) in zip(COLOURS, tasks().items(), strict=False):
        model = LinearNetwork.from_data(task.inputs, task.targets, width=WIDTH, initial_scale=SMALL)
        times = np.linspace(0, 40 if task.outputs > 1 else 6, 81)
        runs = model.simulate(times, initial="random", seeds=seeds, key=6, weights=True)
        datasets[name] = runs.drop_vars(["first", "second"])
        claims += _claims(name, task, model, runs)
        share = times / times[-1]
        # The curves of true and random labels coincide.
        style = {"color": colour, "linestyle": "--" if name == "random labels" else "-", "label": name}
        dimension_panel.plot(share, runs.feature_dimension.mean("seed"), **style)
        loss_panel.plot(share, runs.test_loss.mean("seed") / runs.test_loss[:, 0].mean(), **style)
        if task.outputs > 1:
            theory = model.predict(times)
            datasets[f"{name}, balanced"] = theory
            strength_panel.plot(times, runs.strength.mean("seed")[:, 0], **{**style, "label": f"{name}, random start"})
    strength_panel.plot(theory.time, theory.strength[:, 0], color=COLOURS[6], linestyle=":", label="eq. 3.15")
    claims += _lazy_claims(seeds)
    dimension_panel.axhline(CLASSES, color="grey", linestyle=":", linewidth=1, label=f"{CLASSES} classes")
    dimension_panel.set_ylabel("effective dimension of the features, D_eff")
    loss_panel.set_ylabel("loss / its start")
    for panel in (dimension_panel, loss_panel):
        panel.set_xlabel("training time / last time")
    dimension_panel.set_yscale("log")
    strength_panel.set_xlabel("training time, t")
    strength_panel.set_ylabel("strength of the first mode, α²")
    for panel in (dimension_panel, strength_panel, loss_panel):
        panel.legend(fontsize="small")
    return Reproduction(datasets, figure, claims)


def _claims(name: str, task: Task, model: LinearNetwork, runs: xr.Dataset) -> list[Claim]:
    last = runs.isel(time=-1)
    measures = np.array(_collapse(task, last))
    scatter, (cosine, alignment) = measures[:, 0].mean(), measures[:, 1:].max(axis=0)
    why = "second order in the size of the start"
    claims = [
        Claim(f"{name}: rank of the features at the start", float(runs["rank"][:, 0].min()), SAMPLES, 0, "a count"),
        Claim(f"{name}: rank of the features after training", float(last["rank"].max()), task.outputs, 0, "a count"),
        Claim(f"{name}: drift of the conserved difference", float(runs.drift.max()), 0, 1e-10, "tolerance 1e-12"),
        Claim(f"{name}: layers aligned, 1 - cos(W1^T W1, W2 W2^T)", alignment, 0.0, SMALL**2, why),
    ]
    if task.outputs > 1:
        claims += [
            Claim(
                f"{name}: scatter within classes over that between (mean)",
                scatter,
                SMALL**2 * (SAMPLES - CLASSES) * (1 - CLASSES / WIDTH) / (1 - 1 / CLASSES),
                4 * np.sqrt(2 / ((SAMPLES - CLASSES) * (WIDTH - CLASSES) * runs.sizes["seed"])),
                "what the start leaves outside of the modes, over class means of square 2 (1 - 1/c); 4 standard errors",
                relative=True,
            ),
            Claim(f"{name}: cosine between centred class means", cosine, -1 / (CLASSES - 1), 10 * SMALL, SIMPLEX),
            Claim(
                f"{name}: strongest singular value of the correlation",
                float(model.modes[0]),
                1 / np.sqrt(CLASSES),
                1e-12,
                "whitened interpolated samples: the square root of a class's share, whatever the labels",
            ),
        ]
    return claims


def _collapse(task: Task, last: xr.Dataset) -> list[tuple[float, float, float]]:
    """Each seed's scatter within over between classes, largest cosine of class means, misalignment of layers."""
    results = []
    for seed in range(last.sizes["seed"]):
        first, second = last["first"].values[seed], last["second"].values[seed]
        features = task.inputs @ first
        means = np.stack([features[task.classes == c].mean(axis=0) for c in range(CLASSES)])
        centred = means - means.mean(axis=0)
        within = np.sum((features - means[task.classes]) ** 2) / len(features)
        between = np.sum(centred**2) / CLASSES
        unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
        cosines = (unit @ unit.T)[~np.eye(CLASSES, dtype=bool)]
        gram, back = first.T @ first, second @ second.T
        cosine = np.sum(gram * back) / (np.linalg.norm(gram) * np.linalg.norm(back))
        results.append((within / between, float(cosines.max()), 1 - float(cosine)))
    return results


def _lazy_claims(seeds: int) -> list[Claim]:
    """From a large start the same network interpolates without collapsing."""
    task = tasks()["true labels"]
    model = LinearNetwork.from_data(task.inputs, task.targets, width=WIDTH, initial_scale=LARGE)
    last = model.simulate([0.0, 100.0], initial="random", seeds=seeds, key=6).isel(time=-1)
    loss = float(last.test_loss.max())
    return [
        Claim("large start: loss after training", loss, 0.0, 1e-10, "it fits as well as the small start"),
        Claim("large start: rank of the features", float(last["rank"].min()), SAMPLES, 0, "a count: nothing collapses"),
    ]
