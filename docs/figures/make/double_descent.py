"""The picture of double descent: test loss over the number of samples, at the end of training and at its best time."""

from pathlib import Path

import numpy as np

from solvable import LinearFeatures
from solvable.plotting import COLOURS, new_figure, save_figure

MODES = 100
TIMES = np.geomspace(0.01, 1e5, 80)


def losses(intensities, samples, times=TIMES):
    target = np.zeros(len(intensities))
    target[:MODES] = 0.1
    return LinearFeatures(intensities, target, samples=samples, noise=0.5).predict(times).test_loss.values


def main():
    samples = np.unique(
        np.r_[np.geomspace(5, 96, 24).round(), 98, 99, 101, 102, np.geomspace(104, 500, 24).round()]
    ).astype(int)
    figure, (ax,) = new_figure(width=6.0, height=3.8)
    curves = np.array([losses(np.ones(MODES), count) for count in samples])
    tail = np.r_[np.ones(MODES), np.full(4000, 1e-3)]
    ax.plot(samples, curves[:, -1], color=COLOURS[1], label="end of training")
    ax.plot(samples, curves.min(1), color=COLOURS[0], label="stopped at the best time")
    few = samples[::4]
    ax.plot(
        few,
        [losses(tail, count, TIMES[-1:])[0] for count in few],
        color=COLOURS[2],
        label="end of training, 4000 weak modes more",
    )
    ax.axvline(MODES, color="grey", linestyle=":")
    ax.text(MODES * 1.06, 12, "as many samples\nas modes", fontsize="small", va="top")
    ax.set(xscale="log", yscale="log", xlabel="samples n", ylabel="test loss", title="double descent")
    ax.title.set_fontsize("medium")
    ax.legend(fontsize="small", loc="upper left")
    save_figure(figure, Path(__file__).parent.parent / "double-descent.png")


if __name__ == "__main__":
    main()
