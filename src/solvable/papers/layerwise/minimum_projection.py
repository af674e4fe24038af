"""Sect. 2.5: the minimum-projection operator implies neural collapse; from it to random features."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from solvable.diagnostics import FeatureStatistics, collapse, features
from solvable.diagnostics.kernel_measures import cka
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASSES, WIDTH, CONSTANT, PROJECTED = 5, 40, 3.0, 0.7
ROUNDING = "exact: rounding of float64"
# Networks whose metrics are drawn, by the name of their dataset.
CASES = {
    "minimum-projection": "minimum projection",
    "noise-0.3": "noise 0.3",
    "random-features": "random features",
}
# Measures of neural collapse, and the number of each in the literature where it is drawn.
COLLAPSE = {
    "within_class": "NC1",
    "mean_norms": "",
    "mean_angles": "NC2",
    "self_duality": "NC3",
    "nearest_class": "NC4",
}


class Sample(NamedTuple):
    """Features of balanced classes, one-hot outputs, and the last layer that makes them."""

    features: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    bias: np.ndarray

    @property
    def outputs(self) -> np.ndarray:
        return np.eye(CLASSES)[self.labels]


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Metrics of the constructed features, without noise and with it, and of random features."""
    samples = 2000 if scale == "quick" else 40000
    noises = np.geomspace(0.02, 1, 9)
    exact = constructed(samples, 0.0)
    noisy = [measure(constructed(samples, noise))[["mp_distance", "within_class"]] for noise in noises]
    noise = xr.concat(noisy, "noise", combine_attrs="drop_conflicts").rename(mp_distance="distance")
    return {
        "noise": noise.assign_coords(noise=variable("noise", noises, "noise on each feature", "σ")),
        "minimum-projection": measure(exact).assign(overlaps(exact)),
        "noise-0.3": measure(constructed(samples, 0.3)),
        "random-features": measure(random_features(samples)),
    }


