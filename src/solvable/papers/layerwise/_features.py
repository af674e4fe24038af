"""What the figures of chapter 1 share: the spectrum with a head and a tail, sine functions, and their pictures."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.linear_features import LinearFeatures
from solvable.papers.claims import Claim
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEAD, SAMPLES, MODES, NOISE = 5, 100, 2000, 0.3
# Eq. 1.36 prints n / (p - d), which leaves half of the head unlearned; a benign tail is far below (n - d) / (p - d).
PRINTED_TAIL = SAMPLES / (MODES - HEAD)
TAIL = 1e-3
GRID = np.linspace(0, 1, 8001)


def head_and_tail(tail: float, target_mode: int) -> LinearFeatures:
    """Eq. 1.36: ``HEAD`` modes of intensity 1 and a long weak tail; the target is ``sin(2 pi target_mode x)``."""
    target = np.zeros(MODES)
    target[target_mode - 1] = np.sqrt(0.5)
    return LinearFeatures(np.r_[np.ones(HEAD), np.full(MODES - HEAD, tail)], target, samples=SAMPLES, noise=NOISE)


def sine_function(coefficients: xr.DataArray, grid: np.ndarray = GRID, first: int = 1) -> np.ndarray:
    """``sum_k c_k sqrt(2) sin(2 pi k x)``; the modes given are numbered from ``first``."""
    modes = np.arange(first, first + coefficients.size)
    total = np.zeros_like(grid)
    for begin in range(0, modes.size, 256):
        chosen = slice(begin, begin + 256)
        total += np.sqrt(2) * np.sin(2 * np.pi * np.outer(grid, modes[chosen])) @ coefficients.values[chosen]
    return total


def draw_overfitting(data: Mapping[str, xr.Dataset], target_mode: int) -> "Figure":
    """What one network of sines has learned from noisy samples, and when signal and noise are fitted."""
    figure, grid = new_figure(2, rows=2)
    panels = grid.ravel()
    _draw_fit(panels[:3], data["sine"].isel(seed=0), np.sin(2 * np.pi * target_mode * GRID))
    _draw_phases(panels[3], data["theory"], data["phases"])
    return figure


def _draw_fit(axes: "np.ndarray[tuple[int], np.dtype[np.object_]]", run: xr.Dataset, target: np.ndarray) -> None:
    """The learned function with its training samples, and its parts in the head and in the tail."""
    coefficients = run.limit_coefficient
    whole, head, tail = (
        sine_function(coefficients),
        sine_function(coefficients[:HEAD]),
        sine_function(coefficients[HEAD:], first=HEAD + 1),
    )
    panels = ((whole, "learned function"), (head, f"part in the first {HEAD} modes"), (tail, "part in the tail"))
    for ax, (values, title) in zip(axes, panels, strict=True):
        ax.plot(GRID, values, color=COLOURS[0], linewidth=0.9, label=title)
        if title != "part in the tail":
            ax.plot(GRID, target, color=COLOURS[1], linestyle="--", linewidth=1.8, label="target")
        ax.set_xlabel("input, x")
        ax.set_ylabel("output")
    points = {"linestyle": "none", "marker": ".", "color": COLOURS[6], "markersize": 4, "zorder": 3}
    axes[0].plot(run.inputs, run.labels, label="training samples", **points)
    limit = 1.25 * float(np.abs(run.labels).max())
    for ax in axes:
        ax.set_ylim(-limit, limit)
        ax.legend(loc="lower left", fontsize="small")


def _draw_phases(ax: "Axes", theory: xr.Dataset, phases: xr.Dataset) -> None:
    """Fractions of signal and noise that are fitted, with the times at which each is halfway."""
    for name, label, colour in (("signal_fit", "signal learned", 0), ("noise_fit", "noise fitted", 1)):
        ax.plot(theory.time, theory[name], color=COLOURS[colour], label=label)
        ax.axvline(float(phases[name.replace("fit", "time")]), color=COLOURS[colour], linestyle=":", linewidth=1)
    ax.plot(theory.time, theory.test_loss / theory.test_loss[0], color=COLOURS[6], label="test loss / initial loss")
    ax.set_xscale("log")
    ax.set_xlabel("training time, t")
    ax.set_ylabel("fraction")
    ax.legend(fontsize="small", loc="center right")


def agreement(name: str, theory: float, runs: xr.DataArray, printed: float | str | None = None) -> Claim:
    """Claim that the mean over drawn training sets is the value that theory gives."""
    expected, found = xr.Dataset({"value": ((), theory)}), xr.Dataset({"value": runs.drop_attrs()})
    return Claim.agrees(name, expected, found, "value", printed=printed)
