r"""Fig. 7(a): kernel spectra on the circle, for power-law activations.

A network of two layers on inputs ``(cos x, sin x)`` with activations ``max(0, z)^q`` has a kernel that depends on the
angle alone. Its weights are Gaussian, so that each hidden unit sees ``r^q cos_+^q(x - angle)``, and the eigenvalues are
squares of the Fourier coefficients ``c_k(q)`` of ``cos_+^q``: of the readout ``~ c_k(q)^2``, of the first layer
``~ c_(k-1)(q-1)^2 + c_(k+1)(q-1)^2``. The second decides: ``lambda_k ~ k^(-2q)``.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy.special import gamma, rgamma, roots_jacobi

from solvable.papers.claims import Claim, Scale
from solvable.papers.feature_scaling._shared import fall, shades
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POWERS = (0.75, 1.0, 1.25, 1.5, 1.75)
RANKS = np.arange(1, 201)
FIRST = 20
# Eigenvalues below this fraction of the largest are squares of rounding errors.
ROUNDING = 1e-25


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Spectra of two layers for each activation, of both layers and of the readout alone, and of three ReLU layers."""
    spectra = {
        name: (("power", "k"), [function(power, RANKS) for power in POWERS], {"long_name": text, "units": "1"})
        for name, function, text in (
            ("eigenvalue", tangent_kernel, "eigenvalue of the tangent kernel"),
            ("readout", partial(tangent_kernel, of="readout"), "eigenvalue of the kernel of the readout alone"),
            ("coefficient", coefficient, "Fourier coefficient of the activation"),
        )
    }
    deep = ("k", relu_spectrum(RANKS, layers=3), {"long_name": "eigenvalue of the tangent kernel", "units": "1"})
    return {
        "spectra": xr.Dataset(spectra, {"power": list(POWERS), "k": RANKS}),
        "deep": xr.Dataset({"eigenvalue": deep}, {"k": RANKS}),
    }


def coefficient(power: float, ranks: np.ndarray) -> np.ndarray:
    """``c_k(q) = int cos^q x cos(k x) dx`` over half a circle, by Gauss quadrature.

    With ``s = sin x`` even k are polynomials on the weight ``(1 - s^2)^((q - 1)/2)``; odd ones have one cos x more.
    """
    result = np.zeros(ranks.size)
    for odd in (0, 1):
        chosen = ranks % 2 == odd
        nodes, weights = roots_jacobi(int(ranks.max()) + 2, (power - 1 + odd) / 2, (power - 1 + odd) / 2)
        angle = np.arcsin(nodes)
        waves = np.cos(ranks[chosen][:, None] * angle) / np.cos(angle) ** odd
        result[chosen] = waves @ weights
    return result


def closed_form(power: float, ranks: np.ndarray) -> np.ndarray:
    """The same as a quotient of gamma functions (Cauchy)."""
    zeros = rgamma(1 + (power + ranks) / 2) * rgamma(1 + (power - ranks) / 2)
    return math.pi * gamma(1 + power) / 2**power * zeros


def tangent_kernel(power: float, ranks: np.ndarray, of: str = "both") -> np.ndarray:
    """Eigenvalues of the kernel of both layers, or of the ``readout`` alone: coefficients of cos(k x), eq. 13.

    Weights have variance 2, so that ReLU gives the arc-cosine kernels.
    """
    around = np.arange(0, int(ranks.max()) + 2)
    readout = 2**power * gamma(power + 1) * coefficient(power, around) ** 2
    slope = power**2 * 2 ** (power - 1) * gamma(power) * coefficient(power - 1, around) ** 2
    # Inputs meet in cos(x - x'), which shifts waves by one either way.
    first_layer = np.array([slope[k + 1] + slope[k - 1] for k in ranks]) / 2
    return (readout[ranks] + (first_layer if of == "both" else 0.0)) / math.pi**2


