"""Figs. 5.1c, 5.2c and Table 5.1: emergence with width, in networks, predicted from networks with one skill.

The number of neurons N_c that a skill needs is fitted to one-skill networks of many widths; the model gives neurons to
the most frequent skills first (eq. 5.9), so that skill k should be half learned at the width (k - 1/2) N_c.

Adam with learning rate 0.001 and weight decay 5·10⁻⁵ (added to the gradient), fresh data, 5·10⁵ steps as in the thesis,
of 1000 points where it has 4000: all widths and seeds train side by side.
"""

import dataclasses

import numpy as np
import optax
import xarray as xr

from solvable.models.skills import SkillModel
from solvable.networks import train
from solvable.networks.tasks.parity import SparseParity
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise import _emergence as shared
from solvable.plotting import new_figure


@dataclasses.dataclass(frozen=True)
class Setting:
    """``one`` and ``several``: widths with one skill and with all; ``table``: the width whose single runs are shown."""

    task: SparseParity
    batch: int
    steps: int
    seeds: int
    points: int
    one: tuple[int, ...]
    several: tuple[int, ...]
    table: int
    tolerance: float
    because: str
    learning_rate: float = 1e-3
    weight_decay: float = 5e-5


SETTINGS = {
    "quick": Setting(
        SparseParity(skills=3, skill_bits=6, relevant=2, target_scale=1.0),
        batch=64,
        steps=6000,
        seeds=10,
        points=64,
        one=(1, 2, 3, 4, 6),
        several=(2, 4, 6, 8, 10, 13),
        table=6,
        tolerance=0.3,
        because="widths are measured in steps of two",
        learning_rate=1e-2,
    ),
    "full": Setting(
        SparseParity(),
        batch=1000,
        steps=500_000,
        seeds=10,
        points=512,
        one=(1, 2, 3, 4, 5, 6, 8),
        several=(2, 4, 6, 8, 10, 12, 14, 17, 20, 25, 30),
        table=10,
        tolerance=0.25,
        because="as for data",
    ),
}


def reproduce(scale: Scale) -> Reproduction:
    setting = SETTINGS[scale]
    task = setting.task
    one, several = _run(setting)
    model = SkillModel(task.exponent, skills=task.skills, target_scale=task.target_scale)
    curve = task.target_scale * np.clip(one[:, :, -1, 0].mean(axis=1), 0, None)
    calibration = model.replace(skills=1).calibrate_neurons(setting.one, curve)
    needed = int(calibration.neurons_per_skill)
    model = model.replace(neurons_per_skill=needed)
    datasets = {
        "one": _results(setting, model.replace(skills=1), setting.one, one[..., :1]),
        "skills": _results(setting, model, setting.several, several),
        "calibration": calibration,
    }
    figure, panels = new_figure(3)
    titles = (f"one skill: calibration, N_c = {needed}", f"{task.skills} skills: prediction")
    for panel, name, title in zip(panels, ("one", "skills"), titles, strict=False):
        shared.draw(panel, datasets[name], "width")
        panel.set_title(title, fontsize="medium")
        shared.draw_legend(panel)
    table = several[setting.several.index(setting.table), :, -1]
    _draw_table(panels[2], setting.table, table)
    return Reproduction(datasets, figure, _claims(setting, datasets["skills"], several, table))


