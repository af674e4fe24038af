"""Fig. 6.2: rich and lazy learning in numbers, unit by unit, and how each limit is approached."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.scalar_network import WAYS, ScalarNetwork
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._layer_reference import descend, on_flow_time
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Hidden units that are drawn; the first two networks have no others.
DRAWN = 8
CASES = {
    "small": ("(a) small start", ScalarNetwork.small(DRAWN, scale=0.03, key=5)),
    "target-downscaled": ("(b) target / 100", ScalarNetwork.target_downscaled(DRAWN, factor=100.0, key=5)),
    "ntk": ("(c) NTK start, 1000 units", ScalarNetwork.ntk(1000, key=5)),
}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and gradient descent for each start, its units before and after, and how the limits are approached."""
    data = {}
    for key, (name, (_, model)) in enumerate(CASES.items()):
        # Some relaxation times, and the wait for exponential growth where the start is small.
        fastest = max(model.weight_size, abs(model.target))
        end = (3 + np.log1p(abs(model.target) / model.weight_size)) * model.output_scale / fastest
        # A whole number of steps between two of the times.
        rate = end / (2004 if scale == "quick" else 20_004)
        data[f"theory-{name}"] = model.predict(np.linspace(0, end, 200))
        expected, simulation = descend(model, np.linspace(end / 12, end, 12), rate, samples=20_000, seeds=16, key=key)
        data |= {f"expected-{name}": expected, f"simulation-{name}": simulation, f"units-{name}": _units(model)}
    return {**data, "limits": _limits(20 if scale == "quick" else 100), "ways": _ways()}


def _units(model: ScalarNetwork) -> xr.Dataset:
    """The contribution of each unit to the output before and after training, and how rich the training is."""
    end = model.predict([1e5 * model.output_scale / max(model.weight_size, abs(model.target))]).isel(time=0, drop=True)
    before = model.initial_first * model.initial_second / model.output_scale
    after = (end["first"] * end["second"]).values / model.output_scale
    return xr.Dataset(
        {
            "before": variable("neuron", before, "contribution of the unit to the output at the start", "a b / Z"),
            "after": variable("neuron", after, "contribution of the unit to the output at the end", "a b / Z"),
            "final_growth": variable((), model.final_growth, "final growth", "γ₊"),
            "distance_from_linear": variable((), _distance(model), "largest distance from the linearised network"),
        }
    )


def _distance(model: ScalarNetwork) -> float:
    return float(model.distance_from_linear().distance_from_linear)


def _limits(draws: int) -> xr.Dataset:
    """How the rich and the lazy limits are approached: two sizes of the target and of the width, 100 apart."""
    factors, widths = [10.0, 1000.0], [400, 40_000]
    downscaled = [_distance(ScalarNetwork.target_downscaled(DRAWN, factor=factor, key=5)) for factor in factors]
    growths = [[ScalarNetwork.ntk(width, key=key).final_growth for key in range(draws)] for width in widths]
    starts = [ScalarNetwork.ntk(2000, key=key).initial_output for key in range(10 * draws)]
    rich, distance = ScalarNetwork.small(DRAWN, scale=1e-5, key=5), "largest distance from the linearised network"
    return xr.Dataset(
        {
            "small_distance": variable((), _distance(rich), f"{distance}, small start"),
            "downscaled_distance": variable("factor", downscaled, f"{distance}, target downscaled"),
            "final_growth": variable(("width", "draw"), growths, "final growth from an NTK start", "γ₊"),
            "initial_output": variable("start", starts, "output at an NTK start, width 2000", "S₀"),
        },
        {"factor": factors, "width": widths},
    )


