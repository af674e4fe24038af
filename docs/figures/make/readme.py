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


def plane(figure, ax):
    ratios, decays = np.linspace(0.02, 1.2, 120), np.geomspace(1e-5, 1e-2, 90)
    found = solvable.LinearEstimator(0.5).phase_diagram(aspect_ratio=ratios, weight_decay=decays)
    draw_plane(figure, ax, found.delay, x="aspect_ratio", y="weight_decay", log=("weight_decay",))
    ax.set_title("when it groks, and where it never does", fontsize="medium")


if __name__ == "__main__":
    figure, (left, right) = new_figure(columns=2, width=5.6, height=4.0)
    curves(left)
    plane(figure, right)
    save_figure(figure, Path(__file__).parent.parent / "readme.png")
