"""The four small pictures of the landing page: a delay, the features of networks, six figures and a DMFT solution."""

from pathlib import Path

import numpy as np
from PIL import Image

import solvable
from solvable.plotting import COLOURS, new_figure, save_figure
from solvable.timegrid import log_times

FIGURES = Path(__file__).parent.parent
SIZE = (560, 350)
COLLAGE = (
    "linear-grokking/fig1",
    "delayed-features/fig1",
    "feature-scaling/fig1",
    "layerwise/fig2-3",
    "layerwise/fig5-1",
    "feature-scaling/fig5",
)


def save(figure, name):
    path = save_figure(figure, FIGURES / f"{name}.png")
    with Image.open(path) as image:
        small = image.convert("RGB")
    small.thumbnail(SIZE, Image.Resampling.LANCZOS)
    small.quantize(64).save(path, optimize=True)


def phenomenon():
    model, training = solvable.LinearEstimator(aspect_ratio=0.9), solvable.GradientFlow(learning_rate=0.01)
    theory, crossed = model.predict(log_times(30, 1e5, 200), training), model.grokking_time(0.95, training)
    figure, (ax,) = new_figure(width=4.0, height=2.5)
    ax.axvspan(float(crossed.train_time), float(crossed.test_time), color=COLOURS[1], alpha=0.15, linewidth=0)
    ax.plot(theory.time, theory.train_accuracy, "--", color=COLOURS[1], label="training")
    ax.plot(theory.time, theory.test_accuracy, color=COLOURS[1], label="test")
    ax.text(7e3, 0.03, "grokking delay", ha="center")
    ax.set(xscale="log", xlabel="steps", ylabel="accuracy")
    ax.legend(loc="upper left", fontsize="small")
    save(figure, "door-phenomenon")


def network():
    times = np.linspace(0, 6, 100)
    figure, (ax,) = new_figure(width=4.0, height=2.5)
    for colour, name, start in ((COLOURS[1], "rich", (0.12, 0.02)), (COLOURS[0], "lazy", (3.0, 0.0))):
        curve = solvable.ScalarNetwork(initial_first=[start[0]], initial_second=[start[1]]).predict(times)
        ax.plot(times, curve.kernel / curve.kernel[0], color=colour, label=name)
    ax.set(xlabel="time", ylabel="kernel / kernel at the start", yscale="log")
    ax.legend(fontsize="small")
    save(figure, "door-network")


def paper():
    sheet = Image.new("RGB", SIZE, "white")
    width, height = SIZE[0] // 3, SIZE[1] // 2
    for place, name in enumerate(COLLAGE):
        with Image.open(FIGURES / "gallery" / f"{name}.png") as image:
            small = image.convert("RGB")
        small.thumbnail((width - 8, height - 8), Image.Resampling.LANCZOS)
        left, top = place % 3 * width, place // 3 * height
        sheet.paste(small, (left + (width - small.width) // 2, top + (height - small.height) // 2))
    sheet.quantize(64).save(FIGURES / "door-paper.png", optimize=True)


def theory():
    model = solvable.FeatureScaling(capacity=1.5, source=0.4, features=64, modes=200)
    found = model.predict(np.arange(101), solvable.SGD(0.2, batch_size=16), correlations=True)
    figure, (ax,) = new_figure(width=4.0, height=2.5)
    ax.pcolormesh(np.log10(np.abs(found.C_3.values)), cmap="viridis", rasterized=True)
    ax.set(xlabel="step s", ylabel="step t")
    ax.text(95, 8, "$C_3(t, s)$", ha="right", color="white", fontsize="x-large")
    save(figure, "door-theory")


if __name__ == "__main__":
    for draw in (phenomenon, network, paper, theory):
        draw()
