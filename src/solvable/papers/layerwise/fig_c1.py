"""Fig. C.1: slow decay of the frequencies, where finitely many skills bend the power law in time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import xarray as xr

from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Scale
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.timegrid import log_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPONENTS = (0.1, 0.3, 0.6)
SKILLS = 50_000
START, END = 1e2, 1e5


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The exact loss, and both laws from the time ``START`` on."""
    times = log_times(1, END, 60 if scale == "quick" else 300)
    data = {}
    for alpha in EXPONENTS:
        model = SkillModel(alpha, skills=SKILLS)
        data[f"exact-{alpha:g}"] = model.predict(times, max_skills=1)
        data[f"laws-{alpha:g}"] = model.corrected_time_law(times[times >= START], start=START)
    return data


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Relative errors of both laws after three decades, tied to the exact loss at T = 100."""
    return [
        claim
        for alpha in EXPONENTS
        for claim in _claims(alpha, data[f"exact-{alpha:g}"].isel(time=-1), data[f"laws-{alpha:g}"].isel(time=-1))
    ]


def _claims(alpha: float, exact: xr.Dataset, law: xr.Dataset) -> list[Claim]:
    corrected, plain = (float(values / exact.test_loss) - 1 for values in (law.test_loss, law.power_law))
    label = f"α = {alpha:g}, T from 1e2 to 1e5"
    return [
        Claim(
            f"{label}: relative error of the corrected law",
            corrected,
            0.0,
            0.05,
            "eq. C.2 takes the last skill as untouched; (1 - R0/S)^2 = 0.98 of a constant larger than the loss",
        ),
        Claim(
            f"{label}: error of the plain law over that of the corrected one, at least 10",
            min(abs(plain / corrected), 10.0),
            10.0,
            0.0,
            "the correction is for this",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The exact loss over time, with the corrected and the plain power law."""
    figure, (panel,) = new_figure(1)
    for colour, alpha in zip(COLOURS, EXPONENTS, strict=False):
        exact, law = data[f"exact-{alpha:g}"], data[f"laws-{alpha:g}"]
        panel.plot(exact.time, exact.test_loss, color=colour, linewidth=2.2, alpha=0.6, label=f"α = {alpha:g}")
        panel.plot(law.time, law.test_loss, color="black", linestyle="--", linewidth=1.1)
        panel.plot(law.time, law.power_law, color=colour, linestyle=":", linewidth=1.8)
    panel.plot([], [], color="black", linestyle="--", linewidth=1.1, label="corrected, eq. C.2")
    panel.plot([], [], color="grey", linestyle=":", linewidth=1.8, label="plain power law")
    set_axis(panel, "x", exact.time, log=True)
    set_axis(panel, "y", exact.test_loss, log=True)
    panel.set_title(f"n_s = N = {SKILLS:,}")
    panel.legend()
    return figure
