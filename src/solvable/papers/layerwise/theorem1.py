"""Theorem 1: the growth of the layers as printed and corrected, and the digits that its form loses."""

from collections.abc import Mapping
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.scalar_network import ScalarNetwork
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._layer_reference import INTEGRATOR, integrate_scalar
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, new_figure, set_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYERS = np.array([0.4, -0.2, 0.3]), np.array([0.1, 0.3, 0.2])
# Layers, target, Z and E[x^2]: also a negative target, a single pair, and scales other than 1.
CASES = {
    "Z = 1, E[x²] = 1": ScalarNetwork(*LAYERS, 1.3),
    "Z = 1.7, E[x²] = 0.6": ScalarNetwork(*LAYERS, 1.3, 1.7, 0.6),
    "S < 0": ScalarNetwork(*LAYERS, -0.8, 0.7, 1.4),
    "one pair": ScalarNetwork(np.array([0.5]), np.array([-0.45]), 1.0),
}
TIMES = np.linspace(0, 8, 41)
# Second layer over the first: nearly equal and nearly opposed.
SHAPES = {"aligned": 1.5, "opposed": -1 + 1e-6}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The growth in each case, integrated too and on a finer grid; errors of two forms; a bound on random layers."""
    data = {}
    for number, model in enumerate(CASES.values(), 1):
        integrated = variable("time", growth_by_integration(model), "growth by integration", "γ")
        data[f"case-{number}"] = model.predict(TIMES).assign(integrated_growth=integrated)
        data[f"case-{number}-fine"] = model.predict(np.linspace(0, 8, 300))
    draws = 400 if scale == "quick" else 4000
    violations = variable((), bound_violations(draws), "draws in which γ₊ < S/Σ₀")
    bound = xr.Dataset({"violations": violations}, attrs={"draws": draws})
    return {**data, "digits": digits(10.0 ** np.arange(-8, 1)), "bound": bound}


def textbook_growth(model: ScalarNetwork, times: np.ndarray, rate: float) -> np.ndarray:
    """Eq. 6.12 in its own letters, with the exponent ``-rate K t``: 4 / Z as printed, 2 E[x^2] / Z corrected."""
    sigma, start, target = model.weight_size, model.initial_output, model.target
    speed = np.sqrt(sigma**2 - start**2 + target**2)
    decay = np.exp(-rate * speed * times)
    above = sigma - start + target + speed + (-sigma + start - target + speed) * decay
    return above / (sigma + start - target + speed + (-sigma - start + target + speed) * decay)


def growth_by_integration(model: ScalarNetwork) -> np.ndarray:
    """gamma from the integrated layers: the square of how much the aligned parts have grown."""
    first, second = integrate_scalar(model, TIMES)
    together = model.initial_first + model.initial_second
    return (((first + second) * together).sum(1) / (together**2).sum()) ** 2


def many_digits(model: ScalarNetwork, time: float) -> Decimal:
    """The same formula with 120 digits, for the same doubles."""
    with localcontext() as context:
        context.prec = 120
        layers = model.initial_first, model.initial_second
        first, second = ([Decimal(float(value)) for value in layer] for layer in layers)
        scale, power, target = (Decimal(value) for value in (model.output_scale, model.input_power, model.target))
        sigma = sum((a * a + b * b for a, b in zip(first, second, strict=True)), Decimal(0)) / (2 * scale)
        start = sum((a * b for a, b in zip(first, second, strict=True)), Decimal(0)) / scale
        speed = (sigma**2 - start**2 + target**2).sqrt()
        decay = (-2 * speed * power * Decimal(time) / scale).exp()
        above = sigma - start + target + speed + (-sigma + start - target + speed) * decay
        return above / (sigma + start - target + speed + (-sigma - start + target + speed) * decay)


def digits(sizes: np.ndarray) -> xr.Dataset:
    """Relative errors of both forms over the size of the start, layers nearly equal and nearly opposed."""
    errors = np.array([[_relative_errors(size, shape) for size in sizes] for shape in SHAPES.values()])
    return xr.Dataset(
        {
            "stable": variable(("layers", "initial_size"), errors[..., 0], "relative error of γ, stable form"),
            "textbook": variable(("layers", "initial_size"), errors[..., 1], "relative error of γ, corrected eq. 6.12"),
        },
        {"layers": list(SHAPES), "initial_size": variable("initial_size", sizes, "initial size of the layers")},
    )


def _relative_errors(size: float, shape: float) -> tuple[float, float]:
    """Of the stable form and of the corrected eq. 6.12; infinite where the latter is not a number."""
    model = ScalarNetwork(np.array([size]), np.array([shape * size]), 1.0)
    # Just after the layers have grown to the size of the target.
    time = 0.6 * float(np.log1p(2 / ((1 + shape) * size) ** 2))
    exact = many_digits(model, time)
    with np.errstate(divide="ignore", invalid="ignore"):
        forms = float(model.predict([time]).growth[0]), float(textbook_growth(model, np.array([time]), 2.0)[0])
    stable, textbook = (abs(float(Decimal(form) / exact - 1)) if np.isfinite(form) else np.inf for form in forms)
    return stable, textbook


def bound_violations(draws: int) -> int:
    """In how many draws of random layers gamma_+ >= S / Sigma_0 (section 6.3.1) does not hold."""
    generator = np.random.default_rng(0)
    broken = 0
    for _ in range(draws):
        layers = generator.normal(size=(2, 3)) * 10 ** generator.uniform(-3, 1)
        model = ScalarNetwork(layers[0], layers[1], generator.uniform(0.01, 5), generator.uniform(0.1, 10))
        broken += int(model.final_growth < model.target / model.weight_size * (1 - 1e-14))
    return broken


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The growth against integration and against 120 digits, and the bound on its final value."""
    made = []
    for number, (label, model) in enumerate(CASES.items(), 1):
        curve = data[f"case-{number}"]
        printed = textbook_growth(model, TIMES, 4 / model.output_scale)
        off, printed_off = (np.abs(growth / curve.integrated_growth - 1).max() for growth in (curve.growth, printed))
        name = f"{label}: γ against the flow (largest relative difference)"
        made.append(Claim(name, float(off), 0.0, 1e-9, INTEGRATOR, printed=float(printed_off)))
    for label in SHAPES:
        errors = data["digits"].sel(layers=label)
        made.append(
            Claim(
                f"{label} layers from 1e-8 to 1: largest relative error of γ",
                float(errors.stable.max()),
                0.0,
                1e-14,
                "rounding of some ten operations and of an exponent below 100, against 120 digits",
                printed=f"{float(errors.textbook.max()):.2g} (eq. 6.12 with its exponent corrected)",
            )
        )
    bound = data["bound"]
    name = f"violations of γ₊ ≥ S/Σ₀ in {bound.attrs['draws']} draws"
    return [*made, Claim(name, float(bound.violations), 0.0, 0.0, "a theorem for S > 0")]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The growth over time in each case, and the relative errors of both forms."""
    figure, (curve_panel, digits_panel) = new_figure(2)
    for number, (colour, (label, model)) in enumerate(zip(COLOURS, CASES.items(), strict=False), 1):
        curve, fine = data[f"case-{number}"], data[f"case-{number}-fine"]
        printed = textbook_growth(model, fine.time.values, 4 / model.output_scale)
        curve_panel.plot(fine.time, fine.growth, color=colour, label=label)
        curve_panel.plot(fine.time, printed, ":", color=colour)
        curve_panel.plot(curve.time[::2], curve.integrated_growth[::2], "o", color=colour, markersize=3.8)
    curve_panel.set_yscale("log")
    set_axis(curve_panel, "x", curve.time)
    curve_panel.set_ylabel("growth, γ")
    curve_panel.set_title("lines: corrected, dotted: as printed, points: integrated")
    curve_panel.legend(loc=(0.52, 0.12))
    _draw_digits(digits_panel, data["digits"])
    return figure


def _draw_digits(panel: "Axes", errors: xr.Dataset) -> None:
    for colour, label in zip(COLOURS, SHAPES, strict=False):
        chosen = errors.sel(layers=label)
        stable, textbook = np.maximum(chosen.stable, 1e-17), np.clip(chosen.textbook, 1e-17, 1e4)
        panel.loglog(errors.initial_size, stable, "o-", color=colour, label=f"{label}: stable form")
        panel.loglog(errors.initial_size, textbook, "s--", color=colour, label=f"{label}: corrected eq. 6.12")
    panel.set_xlabel("initial size of the layers")
    panel.set_ylabel("relative error of γ")
    panel.set_ylim(1e-25, 1e5)
    panel.legend(fontsize="small", loc="lower left")
