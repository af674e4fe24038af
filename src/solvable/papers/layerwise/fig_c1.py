"""Fig. C.1: slow decay of the frequencies, where finitely many skills bend the power law in time."""

import xarray as xr

from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, new_figure, set_axis
from solvable.timegrid import log_times

EXPONENTS = (0.1, 0.3, 0.6)
SKILLS = 50_000
START, END = 1e2, 1e5


def reproduce(scale: Scale) -> Reproduction:
    figure, (panel,) = new_figure(1)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    times = log_times(1, END, 60 if scale == "quick" else 300)
    for colour, alpha in zip(COLOURS, EXPONENTS, strict=False):
        model = SkillModel(alpha, skills=SKILLS)
        exact = model.predict(times, max_skills=1)
        late = times[times >= START]
        law = model.corrected_time_law(late, start=START)
        panel.plot(times, exact.test_loss, color=colour, linewidth=2.2, alpha=0.6, label=f"α = {alpha:g}")
        panel.plot(late, law.test_loss, color="black", linestyle="--", linewidth=1.1)
        panel.plot(late, law.power_law, color=colour, linestyle=":", linewidth=1.8)
        datasets |= {f"exact-{alpha:g}": exact, f"laws-{alpha:g}": law}
        claims += _claims(model)
    panel.plot([], [], color="black", linestyle="--", linewidth=1.1, label="corrected, eq. C.2")
    panel.plot([], [], color="grey", linestyle=":", linewidth=1.8, label="plain power law")
    set_axis(panel, "x", exact.time, log=True)
    set_axis(panel, "y", exact.test_loss, log=True)
    panel.set_title(f"n_s = N = {SKILLS:,}")
    panel.legend()
    return Reproduction(datasets, figure, claims)


def _claims(model: SkillModel) -> list[Claim]:
    """Relative errors of both laws after three decades, tied to the exact loss at T = 100."""
    exact = float(model.predict([END], max_skills=1).test_loss[0])
    law = model.corrected_time_law([END], start=START)
    corrected, plain = float(law.test_loss[0]) / exact - 1, float(law.power_law[0]) / exact - 1
    label = f"α = {model.exponent:g}, T from 1e2 to 1e5"
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