def _run(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Relative strengths (width, seed, measurement, skill) with one skill and with all: at a fifth, and at the end."""
    task = setting.task
    widths = (*setting.one, *setting.several)
    training = train(
        shared.network_maker(task, max(widths)),
        lambda key, practised, **_: task.fresh(practised),
        # As PyTorch's Adam has it: the decay is part of the gradient.
        optax.chain(optax.add_decayed_weights(setting.weight_decay), optax.adam(setting.learning_rate)),
        steps=setting.steps,
        batch=setting.batch,
        loss=shared.LOSS,
        variants={
            "active_width": widths,
            "practised": [1] * len(setting.one) + [task.skills] * len(setting.several),
        },
        seeds=setting.seeds,
        key=53,
        measure={"strength": shared.held_out(task, setting.points).strengths},
        at=(0, setting.steps // 5, setting.steps),
    )
    strength = training.curves.strength.values / task.target_scale
    return strength[: len(setting.one)], strength[len(setting.one) :]


def _results(setting: Setting, model: SkillModel, widths: tuple[int, ...], strength: np.ndarray) -> xr.Dataset:
    """Widths at emergence of the mean over seeds: a single network learns a skill or does not."""
    scale = setting.task.target_scale
    curves = np.moveaxis(strength[:, :, -1], 0, 1)
    fine = np.arange(1, model.skills * model.neurons_per_skill + 1)
    return shared.results(
        "width",
        widths,
        curves,
        model.parameter_emergence(widths).strength.values / scale,
        shared.crossings(widths, curves.mean(axis=0, keepdims=True))[0],
        shared.calibrated_crossing((0, *fine), np.vstack([np.zeros((1, int(model.skills))), _fine(model, fine)])),
    )


def _fine(model: SkillModel, widths: np.ndarray) -> np.ndarray:
    return model.parameter_emergence(widths).strength.values / model.target_scale


def _draw_table(panel: object, width: int, table: np.ndarray) -> None:
    """Each column a run, as in Table 5.1; the most frequent skill on top."""
    panel.imshow(np.clip(table.T, 0, 1), cmap="Blues", vmin=0, vmax=1.3, aspect="auto")  # type: ignore[attr-defined]
    for run, row in enumerate(table):
        for skill, value in enumerate(row):
            panel.text(run, skill, f"{value:.2f}", ha="center", va="center", fontsize=7)  # type: ignore[attr-defined]
    panel.set_yticks(range(table.shape[1]), [f"k = {k + 1}" for k in range(table.shape[1])])  # type: ignore[attr-defined]
    panel.set_xticks(range(table.shape[0]), [str(run + 1) for run in range(table.shape[0])])  # type: ignore[attr-defined]
    panel.set_xlabel("run")  # type: ignore[attr-defined]
    panel.set_title(f"relative strengths R_k / S at width {width}", fontsize="medium")  # type: ignore[attr-defined]
    panel.grid(visible=False)  # type: ignore[attr-defined]


def _resampled(widths: tuple[int, ...], curves: np.ndarray, draws: int = 200) -> np.ndarray:
    """Widths at emergence (draw, skill) if the seeds had been others: their spread is the error."""
    rows = np.random.default_rng(0).integers(0, len(curves), (draws, len(curves)))
    return shared.crossings(widths, curves[rows].mean(axis=1))


def _claims(setting: Setting, data: xr.Dataset, several: np.ndarray, table: np.ndarray) -> list[Claim]:
    errors = data.error.values
    spread = np.nanstd(shared.errors_of(data.predicted.values, _resampled(setting.several, data.strength.values)), axis=0)
    each = ", ".join(f"{error:+.2f} ± {bar:.2f}" for error, bar in zip(errors, spread, strict=True))
    means = several[:, :, -1].mean(axis=1)
    early = np.abs(several[:, :, -1] - several[:, :, 1]).mean(axis=1).max()
    outliers = int((np.diff(table, axis=1) > 0.25).any(axis=1).sum())
    return [
        shared.median_claim("width at emergence", errors, setting.tolerance, f"{setting.because}; skill by skill {each}"),
        Claim(
            "share of widths and neighbouring skills where the more frequent skill is learned at least as well",
            float((np.diff(means, axis=1) <= 0.05).mean()),
            1.0,
            0.1,
            "means over seeds, less than 0.05 apart is a tie; Table 5.1 has runs that prefer a rarer skill",
        ),
        Claim(
            f"width {setting.table}: mean relative strength of the first skill",
            float(table[:, 0].mean()),
            0.98,
            0.05,
            "Table 5.1; weight decay takes the rest",
        ),
        Claim(
            f"width {setting.table}: runs in which a rarer skill is learned better than a more frequent one",
            outliers,
            2,
            setting.seeds / 2,
            "Table 5.1 shades 2 of 10",
        ),
        Claim(
            "largest change of a relative strength between a fifth of the training and its end, mean over seeds",
            float(early),
            0.5,
            0.5,
            "reported: how far from converged a fifth of the training is",
        ),
    ]
