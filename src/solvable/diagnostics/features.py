"""Intensity, quality and utilisation of last-layer features, and the regime they put a network in."""

from typing import Any, TypeAlias

import numpy as np

from solvable.diagnostics.eigenbasis import Eigenbasis, eigenbasis, moment_spectrum, rounded_constant, rounding_variance
from solvable.diagnostics.report import FeatureReport
from solvable.diagnostics.rounding import Rounding, coarser
from solvable.diagnostics.statistics import FeatureStatistics

Sample: TypeAlias = FeatureStatistics | tuple[Any, Any, Any]

_UNIT = float(np.finfo(np.float64).eps)
# A sum of utilisations beyond which the report says that features overlap: chance alone makes a few percent.
_COUNTED_TWICE = 1.25


def features(
    train: Sample,
    test: Sample,
    *,
    threshold: float = 0.1,
    intensity_cutoff: float | None = None,
    output_cutoff: float | None = None,
) -> FeatureReport:
    """The feature metrics of the layerwise thesis, chapters 1 and 2: eigenbasis from ``train``, overlaps on ``test``.

    Both are :class:`FeatureStatistics`, or tuples (features, outputs, targets) of whole arrays. With ⟨·⟩ the mean over
    the test set, P the projection on the span of the targets (quality) or outputs (utilisation) and d its dimension,

        Q_k = ⟨e_k|P e_k⟩ / (⟨e_k|e_k⟩ d)        (eqs. 2.3 and 2.5, corrected: see docs/errata)

    where P is made with the inverse of the Gram matrix, because outputs are not orthogonal. A network is in the
    minimum-feature regime if κ_CKA < ``threshold`` (Definition 2, which takes 0.1). Modes with intensity up to
    ``intensity_cutoff`` are set aside, and so are directions of the outputs and targets whose root mean square is up to
    ``output_cutoff`` times the largest. The defaults are what rounding can make in the precision of the numbers that
    were given (float16, bfloat16, float32 or float64; a float64 array that holds float32 numbers counts as float32).
    Precision, cutoffs and what was set aside are in the report.
    """
    train = _statistics(train, "train", None)
    test = _statistics(test, "test", train)
    _check_pair(train, test)
    if not 0 < threshold < 1:
        raise ValueError(f"threshold must lie between 0 and 1, not {threshold!r} (the thesis takes 0.1)")
    # Labels are exact, and rare classes must not be lost because the network runs in half precision.
    target_cutoff = test.target_rounding.error if output_cutoff is None else float(output_cutoff)
    output_cutoff = test.output_rounding.error if output_cutoff is None else float(output_cutoff)
    basis = eigenbasis(train, intensity_cutoff)
    moments = _test_moments(basis, test)
    norms = _test_norms(basis, test, moments)
    whitened_targets = _inverse_root("targets", test.target_covariance, test.target_mean, target_cutoff)
    whitened_outputs = _inverse_root("outputs", test.output_covariance, test.output_mean, output_cutoff)
    to_targets = _along(basis, test, test.feature_target_covariance, test.target_mean, whitened_targets)
    to_outputs = _along(basis, test, test.feature_output_covariance, test.output_mean, whitened_outputs)
    utilisation = _overlap(norms, to_outputs)
    distance, notes = minimum_projection_distance(test, output_cutoff)
    rounding = coarser(train.feature_rounding, test.feature_rounding)
    notes = (*_precision_notes(rounding, basis), *notes)
    total = float(np.sum(utilisation - 1 / test.count))
    if total > _COUNTED_TWICE:
        notes += (
            f"utilisations add up to {total:.2f}: features that are orthogonal on the training set are not on the test "
            "set, and count more than once; utilisation_once counts what they share once",
        )
    first = basis.directions[:, 0] @ test.feature_mean
    return FeatureReport(
        intensity=basis.intensity,
        quality=_overlap(norms, to_targets),
        utilisation=utilisation,
        utilisation_once=_counted_once(basis, norms, test, moments, to_outputs),
        mp_distance=distance,
        constant_overlap=float(abs(first) / np.sqrt(norms[0] * basis.intensity[0])) if norms[0] else 0.0,
        threshold=float(threshold),
        intensity_cutoff=basis.cutoff,
        output_cutoff=output_cutoff,
        train_samples=train.count,
        test_samples=test.count,
        features=test.features,
        outputs=test.outputs,
        classes=test.classes,
        output_rank=whitened_outputs.shape[1],
        target_rank=whitened_targets.shape[1],
        notes=notes,
        precision=str(rounding),
        output_precision=str(coarser(train.output_rounding, test.output_rounding)),
        set_aside=basis.set_aside,
        negative=basis.negative,
    )


