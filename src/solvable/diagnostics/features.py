"""Intensity, quality and utilisation of last-layer features, and the feature regime that they imply."""

from typing import Any, TypeAlias

import numpy as np

from solvable.checks import check_fraction
from solvable.diagnostics.eigenbasis import Eigenbasis, eigenbasis, moment_spectrum, rounded_constant, rounding_variance
from solvable.diagnostics.precision import FLOAT64, Rounding, coarser
from solvable.diagnostics.report import FeatureReport
from solvable.diagnostics.statistics import FeatureStatistics

Sample: TypeAlias = FeatureStatistics | tuple[Any, Any, Any]

# The report notes that features overlap if utilisations add up to more than this: chance alone adds a few percent.
_OVERLAPPING = 1.25


def features(
    train: Sample,
    test: Sample,
    *,
    threshold: float = 0.1,
    intensity_cutoff: float | None = None,
    output_cutoff: float | None = None,
) -> FeatureReport:
    """The feature metrics of the layerwise thesis, chapters 1 and 2: eigenbasis from ``train``, overlaps on ``test``.

    With ⟨·⟩ the mean over the test set, P the projection on the span of the targets (quality) or outputs (utilisation)
    and d its dimension,

        Q_k = ⟨e_k|P e_k⟩ / (⟨e_k|e_k⟩ d)        (eqs. 2.3 and 2.5, corrected: see docs/errata)

    where P uses the inverse of the Gram matrix, because outputs are not orthogonal. Precision, cutoffs and the modes
    that were set aside are in the report.

    Parameters
    ----------
    train, test
        :class:`FeatureStatistics` of the training and the test set, or tuples (features, outputs, targets) of whole
        arrays.
    threshold
        The network is in the minimum-feature regime if κ_CKA is below this (Definition 2, which takes 0.1).
    intensity_cutoff
        Modes with an intensity up to this are set aside. The default is what rounding can produce in the precision of
        the features (float16, bfloat16, float32 or float64; a float64 array of float32 numbers counts as float32).
    output_cutoff
        Directions of the outputs and of the targets are set aside if their root mean square is at most this times the
        largest. The default is what rounding can produce in the precision of each.
    """
    train = _statistics(train, "train", None)
    test = _statistics(test, "test", train)
    _check_pair(train, test)
    threshold = check_fraction(threshold, "threshold")
    return features_in(eigenbasis(train, intensity_cutoff), train, test, threshold, output_cutoff)


def features_in(
    basis: Eigenbasis,
    train: FeatureStatistics,
    test: FeatureStatistics,
    threshold: float = 0.1,
    output_cutoff: float | None = None,
) -> FeatureReport:
    """The report of :func:`features` for an eigenbasis that is known: it can be computed before the test set is read.

    Parameters
    ----------
    basis
        The eigenbasis of the training set.
    train, test, threshold, output_cutoff
        As in :func:`features`.
    """
    # Labels are exact, and rare classes must not be lost because the network runs in half precision.
    target_cutoff = test.target_rounding.error if output_cutoff is None else float(output_cutoff)
    output_cutoff = test.output_rounding.error if output_cutoff is None else float(output_cutoff)
    moments = _test_moments(basis, test)
    norms = _test_norms(basis, test, moments)
    whitened_targets = _inverse_root("targets", test.target_covariance, test.target_mean, target_cutoff)
    whitened_outputs = _inverse_root("outputs", test.output_covariance, test.output_mean, output_cutoff)
    target_overlaps = _overlaps(basis, test, test.feature_target_covariance, test.target_mean, whitened_targets)
    output_overlaps = _overlaps(basis, test, test.feature_output_covariance, test.output_mean, whitened_outputs)
    utilisation = _projected_fraction(norms, output_overlaps)
    distance, notes = minimum_projection_distance(test, output_cutoff)
    rounding = coarser(train.feature_rounding, test.feature_rounding)
    first = basis.directions[:, 0] @ test.feature_mean
    return FeatureReport(
        intensity=basis.intensity,
        quality=_projected_fraction(norms, target_overlaps),
        utilisation=utilisation,
        utilisation_once=_utilisation_once(basis, norms, test, moments, output_overlaps),
        mp_distance=distance,
        constant_overlap=float(abs(first) / np.sqrt(norms[0] * basis.intensity[0])) if norms[0] else 0.0,
        threshold=threshold,
        intensity_cutoff=basis.cutoff,
        output_cutoff=output_cutoff,
        train_samples=train.count,
        test_samples=test.count,
        features=test.features,
        outputs=test.outputs,
        classes=test.classes,
        output_rank=whitened_outputs.shape[1],
        target_rank=whitened_targets.shape[1],
        notes=(*_notes(rounding, basis), *notes, *_overlap_note(float(np.sum(utilisation - 1 / test.count)))),
        precision=str(rounding),
        output_precision=str(coarser(train.output_rounding, test.output_rounding)),
        set_aside=basis.set_aside,
        negative=basis.negative,
    )


