"""Fig. 1.4: functions that fit pure noise become sharper, and smaller, with the number of modes."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy.special import diric

from solvable.models.linear_features import LinearFeatures
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._features import agreement, sine_function
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SAMPLES, SIZES = 50, (100, 400, 2000)


def reproduce(scale: Scale) -> Reproduction:
    seeds = 60 if scale == "quick" else 1000
    figure, axes = new_figure(3)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for ax, modes in zip(axes, SIZES, strict=True):
        model = LinearFeatures(np.ones(modes), np.zeros(modes), samples=SAMPLES, noise=1.0)
        theory = model.limit()
        gaussian = model.simulate([1.0], seeds=seeds, key=4, modes=1)
        sine = model.simulate([1.0], seeds=seeds, key=4, features="sine")
        datasets |= {f"theory-{modes}": theory, f"gaussian-{modes}": gaussian}
        datasets[f"sine-{modes}"] = sine.drop_vars("coefficient")
        name, exact = f"p = {modes}: test loss", theory_loss(modes)
        claims.append(agreement(f"{name}, Gaussian features", exact, gaussian.limit_test_loss))
        claims.append(Claim(f"{name}, the model's formula", float(theory.test_loss), exact, 1e-12, "rounding"))
        # With few modes most draws have two samples that nearly mirror each other (x and 1 - x), and the function
        # explodes between them. One near the lower tenth of the draws does not.
        calm = int(np.argsort(sine.limit_test_loss.values)[seeds // 10])
        _draw(ax, sine.isel(seed=calm), modes)
        if modes == SIZES[-1]:
            claims += _sine_claims(sine, modes)
    return Reproduction(datasets, figure, claims)


def theory_loss(modes: int) -> float:
    """``sigma^2/2 gamma / (1 - gamma)`` with ``gamma = n/p``, as all modes are alike."""
    return SAMPLES / (modes - SAMPLES) / 2


def _sine_claims(sine: xr.Dataset, modes: int) -> list[Claim]:
    median = float(sine.limit_test_loss.median())
    because = "sines are not independent: two samples that nearly mirror each other cost extra, in few draws at large p"
    name = f"p = {modes}: test loss, sine features (median)"
    widths = [_half_width(sine.isel(seed=seed), modes) for seed in range(10)]
    return [
        Claim(name, median, theory_loss(modes), 0.15, because, relative=True),
        Claim(
            f"p = {modes}: half-width of the peaks times p (median)",
            float(np.median(widths)) * modes,
            dirichlet_half_width(modes) * modes,
            0.1,
            "one sample alone has the peak of the Dirichlet kernel; others near it distort it",
            relative=True,
        ),
    ]


def dirichlet_half_width(modes: int) -> float:
    """Where the kernel ``1 + 2 sum_k cos(2 pi k u)`` has fallen to half of its peak."""
    offsets = np.linspace(0, 1 / modes, 100001)
    return float(offsets[np.argmax(diric(2 * np.pi * offsets, 2 * modes + 1) < 0.5)])


def _half_width(run: xr.Dataset, modes: int) -> float:
    """Median, over samples with large labels, of the distance at which the function is half of the label."""
    offsets = np.linspace(0, 1 / modes, 201)
    chosen = np.nonzero(np.abs(run.labels.values) > 0.5)[0]
    grid = (run.inputs.values[chosen, None] + offsets).ravel()
    values = sine_function(run.limit_coefficient, grid).reshape(len(chosen), -1) / run.labels.values[chosen, None]
    return float(np.median(offsets[np.argmax(values < 0.5, axis=1)]))


def _draw(ax: "Axes", run: xr.Dataset, modes: int) -> None:
    grid = np.linspace(0, 1, 12001)
    ax.plot(grid, sine_function(run.limit_coefficient, grid), color=COLOURS[0], linewidth=0.7, label=f"p = {modes}")
    ax.plot(run.inputs, run.labels, "o", color=COLOURS[1], markersize=3, label="training samples")
    limit = 1.6 * float(np.abs(run.labels).max())
    ax.set_ylim(-limit, limit)
    ax.set_xlabel("input, x")
    ax.set_ylabel("output")
    ax.legend(loc="upper right", fontsize="small")
