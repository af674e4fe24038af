"""The plane of lazy and rich learning: final growth γ₊ over the target, the size of the layers and their alignment.

With ``s = S / Sigma_0`` and ``rho = S_0 / Sigma_0`` the final growth of eq. 6.14 is
``gamma_+ = (s + sqrt(1 - rho^2 + s^2)) / (1 + rho)``, and its contours are the straight lines
``s = sinh(log gamma) + rho cosh(log gamma)``. The line ``gamma_+ = 1`` is ``s = rho``: a start at the target.
Learning is lazy beside it, and also along ``s = -3 rho``, far from it: there the output changes sign, and the tangent
kernel ``sqrt(Sigma_0^2 - S_0^2 + theta^2)`` first shrinks and is back at its start when half of the way is gone.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy.integrate import solve_ivp

from solvable.models.scalar_network import ScalarNetwork
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._variables import variable
from solvable.plotting import draw_plane, new_figure
from solvable.precision import in_float64
from solvable.sweeps import sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = {"quick": 33, "full": 101}
CONTOURS = (0.1, 0.3, 1.0, 3.0, 10.0)
# Target, size and alignment where the distance from the linearised network is computed by another route as well.
CELLS = ((1.0, 1.0, 0.0), (-1.5, 1.0, 0.5), (3.0, 1.0, -0.5), (4.0, 2.0, 0.9))
# Largest distance from the linearised network, in units of the error at the start, that is called lazy.
LAZY = 0.1
MEANINGS = {
    "final_growth": ("final growth", "γ₊"),
    "distance_from_linear": ("largest distance from the linearised network", ""),
    "target": ("target", "S"),
    "size": ("initial size", "Σ₀"),
    "alignment": ("initial alignment, ρ", "S₀/Σ₀"),
}


@in_float64
def pair(target: float, size: float = 1.0, alignment: float = 0.0) -> ScalarNetwork:
    """One pair of weights with ``(a^2 + b^2) / 2 = size`` and ``a b = alignment * size``; all others are like it."""
    angle, length = jnp.arcsin(alignment) / 2, jnp.sqrt(2 * size)
    first, second = length * jnp.cos(angle)[None], length * jnp.sin(angle)[None]
    return ScalarNetwork(first, second, target)  # type: ignore[arg-type]


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Final growth and distance from the linearised network on two planes, and the distance in single cells."""
    points = POINTS[scale]
    return {
        "size": _plane({"size": np.geomspace(1e-2, 1e2, points), "target": np.geomspace(1e-2, 1e2, points)}),
        "alignment": _plane({"alignment": np.linspace(-0.96, 0.96, points), "target": np.linspace(-4, 4, points)}),
        "cells": _cells(),
        "crossing": _crossing(),
    }


def _plane(over: dict[str, np.ndarray]) -> xr.Dataset:
    planes = [sweep(pair, over, name, progress=False)[[name]] for name in ("final_growth", "distance_from_linear")]
    plane = xr.merge(planes, combine_attrs="drop_conflicts")
    for name in plane.variables:
        long_name, symbol = MEANINGS[str(name)]
        plane[name].attrs = {"long_name": long_name, "units": "1", "symbol": symbol}
    return plane


def _cells() -> xr.Dataset:
    """The distance from the linearised network in single cells, by the model and by an integrated flow."""
    distances, integrated = zip(*((_distance(pair(*cell)), integrated_distance(*cell)) for cell in CELLS), strict=True)
    return xr.Dataset(
        {
            "distance_from_linear": variable("cell", distances, MEANINGS["distance_from_linear"][0]),
            "integrated_distance": variable("cell", integrated, "the same distance by integration"),
        }
    )


def _crossing() -> xr.Dataset:
    """A start whose output changes sign on the way, and a start that is not aligned and has the same final growth."""
    crossing = pair(target=-1.5, alignment=0.5)
    plain = pair(target=float(target_of(crossing.final_growth, np.zeros(()))))
    meaning = MEANINGS["distance_from_linear"][0]
    return xr.Dataset(
        {
            "final_growth": variable((), crossing.final_growth, *MEANINGS["final_growth"]),
            "distance_from_linear": variable((), _distance(crossing), meaning),
            "plain_distance": variable((), _distance(plain), f"{meaning}, layers not aligned"),
        }
    )