def constructed(samples: int, noise: float, key: int = 0) -> Sample:
    """Features whose kernel is ``a_1 + a_2 C`` within a class and ``a_1`` between classes (eq. 2.8), plus noise.

    That is ``T = a_1 |1><1| + a_2 P`` with P on the span of the classes' indicators.
    """
    generator = np.random.default_rng(key)
    labels = np.repeat(np.arange(CLASSES), samples // CLASSES)
    directions = np.linalg.qr(generator.normal(size=(WIDTH, CLASSES + 1)))[0].T
    constant, classes = np.sqrt(CONSTANT) * directions[0], np.sqrt(CLASSES * PROJECTED) * directions[1:]
    phi = constant + classes[labels] + noise * generator.normal(size=(labels.size, WIDTH))
    # The last layer that returns the indicators: blind to the constant, each row its own class less the others' mean.
    weights = (np.eye(CLASSES) - 1 / CLASSES) @ classes / (CLASSES * PROJECTED)
    return Sample(phi, labels, weights, np.full(CLASSES, 1 / CLASSES))


def random_features(samples: int, key: int = 1) -> Sample:
    """ReLU features of Gaussian inputs with random labels, and a random last layer."""
    generator = np.random.default_rng(key)
    labels = np.repeat(np.arange(CLASSES), samples // CLASSES)
    phi = np.maximum(generator.normal(size=(labels.size, 10)) @ generator.normal(size=(10, WIDTH)) / np.sqrt(10), 0)
    return Sample(phi, labels, generator.normal(size=(CLASSES, WIDTH)) / np.sqrt(WIDTH), np.zeros(CLASSES))


def measure(sample: Sample) -> xr.Dataset:
    """The feature metrics, and the measures of neural collapse."""
    statistics = FeatureStatistics(CLASSES).update(sample.features, sample.outputs, sample.labels)
    found = collapse(statistics, sample.weights, sample.bias, batches=[sample.features])
    measures = {
        name: variable((), getattr(found, name), name.replace("_", " "), symbol) for name, symbol in COLLAPSE.items()
    }
    return features(statistics, statistics).to_dataset().assign(measures)


def overlaps(sample: Sample) -> dict[str, Any]:
    """What eqs. 2.18, 2.19 and 2.11 are about, by sums over samples, and κ_CKA from features and outputs alone."""
    phi, indicators = sample.features, sample.outputs
    mean_with = lambda functions: phi.T @ functions / len(phi)  # noqa: E731
    contrast = CLASSES * indicators - 1
    # <f | T g> = <Phi f> . <Phi g>.
    from_class = CLASSES * mean_with(indicators).T @ mean_with(contrast)
    from_constant = mean_with(np.ones((len(phi), 1))).T @ mean_with(contrast)
    means = np.stack([phi[sample.labels == label].mean(axis=0) for label in range(CLASSES)])
    centred = means - means.mean(axis=0)
    pair = ("class", "other_class")
    return {
        "class_contrast": variable(
            pair, from_class, "overlap of a class with the contrast of another", "<C f|T(C f - 1)>"
        ),
        "constant_contrast": variable(
            "class", from_constant[0], "overlap of the constant with a contrast", "<1|T(C f - 1)>"
        ),
        "class_overlap": variable(
            pair, mean_with(indicators).T @ mean_with(indicators), "overlap of classes", "<f|T f>"
        ),
        "mean_product": variable(pair, means @ means.T, "product of class means"),
        "centred_mean_product": variable(pair, centred @ centred.T, "product of centred class means"),
        "direct_mp_distance": variable((), 1 - cka(phi, indicators), "κ_CKA from features and outputs alone"),
    }


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The propositions, the metrics at both ends, and how noise changes them."""
    exact = data["minimum-projection"]
    return [
        *_propositions(exact),
        *_exact_claims(exact),
        *_random_claims(data["random-features"]),
        *_noise_claims(data["noise"]),
    ]


def _propositions(exact: xr.Dataset) -> list[Claim]:
    """Eqs. 2.18, 2.19 and 2.11 on the constructed features."""
    from_class, products = exact.class_contrast.values, exact.mean_product / exact.class_overlap
    from_constant = float(np.abs(exact.constant_contrast).max())
    simplex = PROJECTED * (CLASSES * np.eye(CLASSES) - 1)
    return [
        Claim(
            "prop. 2.5.3: <C f_i|T(C f_j - 1)>, i = j", from_class[0, 0], simplex[0, 0], 1e-12, ROUNDING, printed=0.56
        ),
        Claim("prop. 2.5.3: the same, i ≠ j", from_class[0, 1], simplex[0, 1], 1e-12, ROUNDING, printed=-0.14),
        Claim("prop. 2.5.3: <1|T(C f_j - 1)>, largest", from_constant, 0.0, 1e-12, ROUNDING),
        Claim(
            "eq. 2.18: class means' product over <f_i|T f_j>, i = j",
            float(products[0, 0]),
            CLASSES**2,
            1e-10,
            ROUNDING,
            printed=1,
        ),
        Claim(
            "prop. 2.5.2: centred class means' products off a simplex (largest)",
            float(np.abs(exact.centred_mean_product - simplex).max()),
            0.0,
            1e-12,
            ROUNDING,
        ),
    ]


def _exact_claims(exact: xr.Dataset) -> list[Claim]:
    label, other_route = "minimum projection", float(exact.direct_mp_distance)
    return [
        Claim(f"{label}: κ_CKA", float(exact.mp_distance), 0.0, 1e-12, ROUNDING),
        Claim(f"{label}: κ_CKA from features and outputs alone", other_route, 0.0, 1e-12, ROUNDING),
        Claim(f"{label}: first intensity", float(exact.intensity[0]), CONSTANT + PROJECTED, 1e-12, ROUNDING),
        Claim(f"{label}: rank", float(exact["rank"]), CLASSES, 0, "a count"),
        *(
            Claim(
                f"{label}: effective dimension of {name}",
                float(exact[f"effective_dimension_{name}"]),
                CLASSES,
                1e-10,
                ROUNDING,
            )
            for name in ("quality", "utilisation", "intensity")
        ),
        *(Claim(f"{label}: {name}", float(exact[name]), 0.0, 1e-10, ROUNDING) for name in COLLAPSE),
    ]


def _random_claims(random: xr.Dataset) -> list[Claim]:
    scattered, distant = bool(random.within_class > 10), bool(random.mp_distance > 0.5)
    return [
        Claim("random features: NC1 above 10", scattered, True, 0, "nothing separates the classes"),
        Claim("random features: κ_CKA above 0.5", distant, True, 0, "outputs not in their span"),
    ]


def _noise_claims(noise: xr.Dataset) -> list[Claim]:
    noises, samples = noise.noise.values, noise.attrs["train_samples"]
    spread = np.sqrt(2 / (samples * (CLASSES - 1)))
    tilt = noises / np.sqrt(samples * PROJECTED)
    scores = np.abs(noise.within_class / scatter_with_noise(noises, samples) - 1) / np.hypot(spread, tilt)
    return [
        Claim(
            "noise: largest relative deviation of κ_CKA from its formula",
            float(np.abs(noise.distance / distance_with_noise(noises) - 1).max()),
            0.0,
            4 * spread + WIDTH / samples,
            "four spreads of a variance in C - 1 directions, and p / n by which the noise's norm is overestimated",
        ),
        Claim(
            "noise: largest deviation of NC1 from its formula, in standard errors",
            float(scores.max()),
            0.0,
            4.0,
            "spread of a variance in C - 1 directions, and of the class means; a false alarm in 2000 over 9 points",
        ),
    ]


def distance_with_noise(noise: np.ndarray | float) -> np.ndarray:
    """κ_CKA of the constructed operator plus isotropic noise of variance s, many samples.

    Centred, the features' covariance is ``a_2 + s`` on C - 1 directions and s on the others, and the projection sees
    the ``a_2`` alone: ``1 - a_2 / sqrt((a_2 + s)^2 + s^2 (p - C + 1) / (C - 1))``.
    """
    variance = np.asarray(noise) ** 2
    rest = variance**2 * (WIDTH - CLASSES + 1) / (CLASSES - 1)
    return 1 - PROJECTED / np.sqrt((PROJECTED + variance) ** 2 + rest)


def scatter_with_noise(noise: np.ndarray | float, samples: int) -> np.ndarray:
    """NC1 of the same, ``tr(Σ_W Σ_b^+) / C = s (C - 1) / (C (a_2 + s p / n))``.

    Σ_b has C - 1 eigenvalues a_2, which the noise of the class means, in all p directions, enlarges.
    """
    variance = np.asarray(noise) ** 2
    return variance * (CLASSES - 1) / (CLASSES * (PROJECTED + variance * WIDTH / samples))


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The feature metrics of three networks, and both distances over the noise, with the measures of collapse."""
    figure, grid = new_figure(3, rows=2)
    for colour, (name, label) in zip(COLOURS, CASES.items(), strict=False):
        _draw_metrics(grid[0], data[name], colour, label)
    _draw_noise(grid[1][:2], data["noise"])
    panel = grid[1][2]
    drawn = {name: symbol for name, symbol in COLLAPSE.items() if symbol}
    for index, (colour, (name, label)) in enumerate(zip(COLOURS, CASES.items(), strict=False)):
        heights = [max(float(data[name][measure]), 1e-17) for measure in drawn]
        panel.bar(np.arange(4) + 0.27 * (index - 1), heights, 0.25, color=colour, label=label)
    panel.set_yscale("log")
    panel.set_ylim(1e-17, 1e5)
    panel.set_xticks(range(4), list(drawn.values()))
    panel.set_ylabel("measure of neural collapse (no bar: 0)")
    panel.legend(fontsize="small")
    return figure


def _draw_metrics(panels: np.ndarray, found: xr.Dataset, colour: str, label: str) -> None:
    curves = {
        "cumulative quality, Π*(k)": found.quality.cumsum(),
        "cumulative utilisation, Π̂(k)": found.utilisation.cumsum(),
        "intensity, ρ_k / ρ_1": found.intensity / found.intensity[0],
    }
    for panel, (name, values) in zip(panels, curves.items(), strict=True):
        panel.plot(found.mode, values, "o-", markersize=3, color=colour, label=label)
        panel.set_xscale("log")
        panel.set_xlabel("feature, k")
        panel.set_ylabel(name)
        if label == "minimum projection":
            panel.axvline(CLASSES, color="grey", linestyle=":", linewidth=1, label=f"C = {CLASSES} classes")
        panel.legend(fontsize="small")
    panels[2].set_yscale("log")


def _draw_noise(panels: np.ndarray, noise: xr.Dataset) -> None:
    distance_panel, scatter_panel = panels
    fine = np.geomspace(float(noise.noise[0]), float(noise.noise[-1]), 200)
    distance_panel.plot(fine, distance_with_noise(fine), color=COLOURS[0], label="formula")
    distance_panel.plot(noise.noise, noise.distance, "o", color=COLOURS[0], label="measured")
    distance_panel.axhline(0.1, color="grey", linestyle=":", linewidth=1, label="threshold")
    distance_panel.set_ylabel("distance to minimum projection, κ_CKA")
    scatter = scatter_with_noise(fine, noise.attrs["train_samples"])
    scatter_panel.plot(fine, scatter, color=COLOURS[1], label="formula")
    scatter_panel.plot(noise.noise, noise.within_class, "o", color=COLOURS[1], label="measured")
    scatter_panel.set_ylabel("NC1, tr(Σ_W Σ_b⁺) / C")
    for panel in panels:
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("noise on each feature")
        panel.legend(fontsize="small")
