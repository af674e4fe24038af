"""Fig. 2.2 and table 2.1, at initialisation: the features of an untrained network, and a step made of them."""

import numpy as np
import xarray as xr

from solvable.diagnostics import FeatureReport
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._step import (
    INPUTS,
    LAYERS,
    NAMES,
    PRINTED_BEFORE,
    TARGET,
    WIDTH,
    draw_functions,
    first_functions,
    measure,
)
from solvable.plotting import COLOURS, new_figure

SHOWN = 20
# How draws of table 2.1's first column spread: standard deviations over seeds 1000 ... 1039 of this file.
SPREAD = {"quality": 0.042, "utilisation": 0.67, "intensity_plain": 0.045}
# Mean square error of the step with 20 features: mean and spread over the same seeds.
ERROR_OF_SHOWN, ERROR_SPREAD = 4.80e-3, 2.9e-4


def reproduce(scale: Scale) -> Reproduction:
    seeds = 4 if scale == "quick" else 40
    reports, functions = zip(*(untrained(seed) for seed in range(seeds)), strict=True)
    errors = np.array([_error(report) for report in reports])

    figure, grid = new_figure(2, rows=2)
    function_panel, quality_panel, utilisation_panel, intensity_panel = grid.ravel()
    draw_functions(function_panel, functions[0])
    modes = np.arange(1, errors.shape[1] + 1)
    for index, report in enumerate(reports[:4]):
        style = {"color": COLOURS[0], "alpha": 0.6, "label": f"{min(seeds, 4)} draws" if index == 0 else None}
        quality_panel.plot(modes, errors[index], **style)
        utilisation_panel.plot(modes, np.cumsum(report.utilisation)[: modes.size], **style)
        intensity_panel.plot(modes, (report.intensity / report.intensity[0])[: modes.size], **style)
    guide = errors.mean(axis=0)[SHOWN - 1] * SHOWN / modes
    quality_panel.plot(modes, guide, color="grey", linestyle=":", label="∝ 1/k")
    quality_panel.plot(SHOWN, 1e-5, "v", color=COLOURS[1], label=f"printed: below this with {SHOWN} features")
    labels = {
        quality_panel: ("number of features, k", "error with k features, ⟨f*²⟩(1 - Π*(k))"),
        utilisation_panel: ("number of features, k", "cumulative utilisation, Π̂(k)"),
        intensity_panel: ("feature, k", "intensity, ρ_k / ρ_1"),
    }
    for panel, (x, y) in labels.items():
        panel.set_xlabel(x)
        panel.set_ylabel(y)
        panel.set_xscale("log")
    for panel in grid.flat:
        panel.legend(fontsize="small")
    for panel in (quality_panel, intensity_panel):
        panel.set_yscale("log")
    return Reproduction({"draws": _dataset(reports, errors)}, figure, _claims(reports, errors))


def untrained(seed: int) -> tuple[FeatureReport, np.ndarray]:
    """The report of a network as PyTorch makes it, on a grid of inputs, and its first three eigenfunctions.

    Weights and biases are uniform within one over the root of the number of inputs, which the thesis does not say.
    """
    generator = np.random.default_rng(seed)
    hidden = INPUTS[:, None]
    for _ in range(LAYERS - 1):
        hidden = np.maximum(_layer(hidden, WIDTH, generator), 0)
    return measure(hidden, _layer(hidden, 1, generator)), first_functions(hidden)


def _layer(inputs: np.ndarray, width: int, generator: np.random.Generator) -> np.ndarray:
    bound = 1 / np.sqrt(inputs.shape[1])
    weights = generator.uniform(-bound, bound, (inputs.shape[1], width))
    return inputs @ weights + generator.uniform(-bound, bound, width)


def _error(report: FeatureReport, modes: int = 200) -> np.ndarray:
    """Mean square error of the best combination of the first k features; on a grid, quality has no bias of chance."""
    return np.mean(TARGET**2) * (1 - np.cumsum(report.quality)[:modes])


def _claims(reports: tuple[FeatureReport, ...], errors: np.ndarray) -> list[Claim]:
    claims = []
    for name, printed in PRINTED_BEFORE.items():
        values = np.array([report.effective_dimensions[name] for report in reports])
        claims.append(
            Claim(
                f"{NAMES[name]} before training (mean)",
                values.mean(),
                printed,
                0.05 + 3 * SPREAD[name] * np.hypot(1, 1 / np.sqrt(values.size)),
                "half a digit of the table, which is one draw: and three times its spread, measured on 40 other draws",
            )
        )
    error = errors[:, SHOWN - 1].mean()
    allowed = 4 * ERROR_SPREAD * np.hypot(1 / np.sqrt(40), 1 / np.sqrt(len(reports)))
    claims.append(
        Claim(
            f"error of the step with the first {SHOWN} features",
            error,
            ERROR_OF_SHOWN,
            allowed,
            "as measured on 40 other draws; four standard errors of both",
            printed="below 1e-5",
        )
    )
    slope = np.mean(np.log(errors[:, 159] / errors[:, 9])) / np.log(16)
    claims.append(
        Claim(
            "power of k in that error, k = 10 to 160",
            slope,
            -1.0,
            0.03 + 4 * 0.05 / np.sqrt(len(reports)),
            "a step has coefficients 1/k on smooth functions with k zeros; 40 other draws: -1.03, spread 0.05",
        )
    )
    return claims


def _dataset(reports: tuple[FeatureReport, ...], errors: np.ndarray) -> xr.Dataset:
    count = errors.shape[1]
    curves = {
        "intensity": ([report.intensity[:count] for report in reports], "intensity", "ρ_k"),
        "quality": ([report.quality[:count] for report in reports], "quality", "Q*_k"),
        "utilisation": ([report.utilisation[:count] for report in reports], "utilisation", "Q̂_k"),
        "error": (errors, "error of the target with the first k features", "L(k)"),
    }
    return xr.Dataset(
        {
            name: (("seed", "mode"), np.array(values), {"long_name": text, "units": "1", "symbol": symbol})
            for name, (values, text, symbol) in curves.items()
        },
        {"mode": np.arange(1, count + 1), "seed": np.arange(len(reports))},
    )
