"""Eq. 5.5: how much of a skill is learned from fewer samples than it has basis functions, printed and corrected."""

import numpy as np
import xarray as xr

from solvable.comparison import compare
from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, draw_curve, new_figure

SHOTS = 64
Z_REASON = "standard errors; the largest of 10 is above 4 once in 1600 cases, seed fixed"


def reproduce(scale: Scale) -> Reproduction:
    seeds = 200 if scale == "quick" else 2000
    model = SkillModel(1.0, skills=1, shots=SHOTS)
    counts = np.array([4, 8, 16, 24, 32, 40, 48, 52, 56, 60])
    theory = model.data_emergence(np.arange(1, 81))
    at_counts = model.data_emergence(counts)
    figure, (panel, loss_panel) = new_figure(2)
    datasets, claims = {"theory": theory}, []
    share = theory.samples / SHOTS
    printed = 1 - np.sqrt(np.clip(1 - share, 0, 1))
    panel.plot(share, theory.strength[:, 0], color="black", label="corrected: d / D_c")
    panel.plot(share, printed, color=COLOURS[1], linestyle=":", linewidth=2, label="as printed: 1 − √(1 − d/D_c)")
    loss_panel.plot(share, theory.skill_loss[:, 0], color="black", label="B.42: (1 − d/D_c)/2")
    for colour, features in zip((COLOURS[0], COLOURS[2]), ("gaussian", "signs"), strict=True):
        runs = model.simulate_data_emergence(counts, seeds=seeds, key=5, features=features)  # type: ignore[arg-type]
        datasets[f"simulation-{features}"] = runs
        scores = compare(at_counts, runs)
        shown = runs.assign_coords(samples=runs.samples / SHOTS)
        draw_curve(panel, shown.strength[:, :, 0], colour, f"minimum norm, {features}", dim="samples")
        draw_curve(loss_panel, shown.skill_loss[:, :, 0], colour, f"minimum norm, {features}", dim="samples")
        claims += _claims(features, scores, runs)
    for axis, name in ((panel, "relative strength, R/S"), (loss_panel, "skill loss over S²")):
        axis.set_xlabel("samples of the skill over its basis functions, d/D_c")
        axis.set_ylabel(name)
        axis.legend(fontsize="small")
    return Reproduction(datasets, figure, claims)


def _claims(features: str, scores: xr.Dataset, runs: xr.Dataset) -> list[Claim]:
    """The largest z-score of the corrected form, and the strength from half the samples beside the printed value."""
    largest = float(np.abs(scores.strength.sel(statistic="z_score").values).max())
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
