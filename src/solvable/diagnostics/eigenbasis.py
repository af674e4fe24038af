"""Eigenfunctions of the feature kernel, from the mean and covariance of the features."""

import dataclasses

import numpy as np

from solvable.diagnostics.precision import FLOAT64
from solvable.diagnostics.statistics import FeatureStatistics


@dataclasses.dataclass(frozen=True)
class Eigenbasis:
    """ρ_k (rank,) in decreasing order and the directions u_k (p, rank) with e_k(x) = u_kᵀΦ(x)/√ρ_k.

    Modes up to ``cutoff`` are rounding errors and are set aside: ``set_aside`` of them, ``negative`` of which have an
    eigenvalue below zero, which a second moment only has because of rounding.
    """

    intensity: np.ndarray
    directions: np.ndarray
    cutoff: float
    set_aside: int = 0
    negative: int = 0


def eigenbasis(statistics: FeatureStatistics, cutoff: float | None = None) -> Eigenbasis:
    """Diagonalise ⟨ΦΦᵀ⟩ = Σ_k ρ_k u_k u_kᵀ (Algorithm 1, corrected: see docs/errata).

    Eigenvalues up to ``cutoff`` are set aside. The default is the largest eigenvalue that rounding can produce: of the
    features in their own precision, and of the sums in float64.
    """
    intensity, directions = moment_spectrum(statistics.feature_covariance, statistics.feature_mean)
    if cutoff is None:
        cutoff = _rounding(statistics, intensity)
    kept = intensity > cutoff
    if not kept.any():
        raise ValueError(
            f"no feature is left above the cutoff {cutoff:.3g}: the largest intensity is {intensity[0]:.3g} "
            "(features that are all zero have no eigenfunctions)"
        )
    return Eigenbasis(
        intensity[kept], directions[:, kept], float(cutoff), int(np.sum(~kept)), int(np.sum(intensity[~kept] < 0))
    )


def moment_spectrum(covariance: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of covariance + mean meanᵀ, in decreasing order.

    They are accurate relative to the second eigenvalue. A large mean makes the first eigenvalue large, and rounding
    relative to it would hide the small ones, so the leading eigenvector is deflated first.
    """
    # In units of the trace: otherwise, squares of very large or small moments leave the range of float64.
    scale = float(np.trace(covariance) + mean @ mean) or 1.0
    covariance, mean = covariance / scale, mean / np.sqrt(scale)
    leading = _leading_direction(covariance, mean)
    if leading is None:
        values, vectors = np.linalg.eigh(covariance + np.outer(mean, mean))
    else:
        values, vectors = _deflated(covariance, mean, leading)
    order = np.argsort(values)[::-1]
    return values[order] * scale, vectors[:, order]


def rounded_constant(statistics: FeatureStatistics) -> float:
    """The total variance that rounding can give to constant features: each has a relative error of a few units."""
    mean = statistics.feature_mean
    return float(statistics.feature_rounding.error**2 * (mean @ mean))


def rounding_variance(statistics: FeatureStatistics) -> float:
    """The variance along any one direction that rounding of the features themselves can produce.

    Errors of n samples of p features are practically independent, so their covariance has no eigenvalue above
    ``σ² (1 + √(p/n))²`` (Marchenko and Pastur), with σ the largest error of a feature, relative to its own size.
    """
    squares = np.diag(statistics.feature_covariance) + statistics.feature_mean**2
    edge = (1 + np.sqrt(statistics.features / statistics.count)) ** 2
    return float(statistics.feature_rounding.error**2 * squares.max() * edge)


def _rounding(statistics: FeatureStatistics, intensity: np.ndarray) -> float:
    """Size of an eigenvalue that rounding alone can produce.

    Sums about the shift and the eigensolver round in float64, relative to ρ_2 and to the distance of the mean from the
    shift; the features were rounded before, in their own precision.
    """
    offset = statistics.feature_offset
    second = intensity[1] if intensity.size > 1 else 0.0
    steps = intensity.size + np.sqrt(statistics.count)
    mean = statistics.feature_mean
    sums = 2 * steps * FLOAT64.unit * (second + offset @ offset) + (8 * FLOAT64.unit) ** 2 * (mean @ mean)
    return float(sums) + rounding_variance(statistics)


def _leading_direction(covariance: np.ndarray, mean: np.ndarray) -> np.ndarray | None:
    """The eigenvector of the largest eigenvalue by power iteration from the mean; None without a spectral gap.

    Without a gap there is nothing to protect: rounding relative to ρ_1 is then rounding relative to ρ_2.
    """
    norm = np.linalg.norm(mean)
    if mean.size == 1 or norm == 0:
        return None
    direction = mean / norm
    for _ in range(50):
        image = covariance @ direction + mean * (mean @ direction)
        value = np.linalg.norm(image)
        if value == 0:
            return None
        moved = np.linalg.norm(image / value - direction)
        direction = image / value
        if moved <= 4 * FLOAT64.unit * np.sqrt(mean.size):
            return direction
    return None


def _deflated(covariance: np.ndarray, mean: np.ndarray, leading: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors, given the leading one: the others are in its orthogonal complement.

    The Householder reflection H = 1 - 2vvᵀ maps the first axis to the leading direction. The coupling of the two blocks
    is rounding relative to ρ_1, and changes the small eigenvalues only by its square over ρ_1.
    """
    reflector = leading.copy()
    reflector[0] += np.copysign(1.0, leading[0])
    reflector /= np.linalg.norm(reflector)

    def reflect(array: np.ndarray) -> np.ndarray:
        return array - np.multiply.outer(2 * reflector, reflector @ array)

    reflected = reflect(reflect(covariance).T)
    reflected_mean = reflect(mean)
    rest = reflected[1:, 1:] + np.outer(reflected_mean[1:], reflected_mean[1:])
    values, vectors = np.linalg.eigh((rest + rest.T) / 2)
    first = leading @ covariance @ leading + (leading @ mean) ** 2
    directions = reflect(np.concatenate([np.zeros((1, vectors.shape[1])), vectors]))
    return np.append(values, first), np.column_stack([directions, leading])
