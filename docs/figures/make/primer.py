"""The pictures of the theory primer, one for each page: ``primer.py [PAGE ...]``, all of them without an argument."""

import sys
from pathlib import Path

import numpy as np
from matplotlib.colors import LogNorm
from PIL import Image

import solvable
from solvable.plotting import COLOURS, new_figure, save_figure

FIGURES = Path(__file__).parent.parent
BLUE, ORANGE, GREEN, PINK = COLOURS[:4]
# Pictures are committed: as large as a page shows them, and with few colours.
SIZE = (1300, 1300)
SMALL = {"fontsize": "small"}
POINTS = {"linestyle": "none", "marker": "o", "markersize": 4}


def exactly_solvable():
    model = solvable.DiagonalNetwork.balanced([1.0, 0.4, 0.16], [1.0, 1.0, 1.0], initial_strength=1e-4)
    times, few = np.linspace(0, 60, 400), np.linspace(0, 60, 25)
    theory, runs = model.predict(times), model.simulate(few, samples=2000, seeds=20)
    figure, (left, right) = new_figure(columns=2, width=4.6, height=3.4)
    for place, colour in enumerate((BLUE, ORANGE, GREEN)):
        left.plot(times, theory.strength[:, place], color=colour, label=f"mode {place + 1}")
        left.errorbar(few, *mean_and_error(runs.strength[:, :, place]), color=colour, **POINTS)
    right.plot(times, theory.test_loss, color="black", label="theory")
    right.errorbar(few, *mean_and_error(runs.test_loss), color=PINK, label="20 trained networks", **POINTS)
    left.set(xlabel="flow time", ylabel="strength of a mode", title="three modes, learned in turn")
    right.set(xlabel="flow time", ylabel="test loss", title="the loss falls in stairs")
    finish(figure, "exactly-solvable", left, right)


def lazy_and_rich():
    figure, (left, right) = new_figure(columns=2, width=4.6, height=3.6)
    product = np.linspace(0.2, 4, 200)
    left.plot(product, 1 / product, color="grey", label="solved: a · b = 1")
    times = np.linspace(0, 6, 300)
    for colour, name, start in (
        (ORANGE, "rich", (0.12, 0.02)),
        (GREEN, "between", (1.0, 0.05)),
        (BLUE, "lazy", (3.0, 0.0)),
    ):
        path = solvable.ScalarNetwork(initial_first=[start[0]], initial_second=[start[1]]).predict(times)
        left.plot(path.first[:, 0], path.second[:, 0], color=colour)
        left.plot(*start, "o", color=colour)
        grown = float(path.kernel[-1] / path.kernel[0])
        right.plot(times, path.kernel / path.kernel[0], color=colour, label=f"{name}: {grown:.3g} times")
    left.set(
        xlabel="first weight a", ylabel="second weight b", title="paths of training", xlim=(0, 3.6), ylim=(-0.1, 2.2)
    )
    right.set(xlabel="flow time", ylabel="kernel / kernel at the start", yscale="log", title="growth of the kernel")
    finish(figure, "lazy-and-rich", left, right)


def large_systems():
    model, training = solvable.LinearEstimator(aspect_ratio=0.9), solvable.GradientDescent(learning_rate=0.01)
    times = np.unique(np.geomspace(10, 1e4, 40).round())
    theory = model.predict(times, training)
    figure, axes = new_figure(columns=2, width=4.6, height=3.4)
    for ax, dimension in zip(axes, (25, 800), strict=True):
        runs = model.simulate(times, training, dimension=dimension, seeds=12)
        ax.plot(times, runs.test_loss.T, color=BLUE, linewidth=0.8, alpha=0.6)
        ax.plot([], [], color=BLUE, label="one training run each")
        ax.plot(times, theory.test_loss, color="black", linewidth=2, label="theory, D → ∞")
        ax.set(
            xlabel="step",
            ylabel="test loss",
            title=f"D = {dimension} inputs",
            xscale="log",
            yscale="log",
            ylim=(3e-4, 2),
        )
    finish(figure, "large-systems", *axes)


