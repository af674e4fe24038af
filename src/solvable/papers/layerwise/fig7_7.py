"""Fig. 7.7: in the minimum-feature regime stronger features are better and more used, feature by feature.

Quality, utilisation and intensity of single features (not cumulative) at several epochs. (a) VGG16 on CIFAR-10, as in
Table 2.2; (b) in place of ResNet18 on CIFAR-100, which this package does not load, ResNet18 on CIFAR-10. Both are
trainings of Table 2.2, shorter than the thesis'. At quick scale a small CNN and a small fully connected network on
8 x 8 digits, with squared error.

Features are numbered by intensity, so the rank correlation of intensity and quality is that of number and quality. The
first feature is nearly constant and is left out: the targets contain the constant whatever was learned. On digits the
correlation is as large before training, so by itself it says little of what training does; that larger features gain
quality faster, which the thesis concludes from it, is a claim of its own.
"""

from typing import TYPE_CHECKING

import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise import _epoch_experiments as experiments
from solvable.papers.layerwise._along_training import moments, seeds_claim, told
from solvable.papers.layerwise._image_pictures import draw_seeds, with_scores
from solvable.papers.layerwise._image_training import trained
from solvable.papers.layerwise._learning_curve import rank_correlation
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLASSES, SHOWN = 10, 21
# Of 20 unrelated pairs, one set in two hundred has a rank correlation above this.
CHANCE = 0.57
PANELS = {"quality": "quality, Q*_k", "utilisation": "utilisation, Q̂_k", "intensity": "intensity, ρ_k / ρ_1"}


def reproduce(scale: Scale) -> Reproduction:
    pair = experiments.VGG[scale], experiments.FEW_FEATURES[scale]
    datasets = {experiments.title(experiment): trained(experiment) for experiment in pair}
    figure, panels = new_figure(3, rows=2, width=4.7)
    claims: list[Claim] = []
    for row, letter, (name, data) in zip(panels, "ab", datasets.items(), strict=True):
        for panel, variable in zip(row, PANELS, strict=True):
            _draw(panel, data, variable)
        row[0].legend(fontsize="small", title="(test accuracy) [κ_CKA]", title_fontsize="small")
        row[0].set_title(f"({letter}) {name}", fontsize="medium", loc="left")
        claims += [*correlation_claims(data, name), gain_claim(data, name)]
    by_panel = {f"panel-{letter}": data for letter, data in zip("ab", datasets.values(), strict=True)}
    return Reproduction(by_panel, figure, claims)


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
    claims = []
    for variable in ("quality", "utilisation"):
        found = correlations(data, variable)
        start, end = found.isel(step=0), found.isel(step=-1)
        claims.append(
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
    return claims


def gain_claim(data: xr.Dataset, name: str) -> Claim:
    """Which features gain quality in training: the strongest, as many as classes, or those that follow."""
    gain = data.quality.isel(step=-1) - data.quality.isel(step=0)
    strong, weak = (gain.sel(mode=slice(*ends)).mean("mode") for ends in ((2, CLASSES), (CLASSES + 1, SHOWN)))
    return seeds_claim(
        f"features 2 to {CLASSES} of {name} gain more quality in training than {CLASSES + 1} to {SHOWN}",
        strong > weak,
        f"larger features gain quality faster, section 7.4.1; means {told(strong)} and {told(weak)}",
    )


def _draw(panel: "Axes", data: xr.Dataset, variable: str) -> None:
    for colour, (name, run) in zip(COLOURS, moments(data).items(), strict=False):
        values = run[variable].sel(mode=slice(1, 10 * CLASSES))
        if variable == "intensity":
            values = values / values.isel(mode=0)
        # What lies below the noise of the test set can be zero or less.
        draw_seeds(panel, values.where(values > 0), "mode", colour, with_scores(name, run))
    panel.axvline(CLASSES, color="0.4", linestyle=":", linewidth=1.2, label=f"k = C = {CLASSES}")
    panel.set_xscale("log")
    panel.set_yscale("log")
    low = {"intensity": 1e-6}.get(variable, 1e-5)
    panel.set_ylim(bottom=max(low, panel.get_ylim()[0]))
    panel.set_xlabel("feature, k")
    panel.set_ylabel(PANELS[variable])
