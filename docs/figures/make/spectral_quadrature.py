"""Pictures of docs/numerics/spectral-quadrature.md: where the nodes lie, and errors against their number."""

from pathlib import Path

import jax
import numpy as np
from scipy.special import ive

from solvable.models.feature_scaling.mode_quadrature import power_law_modes
from solvable.models.linear_estimator.spectra import MarchenkoPastur, trapezoid_rule
from solvable.plotting import COLOURS, new_figure

# Numerics below the public functions, which switch float64 on for themselves.
jax.config.update("jax_enable_x64", True)

FIGURES = Path(__file__).parents[1]


def algorithm() -> None:
    figure, (left, right) = new_figure(2, width=4.8)
    ratio = 0.9
    law = MarchenkoPastur(ratio, trapezoid_rule(step=0.6, lower=-12.0, upper=8.0))
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2
    nu = np.geomspace(low * 1.0001, high * 0.9999, 2000)
    left.loglog(nu, np.sqrt((high - nu) * (nu - low)) / (2 * np.pi * ratio * nu), color=COLOURS[0], label="density")
    left.loglog(
        np.asarray(law.nodes), np.full(law.nodes.shape, 2e-2), "|", color=COLOURS[1], markersize=14, label="nodes"
    )
    left.set(xlabel="eigenvalue ν", ylim=(1e-2, 30), title="Marchenko-Pastur, λ = 0.9")
    left.legend(fontsize="small")
    modes = power_law_modes(1.5, 0.5, np.inf, 1e4)
    head, tail = modes.ranks[:17], modes.ranks.size - 2
    right.loglog(head, modes.eigenvalues[:17], "o", color=COLOURS[0], markersize=4, label="modes, one by one")
    middle = slice(17, tail)
    right.loglog(
        modes.ranks[middle], modes.eigenvalues[middle], ".", color=COLOURS[1], label="Gauss nodes, equal in log λ"
    )
    right.loglog(modes.ranks[tail:], modes.eigenvalues[tail:], "s", color=COLOURS[2], label="two tail nodes")
    right.axhline(1e-4, color="grey", linewidth=0.8, linestyle=":")
    right.annotate("1/t: what has been learned", (1.3, 1.5e-4), fontsize=8)
    right.set(xlabel="rank k", ylabel="eigenvalue", title=f"infinitely many modes, {modes.ranks.size} nodes, t = 10⁴")
    right.legend(fontsize="small")
    figure.savefig(FIGURES / "numerics-spectral-quadrature.png", dpi=90)


def errors() -> None:
    figure, (left, right) = new_figure(2, width=4.8)
    s = 4 * 0.01 * np.array([1e2, 1e4, 1e6])
    exact = ive(0, 2 * s) + ive(1, 2 * s)
    ours, gauss = [], []
    for step in (1.2, 0.9, 0.6, 0.45, 0.3, 0.15):
        law = MarchenkoPastur(1.0, trapezoid_rule(step=step))
        values = np.asarray(law.average(np.exp(-s[:, None] * np.asarray(law.nodes))))
        ours.append((law.nodes.size, np.abs(values / exact - 1).max()))
    for count in (42, 84, 168, 336, 1000, 3000):
        # Chebyshev's second kind has the weight of the bulk's edges: sqrt((4 - nu) nu), divided by nu at ratio 1.
        angle = np.pi * np.arange(1, count + 1) / (count + 1)
        nu, weight = 2 + 2 * np.cos(angle), np.pi / (count + 1) * np.sin(angle) ** 2
        values = (np.exp(-s[:, None] * nu) / nu * weight).sum(1) * 2 / np.pi
        gauss.append((count, np.abs(values / exact - 1).max()))
    print(ours, gauss)
    left.loglog(*zip(*ours, strict=True), "o-", color=COLOURS[0], label="trapezoid in log position")
    left.loglog(*zip(*gauss, strict=True), "s-", color=COLOURS[1], label="Gauss-Chebyshev on the bulk")
    left.set(xlabel="nodes", ylabel="largest relative error", title="test loss at λ = 1, t = 10² … 10⁶ steps")
    left.legend(fontsize="small")
    times = np.geomspace(1, 1e6, 13)

    def signal(modes):
        return np.exp(-2 * np.multiply.outer(times, modes.eigenvalues)) @ (modes.eigenvalues * modes.targets)

    best = signal(power_law_modes(1.5, 0.5, np.inf, 1e6, head=256, per_decade=30, reach=1e6))
    points = []
    for head, density, reach in ((4, 3, 10), (8, 5, 1e2), (12, 6, 1e2), (16, 7, 1e3), (24, 8, 1e3), (32, 10, 1e4)):
        modes = power_law_modes(1.5, 0.5, np.inf, 1e6, head=head, per_decade=density, reach=reach)
        points.append((modes.ranks.size, np.abs(signal(modes) / best - 1).max()))
    print(points)
    cut = []
    for count in (100, 1000, 10_000, 100_000, 1_000_000):
        ranks = np.arange(1.0, count + 1)
        values = [(ranks**-1.75 * np.exp(-2 * t * ranks**-1.5)).sum() for t in times]
        cut.append((count, np.abs(values / best - 1).max()))
    print(cut)
    right.loglog(*zip(*points, strict=True), "o-", color=COLOURS[0], label="weighted nodes")
    right.loglog(*zip(*cut, strict=True), "s-", color=COLOURS[1], label="first modes only")
    right.set(xlabel="nodes, or modes", ylabel="largest relative error", title="loss of a power law, t = 1 … 10⁶")
    right.legend(fontsize="small")
    figure.savefig(FIGURES / "numerics-spectral-quadrature-error.png", dpi=90)


if __name__ == "__main__":
    algorithm()
    errors()