def relu_spectrum(ranks: np.ndarray, layers: int, points: int = 2**16) -> np.ndarray:
    """Tangent kernel of a ReLU network, from the arc-cosine kernels, by a discrete Fourier transform."""
    angle = 2 * np.pi * np.arange(points) / points

    def layer(cosine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        turn = np.arccos(np.clip(cosine, -1, 1))
        return (np.sin(turn) + (np.pi - turn) * cosine) / np.pi, (np.pi - turn) / np.pi

    similarity = kernel = np.cos(angle)
    for _ in range(layers - 1):
        similarity, slope = layer(similarity)
        kernel = similarity + slope * kernel
    return 2 * np.fft.rfft(kernel).real[ranks] / points


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Capacities of each activation, quadrature against gamma functions, and the parity gap that depth fills."""
    spectra = data["spectra"]
    made = [claim for power in POWERS for claim in _power_claims(power, spectra.sel(power=power))]
    return made + _parity_claims(spectra.eigenvalue.sel(power=1.0).values, data["deep"].eigenvalue.values)


def _power_claims(power: float, spectrum: xr.Dataset) -> list[Claim]:
    values, readout, found = (spectrum[name].values for name in ("eigenvalue", "readout", "coefficient"))
    late = RANKS >= FIRST
    chosen = late & (values > ROUNDING * values.max())
    gap = np.abs(found - closed_form(power, RANKS)).max() / found[0]
    # Only the parity that does not vanish.
    used = late & (readout > 1e-22)
    name = f"q = {power:g}"
    return [
        Claim(
            f"{name}: capacity over k = 20 ... 200",
            fall(RANKS[chosen], values[chosen]),
            2 * power,
            0.02,
            "corrections of order q²/k at the first fitted k",
        ),
        Claim(f"{name}: quadrature against gamma functions", gap, 0.0, 1e-12, "rounding of a sum over 200 nodes"),
        Claim(
            f"{name}: exponent of the readout's kernel alone",
            fall(RANKS[used], readout[used]),
            2 * power + 2,
            0.02,
            "corrections of order 1/k²",
        ),
    ]


def _parity_claims(two: np.ndarray, deeper: np.ndarray) -> list[Claim]:
    odd = slice(2, None, 2)
    made = [
        Claim(
            "two layers, q = 1: largest eigenvalue of odd k > 1",
            float(np.abs(two[odd]).max()),
            0.0,
            1e-25,
            "squares of rounding errors: without biases every second eigenvalue of an integer q is zero",
            printed="k^-2 for all k",
        ),
        Claim(
            "two layers, q = 1: eigenvalues against the arc-cosine kernels",
            float(np.abs(two / relu_spectrum(RANKS, layers=2) - 1)[1:60:2].max()),
            0.0,
            1e-5,
            "aliases of 65536 points at k = 60, of order (60 / 65536)^2",
        ),
    ]
    for offset, name in ((0, "odd"), (1, "even")):
        chosen = RANKS[offset::2] >= FIRST
        capacity = fall(RANKS[offset::2][chosen], deeper[offset::2][chosen])
        because = "the two parities have different corrections in 1/k"
        made.append(Claim(f"three layers, q = 1: capacity of {name} k", capacity, 2.0, 0.05, because))
    return made


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Spectra of two layers for each activation, and of two and three ReLU layers."""
    figure, (spectrum_panel, depth_panel) = new_figure(2)
    spectra = data["spectra"].eigenvalue
    for power, colour in zip(POWERS, shades(len(POWERS)), strict=True):
        _draw_spectrum(spectrum_panel, power, spectra.sel(power=power).values, colour)
    spectrum_panel.set_title("two layers", fontsize="medium")
    spectrum_panel.legend(fontsize="small", title="lines: $k^{-2q}$")
    two, deeper = spectra.sel(power=1.0).values, data["deep"].eigenvalue.values
    for offset, colour, name in ((0, COLOURS[0], "odd"), (1, COLOURS[1], "even")):
        depth_panel.loglog(RANKS[offset::2], deeper[offset::2], ".", color=colour, label=f"three layers, {name} k")
    seen, label = two > ROUNDING, "two layers: k = 1 and even k only"
    depth_panel.loglog(RANKS[seen], two[seen], "x", markersize=4, color="grey", label=label)
    depth_panel.set_title("ReLU, q = 1", fontsize="medium")
    depth_panel.legend(fontsize="small")
    for panel in (spectrum_panel, depth_panel):
        panel.set(xlabel="wave number, k", ylabel="eigenvalue, $\\lambda_k$")
    return figure


def _draw_spectrum(panel: "Axes", power: float, values: np.ndarray, colour: str) -> None:
    seen = values > ROUNDING * values.max()
    panel.loglog(RANKS[seen], values[seen], ".", markersize=3, color=colour, label=f"q = {power:g}")
    anchor = int(RANKS[seen][-1])
    panel.loglog(RANKS, values[anchor - 1] * (RANKS / anchor) ** (-2 * power), color=colour, linewidth=0.8)
