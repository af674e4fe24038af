"""Fig. 2.2 and table 2.1, at initialisation: the features of an untrained network, and a step made of them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.diagnostics import FeatureReport
from solvable.papers.claims import Claim, Scale
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
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Features that the thesis combines, and features whose curves are stored.
COMBINED, STORED = 20, 200
# How draws of table 2.1's first column spread: standard deviations over seeds 1000 ... 1039 of this file.
SPREAD = {"quality": 0.042, "utilisation": 0.67, "intensity_plain": 0.045}
# Mean square error of the step with 20 features: mean and spread over the same seeds.
COMBINED_ERROR, ERROR_SPREAD = 4.80e-3, 2.9e-4


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Feature metrics of untrained networks, one per seed, and the first eigenfunctions of the first of them."""
    seeds = range(4 if scale == "quick" else 40)
    reports, functions = zip(*(untrained(seed) for seed in seeds), strict=True)
    kept = ["intensity", "quality", "utilisation", *(f"effective_dimension_{name}" for name in PRINTED_BEFORE)]
    parts = [report.to_dataset()[kept].isel(mode=slice(STORED)) for report in reports]
    draws = xr.concat(parts, "seed", combine_attrs="drop_conflicts").assign_coords(seed=seeds)
    # On a grid, quality has no bias of chance.
    draws["error"] = np.mean(TARGET**2) * (1 - draws.quality.cumsum("mode"))
    draws["error"].attrs = {
        "long_name": "error of the target with the first k features",
        "units": "1",
        "symbol": "L(k)",
    }
    eigenfunctions = variable(("input", "mode"), functions[0], "eigenfunction", "e_k")
    return {"draws": draws, "functions": xr.Dataset({"eigenfunction": eigenfunctions}, {"input": INPUTS})}


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


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The first column of table 2.1, and how the error of the step falls with the number of features."""
    draws = data["draws"]
    seeds = draws.sizes["seed"]
    made = [
        Claim(
            f"{NAMES[name]} before training (mean)",
            float(draws[f"effective_dimension_{name}"].mean()),
            printed,
            0.05 + 3 * SPREAD[name] * np.hypot(1, 1 / np.sqrt(seeds)),
            "half a digit of the table, which is one draw: and three times its spread, measured on 40 other draws",
        )
        for name, printed in PRINTED_BEFORE.items()
    ]
    early, late = (draws.error.sel(mode=modes) for modes in (10, 160))
    return [
        *made,
        Claim(
            f"error of the step with the first {COMBINED} features",
            float(draws.error.sel(mode=COMBINED).mean()),
            COMBINED_ERROR,
            4 * ERROR_SPREAD * np.hypot(1 / np.sqrt(40), 1 / np.sqrt(seeds)),
            "as measured on 40 other draws; four standard errors of both",
            printed="below 1e-5",
        ),
        Claim(
            "power of k in that error, k = 10 to 160",
            float(np.log(late / early).mean() / np.log(16)),
            -1.0,
            0.03 + 4 * 0.05 / np.sqrt(seeds),
            "a step has coefficients 1/k on smooth functions with k zeros; 40 other draws: -1.03, spread 0.05",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Eigenfunctions of one draw; error, utilisation and intensity over the features of up to four draws."""
    draws = data["draws"]
    figure, grid = new_figure(2, rows=2)
    function_panel, quality_panel, utilisation_panel, intensity_panel = grid.ravel()
    draw_functions(function_panel, data["functions"].eigenfunction.values)
    few = draws.isel(seed=slice(4))
    for index in range(few.sizes["seed"]):
        one = few.isel(seed=index)
        style = {"color": COLOURS[0], "alpha": 0.6, "label": f"{few.sizes['seed']} draws" if index == 0 else None}
        quality_panel.plot(one.mode, one.error, **style)
        utilisation_panel.plot(one.mode, one.utilisation.cumsum("mode"), **style)
        intensity_panel.plot(one.mode, one.intensity / one.intensity[0], **style)
    guide = draws.error.mean("seed").sel(mode=COMBINED) * COMBINED / draws.mode
    quality_panel.plot(draws.mode, guide, color="grey", linestyle=":", label="∝ 1/k")
    label = f"printed: below this with {COMBINED} features"
    quality_panel.plot(COMBINED, 1e-5, "v", color=COLOURS[1], label=label)
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
    return figure