def _precision_notes(rounding: Rounding, basis: Eigenbasis) -> tuple[str, ...]:
    """What to mind where the features have less precision than the float32 that networks mostly compute in."""
    notes = []
    if rounding.found:
        notes.append(
            f"the features are held in a wider type, but all of their numbers are rounded to {rounding.name}: "
            "tolerances follow that precision"
        )
    if rounding.unit > 2.0**-23:
        notes.append(
            f"the features have the precision of {rounding.name}, so modes with an intensity up to "
            f"{basis.cutoff:.2g} cannot be told from rounding: run the network in float32 to see weaker ones"
        )
    return tuple(notes)


def minimum_projection_distance(statistics: FeatureStatistics, cutoff: float = 1e-6) -> tuple[float, tuple[str, ...]]:
    """κ_CKA = 1 - CKA(T, T_MP) of eq. 2.9 (Definition 2), on the samples of the statistics, and notes in words.

    T_MP[u] = a₁⟨1|u⟩1 + a₂P[u] projects on the span of the outputs, constants set apart (Definition 1). Centring takes
    the constants out, so a₁ and a₂ drop out, and with K = H^(-1/2) of the outputs' second moment H (not centred)

        κ_CKA = 1 - |M_c K|² / (|G_c| |Kᵀ H_c K|)

    in Frobenius norms, from the covariances of features (G_c), of outputs (H_c) and between both (M_c). This equals the
    formula with n x n kernels. Where features or outputs do not vary at all, nothing is aligned: the distance is 1.
    """
    root = _inverse_root("outputs", statistics.output_covariance, statistics.output_mean, cutoff)
    covariance = statistics.feature_covariance
    # In units of the total variance, or squares of squares of small features underflow.
    scale = float(np.trace(covariance))
    if scale <= rounded_constant(statistics):
        return 1.0, ("the features do not vary, so the distance to the minimum-projection operator is set to 1",)
    kernel = np.linalg.norm(covariance / scale)
    aligned = np.sum((statistics.feature_output_covariance @ root / np.sqrt(scale)) ** 2)
    projection = np.linalg.norm(root.T @ statistics.output_covariance @ root)
    if projection <= cutoff**2:
        return 1.0, ("the outputs do not vary, so the distance to the minimum-projection operator is set to 1",)
    return float(max(0.0, 1 - aligned / (kernel * projection))), ()


def _along(
    basis: Eigenbasis, test: FeatureStatistics, covariance: np.ndarray, mean: np.ndarray, whitening: np.ndarray
) -> np.ndarray:
    """⟨e_k|g_i⟩ for orthonormal functions g_i that span those with this covariance with the features."""
    along = basis.directions.T @ covariance + np.outer(basis.directions.T @ test.feature_mean, mean)
    return (along @ whitening) / np.sqrt(basis.intensity)[:, None]


def _overlap(norms: np.ndarray, along: np.ndarray) -> np.ndarray:
    """⟨e_k|P e_k⟩/(⟨e_k|e_k⟩ dim P), where P projects on the functions of :func:`_along`."""
    squares = np.sum(along**2, axis=1)
    shares = np.divide(squares, norms, out=np.zeros_like(norms), where=norms > 0)
    return np.minimum(shares, 1.0) / along.shape[1]


