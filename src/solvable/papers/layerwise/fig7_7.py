"""Fig. 7.7: in the minimum-feature regime stronger features are better and more used, feature by feature.

Quality, utilisation and intensity of single features (not cumulative) at several epochs. (a) VGG16 on CIFAR-10, as in
Table 2.2; (b) ResNet18 on CIFAR-10 in place of CIFAR-100, which has not been run. Both are trainings of Table
2.2, shorter than the thesis'. At quick scale, a small CNN and a small fully connected network on 8 x 8 digits, with
squared error.

Features are numbered by intensity, so the rank correlation of intensity and quality is that of number and quality. The
first feature is nearly constant and is left out: the targets contain the constant whatever was learned. On digits the
correlation is as large before training, so by itself it says little about the effect of training; that larger features
gain quality faster, which the thesis concludes from it, is a separate claim.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise import _epoch_experiments as experiments
from solvable.papers.layerwise._along_training import listed, moments, seeds_claim
from solvable.papers.layerwise._image_pictures import draw_seeds, with_scores
from solvable.papers.layerwise._image_training import Experiment, trained
from solvable.papers.layerwise._learning_curve import rank_correlation
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES, SHOWN = 10, 21
# Of 20 unrelated pairs, one set in two hundred has a rank correlation above this.
CHANCE = 0.57
PANELS = {"quality": "quality, Q*_k", "utilisation": "utilisation, Q̂_k", "intensity": "intensity, ρ_k / ρ_1"}


def _experiments(scale: Scale) -> dict[str, Experiment]:
    return {"a": experiments.VGG[scale], "b": experiments.FEW_FEATURES[scale]}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The two trainings."""
    return {f"panel-{letter}": trained(experiment) for letter, experiment in _experiments(scale).items()}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Intensity is correlated with quality and utilisation, and strong features gain quality first."""
    found: list[Claim] = []
    for letter, experiment in _experiments(scale_of(data)).items():
        run, name = data[f"panel-{letter}"], experiments.title(experiment)
        found += [*correlation_claims(run, name), gain_claim(run, name)]
    return found


def correlations(data: xr.Dataset, variable: str) -> xr.DataArray:
    """The rank correlation of intensity with a measure, over features 2 to 21, for each seed and measured step."""
    chosen = data.sel(mode=slice(2, SHOWN))
    return xr.apply_ufunc(
        rank_correlation,
        chosen.intensity,
        chosen[variable],
        input_core_dims=[["mode"], ["mode"]],
        vectorize=True,
    )


def correlation_claims(data: xr.Dataset, name: str) -> list[Claim]:
    seeds = data.sizes["seed"]
    found = []
    for variable in ("quality", "utilisation"):
        along = correlations(data, variable)
        start, end = along.isel(step=0), along.isel(step=-1)
        found.append(
            Claim(
                f"rank correlation of intensity and {variable} over features 2 to {SHOWN} of {name} at the end "
                + (f"(smallest of {seeds} seeds)" if seeds > 1 else "(one seed)"),
                float(end.min()),
                1.0,
                1 - CHANCE,
                f"one in two hundred sets of 20 unrelated pairs is above {CHANCE}; at the start "
                f"{float(start.mean()):.2f}",
            )
        )
    return found


def gain_claim(data: xr.Dataset, name: str) -> Claim:
    """The strongest features, as many as classes, gain more quality in training than those that follow."""
    gain = data.quality.isel(step=-1) - data.quality.isel(step=0)
    strong, weak = (gain.sel(mode=slice(*ends)).mean("mode") for ends in ((2, CLASSES), (CLASSES + 1, SHOWN)))
    return seeds_claim(
        f"features 2 to {CLASSES} of {name} gain more quality in training than {CLASSES + 1} to {SHOWN}",
        strong > weak,
        f"larger features gain quality faster, section 7.4.1; means {listed(strong)} and {listed(weak)}",
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Quality, utilisation and intensity of single features at some epochs, one row of panels per network."""
    figure, panels = new_figure(3, rows=2, width=4.7)
    for row, (letter, experiment) in zip(panels, _experiments(scale_of(data)).items(), strict=True):
        for panel, variable in zip(row, PANELS, strict=True):
            _draw_variable(panel, data[f"panel-{letter}"], variable)
        row[0].legend(fontsize="small", title="(test accuracy) [κ_CKA]", title_fontsize="small")
        row[0].set_title(f"({letter}) {experiments.title(experiment)}", fontsize="medium", loc="left")
    return figure


def _draw_variable(panel: "Axes", data: xr.Dataset, variable: str) -> None:
    for colour, (name, run) in zip(COLOURS, moments(data).items(), strict=False):
        values = run[variable].sel(mode=slice(1, 10 * CLASSES))
        if variable == "intensity":
            values = values / values.isel(mode=0)
        # Values below the noise of the test set can be zero or negative.
        draw_seeds(panel, values.where(values > 0), "mode", colour, with_scores(name, run))
    panel.axvline(CLASSES, color="0.4", linestyle=":", linewidth=1.2, label=f"k = C = {CLASSES}")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_ylim(bottom=max(1e-6 if variable == "intensity" else 1e-5, panel.get_ylim()[0]))
    panel.set_xlabel("feature, k")
    panel.set_ylabel(PANELS[variable])