def dynamical_mean_field():
    model = solvable.FeatureScaling(capacity=1.5, source=0.4, features=64, modes=200)
    training, steps = solvable.SGD(0.2, batch_size=16), np.arange(101)
    theory = model.predict(steps, training, correlations=True)
    few = np.array([0, 2, 5, 10, 20, 40, 60, 80, 100])
    runs = model.simulate(few, training, seeds=20)
    figure, (left, right) = new_figure(columns=2, width=4.6, height=3.6)
    left.plot(steps, theory.test_loss, color="black", label="mean-field theory")
    left.errorbar(few, *mean_and_error(runs.test_loss), color=ORANGE, label="64 features, 20 runs", **POINTS)
    left.set(xlabel="step", ylabel="test loss", title="the loss", yscale="log")
    mesh = right.pcolormesh(np.abs(theory.C_3.values), norm=LogNorm(), rasterized=True)
    right.plot([0, 100], [0, 100], ":", color="white")
    right.set(xlabel="step s", ylabel="step t", title="what the theory solves for: $C_3(t, s)$")
    figure.colorbar(mesh, ax=right)
    finish(figure, "dynamical-mean-field", left)


def random_matrices():
    ratio, dimension = 0.9, 900
    inputs = np.random.default_rng(0).normal(size=(int(dimension / ratio), dimension))
    eigenvalues = np.linalg.eigvalsh(inputs.T @ inputs / len(inputs))
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2
    grid = np.geomspace(low * 1.0001, high * 0.9999, 500)
    density = np.sqrt((high - grid) * (grid - low)) / (2 * np.pi * ratio * grid)
    figure, (left, right) = new_figure(columns=2, width=4.6, height=3.4)
    bins = np.geomspace(low * 0.7, high * 1.1, 40)
    counts = np.histogram(eigenvalues, bins)[0]
    left.stairs(
        counts / len(eigenvalues) / np.diff(np.log(bins)),
        bins,
        fill=True,
        color=BLUE,
        alpha=0.4,
        label="900 directions of data",
    )
    left.plot(grid, density * grid, color="black", label="Marchenko-Pastur law")
    left.axvline(low, color=ORANGE, linestyle="--")
    left.text(low * 1.15, 0.2, "slowest direction\n0.0026", color=ORANGE, **SMALL)
    left.set(
        xscale="log", xlabel="eigenvalue ν", ylabel="density over ln ν", title="how fast each direction is learned"
    )
    for colour, time in ((GREEN, 100), (PINK, 2350), (ORANGE, 22600)):
        right.plot(grid, (1 - 0.02 * grid) ** (2 * time), color=colour, label=f"after {time:,} steps")
    right.set(xscale="log", xlabel="eigenvalue ν", ylabel="squared error that is left", title="what is left to learn")
    finish(figure, "random-matrices", left, right)


def power_laws():
    times = np.geomspace(1, 1e6, 60)
    figure, (left, right) = new_figure(columns=2, width=4.6, height=3.6)
    for colour, richness, name in ((BLUE, 0.0, "lazy"), (ORANGE, 1.0, "features learn")):
        curve = solvable.FeatureScaling(1.5, 0.5, modes=np.inf, richness=richness).predict(
            times, solvable.GradientFlow()
        )
        slope = -np.gradient(np.log(curve.test_loss), np.log(times))
        left.plot(times, curve.test_loss, color=colour, label=name)
        right.plot(times[1:-1], slope[1:-1], color=colour, label=name)
    for level, text in ((0.5, "β = 1/2"), (2 / 3, "2β / (1 + β) = 2/3")):
        right.axhline(level, color="grey", linestyle=":")
        right.text(3, level + 0.008, text, **SMALL)
    left.set(
        xscale="log", yscale="log", xlabel="flow time", ylabel="test loss", title="straight lines on logarithmic axes"
    )
    right.set(xscale="log", xlabel="flow time", ylabel="local exponent", title="their slopes", ylim=(0.3, 0.75))
    finish(figure, "power-laws", left, right)