def _counted_once(
    basis: Eigenbasis, norms: np.ndarray, test: FeatureStatistics, moments: np.ndarray, along: np.ndarray
) -> np.ndarray:
    """The same of features made orthogonal on the test set, each to all stronger ones: what they share counts once.

    With M = ⟨e eᵀ⟩ = L Lᵀ on the test set, L lower triangular, these features are L⁻¹e. Rounding of the covariance is
    added to M as a variance, so that features which differ by no more than that have nothing of their own.
    """
    from scipy.linalg import solve_triangular

    shares = np.zeros_like(norms)
    there = norms > 0
    if not there.any():
        return shares
    steps = basis.intensity.size + np.sqrt(test.count)
    rounding = steps * _sum_rounding(test) + rounding_variance(test)
    moments = moments[np.ix_(there, there)] + rounding * np.eye(int(there.sum()))
    # In units of each feature's own size, which go over many orders of magnitude.
    sizes = np.sqrt(np.diag(moments))
    triangle = np.linalg.cholesky(moments / np.outer(sizes, sizes))
    overlaps = along[there] * (np.sqrt(basis.intensity[there]) / sizes)[:, None]
    shares[there] = np.sum(solve_triangular(triangle, overlaps, lower=True) ** 2, axis=1) / along.shape[1]
    return shares


def _test_moments(basis: Eigenbasis, test: FeatureStatistics) -> np.ndarray:
    """√(ρ_j ρ_k)⟨e_j|e_k⟩ on the test set."""
    means = basis.directions.T @ test.feature_mean
    return basis.directions.T @ test.feature_covariance @ basis.directions + np.outer(means, means)


def _test_norms(basis: Eigenbasis, test: FeatureStatistics, moments: np.ndarray) -> np.ndarray:
    """⟨e_k|e_k⟩ on the test set; exactly zero for modes that no test sample has, which overlap with nothing."""
    own = np.diag(moments)
    return np.where(own > _rounding(test), own, 0) / basis.intensity


def _rounding(test: FeatureStatistics) -> float:
    """How far rounding can put a second moment of the test set along one direction."""
    return _sum_rounding(test) + rounding_variance(test)


def _sum_rounding(test: FeatureStatistics) -> float:
    """The part of it that sums in float64 make, whatever the precision of the features."""
    mean = test.feature_mean
    return float(4 * _UNIT * np.linalg.norm(test.feature_covariance, 1) + (8 * _UNIT) ** 2 * (mean @ mean))


def _inverse_root(name: str, covariance: np.ndarray, mean: np.ndarray, cutoff: float) -> np.ndarray:
    """K (C, rank) with K Kᵀ the pseudo-inverse of the second moment, not centred: H^(-1/2) up to a rotation."""
    values, vectors = moment_spectrum(covariance, mean)
    rounding = 8 * values.size * _UNIT * values[1] if values.size > 1 else 0.0
    kept = values > cutoff**2 * values[0] + rounding
    if not kept.any():
        raise ValueError(f"the {name} are zero on all samples, so they span nothing to project on")
    return vectors[:, kept] / np.sqrt(values[kept])


def _statistics(sample: Sample, name: str, like: FeatureStatistics | None) -> FeatureStatistics:
    """Statistics as they are; arrays are added up, with the classes of the training set."""
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
        if getattr(train, name) != getattr(test, name):
            raise ValueError(
                f"train and test must have the same number of {name}, not {getattr(train, name)} and "
                f"{getattr(test, name)}"
            )
    least = test.classes or test.outputs
    if test.count < least:
        raise ValueError(
            f"{test.count} test samples cannot tell {least} {'classes' if test.classes else 'outputs'} apart: "
            f"give {least} or more"
        )
