"""Fig. 1.2: two models of the same functions with opposite intensities, and what each makes of four points."""

import numpy as np
import xarray as xr

from solvable.models.linear_features import LinearFeatures
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._features import GRID, sine_function
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis

MODES, SAMPLES = 10, 4
# How far sines are from eq. 1.35, which is a law of Gaussian features: largest deviation over modes, 1e5 draws.
SINE_DEVIATION = {-4: 0.1084, 4: 0.0446}


def reproduce(scale: Scale) -> Reproduction:
    seeds = 4000 if scale == "quick" else 20000
    figure, (intensity_panel, learnability_panel, fit_panel) = new_figure(3)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    modes = np.arange(1, MODES + 1)
    target = np.array([0.7, 0.5, 0.3] + [0.0] * (MODES - 3))
    for colour, power in zip(COLOURS, (-4, 4), strict=False):
        label = f"ρ_k = k^{2 * power}"
        model = LinearFeatures(modes.astype(float) ** (2 * power), target, samples=SAMPLES, noise=0.0)
        theory = model.limit()
        runs = {kind: model.simulate([1.0], seeds=seeds, key=2, features=kind) for kind in ("gaussian", "sine")}
        datasets |= {f"theory-{power}": theory} | {f"{kind}-{power}": run for kind, run in runs.items()}
        claims += _claims(label, power, theory, runs)
        intensity_panel.plot(modes, model.intensities, "o-", color=colour, label=label)
        draw_curve(learnability_panel, theory.learnability, colour, label, dim="mode")
        for kind, run in runs.items():
            draw_curve(learnability_panel, run.learnability, colour, None, dashed=kind == "sine", dim="mode")
        one = runs["sine"].isel(seed=0)
        fit_panel.plot(GRID, sine_function(one.limit_coefficient), color=colour, label=label)
    fit_panel.plot(GRID, sine_function(xr.DataArray(target)), color="grey", linestyle="--", label="target")
    fit_panel.plot(one.inputs, one.labels, "o", color=COLOURS[6], label="training samples", zorder=3)
    intensity_panel.set_yscale("log")
    intensity_panel.set_xlabel("mode, k")
    intensity_panel.set_ylabel("intensity, ρ_k")
    set_axis(learnability_panel, "x", theory.mode)
    learnability_panel.set_ylabel("learnability, L_k (● Gaussian, □ sine)")
    fit_panel.set_xlabel("input, x")
    fit_panel.set_ylabel("output")
    for panel in (intensity_panel, learnability_panel, fit_panel):
        panel.legend(fontsize="small")
    return Reproduction(datasets, figure, claims)


def _claims(label: str, power: int, theory: xr.Dataset, runs: dict[str, xr.Dataset]) -> list[Claim]:
    total = float(theory.learnability.sum())
    claims = [Claim(f"{label}: learnabilities add up to n", total, SAMPLES, 1e-10, "rounding of the root of eq. 1.35")]
    for kind, run in runs.items():
        error = 4 * float(run.learnability.std("seed").max()) / np.sqrt(run.sizes["seed"])
        off = float(np.abs(run.learnability.mean("seed") - theory.learnability).max())
        name = f"{label}: largest deviation of learnability from eq. 1.35, {kind} features"
        if kind == "gaussian":
            because = "the law holds for many samples: corrections are of order L (1 - L) / n; four standard errors"
            claims.append(Claim(name, off, 0.0, 1 / (4 * SAMPLES) + error, because))
        else:
            because = "sines are not Gaussian: as measured on 1e5 other draws; four standard errors of these"
            claims.append(Claim(name, off, SINE_DEVIATION[power], error, because, printed=0.0))
        off = float(np.abs(run.learnability.sum("mode") - SAMPLES).max())
        claims.append(Claim(f"{label}: they add up to n on every draw, {kind}", off, 0.0, 1e-9, "it is an identity"))
    return claims
