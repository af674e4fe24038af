"""Theorem 1: the growth of the layers as printed and corrected, and the digits that its form loses."""

from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import xarray as xr

from solvable.models.scalar_network import ScalarNetwork
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._layer_reference import INTEGRATOR, integrate_scalar
from solvable.plotting import COLOURS, new_figure, set_axis

LAYERS = np.array([0.4, -0.2, 0.3]), np.array([0.1, 0.3, 0.2])
# Layers, target, Z and E[x^2]: also a negative target, a single pair, and scales other than 1.
CASES = {
    "Z = 1, E[x²] = 1": ScalarNetwork(*LAYERS, 1.3),
    "Z = 1.7, E[x²] = 0.6": ScalarNetwork(*LAYERS, 1.3, 1.7, 0.6),
    "S < 0": ScalarNetwork(*LAYERS, -0.8, 0.7, 1.4),
    "one pair": ScalarNetwork(np.array([0.5]), np.array([-0.45]), 1.0),
}
TIMES = np.linspace(0, 8, 41)


def reproduce(scale: Scale) -> Reproduction:
    figure, (curve_panel, digits_panel) = new_figure(2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for colour, (label, model) in zip(COLOURS, CASES.items(), strict=False):
        theory = datasets[f"case-{len(datasets) + 1}"] = model.predict(TIMES)
        growth = growth_by_integration(model)
        printed = textbook_growth(model, TIMES, 4 / model.output_scale)
        claims.append(
            Claim(
                f"{label}: γ against the flow (largest relative difference)",
                float(np.max(np.abs(theory.growth.values / growth - 1))),
                0.0,
                1e-9,
                INTEGRATOR,
                printed=float(np.max(np.abs(printed / growth - 1))),
            )
        )
        fine = model.predict(np.linspace(0, 8, 300))
        curve_panel.plot(fine.time, fine.growth, color=colour, label=label)
        curve_panel.plot(fine.time, textbook_growth(model, fine.time.values, 4 / model.output_scale), ":", color=colour)
        curve_panel.plot(TIMES[::2], growth[::2], "o", color=colour, markersize=3.8)
    curve_panel.set_yscale("log")
    set_axis(curve_panel, "x", theory.time)
    curve_panel.set_ylabel("growth, γ")
    curve_panel.set_title("lines: corrected, dotted: as printed, points: integrated")
    curve_panel.legend(loc=(0.52, 0.12))
    claims += _digits(digits_panel)
    claims.append(_bound(400 if scale == "quick" else 4000))
    return Reproduction(datasets, figure, claims)


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


def _digits(panel: Any) -> list[Claim]:
    """Relative errors of both forms over the size of the start, layers nearly equal and nearly opposed."""
    sizes = 10.0 ** np.arange(-8, 1)
    claims = []
    for colour, (label, shape) in zip(COLOURS, {"aligned": 1.5, "opposed": -1 + 1e-6}.items(), strict=False):
        stable, naive = [], []
        for size in sizes:
            model = ScalarNetwork(np.array([size]), np.array([shape * size]), 1.0)
            # Just after the layers have grown to the size of the target.
            time = 0.6 * float(np.log1p(2 / ((1 + shape) * size) ** 2))
            exact = many_digits(model, time)
            stable.append(abs(float(Decimal(float(model.predict([time]).growth[0])) / exact - 1)))
            with np.errstate(divide="ignore", invalid="ignore"):
                usual = textbook_growth(model, np.array([time]), 2.0)[0]
            naive.append(abs(float(Decimal(float(usual)) / exact - 1)) if np.isfinite(usual) else np.inf)
        panel.loglog(sizes, np.maximum(stable, 1e-17), "o-", color=colour, label=f"{label}: stable form")
        panel.loglog(sizes, np.clip(naive, 1e-17, 1e4), "s--", color=colour, label=f"{label}: corrected eq. 6.12")
        claims.append(
            Claim(
                f"{label} layers from 1e-8 to 1: largest relative error of γ",
                max(stable),
                0.0,
                1e-14,
                "rounding of some ten operations and of an exponent below 100, against 120 digits",
                printed=f"{max(naive):.2g} (eq. 6.12 with its exponent corrected)",
            )
        )
    panel.set_xlabel("size of the layers at the start")
    panel.set_ylabel("relative error of γ")
    panel.set_ylim(1e-25, 1e5)
    panel.legend(fontsize="small", loc="lower left")
    return claims


def _bound(draws: int) -> Claim:
    """gamma_+ >= S / Sigma_0 (section 6.3.1) on random layers."""
    generator = np.random.default_rng(0)
    broken = 0
    for _ in range(draws):
        layers = generator.normal(size=(2, 3)) * 10 ** generator.uniform(-3, 1)
        model = ScalarNetwork(layers[0], layers[1], generator.uniform(0.01, 5), generator.uniform(0.1, 10))
        broken += model.final_growth < model.target / model.weight_size * (1 - 1e-14)
    return Claim(f"violations of γ₊ ≥ S/Σ₀ in {draws} draws", float(broken), 0.0, 0.0, "a theorem for S > 0")
