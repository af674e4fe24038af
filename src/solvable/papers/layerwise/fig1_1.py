"""Fig. 1.1: features that overlap, diagonalised; their intensities are not their norms."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.diagnostics import FeatureStatistics
from solvable.diagnostics.eigenbasis import eigenbasis
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The example of section 1.5.3, and two features that nearly coincide.
COVARIANCES = {"section 1.5.3": ((1.5, 0.5), (0.5, 1.5)), "nearly parallel": ((1.0, 0.95), (0.95, 1.0))}
INTENSITIES = {"section 1.5.3": (2.0, 1.0), "nearly parallel": (1.95, 0.05)}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Draw features with each covariance, diagonalise them, and measure the eigenfunctions on other samples."""
    samples = 4000 if scale == "quick" else 400_000
    data = {}
    for name, covariance in COVARIANCES.items():
        train, test = np.random.default_rng(11).multivariate_normal((0, 0), covariance, (2, samples))
        data[name.replace(" ", "-")] = measure(train, test)
    return data


def diagonalised(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intensities ρ_k and the directions u_k, columns of O in eq. 1.27."""
    basis = eigenbasis(FeatureStatistics().update(features, features[:, :1], features[:, 0]))
    return basis.intensity, basis.directions


def measure(train: np.ndarray, test: np.ndarray) -> xr.Dataset:
    """The eigenfunctions of the training features, and how well eqs. 1.28 and 1.33 hold for them."""
    intensity, directions = diagonalised(train)
    weights = np.array([0.8, -0.3])
    rotated = directions.T @ weights
    same = train @ weights - (train @ directions / np.sqrt(intensity)) @ (rotated * np.sqrt(intensity))
    overlap = np.mean(np.prod(train @ directions, axis=1))
    return xr.Dataset(
        {
            "intensity": variable("mode", intensity, "intensity", "ρ_k"),
            "direction": variable(("feature", "mode"), directions, "direction of an eigenfunction", "O_ik"),
            "singular_value": variable(
                "mode", np.linalg.svd(train, compute_uv=False), "singular value of the features"
            ),
            "mean_square": variable(
                "mode", np.mean((test @ directions / np.sqrt(intensity)) ** 2, axis=0), "mean square on other samples"
            ),
            "overlap": variable((), overlap, "overlap of the two eigenfunctions on the training samples"),
            "change_of_function": variable((), np.abs(same).max(), "largest change of a function by the rotation"),
            "weight_norm_ratio": variable(
                (), np.sum(rotated**2) / np.sum(weights**2), "squared norm of the weights, rotated over given"
            ),
        },
        {"mode": [1, 2], "feature": [1, 2]},
        {"samples": len(train)},
    )


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The intensities, and the normalisation of the eigenfunctions."""
    return [claim for name in COVARIANCES for claim in _claims(name, data[name.replace(" ", "-")])]


def _claims(name: str, found: xr.Dataset) -> list[Claim]:
    samples = found.attrs["samples"]
    error = np.sqrt(2 / samples)
    intensity = found.intensity.values
    why = "four standard errors of a variance from so many samples"
    return [
        *(
            Claim(f"{name}: intensity {k + 1}", intensity[k], expected, 4 * error, why, relative=True)
            for k, expected in enumerate(INTENSITIES[name])
        ),
        Claim(
            f"{name}: intensity over squared singular value",
            samples * intensity[0] / float(found.singular_value[0]) ** 2,
            1.0,
            1e-12,
            "algorithm 1 with its missing 1/n; rounding",
            printed=samples,
        ),
        Claim(
            f"{name}: <e_1|e_1> on other samples",
            float(found.mean_square[0]),
            1.0,
            4 * np.sqrt(2) * error,
            "four standard errors of both samples; printed: eq. 1.33 divides by the singular value",
            printed=round(1 / samples, 6),
        ),
        Claim(f"{name}: <e_1|e_2> on these", float(found.overlap), 0, 1e-12, "rounding"),
        Claim(f"{name}: eq. 1.28, the same function", float(found.change_of_function), 0, 1e-12, "rounding"),
        Claim(f"{name}: norm of the weights is kept", float(found.weight_norm_ratio), 1, 1e-12, "rounding"),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Features and eigenfunctions as arrows, one panel per covariance."""
    figure, panels = new_figure(2, width=4.2, height=4.8)
    for panel, (name, covariance) in zip(panels, COVARIANCES.items(), strict=True):
        _draw(panel, name, np.array(covariance), data[name.replace(" ", "-")])
    return figure


def _draw(panel: "Axes", name: str, covariance: np.ndarray, found: xr.Dataset) -> None:
    """Functions as arrows in the plane of e_1 and e_2: Φ_i has the components O_ij √ρ_j (eq. 1.27)."""
    intensity = found.intensity.values
    ends = found.direction.values * np.sqrt(intensity)
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