def emergence():
    times = np.geomspace(1, 1e5, 300)
    curve = solvable.SkillModel(exponent=0.6, skills=np.inf).predict(times, max_skills=20)
    figure, (left, right) = new_figure(columns=2, width=4.6, height=3.4)
    for skill, colour in zip((1, 2, 3, 5, 10, 20), COLOURS, strict=False):
        left.plot(times, curve.strength.sel(skill=skill), color=colour, label=f"skill {skill}")
    right.plot(times, curve.test_loss, color="black", label="loss over all skills")
    law = curve.test_loss.sel(time=3e3, method="nearest")
    right.plot(times, float(law) * (times / float(law.time)) ** -0.375, ":", color=ORANGE, label="$t^{-0.375}$")
    left.set(xscale="log", xlabel="flow time", ylabel="strength of a skill", title="each skill comes suddenly")
    right.set(xscale="log", yscale="log", xlabel="flow time", ylabel="test loss", title="their sum does not")
    finish(figure, "emergence", left, right)


def flow_and_sgd():
    model = solvable.LinearEstimator(aspect_ratio=0.5, label_noise=0.3)
    steps = np.unique(np.geomspace(1, 5000, 60).round())
    few = np.unique(np.geomspace(1, 5000, 12).round())
    figure, (ax,) = new_figure(width=6.0, height=3.8)
    ax.plot(steps, model.predict(steps, solvable.GradientFlow(0.02)).test_loss, color="black", label="gradient flow")
    for colour, size in ((BLUE, 100), (GREEN, 25), (ORANGE, 10)):
        training = solvable.SGD(0.02, batch_size=size)
        ax.plot(
            steps, model.predict(steps, training, dimension=200).test_loss, color=colour, label=f"batches of {size}"
        )
        runs = model.simulate(few, training, dimension=200, seeds=20)
        ax.errorbar(few, *mean_and_error(runs.test_loss), color=colour, **POINTS)
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="step",
        ylabel="test loss",
        title="theory (lines) and SGD (points), label noise 0.3",
    )
    finish(figure, "flow-and-sgd", ax)


def z_scores():
    model, training = solvable.LinearEstimator(aspect_ratio=0.5), solvable.GradientDescent(0.01)
    wrong = solvable.GradientDescent(0.0102)
    runs = model.simulate([200], training, dimension=200, seeds=800)
    losses = runs.test_loss.values[:, 0]
    counts = np.unique(np.geomspace(5, 800, 30).round()).astype(int)
    figure, (ax,) = new_figure(width=6.0, height=3.8)
    for colour, name, assumed in ((BLUE, "the right theory", training), (ORANGE, "a learning rate 2 % off", wrong)):
        expected = float(model.predict([200], assumed).test_loss[0])
        scores = [(losses[:count].mean() - expected) / (losses[:count].std(ddof=1) / count**0.5) for count in counts]
        ax.plot(counts, scores, "o-", color=colour, markersize=4, label=name)
    ax.axhspan(-2, 2, color="grey", alpha=0.15, linewidth=0)
    ax.text(5.2, -1.8, "chance", **SMALL)
    ax.set(
        xscale="log", xlabel="seeds", ylabel="z-score of the test loss", title="a wrong theory is found out as √seeds"
    )
    finish(figure, "z-scores", ax)


def mean_and_error(values):
    seeds = values.sizes["seed"]
    return values.mean("seed").values, values.std("seed", ddof=1).values / seeds**0.5


def finish(figure, name, *with_legend):
    for ax in with_legend:
        ax.legend(**SMALL)
    for ax in figure.axes:
        ax.title.set_fontsize("medium")
    path = save_figure(figure, FIGURES / f"primer-{name}.png")
    with Image.open(path) as image:
        small = image.convert("RGB")
    small.thumbnail(SIZE, Image.Resampling.LANCZOS)
    small.quantize(96).save(path, optimize=True)


PAGES = (
    exactly_solvable,
    lazy_and_rich,
    large_systems,
    dynamical_mean_field,
    random_matrices,
    power_laws,
    emergence,
    flow_and_sgd,
    z_scores,
)

if __name__ == "__main__":
    for draw in PAGES:
        if draw.__name__ in sys.argv[1:] or not sys.argv[1:]:
            draw()
