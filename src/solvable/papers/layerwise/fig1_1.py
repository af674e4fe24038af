"""Fig. 1.1: features that overlap, diagonalised; their intensities are not their norms."""

from typing import Any

import numpy as np
import xarray as xr

from solvable.diagnostics import FeatureStatistics
from solvable.diagnostics.eigenbasis import eigenbasis
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, new_figure

# The example of section 1.5.3, and two features that nearly coincide.
COVARIANCES = {"section 1.5.3": ((1.5, 0.5), (0.5, 1.5)), "nearly parallel": ((1.0, 0.95), (0.95, 1.0))}
INTENSITIES = {"section 1.5.3": (2.0, 1.0), "nearly parallel": (1.95, 0.05)}


def reproduce(scale: Scale) -> Reproduction:
    samples = 4000 if scale == "quick" else 400_000
    figure, panels = new_figure(2, width=4.2, height=4.8)
    datasets, claims = {}, []
    for panel, (name, covariance) in zip(panels, COVARIANCES.items(), strict=True):
        generator = np.random.default_rng(11)
        train, test = generator.multivariate_normal((0, 0), covariance, (2, samples))
        intensity, directions = diagonalised(train)
        _draw(panel, name, np.array(covariance), intensity, directions)
        claims += _claims(name, train, test, intensity, directions)
        attrs = {"long_name": "intensity", "units": "1", "symbol": "ρ_k"}
        datasets[name.replace(" ", "-")] = xr.Dataset({"intensity": ("mode", intensity, attrs)}, {"mode": [1, 2]})
    return Reproduction(datasets, figure, claims)


def diagonalised(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intensities ρ_k and the directions u_k, columns of O in eq. 1.27."""
    basis = eigenbasis(FeatureStatistics().update(features, features[:, :1], features[:, 0]))
    return basis.intensity, basis.directions


def _claims(
    name: str, train: np.ndarray, test: np.ndarray, intensity: np.ndarray, directions: np.ndarray
) -> list[Claim]:
    samples = len(train)
    error = np.sqrt(2 / samples)
    functions = test @ directions / np.sqrt(intensity)
    singular = np.linalg.svd(train, compute_uv=False)
    weights = np.array([0.8, -0.3])
    rotated = directions.T @ weights
    same = train @ weights - (train @ directions / np.sqrt(intensity)) @ (rotated * np.sqrt(intensity))
    why = "four standard errors of a variance from so many samples"
    return [
        *(
            Claim(f"{name}: intensity {k + 1}", intensity[k], expected, 4 * error, why, relative=True)
            for k, expected in enumerate(INTENSITIES[name])
        ),
        Claim(
            f"{name}: intensity over squared singular value",
            samples * intensity[0] / singular[0] ** 2,
            1.0,
            1e-12,
            "algorithm 1 with its missing 1/n; rounding",
            printed=samples,
        ),
        Claim(
            f"{name}: <e_1|e_1> on other samples",
            float(np.mean(functions[:, 0] ** 2)),
            1.0,
            4 * np.sqrt(2) * error,
            "four standard errors of both samples; printed: eq. 1.33 divides by the singular value",
            printed=round(1 / samples, 6),
        ),
        Claim(f"{name}: <e_1|e_2> on these", float(np.mean(np.prod(train @ directions, axis=1))), 0, 1e-12, "rounding"),
        Claim(f"{name}: eq. 1.28, the same function", float(np.abs(same).max()), 0, 1e-12, "rounding"),
        Claim(
            f"{name}: norm of the weights is kept", float(np.sum(rotated**2) / np.sum(weights**2)), 1, 1e-12, "rounding"
        ),
    ]


def _draw(panel: Any, name: str, covariance: np.ndarray, intensity: np.ndarray, directions: np.ndarray) -> None:
    """Functions as arrows in the plane of e_1 and e_2: Φ_i has the components O_ij √ρ_j (eq. 1.27)."""
    ends = directions * np.sqrt(intensity)
    ends = ends * np.sign(ends[0])
    arrows = [(ends[i], f"Φ_{i + 1}, |Φ|² = {covariance[i, i]:g}", COLOURS[i], "-") for i in range(2)]
    arrows += [
        (
            np.sqrt(intensity[k]) * np.eye(2)[k],
            f"√ρ_{k + 1} e_{k + 1}, ρ_{k + 1} = {intensity[k]:.3g}",
            COLOURS[2 + k],
            "--",
        )
        for k in range(2)
    ]
    for (x, y), label, colour, style in arrows:
        panel.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "linestyle": style})
        panel.plot([], [], color=colour, linestyle=style, label=label)
    panel.set_aspect("equal")
    panel.set_xlim(-0.15, 1.7)
    panel.set_ylim(-1.1, 1.35)
    panel.set_xlabel("component along e_1")
    panel.set_ylabel("component along e_2")
    panel.set_title(name, fontsize="medium")
    panel.legend(fontsize="small", loc="upper right")
