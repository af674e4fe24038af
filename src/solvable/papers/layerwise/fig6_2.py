"""Fig. 6.2: rich and lazy learning in numbers, unit by unit, and how each limit is approached."""

from typing import Any

import numpy as np
import xarray as xr

from solvable.models.scalar_network import WAYS, ScalarNetwork
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._layer_reference import descend, on_flow_time
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis

SHOWN = 8
CASES = {
    "small": ("(a) small start", ScalarNetwork.small(SHOWN, scale=0.03, key=5)),
    "target-downscaled": ("(b) target / 100", ScalarNetwork.target_downscaled(SHOWN, factor=100.0, key=5)),
    "ntk": ("(c) NTK start, 1000 units", ScalarNetwork.ntk(1000, key=5)),
}


def reproduce(scale: Scale) -> Reproduction:
    figure, axes = new_figure(3, rows=2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for column, (name, (title, model)) in enumerate(CASES.items()):
        # Some relaxation times, and the wait for exponential growth where the start is small.
        fastest = max(model.weight_size, abs(model.target))
        end = (3 + np.log1p(abs(model.target) / model.weight_size)) * model.output_scale / fastest
        theory = datasets[f"theory-{name}"] = model.predict(np.linspace(0, end, 200))
        sparse = np.linspace(end / 12, end, 12)
        # A whole number of steps between two of the times.
        rate = end / (2004 if scale == "quick" else 20_004)
        expected, simulation = descend(model, sparse, rate, samples=20_000, seeds=16, key=column)
        datasets[f"simulation-{name}"] = simulation
        _draw_units(axes[0][column], model, f"{title}: γ₊ = {model.final_growth:.4g}")
        _draw_output(axes[1][column], theory, on_flow_time(simulation), model)
        claims += _case_claims(title, model, expected, simulation)
    axes[0][0].set_ylabel("what the unit adds to the output, a b / Z")
    axes[0][0].legend()
    axes[1][0].legend()
    claims += _limit_claims(20 if scale == "quick" else 100) + _way_claims()
    return Reproduction(datasets, figure, claims)


def _draw_units(panel: Any, model: ScalarNetwork, title: str) -> None:
    """Start and end of the first units, from the largest product to the smallest."""
    end = model.predict([1e4 * model.output_scale / max(model.weight_size, abs(model.target))]).isel(time=0)
    before = (model.initial_first * model.initial_second)[:SHOWN] / model.output_scale
    after = (end.first * end.second).values[:SHOWN] / model.output_scale
    order = np.argsort(-before)
    place = np.arange(before.size)
    panel.bar(place - 0.2, before[order], 0.38, color="white", edgecolor=COLOURS[0], label="start")
    panel.bar(place + 0.2, after[order], 0.38, color=COLOURS[1], label="end")
    panel.axhline(0, color="black", linewidth=0.6)
    panel.set_title(title)
    panel.set_xlabel("hidden unit, by a b at the start")
    panel.set_xticks([])


def _draw_output(panel: Any, theory: xr.Dataset, simulation: xr.Dataset, model: ScalarNetwork) -> None:
    draw_curve(panel, theory.output, COLOURS[0], "network, theory")
    draw_curve(panel, simulation.output, COLOURS[0], "network, descent")
    draw_curve(panel, theory.linear_output, COLOURS[4], "linearised at its start", dashed=True)
    panel.axhline(model.target, color="grey", linewidth=0.8, linestyle=":")
    panel.set_title(f"distance from linear = {_distance(model):.2g}")
    set_axis(panel, "x", theory.time)
    set_axis(panel, "y", theory.output)


def _distance(model: ScalarNetwork) -> float:
    return float(model.distance_from_linear().distance_from_linear)


def _case_claims(title: str, model: ScalarNetwork, expected: xr.Dataset, simulation: xr.Dataset) -> list[Claim]:
    size = abs(model.target - model.initial_output)
    runs = simulation.output.mean("seed").values - expected.output.values
    end = model.predict([1e5 * model.output_scale / max(model.weight_size, abs(model.target))])
    units = (end.first * end.second).values[0] / model.output_scale
    return [
        Claim(
            f"{title}: descent against theorem 1, over the distance to go",
            float(np.max(np.abs(runs)) / size),
            0.0,
            0.02,
            "16 training sets of 20000 know E[x²] to 0.25 %, which the steepest part of a curve triples; steps",
        ),
        Claim(f"{title}: output at the end", float(units.sum()), model.target, 1e-9, "the flow ends at the target"),
        Claim(
            f"{title}: γ₊ over the bound S/Σ₀ (at least 1)",
            min(model.final_growth / (model.target / model.weight_size), 1.0),
            1.0,
            1e-14,
            "section 6.3.1",
        ),
    ]


def _limit_claims(draws: int) -> list[Claim]:
    """How the lazy limits are approached, as exponents between two sizes a factor of 100 apart."""
    small, large = (ScalarNetwork.target_downscaled(SHOWN, factor=factor, key=5) for factor in (10.0, 1000.0))
    target_slope = np.log(_distance(small) / _distance(large)) / np.log(100)

    def spread(width: int) -> float:
        growths = [ScalarNetwork.ntk(width, key=key).final_growth for key in range(draws)]
        return float(np.sqrt(np.mean((np.array(growths) - 1) ** 2)))

    width_slope = np.log(spread(40_000) / spread(400)) / np.log(100)
    starts = np.array([ScalarNetwork.ntk(2000, key=key).initial_output for key in range(10 * draws)])
    rich = ScalarNetwork.small(SHOWN, scale=1e-5, key=5)
    return [
        Claim("small start (1e-5): distance from linear", _distance(rich), 1.0, 1e-3, "rich limit is 1"),
        Claim(
            "target downscaling: exponent of the distance from linear in S",
            float(target_slope),
            2.0,
            0.01,
            "from a zero output the kernel changes by S²/2Σ₀²; the next order is S⁴",
        ),
        Claim(
            "NTK start: exponent of γ₊ − 1 in the width",
            float(width_slope),
            -0.5,
            0.1,
            f"root mean square over {draws} draws of two widths; error of the exponent {0.22 / np.sqrt(draws):.2g}",
        ),
        Claim(
            "NTK start: variance of the output at the start, width 2000",
            float(starts.var()),
            1.0,
            4 * float(np.sqrt(2 / starts.size)),
            "4 errors of a variance",
            printed="S₀ → 0 (only S₀/Σ₀ does)",
        ),
    ]


def _way_claims() -> list[Claim]:
    """The four ways of section 6.3.1, by a factor of 10 from an NTK start."""
    model = ScalarNetwork.ntk(100, key=5)
    aligned, opposed = model.weight_size + model.initial_output, model.weight_size - model.initial_output

    def expected(shrink: float, stretch: float) -> float:
        p, q, s = aligned / shrink, opposed / shrink, model.target * stretch
        return (s + np.sqrt(p * q + s**2)) / p

    numbers = {"target": (1, 10), "input": (1, 10), "weights": (100, 1), "output": (10, 1)}
    return [
        Claim(
            f"γ₊ with the {way} changed tenfold, from {model.final_growth:.3g}",
            model.richer(way, 10.0).final_growth,
            float(expected(*numbers[way])),
            1e-12,
            "eq. 6.14",
            relative=True,
        )
        for way in WAYS
    ]
