"""Pictures of docs/numerics/streaming-statistics.md: what flows where, and errors against mean and cost."""

import time
from pathlib import Path

import numpy as np
from matplotlib.patches import FancyBboxPatch

from solvable.diagnostics import FeatureStatistics
from solvable.plotting import COLOURS, new_figure

FIGURES = Path(__file__).parents[1]


def algorithm() -> None:
    figure, (ax,) = new_figure(1, width=9.0, height=3.0)
    boxes = (
        (0.0, 2.1, "batch 1", "features Φ, outputs f, targets y"),
        (0.0, 1.0, "batch 2", "…"),
        (0.0, -0.1, "batch n", "any number, any size"),
        (3.4, 2.1, "shift", "means of batch 1, kept"),
        (
            3.4,
            0.6,
            "sums about the shift, float64",
            "z zᵀ,  z aᵀ,  a aᵀ  with  z = Φ − shift,\na = (f, y or one-hot, 1) − shift",
        ),
        (7.6, 0.6, "report", "covariances, modes,\nquality, utilisation, collapse"),
    )
    for x, y, title, text in boxes:
        width = 2.4 if x != 3.4 else 3.4
        ax.add_patch(
            FancyBboxPatch((x, y), width, 0.8, boxstyle="round,pad=0.06", facecolor="#EAF3FA", edgecolor=COLOURS[0])
        )
        ax.text(x + 0.08, y + 0.6, title, fontsize=10, weight="bold", va="center")
        ax.text(x + 0.08, y + 0.22, text, fontsize=8, va="center")
    for begin, end in (
        ((2.5, 2.5), (3.3, 2.5)),
        ((2.5, 2.3), (3.3, 1.3)),
        ((2.5, 1.4), (3.3, 1.1)),
        ((2.5, 0.4), (3.3, 0.8)),
        ((5.1, 2.0), (5.1, 1.5)),
        ((6.9, 1.0), (7.5, 1.0)),
    ):
        ax.annotate("", end, begin, arrowprops={"arrowstyle": "->", "color": "#444444"})
    ax.text(3.4, -0.1, "memory (p + C)², whatever the number of samples;  a + b joins two shards", fontsize=9)
    ax.set(xlim=(-0.2, 10.2), ylim=(-0.4, 3.1))
    ax.axis("off")
    figure.savefig(FIGURES / "numerics-streaming-statistics.png", dpi=90)


def errors() -> None:
    figure, (left, right) = new_figure(2, width=4.8)
    rng = np.random.default_rng(0)
    samples, width = 20_000, 8
    noise = rng.normal(size=(samples, width))
    offsets = 10.0 ** np.arange(0, 9)
    rows = {"about the first batch's mean": [], "Σx² − (Σx)²/n in float64": [], "the same in float32": []}
    for offset in offsets:
        values = noise + offset
        centred = values - values.mean(0)
        exact = (centred.astype(np.longdouble) ** 2).mean(0) - centred.astype(np.longdouble).mean(0) ** 2
        statistics = FeatureStatistics()
        for part in np.split(values, 20):
            statistics.update(part, part[:, :1], part[:, 0])
        rows["about the first batch's mean"].append(worst(np.diag(statistics.feature_covariance), exact))
        rows["Σx² − (Σx)²/n in float64"].append(worst((values**2).mean(0) - values.mean(0) ** 2, exact))
        single = values.astype(np.float32)
        rows["the same in float32"].append(worst((single**2).mean(0) - single.mean(0) ** 2, exact))
    for colour, (name, points) in zip(COLOURS, rows.items(), strict=False):
        print(name, points)
        left.loglog(offsets, np.maximum(points, 1e-17), "o-", color=colour, label=name)
    left.set(xlabel="mean of a feature over its spread", ylabel="relative error of the variance", ylim=(1e-17, 1e3))
    left.legend(fontsize="small")
    sizes, seconds = (64, 128, 256, 512, 1024), []
    for size in sizes:
        batch = rng.normal(size=(2048, size)).astype(np.float32), rng.normal(size=(2048, 10)), rng.integers(0, 10, 2048)
        taken = []
        for _ in range(3):
            statistics = FeatureStatistics(classes=10).update(*batch)
            begin = time.process_time()
            statistics.update(*batch)
            taken.append((time.process_time() - begin) / 2048 * 1e6)
        seconds.append(min(taken))
    print(seconds)
    right.loglog(sizes, seconds, "o-", color=COLOURS[0], label="measured, one thread")
    right.loglog(sizes, [seconds[-1] * (size / sizes[-1]) ** 2 for size in sizes], ":", color="grey", label="p²")
    right.set(xlabel="features p", ylabel="processor microseconds a sample")
    right.legend(fontsize="small")
    figure.savefig(FIGURES / "numerics-streaming-statistics-error.png", dpi=90)


def worst(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.max(np.abs(found / exact - 1)))


if __name__ == "__main__":
    algorithm()
    errors()