def _distance(model: ScalarNetwork) -> float:
    return float(model.distance_from_linear().distance_from_linear)


def integrated_distance(target: float, size: float, alignment: float) -> float:
    """By an integrator: ``theta' = 2 sqrt(Sigma_0^2 - S_0^2 + theta^2) (S - theta)``, as a^2 - b^2 is conserved."""
    start = alignment * size
    fixed = size**2 - start**2
    times = np.concatenate([[0.0], np.geomspace(1e-3, 30, 4500)]) / size
    flow = solve_ivp(
        lambda _, theta: 2 * np.sqrt(fixed + theta**2) * (target - theta),
        (0.0, times[-1]), [start], method="LSODA", t_eval=times, rtol=1e-11, atol=1e-13,
    )  # fmt: skip
    linear = target - (target - start) * np.exp(-2 * size * times)
    return float(np.max(np.abs(flow.y[0] - linear)) / abs(target - start))


def target_of(growth: float, alignment: np.ndarray) -> np.ndarray:
    """Where the final growth has a given value, in units of the size: a straight line."""
    return np.sinh(np.log(growth)) + alignment * np.cosh(np.log(growth))


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Bounds, limits, symmetries and contours of the final growth, and when learning is lazy."""
    planes = data["size"], data["alignment"]
    empty = sum(int(plane[name].isnull().sum()) for plane in planes for name in plane)
    return [
        Claim("cells without a value", empty, 0, 0, "a count"),
        *_size_claims(data["size"]),
        *_tilted_claims(data["alignment"]),
        *_distance_claims(data["cells"], data["crossing"]),
    ]


def _size_claims(plane: xr.Dataset) -> list[Claim]:
    growth = plane.final_growth.transpose("size", "target")
    ratio = (plane.target / plane["size"]).transpose("size", "target")
    rich, lazy = (
        growth.sel(size=1e-2, target=1e2, method="nearest"),
        growth.sel(size=1e2, target=1e-2, method="nearest"),
    )
    slope = np.log(growth.isel(size=0)[-1] / growth.isel(size=0)[-2]) / np.log(plane.target[-1] / plane.target[-2])
    return [
        Claim(
            "least of γ₊ over its bound S / Σ₀, all cells",
            min(1.0, float((growth / ratio).min())),
            1.0,
            1e-12,
            "a bound, γ₊ ≥ S/Σ₀ for positive targets; rounding",
        ),
        Claim(
            "log γ₊ over asinh(S / Σ₀), largest distance from 1",
            float(abs(np.log(growth) / np.arcsinh(ratio) - 1).max()),
            0.0,
            1e-9,
            "layers that are not aligned depend on S/Σ₀ alone; rounding of a logarithm near 1, 1e-4 at least",
        ),
        Claim("rich corner: γ₊ over 2 S / Σ₀", float(rich) / 2e4, 1.0, 1e-7, "next order Σ₀²/4S² = 2.5e-9"),
        Claim("lazy corner: (γ₊ - 1) Σ₀ / S", (float(lazy) - 1) * 1e4, 1.0, 1e-4, "next order S/2Σ₀ = 5e-5"),
        Claim("power of γ₊ in the target, rich end", float(slope), 1.0, 1e-6, "next order of the same"),
    ]


def _tilted_claims(plane: xr.Dataset) -> list[Claim]:
    growth, distance = plane.final_growth, plane.distance_from_linear
    off = abs(target_of(growth, plane.alignment) - plane.target).max()
    start = growth.sel(target=0.0, method="nearest")
    expected = np.sqrt((1 - plane.alignment) / (1 + plane.alignment))
    turned = growth.assign_coords(target=-growth.target, alignment=-growth.alignment).sortby(["target", "alignment"])
    return [
        Claim(
            "contours of γ₊: largest distance of a cell's target from the straight line",
            float(off),
            0.0,
            1e-12,
            "s = sinh(log γ) + ρ cosh(log γ); rounding",
        ),
        Claim(
            "target 0: γ₊ over sqrt((1 - ρ)/(1 + ρ)), largest distance from 1",
            float(abs(start / expected - 1).max()),
            0.0,
            1e-12,
            "what is unlearned ends balanced, K = sqrt(PQ); rounding",
        ),
        Claim(
            "other signs of the target and of one layer: γ₊ times itself, largest distance from 1",
            float(abs(growth * turned - 1).max()),
            0.0,
            1e-12,
            "the sign of one layer exchanges P and Q, and γ with 1/γ; rounding",
        ),
        Claim(
            "largest distance from linear among cells with γ₊ within 10 % of 1",
            float(distance.where(abs(np.log(growth)) < 0.1).max()),
            0.0,
            0.05,
            "of first order in log γ₊, with a factor of 1/2 at most",
        ),
    ]


def _distance_claims(cells: xr.Dataset, crossing: xr.Dataset) -> list[Claim]:
    """The distance by another route, and a start far from γ₊ = 1 that is lazy all the same."""
    return [
        Claim(
            "distance from linear against an integrated flow, largest difference over four cells",
            float(abs(cells.distance_from_linear - cells.integrated_distance).max()),
            0.0,
            1e-6,
            "1000 times a decade are compared, and the maximum is flat",
        ),
        Claim(
            "ρ = 1/2, S = -3Σ₀/2: γ₊", float(crossing.final_growth), 2 / np.sqrt(3) - 1, 1e-12, "closed form, rounding"
        ),
        Claim(
            "ρ = 1/2, S = -3Σ₀/2: distance from linear over that at ρ = 0 and the same γ₊",
            float(crossing.distance_from_linear / crossing.plain_distance),
            0.0,
            0.25,
            "γ₊ near 1 makes a start lazy but is not needed: the kernel shrinks, and grows as much in the second half",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Final growth over target and size, and over target and alignment, and the distance over the latter."""
    sizes, tilted = data["size"], data["alignment"]
    figure, (size_panel, growth_panel, lazy_panel) = new_figure(3, height=4.3)
    both = ("target", "size")
    draw_plane(figure, size_panel, sizes.final_growth, *both, both, contours=(1.1, 3, 10, 100, 1000))
    size_panel.set_title("layers not aligned, S₀ = 0", fontsize="medium")
    draw_plane(figure, growth_panel, tilted.final_growth, "target", "alignment", contours=None)
    _draw_lines(growth_panel)
    growth_panel.set_title("size Σ₀ = 1; lines: closed form", fontsize="medium")
    distance = tilted.distance_from_linear
    draw_plane(figure, lazy_panel, distance, "target", "alignment", scale="linear", contours=(LAZY / 2, LAZY, 0.2, 0.4))
    _draw_lines(lazy_panel, (1.0,))
    lazy_panel.plot([2.9, -2.9], [-2.9 / 3, 2.9 / 3], color="white", linestyle=":", linewidth=1.3)
    lazy_panel.set_title("dashed: γ₊ = 1; dotted: kernel back half way", fontsize="medium")
    return figure


def _draw_lines(panel: "Axes", growths: tuple[float, ...] = CONTOURS) -> None:
    limits = panel.get_xlim()
    ends = np.array([-0.99, 0.99])
    for growth in growths:
        style = "--" if growth == 1 else "-"
        panel.plot(target_of(growth, ends), ends, color="white", linewidth=1.1, linestyle=style)
        for height in (0.75, -0.75):
            place = float(target_of(growth, np.array(height)))
            if len(growths) > 1 and limits[0] + 0.5 < place < limits[1] - 0.5:
                panel.text(place - 0.1, height, f"{growth:g}", color="white", fontsize="small", ha="right")
                break
    panel.set_xlim(limits)
