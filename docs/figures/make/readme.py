"""The figure of the README: a training curve with its simulation, and the plane of which it is one point."""

from pathlib import Path

import numpy as np
from matplotlib.lines import Line2D

import solvable
from solvable.plotting import COLOURS, draw_curve, draw_plane, new_figure, save_figure, set_axis
from solvable.timegrid import log_times, whole_steps

TRAINING = solvable.GradientDescent(learning_rate=0.01)
RATIOS = (0.1, 0.9, 1.5)
ACCURACIES = ("train_accuracy", "test_accuracy")


def curves(ax):
    times = whole_steps(log_times(10, 1e5, 200))
    few = whole_steps(log_times(10, 1e5, 22))
    for colour, ratio in zip(COLOURS, RATIOS, strict=False):
        model = solvable.LinearEstimator(aspect_ratio=ratio)
        theory = model.predict(times, TRAINING, dimension=400)
        runs = model.simulate(few, TRAINING, dimension=400, seeds=20)
        for name in ACCURACIES:
            for dataset in (theory, runs):
                draw_curve(ax, dataset[name], colour, dashed=name == "train_accuracy")
    shade_delay(ax)
    set_axis(ax, "x", theory.time, log=True)
    ax.set_ylabel("accuracy")
    ax.set_title("gradient descent (points) and theory (lines)", fontsize="medium")
    grey = {"color": "#444444"}
    ax.legend(
        handles=[
            *(
                Line2D([], [], color=colour, label=f"λ = {ratio:g}")
                for colour, ratio in zip(COLOURS, RATIOS, strict=False)
            ),
            Line2D([], [], linestyle="--", marker="s", markerfacecolor="white", label="training", **grey),
            Line2D([], [], linestyle="-", marker="o", label="test", **grey),
        ],
        fontsize="small",
        loc="upper left",
    )


def shade_delay(ax):
    """Shade the time between the crossings of 95 % accuracy at λ = 0.9, and name it."""
    crossed = solvable.LinearEstimator(aspect_ratio=0.9).grokking_time(0.95, TRAINING)
    first, last = float(crossed.train_time), float(crossed.test_time)
    ax.axvspan(first, last, color=COLOURS[1], alpha=0.13, linewidth=0)
    for time in (first, last):
        ax.plot([time], [0.95], "o", markersize=9, markerfacecolor="none", color="#222222", zorder=5)
    ax.annotate("", (last, 0.64), (first, 0.64), arrowprops={"arrowstyle": "<->", "color": "#222222"})
    text = f"grokking delay:\nmemorised, not\nunderstood; test\n{last / first:.1f} times later"
    ax.text(first * 1.12, 0.655, text, va="bottom", fontsize="x-small")


def plane(figure, ax):
    ratios, decays = np.linspace(0.02, 1.2, 120), np.geomspace(1e-5, 1e-2, 90)
    found = solvable.LinearEstimator(0.5).phase_diagram(aspect_ratio=ratios, weight_decay=decays)
    draw_plane(figure, ax, found.delay, x="aspect_ratio", y="weight_decay", log=("weight_decay",))
    ax.text(1.1, 3e-4, "never\ngroks", ha="center", va="center", bbox={"facecolor": "white", "edgecolor": "none"})
    ax.plot([0.9], [1.2e-5], "*", color="white", markeredgecolor="black", markersize=13, clip_on=False)
    ax.annotate(
        "left, λ = 0.9", (0.9, 1.2e-5), (0.42, 2.2e-5), color="white", arrowprops={"arrowstyle": "->", "color": "white"}
    )
    ax.set_title("how long the delay is, and where it never ends", fontsize="medium")


if __name__ == "__main__":
    figure, (left, right) = new_figure(columns=2, width=5.6, height=4.0)
    curves(left)
    plane(figure, right)
    save_figure(figure, Path(__file__).parent.parent / "readme.png")
