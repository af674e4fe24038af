"""Table 4.1: the exponents of the loss in time, data, parameters and compute."""

import math

import numpy as np

from solvable.fits import power_law
from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, new_figure

EXPONENTS = (0.3, 0.6, 0.9)
TOLERANCES = {
    "time": (1e-4, "the sum over skills differs from its integral by exponentially little"),
    "samples": (1e-4, "corrections of order 1/D, D = 1e5"),
    "basis": (1e-3, "N + 1/2 stands where the law has N; of order 1/N, N = 1e3"),
    "budget": (2e-3, "corrections of order 1/N, N from 200 to 3000 at the optimum"),
}
NAMES = {"time": "time T", "samples": "data D", "basis": "parameters N", "budget": "compute C"}


def reproduce(scale: Scale) -> Reproduction:
    figure, (panel,) = new_figure(1)
    alphas = np.linspace(0.1, 1.2, 60)
    datasets, claims = {}, []
    lines = {
        "time": alphas / (alphas + 1),
        "basis": alphas,
        "budget": alphas / (alphas + 2),
    }
    labels = ("time T and data D: α/(α+1)", "parameters N: α", "compute C: α/(α+2)")
    for colour, line, label in zip(COLOURS, lines.values(), labels, strict=False):
        panel.plot(alphas, line, color=colour, label=label)
    for alpha in EXPONENTS if scale == "quick" else np.linspace(0.2, 1.1, 10):
        fitted = fitted_exponents(SkillModel(float(alpha), skills=math.inf))
        for name, exponent in fitted.items():
            colour = COLOURS[("time", "basis", "budget").index("time" if name == "samples" else name)]
            hollow = {"marker": "s", "markersize": 9, "markerfacecolor": "none"}
            style = hollow if name == "samples" else {"marker": "o", "markersize": 5}
            panel.plot(alpha, exponent, color=colour, **style)
            tolerance, reason = TOLERANCES[name]
            expected = float(SkillModel(float(alpha)).exponents()[name])
            claims.append(Claim(f"α = {alpha:.3g}: exponent of {NAMES[name]}", exponent, expected, tolerance, reason))
        datasets[f"exponents-{alpha:.3g}"] = SkillModel(float(alpha)).exponents()
    panel.plot([], [], "ko", markersize=5, label="fitted to exact sums")
    panel.plot([], [], "ks", markersize=8, markerfacecolor="none", label="fitted to exact sums, data")
    panel.set_xlabel("exponent of the skills' frequencies less one, α")
    panel.set_ylabel("exponent with which the loss falls")
    panel.legend(fontsize="small")
    return Reproduction(datasets, figure, claims)


def fitted_exponents(model: SkillModel) -> dict[str, float]:
    """Exponents by least squares over a decade: T and D from 1e5, N from 1e3, C from 1e8."""
    large, medium, budgets = np.geomspace(1e5, 1e6, 5), np.geomspace(1e3, 1e4, 5), np.geomspace(1e8, 1e9, 5)
    curves = {
        "time": (large, model.predict(large).test_loss.values),
        "samples": (np.round(large), model.data_emergence(np.round(large)).test_loss.values),
        "basis": (np.round(medium), model.parameter_emergence(np.round(medium)).test_loss.values),
        "budget": (budgets, model.compute_optimal(budgets).test_loss.values),
    }
    return {name: float(power_law(y, x, resamples=0).exponent) for name, (x, y) in curves.items()}