def _ways() -> xr.Dataset:
    """The four ways of section 6.3.1, by a factor of 10 from an NTK start."""
    model = ScalarNetwork.ntk(100, key=5)
    growths = [model.richer(way, 10.0).final_growth for way in WAYS]
    return xr.Dataset(
        {
            "initial_growth": variable((), model.final_growth, "final growth of the NTK start", "γ₊"),
            "final_growth": variable("way", growths, "final growth after the change", "γ₊"),
            "weight_size": variable((), model.weight_size, "size of the weights", "Σ₀"),
            "initial_output": variable((), model.initial_output, "output at the start", "S₀"),
            "target": variable((), model.target, "target", "S"),
        },
        {"way": list(WAYS)},
    )


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Theorem 1 against descent, both limits, and the four ways to make a network richer."""
    cases = [claim for name in CASES for claim in _case_claims(name, data)]
    return cases + _limit_claims(data["limits"]) + _way_claims(data["ways"])


def _case_claims(name: str, data: Mapping[str, xr.Dataset]) -> list[Claim]:
    title, model = CASES[name]
    expected, simulation, units = (data[f"{part}-{name}"] for part in ("expected", "simulation", "units"))
    size = abs(model.target - model.initial_output)
    runs = simulation.output.mean("seed").values - expected.output.values
    return [
        Claim(
            f"{title}: descent against theorem 1, over the distance to go",
            float(np.max(np.abs(runs)) / size),
            0.0,
            0.02,
            "16 training sets of 20000 know E[x²] to 0.25 %, which the steepest part of a curve triples; steps",
        ),
        Claim(
            f"{title}: output at the end", float(units.after.sum()), model.target, 1e-9, "the flow ends at the target"
        ),
        Claim(
            f"{title}: γ₊ over the bound S/Σ₀ (at least 1)",
            min(float(units.final_growth) / (model.target / model.weight_size), 1.0),
            1.0,
            1e-14,
            "section 6.3.1",
        ),
    ]


def _limit_claims(limits: xr.Dataset) -> list[Claim]:
    """How the lazy limits are approached, as exponents between two sizes a factor of 100 apart."""
    draws, starts = limits.sizes["draw"], limits.initial_output.values
    distances = limits.downscaled_distance.values
    spreads = np.sqrt(((limits.final_growth - 1) ** 2).mean("draw")).values
    return [
        Claim("small start (1e-5): distance from linear", float(limits.small_distance), 1.0, 1e-3, "rich limit is 1"),
        Claim(
            "target downscaling: exponent of the distance from linear in S",
            np.log(distances[0] / distances[1]) / np.log(100),
            2.0,
            0.01,
            "from a zero output the kernel changes by S²/2Σ₀²; the next order is S⁴",
        ),
        Claim(
            "NTK start: exponent of γ₊ − 1 in the width",
            np.log(spreads[1] / spreads[0]) / np.log(100),
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


def _way_claims(ways: xr.Dataset) -> list[Claim]:
    """Each way stretches the target or shrinks the layers: eq. 6.14 for the changed numbers."""
    size, start, target = (float(ways[name]) for name in ("weight_size", "initial_output", "target"))

    def expected(shrink: float, stretch: float) -> float:
        p, q, s = (size + start) / shrink, (size - start) / shrink, target * stretch
        return (s + np.sqrt(p * q + s**2)) / p

    numbers = {"target": (1, 10), "input": (1, 10), "weights": (100, 1), "output": (10, 1)}
    return [
        Claim(
            f"γ₊ with the {way} changed tenfold, from {float(ways.initial_growth):.3g}",
            float(ways.final_growth.sel(way=way)),
            float(expected(*numbers[way])),
            1e-12,
            "eq. 6.14",
            relative=True,
        )
        for way in WAYS
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """For each start, its units before and after training, and its output over time."""
    figure, panels = new_figure(3, rows=2)
    for column, (name, (title, model)) in enumerate(CASES.items()):
        units = data[f"units-{name}"]
        _draw_units(panels[0][column], units, f"{title}: γ₊ = {float(units.final_growth):.4g}")
        panel = panels[1][column]
        _draw_output(panel, data[f"theory-{name}"], on_flow_time(data[f"simulation-{name}"]), model.target)
        panel.set_title(f"distance from linear = {float(units.distance_from_linear):.2g}")
    panels[0][0].set_ylabel("contribution to the output, a b / Z")
    panels[0][0].legend()
    panels[1][0].legend()
    return figure


def _draw_units(panel: "Axes", units: xr.Dataset, title: str) -> None:
    """Start and end of the first units, from the largest product to the smallest."""
    before, after = units.before.values[:DRAWN], units.after.values[:DRAWN]
    order = np.argsort(-before)
    place = np.arange(before.size)
    panel.bar(place - 0.2, before[order], 0.38, color="white", edgecolor=COLOURS[0], label="start")
    panel.bar(place + 0.2, after[order], 0.38, color=COLOURS[1], label="end")
    panel.axhline(0, color="black", linewidth=0.6)
    panel.set_title(title)
    panel.set_xlabel("hidden unit, sorted by initial a b")
    panel.set_xticks([])


def _draw_output(panel: "Axes", theory: xr.Dataset, simulation: xr.Dataset, target: float) -> None:
    draw_curve(panel, theory.output, COLOURS[0], "network, theory")
    draw_curve(panel, simulation.output, COLOURS[0], "network, gradient descent")
    draw_curve(panel, theory.linear_output, COLOURS[4], "linearised at its start", dashed=True)
    panel.axhline(target, color="grey", linewidth=0.8, linestyle=":")
    set_axis(panel, "x", theory.time)
    set_axis(panel, "y", theory.output)
