"""Sect. 2.5: the minimum-projection operator implies neural collapse; from it to random features."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from solvable.diagnostics import CollapseReport, FeatureReport, FeatureStatistics, collapse, features
from solvable.diagnostics.kernel_measures import cka
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, new_figure

CLASSES, WIDTH, CONSTANT, PROJECTED = 5, 40, 3.0, 0.7
ROUNDING = "exact: rounding of float64"


class Sample(NamedTuple):
    """Features of balanced classes, one-hot outputs, and the last layer that makes them."""

    features: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    bias: np.ndarray

    @property
    def outputs(self) -> np.ndarray:
        return np.eye(CLASSES)[self.labels]


def reproduce(scale: Scale) -> Reproduction:
    samples = 2000 if scale == "quick" else 40000
    noises = np.geomspace(0.02, 1, 9)
    exact = constructed(samples, 0.0)
    noisy = [constructed(samples, noise) for noise in noises]
    measured = [measure(sample) for sample in noisy]
    random = random_features(samples)
    cases = {"minimum projection": measure(exact), "noise 0.3": measure(constructed(samples, 0.3))}
    cases["random features"] = measure(random)

    figure, grid = new_figure(3, rows=2)
    for colour, (label, (report, _)) in zip(COLOURS, cases.items(), strict=False):
        _draw_metrics(grid[0], report, colour, label)
    _draw_collapse(grid[1], noises, measured, cases)
    datasets = {"noise": _dataset(noises, measured)}
    datasets |= {label.replace(" ", "-"): report.to_dataset() for label, (report, _) in cases.items()}
    claims = [*propositions(exact), *_end_claims(exact, cases), *_noise_claims(noises, measured, samples)]
    return Reproduction(datasets, figure, claims)


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


def measure(sample: Sample) -> tuple[FeatureReport, CollapseReport]:
    statistics = FeatureStatistics(CLASSES).update(sample.features, sample.outputs, sample.labels)
    report = features(statistics, statistics)
    return report, collapse(statistics, sample.weights, sample.bias, batches=[sample.features])


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


def propositions(sample: Sample) -> list[Claim]:
    """Eqs. 2.18, 2.19 and 2.11 on the constructed features, by sums over samples."""
    phi, indicators = sample.features, sample.outputs
    mean_with = lambda functions: phi.T @ functions / len(phi)  # noqa: E731
    contrast = CLASSES * indicators - 1
    # <f | T g> = <Phi f> . <Phi g>.
    from_class = CLASSES * mean_with(indicators).T @ mean_with(contrast)
    from_constant = mean_with(np.ones((len(phi), 1))).T @ mean_with(contrast)
    means = np.stack([phi[sample.labels == label].mean(axis=0) for label in range(CLASSES)])
    centred = means - means.mean(axis=0)
    simplex = PROJECTED * (CLASSES * np.eye(CLASSES) - 1)
    overlap = mean_with(indicators).T @ mean_with(indicators)
    return [
        Claim(
            "prop. 2.5.3: <C f_i|T(C f_j - 1)>, i = j", from_class[0, 0], simplex[0, 0], 1e-12, ROUNDING, printed=0.56
        ),
        Claim("prop. 2.5.3: the same, i ≠ j", from_class[0, 1], simplex[0, 1], 1e-12, ROUNDING, printed=-0.14),
        Claim("prop. 2.5.3: <1|T(C f_j - 1)>, largest", np.abs(from_constant).max(), 0.0, 1e-12, ROUNDING),
        Claim(
            "eq. 2.18: class means' product over <f_i|T f_j>, i = j",
            (means @ means.T)[0, 0] / overlap[0, 0],
            CLASSES**2,
            1e-10,
            ROUNDING,
            printed=1,
        ),
        Claim(
            "prop. 2.5.2: centred class means' products off a simplex (largest)",
            np.abs(centred @ centred.T - simplex).max(),
            0.0,
            1e-12,
            ROUNDING,
        ),
    ]


def _end_claims(exact: Sample, cases: dict[str, tuple[FeatureReport, CollapseReport]]) -> list[Claim]:
    report, collapsed = cases["minimum projection"]
    random_report, uncollapsed = cases["random features"]
    sizes = report.effective_dimensions
    other_route = 1 - cka(exact.features, exact.outputs)
    claims = [
        Claim("minimum projection: κ_CKA", report.mp_distance, 0.0, 1e-12, ROUNDING),
        Claim("minimum projection: κ_CKA from features and outputs alone", other_route, 0.0, 1e-12, ROUNDING),
        Claim("minimum projection: first intensity", report.intensity[0], CONSTANT + PROJECTED, 1e-12, ROUNDING),
        Claim("minimum projection: rank", report.rank, CLASSES, 0, "a count"),
        *(
            Claim(f"minimum projection: effective dimension of {name}", sizes[name], CLASSES, 1e-10, ROUNDING)
            for name in ("quality", "utilisation", "intensity")
        ),
    ]
    for name in ("within_class", "mean_norms", "mean_angles", "self_duality", "nearest_class"):
        claims.append(Claim(f"minimum projection: {name}", getattr(collapsed, name), 0.0, 1e-10, ROUNDING))
    random_scatter = uncollapsed.within_class > 10
    claims.append(Claim("random features: NC1 above 10", random_scatter, True, 0, "nothing separates the classes"))
    in_regime = random_report.mp_distance > 0.5
    claims.append(Claim("random features: κ_CKA above 0.5", in_regime, True, 0, "outputs not in their span"))
    return claims


def _noise_claims(
    noises: np.ndarray, measured: list[tuple[FeatureReport, CollapseReport]], samples: int
) -> list[Claim]:
    distances = np.array([report.mp_distance for report, _ in measured])
    scatters = np.array([found.within_class for _, found in measured])
    spread = np.sqrt(2 / (samples * (CLASSES - 1)))
    tilt = noises / np.sqrt(samples * PROJECTED)
    scores = np.abs(scatters / scatter_with_noise(noises, samples) - 1) / np.hypot(spread, tilt)
    return [
        Claim(
            "noise: largest relative deviation of κ_CKA from its formula",
            np.abs(distances / distance_with_noise(noises) - 1).max(),
            0.0,
            4 * spread + WIDTH / samples,
            "four spreads of a variance in C - 1 directions, and p / n by which the noise's norm is overestimated",
        ),
        Claim(
            "noise: largest deviation of NC1 from its formula, in standard errors",
            scores.max(),
            0.0,
            4.0,
            "spread of a variance in C - 1 directions, and of the class means; a false alarm in 2000 over 9 points",
        ),
    ]


def _draw_metrics(panels: np.ndarray, report: FeatureReport, colour: str, label: str) -> None:
    modes = np.arange(1, report.rank + 1)
    curves = (np.cumsum(report.quality), np.cumsum(report.utilisation), report.intensity / report.intensity[0])
    names = ("cumulative quality, Π*(k)", "cumulative utilisation, Π̂(k)", "intensity, ρ_k / ρ_1")
    for panel, values, name in zip(panels, curves, names, strict=True):
        panel.plot(modes, values, "o-", markersize=3, color=colour, label=label)
        panel.set_xscale("log")
        panel.set_xlabel("feature, k")
        panel.set_ylabel(name)
        if label == "minimum projection":
            panel.axvline(CLASSES, color="grey", linestyle=":", linewidth=1, label=f"C = {CLASSES} classes")
        panel.legend(fontsize="small")
    panels[2].set_yscale("log")


def _draw_collapse(
    panels: np.ndarray,
    noises: np.ndarray,
    measured: list[tuple[FeatureReport, CollapseReport]],
    cases: dict[str, tuple[FeatureReport, CollapseReport]],
) -> None:
    fine = np.geomspace(noises[0], noises[-1], 200)
    distance_panel, scatter_panel, bar_panel = panels
    distance_panel.plot(fine, distance_with_noise(fine), color=COLOURS[0], label="formula")
    distance_panel.plot(noises, [report.mp_distance for report, _ in measured], "o", color=COLOURS[0], label="measured")
    distance_panel.axhline(0.1, color="grey", linestyle=":", linewidth=1, label="threshold")
    distance_panel.set_ylabel("distance to minimum projection, κ_CKA")
    scatter_panel.plot(fine, scatter_with_noise(fine, measured[0][0].train_samples), color=COLOURS[1], label="formula")
    scatter_panel.plot(noises, [found.within_class for _, found in measured], "o", color=COLOURS[1], label="measured")
    scatter_panel.set_ylabel("NC1, tr(Σ_W Σ_b⁺) / C")
    for panel in (distance_panel, scatter_panel):
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("noise on each feature")
        panel.legend(fontsize="small")
    names = {"within_class": "NC1", "mean_angles": "NC2", "self_duality": "NC3", "nearest_class": "NC4"}
    for index, (colour, (label, (_, found))) in enumerate(zip(COLOURS, cases.items(), strict=False)):
        heights = [max(getattr(found, name), 1e-17) for name in names]
        bar_panel.bar(np.arange(4) + 0.27 * (index - 1), heights, 0.25, color=colour, label=label)
    bar_panel.set_yscale("log")
    bar_panel.set_ylim(1e-17, 1e5)
    bar_panel.set_xticks(range(4), list(names.values()))
    bar_panel.set_ylabel("measure of neural collapse (no bar: 0)")
    bar_panel.legend(fontsize="small")


def _dataset(noises: np.ndarray, measured: list[tuple[FeatureReport, CollapseReport]]) -> xr.Dataset:
    values = {
        "distance": ([report.mp_distance for report, _ in measured], "distance to minimum projection", "κ_CKA"),
        "within_class": ([found.within_class for _, found in measured], "scatter within over between classes", "NC1"),
    }
    return xr.Dataset(
        {
            name: ("noise", np.array(numbers), {"long_name": text, "units": "1", "symbol": symbol})
            for name, (numbers, text, symbol) in values.items()
        },
        {"noise": ("noise", noises, {"long_name": "noise on each feature", "units": "1", "symbol": "σ"})},
    )
