"""Fig. 1.2: two models of the same functions with opposite intensities, and what each makes of four points."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from solvable.models.linear_features import LinearFeatures
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._features import GRID, sine_function
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES = 4
POWERS = (-4, 4)
KINDS: tuple[Literal["gaussian", "sine"], ...] = ("gaussian", "sine")
TARGET = np.array([0.7, 0.5, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
MODES = np.arange(1, TARGET.size + 1)
# How far sines are from eq. 1.35, which is a law of Gaussian features: largest deviation over modes, 1e5 draws.
SINE_DEVIATION = {-4: 0.1084, 4: 0.0446}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory of both models, and what they learn from drawn training sets of Gaussian and of sine features."""
    seeds = 4000 if scale == "quick" else 20000
    data = {}
    for power in POWERS:
        model = LinearFeatures(_intensities(power), TARGET, samples=SAMPLES, noise=0.0)
        data[f"theory-{power}"] = model.limit()
        for kind in KINDS:
            data[f"{kind}-{power}"] = model.simulate([1.0], seeds=seeds, key=2, features=kind)
    return data


def _intensities(power: int) -> np.ndarray:
    return MODES.astype(float) ** (2 * power)


def _label(power: int) -> str:
    return f"ρ_k = k^{2 * power}"


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The learnabilities of eq. 1.35, their sum, and how far those of drawn training sets are from them."""
    made = []
    for power in POWERS:
        label, theory = _label(power), data[f"theory-{power}"].learnability
        because = "rounding of the root of eq. 1.35"
        made.append(Claim(f"{label}: learnabilities add up to n", float(theory.sum()), SAMPLES, 1e-10, because))
        for kind in KINDS:
            made += _run_claims(label, power, kind, theory, data[f"{kind}-{power}"].learnability)
    return made


def _run_claims(label: str, power: int, kind: str, theory: xr.DataArray, runs: xr.DataArray) -> list[Claim]:
    error = 4 * float(runs.std("seed").max()) / np.sqrt(runs.sizes["seed"])
    deviation = float(np.abs(runs.mean("seed") - theory).max())
    name = f"{label}: largest deviation of learnability from eq. 1.35, {kind} features"
    if kind == "gaussian":
        because = "the law holds for many samples: corrections are of order L (1 - L) / n; four standard errors"
        claim = Claim(name, deviation, 0.0, 1 / (4 * SAMPLES) + error, because)
    else:
        because = "sines are not Gaussian: as measured on 1e5 other draws; four standard errors of these"
        claim = Claim(name, deviation, SINE_DEVIATION[power], error, because, printed=0.0)
    excess = float(np.abs(runs.sum("mode") - SAMPLES).max())
    return [claim, Claim(f"{label}: they add up to n on every draw, {kind}", excess, 0.0, 1e-9, "it is an identity")]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Intensities, learnabilities, and the functions learned from four samples."""
    figure, (intensity_panel, learnability_panel, fit_panel) = new_figure(3)
    for colour, power in zip(COLOURS, POWERS, strict=False):
        label = _label(power)
        intensity_panel.plot(MODES, _intensities(power), "o-", color=colour, label=label)
        learnability = data[f"theory-{power}"].learnability
        draw_curve(learnability_panel, learnability, colour, label, dim="mode")
        for kind in KINDS:
            runs = data[f"{kind}-{power}"].learnability
            draw_curve(learnability_panel, runs, colour, dashed=kind == "sine", dim="mode")
        one = data[f"sine-{power}"].isel(seed=0)
        fit_panel.plot(GRID, sine_function(one.limit_coefficient), color=colour, label=label)
    fit_panel.plot(GRID, sine_function(xr.DataArray(TARGET)), color="grey", linestyle="--", label="target")
    fit_panel.plot(one.inputs, one.labels, "o", color=COLOURS[6], label="training samples", zorder=3)
    intensity_panel.set_yscale("log")
    intensity_panel.set_xlabel("mode, k")
    intensity_panel.set_ylabel("intensity, ρ_k")
    set_axis(learnability_panel, "x", learnability.mode)
    learnability_panel.set_ylabel("learnability, L_k (● Gaussian, □ sine)")
    fit_panel.set_xlabel("input, x")
    fit_panel.set_ylabel("output")
    for panel in (intensity_panel, learnability_panel, fit_panel):
        panel.legend(fontsize="small")
    return figure