def _notes(rounding: Rounding, basis: Eigenbasis) -> list[str]:
    """Warnings for features of a lower precision than float32, in which networks usually compute."""
    notes = []
    if rounding.found:
        notes.append(
            f"the features are stored in a wider type, but all of their numbers are rounded to {rounding.name}: "
            "tolerances follow that precision"
        )
    if rounding.unit > 2.0**-23:
        notes.append(
            f"the features have the precision of {rounding.name}, so modes with an intensity up to "
            f"{basis.cutoff:.2g} cannot be distinguished from rounding: run the network in float32 to see weaker ones"
        )
    return notes


def _overlap_note(total: float) -> list[str]:
    if total <= _OVERLAPPING:
        return []
    return [
        f"utilisations add up to {total:.2f}: features that are orthogonal on the training set overlap on the test "
        "set, and the shared part is counted more than once; the number of used features counts it once"
    ]


def minimum_projection_distance(statistics: FeatureStatistics, cutoff: float = 1e-6) -> tuple[float, tuple[str, ...]]:
    """κ_CKA = 1 - CKA(T, T_MP) of eq. 2.9 (Definition 2) on the samples of the statistics, and notes for the report.

    T_MP[u] = a₁⟨1|u⟩1 + a₂P[u] projects on the span of the outputs, with the constant treated separately
    (Definition 1). Centring removes the constants, so a₁ and a₂ drop out, and with K = H^(-1/2) of the outputs' second
    moment H (not centred)

        κ_CKA = 1 - |M_c K|² / (|G_c| |Kᵀ H_c K|)

    in Frobenius norms, from the covariances of features (G_c), of outputs (H_c) and between both (M_c). This equals the
    formula with n x n kernels. If features or outputs do not vary at all, nothing is aligned: the distance is 1.
    """
    root = _inverse_root("outputs", statistics.output_covariance, statistics.output_mean, cutoff)
    covariance = statistics.feature_covariance
    # In units of the total variance: otherwise, fourth powers of small features underflow.
    scale = float(np.trace(covariance))
    projection = np.linalg.norm(root.T @ statistics.output_covariance @ root)
    varying = {"features": scale > rounded_constant(statistics), "outputs": projection > cutoff**2}
    for name, varies in varying.items():
        if not varies:
            return 1.0, (f"the {name} do not vary, so the distance to the minimum-projection operator is set to 1",)
    kernel = np.linalg.norm(covariance / scale)
    aligned = np.sum((statistics.feature_output_covariance @ root / np.sqrt(scale)) ** 2)
    return float(max(0.0, 1 - aligned / (kernel * projection))), ()


def _overlaps(
    basis: Eigenbasis, test: FeatureStatistics, covariance: np.ndarray, mean: np.ndarray, whitening: np.ndarray
) -> np.ndarray:
    """⟨e_k|g_i⟩ with an orthonormal basis g_i of functions with this mean and this covariance with the features."""
    products = basis.directions.T @ covariance + np.outer(basis.directions.T @ test.feature_mean, mean)
    return (products @ whitening) / np.sqrt(basis.intensity)[:, None]


def _projected_fraction(norms: np.ndarray, overlaps: np.ndarray) -> np.ndarray:
    """⟨e_k|P e_k⟩/(⟨e_k|e_k⟩ dim P), where P projects on the span of the functions of :func:`_overlaps`."""
    squares = np.sum(overlaps**2, axis=1)
    fractions = np.divide(squares, norms, out=np.zeros_like(norms), where=norms > 0)
    return np.minimum(fractions, 1.0) / overlaps.shape[1]


