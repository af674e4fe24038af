"""Eq. 5.5: how much of a skill is learned from fewer samples than it has basis functions, printed and corrected."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from solvable.comparison import compare
from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Scale
from solvable.plotting import COLOURS, draw_curve, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOTS = 64
COUNTS = np.array([4, 8, 16, 24, 32, 40, 48, 52, 56, 60])
FEATURES: tuple[Literal["gaussian", "signs"], ...] = ("gaussian", "signs")
Z_REASON = "standard errors; the largest of 10 is above 4 once in 1600 cases, seed fixed"


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The corrected theory, and minimum-norm solutions on drawn training sets of two kinds of features."""
    seeds = 200 if scale == "quick" else 2000
    model = SkillModel(1.0, skills=1, shots=SHOTS)
    runs = {
        f"simulation-{features}": model.simulate_data_emergence(COUNTS, seeds=seeds, key=5, features=features)
        for features in FEATURES
    }
    return {"theory": model.data_emergence(np.arange(1, 81)), **runs}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The largest z-score of the corrected form, and the strength from half the samples beside the printed value."""
    theory = data["theory"].sel(samples=COUNTS)
    return [claim for features in FEATURES for claim in _claims(features, theory, data[f"simulation-{features}"])]


def _claims(features: str, theory: xr.Dataset, runs: xr.Dataset) -> list[Claim]:
    largest = float(np.abs(compare(theory, runs).strength.sel(statistic="z_score").values).max())
    half = runs.strength.sel(samples=SHOTS // 2).values[:, 0]
    error = float(half.std(ddof=1) / np.sqrt(half.size))
    loss = runs.skill_loss.sel(samples=SHOTS // 2).values[:, 0]
    return [
        Claim(f"{features}: corrected strength, largest z-score", largest, 0.0, 4.0, Z_REASON),
        Claim(
            f"{features}: R/S from half the samples",
            float(half.mean()),
            0.5,
            4 * error,
            "four standard errors over the draws, seed fixed",
            printed=1 - 0.5**0.5,
        ),
        Claim(
            f"{features}: skill loss over S² from half the samples (B.42 as printed is right)",
            float(loss.mean()),
            0.25,
            4 * float(loss.std(ddof=1) / np.sqrt(loss.size)),
            "four standard errors over the draws, seed fixed",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Strength and loss of the skill over its number of samples."""
    figure, (panel, loss_panel) = new_figure(2)
    theory = data["theory"]
    share = theory.samples / SHOTS
    printed = 1 - np.sqrt(np.clip(1 - share, 0, 1))
    panel.plot(share, theory.strength[:, 0], color="black", label="corrected: d / D_c")
    panel.plot(share, printed, color=COLOURS[1], linestyle=":", linewidth=2, label="as printed: 1 − √(1 − d/D_c)")
    loss_panel.plot(share, theory.skill_loss[:, 0], color="black", label="B.42: (1 − d/D_c)/2")
    for colour, features in zip((COLOURS[0], COLOURS[2]), FEATURES, strict=True):
        runs = data[f"simulation-{features}"]
        runs = runs.assign_coords(samples=runs.samples / SHOTS)
        draw_curve(panel, runs.strength[:, :, 0], colour, f"minimum norm, {features}", dim="samples")
        draw_curve(loss_panel, runs.skill_loss[:, :, 0], colour, f"minimum norm, {features}", dim="samples")
    for axis, name in ((panel, "relative strength, R/S"), (loss_panel, "skill loss over S²")):
        axis.set_xlabel("samples of the skill over its basis functions, d/D_c")
        axis.set_ylabel(name)
        axis.legend(fontsize="small")
    return figure
