"""Shared by the figures of image networks: the three panels of the feature metrics, and claims on the regime.

All functions take datasets of :func:`trained` at one moment of training (dims seed, mode): :func:`at_end` selects the
last, and ``data.sel(step=...)`` another.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim
from solvable.plotting import COLOURS, few_ticks, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Definition 2: a network is in the minimum-feature regime if κ_CKA is below this.
THRESHOLD = 0.1
# Section 2.5.1: the first feature of an image network overlaps with a constant function by more than this.
CONSTANT = 0.95
ABOVE_NOISE, SQUARED, ONCE = "utilisation_above_noise", "utilisation_squared", "utilisation_once"
# Variables of a dataset, with the names that they have in the thesis (Figs. 2.3, 2.4, 3.5 and 7.1 to 7.3).
PANELS = {
    "cumulative_quality": "cumulative quality, Π*(k)",
    "cumulative_utilisation": "cumulative utilisation, Π̂(k)",
    "intensity": "intensity, ρ_k / ρ_1",
}
DIMENSIONS = {
    "intensity": "D_eff(ρ)",
    "quality": "D_eff(Q*)",
    "utilisation": "D_eff(Q̂)",
    "quality_above_noise": "D_eff(Q*) above noise",
    "utilisation_above_noise": "D_eff(Q̂) above noise",
    "utilisation_squared": "D_eff(Q̂²)",
    "utilisation_once": "D_eff(Q̂) counted once",
}


def at_end(data: xr.Dataset) -> xr.Dataset:
    """The networks at the end of training."""
    return data.isel(step=-1)


def feature_figure(runs: Mapping[str, xr.Dataset], classes: int | Mapping[str, int] = 10) -> "Figure":
    """The three panels in a figure of their own; the arguments are those of :func:`draw_features`."""
    figure, panels = new_figure(3, width=4.7)
    draw_features(panels, runs, classes)
    return figure


def draw_features(panels: Any, runs: Mapping[str, xr.Dataset], classes: int | Mapping[str, int] = 10) -> None:
    """Cumulative quality, cumulative utilisation and intensity over k on three panels, one colour for each of ``runs``.

    ``runs`` are datasets of one moment (dims seed, mode), by name. Seeds are thin lines, and their mean is a thick one.
    Dotted lines are at k = ``classes``: one number for all runs, or one per run by name. The legend gives the mean test
    accuracy in parentheses and the mean κ_CKA in square brackets, as in the thesis.
    """
    for panel, (variable, axis_label) in zip(panels, PANELS.items(), strict=True):
        for colour, (name, run) in zip(_colours(len(runs)), runs.items(), strict=True):
            values = run[variable] / run[variable].isel(mode=0) if variable == "intensity" else run[variable]
            draw_seeds(panel, values, "mode", colour, with_scores(name, run))
            if isinstance(classes, Mapping):
                panel.axvline(classes[name], color=colour, linestyle=":", linewidth=1.2)
        if not isinstance(classes, Mapping):
            panel.axvline(classes, color="0.4", linestyle=":", linewidth=1.2, label=f"k = C = {classes}")
        panel.set_xscale("log")
        panel.set_xlabel("feature, k")
        panel.set_ylabel(axis_label)
    for panel in panels[:2]:
        panel.set_ylim(bottom=0)
    panels[2].set_yscale("log")
    # Features that weight decay has removed are rounding errors; they would push all others to the top of the panel.
    panels[2].set_ylim(bottom=max(1e-9, panels[2].get_ylim()[0]))
    # Strong features come first, so that this corner is free in every regime.
    panels[2].legend(fontsize="small", title="(test accuracy) [κ_CKA]", title_fontsize="small", loc="lower left")


def draw_seeds(panel: "Axes", values: xr.DataArray, over: str, colour: str, label: str, **style: Any) -> None:
    """Thin lines for the seeds over the coordinate ``over``, and a thick line with the label for their mean."""
    for seed in range(values.sizes["seed"]) if values.sizes["seed"] > 1 else ():
        panel.plot(values[over], values.isel(seed=seed), color=colour, linewidth=0.7, alpha=0.5, **style)
    mean = values.mean("seed", skipna=False)
    panel.plot(values[over], mean, color=colour, linewidth=1.8, label=label, **style)


def distance_axis(panel: "Axes") -> None:
    """An x axis of κ_CKA, with the line below which a network is minimum-feature."""
    panel.axvline(THRESHOLD, color="0.4", linestyle="--", linewidth=1, label="minimum-feature below")
    panel.set_xscale("log")
    few_ticks(panel.xaxis)
    panel.set_xlabel("distance to the minimum projection, κ_CKA")


def with_scores(name: str, run: xr.Dataset) -> str:
    """``name (test accuracy) [κ_CKA]``, means over seeds."""
    return f"{name} ({float(run.test_accuracy.mean()):.1%}) [{float(run.mp_distance.mean()):.2g}]"


def minimum_feature_claim(name: str, run: xr.Dataset, printed: float | None = None) -> Claim:
    """κ_CKA is below 0.1 in every seed."""
    return Claim(
        f"κ_CKA of {name} ({_worst(run, 'largest')})",
        run.mp_distance.max(skipna=False),
        0.0,
        THRESHOLD,
        "Definition 2: minimum-feature below 0.1",
        printed=printed,
    )


def extended_feature_claim(name: str, run: xr.Dataset, printed: float | str | None = None) -> Claim:
    """κ_CKA is above 0.1, that is between 0.1 and 1, in every seed."""
    return Claim(
        f"κ_CKA of {name} ({_worst(run, 'smallest')})",
        run.mp_distance.min(skipna=False),
        1.0,
        1 - THRESHOLD,
        "Definition 2: extended-feature above 0.1; 1 is the largest that it can be",
        printed=printed,
    )


def dimension_claim(
    name: str,
    run: xr.Dataset,
    expected: float,
    within: float,
    because: str,
    kind: str = ABOVE_NOISE,
    printed: float | str | None = None,
) -> Claim:
    """D_eff of ``kind`` (one of :data:`DIMENSIONS`) is ``expected`` in the seed furthest from it."""
    return Claim(
        f"{DIMENSIONS[kind]} of {name} ({_worst(run, 'furthest')})",
        furthest(run[f"effective_dimension_{kind}"], expected),
        expected,
        within,
        because,
        relative=True,
        printed=printed,
    )


def share_claim(name: str, run: xr.Dataset, classes: int, within: float, because: str) -> Claim:
    """Π̂(C) is 1 in the seed furthest from it: as many features as classes make up the learned functions."""
    return Claim(
        f"Π̂({classes}) of {name} ({_worst(run, 'furthest')})",
        furthest(run.cumulative_utilisation.sel(mode=classes), 1.0),
        1.0,
        within,
        because,
    )


def constant_claim(name: str, run: xr.Dataset) -> Claim:
    """The first feature is close to a constant function in every seed: ⟨e_1|1⟩ of section 2.5.1."""
    return Claim.at_least(
        f"overlap of the first feature of {name} with a constant, ⟨e_1|1⟩ ({_worst(run, 'smallest')})",
        run.constant_overlap.min(skipna=False),
        CONSTANT,
        'section 2.5.1: "across all our experiments, except for the 1-D toy model, we consistently observe" > 0.95',
    )


def accuracy_claim(name: str, run: xr.Dataset, least: float, because: str, printed: float | None = None) -> Claim:
    """Test accuracy is at least ``least`` in every seed."""
    return Claim(
        f"test accuracy of {name}, at least {least:.1%} ({_worst(run, 'lowest')})",
        run.test_accuracy.min(skipna=False),
        1.0,
        1 - least,
        because,
        printed=printed,
    )


def furthest(values: xr.DataArray, expected: float) -> float:
    """The value of the seed that is furthest from the expected one; NaN if a seed has no value."""
    numbers = np.asarray(values, float)
    return float("nan") if np.isnan(numbers).any() else float(numbers[np.argmax(np.abs(numbers - expected))])


def _worst(run: xr.Dataset, word: str) -> str:
    seeds = run.sizes["seed"]
    return f"{word} of {seeds} seeds" if seeds > 1 else "one seed"


def _colours(count: int) -> list[str]:
    """The package's colours, or shades from blue to yellow if there are not enough of them."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["viridis"](share)) for share in np.linspace(0, 0.95, count)]