def _utilisation_once(
    basis: Eigenbasis, norms: np.ndarray, test: FeatureStatistics, moments: np.ndarray, overlaps: np.ndarray
) -> np.ndarray:
    """Utilisation of the features orthogonalised on the test set, each with respect to all stronger ones.

    With M = ⟨e eᵀ⟩ = L Lᵀ on the test set, L lower triangular, these features are L⁻¹e. The rounding error of the
    covariance is added to M as a variance, so that features which differ by no more than rounding contribute nothing.
    """
    from scipy.linalg import solve_triangular

    fractions = np.zeros_like(norms)
    present = norms > 0
    if not present.any():
        return fractions
    steps = basis.intensity.size + np.sqrt(test.count)
    rounding = steps * _sum_rounding(test) + rounding_variance(test)
    moments = moments[np.ix_(present, present)] + rounding * np.eye(int(present.sum()))
    # In units of the size of each feature: sizes differ by many orders of magnitude.
    sizes = np.sqrt(np.diag(moments))
    triangle = np.linalg.cholesky(moments / np.outer(sizes, sizes))
    scaled = overlaps[present] * (np.sqrt(basis.intensity[present]) / sizes)[:, None]
    fractions[present] = np.sum(solve_triangular(triangle, scaled, lower=True) ** 2, axis=1) / overlaps.shape[1]
    return fractions


def _test_moments(basis: Eigenbasis, test: FeatureStatistics) -> np.ndarray:
    """√(ρ_j ρ_k)⟨e_j|e_k⟩ on the test set."""
    means = basis.directions.T @ test.feature_mean
    return basis.directions.T @ test.feature_covariance @ basis.directions + np.outer(means, means)


def _test_norms(basis: Eigenbasis, test: FeatureStatistics, moments: np.ndarray) -> np.ndarray:
    """⟨e_k|e_k⟩ on the test set; exactly zero for modes within rounding there, which overlap with nothing."""
    squares = np.diag(moments)
    return np.where(squares > _sum_rounding(test) + rounding_variance(test), squares, 0) / basis.intensity


def _sum_rounding(test: FeatureStatistics) -> float:
    """Rounding error of a second moment along one direction due to sums in float64, for features of any precision."""
    mean, unit = test.feature_mean, FLOAT64.unit
    return float(4 * unit * np.linalg.norm(test.feature_covariance, 1) + (8 * unit) ** 2 * (mean @ mean))


def _inverse_root(name: str, covariance: np.ndarray, mean: np.ndarray, cutoff: float) -> np.ndarray:
    """K (C, rank) with K Kᵀ the pseudo-inverse of the second moment, not centred: H^(-1/2) up to a rotation."""
    values, vectors = moment_spectrum(covariance, mean)
    rounding = 8 * values.size * FLOAT64.unit * values[1] if values.size > 1 else 0.0
    kept = values > cutoff**2 * values[0] + rounding
    if not kept.any():
        raise ValueError(f"the {name} are zero on all samples, so they span nothing to project on")
    return vectors[:, kept] / np.sqrt(values[kept])


def _statistics(sample: Sample, name: str, like: FeatureStatistics | None) -> FeatureStatistics:
    """Statistics as they are; arrays are summed, with the classes of the training set."""
    if isinstance(sample, FeatureStatistics):
        return sample
    if not isinstance(sample, tuple) or len(sample) != 3:
        raise ValueError(
            f"{name} must be FeatureStatistics or a tuple (features, outputs, targets), not {type(sample).__name__}"
        )
    return FeatureStatistics(like.classes if like else None).update(*sample)


def _check_pair(train: FeatureStatistics, test: FeatureStatistics) -> None:
    for name, statistics in (("train", train), ("test", test)):
        if not statistics.count:
            raise ValueError(f"the {name} statistics are empty: call update(features, outputs, targets) first")
    for name in ("features", "outputs", "classes"):
        counts = getattr(train, name), getattr(test, name)
        if counts[0] != counts[1]:
            raise ValueError(f"train and test must have the same number of {name}, not {counts[0]} and {counts[1]}")
    least = test.classes or test.outputs
    if test.count < least:
        raise ValueError(
            f"{test.count} test samples cannot distinguish {least} {'classes' if test.classes else 'outputs'}: "
            f"give {least} or more"
        )
