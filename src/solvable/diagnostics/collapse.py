"""Neural collapse: how far class means, classifier and features are from the symmetric final state of training."""

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from solvable.diagnostics.batches import to_numpy
from solvable.diagnostics.precision import FLOAT64
from solvable.diagnostics.statistics import FeatureStatistics
from solvable.display import Report


@dataclasses.dataclass(frozen=True)
class CollapseReport(Report):
    """The four measures of neural collapse, all zero when it is complete. μ_c are class means, m_c = μ_c - μ_g.

    μ_g is the mean of the class means, each class weighing the same (eq. D.3).

    Parameters
    ----------
    within_class
        NC1: tr(Σ_W Σ_b⁺)/C with the pseudo-inverse, Σ_W = Σ_c π_c Cov(Φ | c) averaged over samples (eq. D.4) and
        Σ_b = Σ_c m_c m_cᵀ/C (eq. D.5). The thesis writes a transpose for the pseudo-inverse (see docs/errata);
        this is the variant of Papyan, Han and Donoho.
    mean_norms
        NC2: standard deviation over mean of |m_c|.
    mean_angles
        NC2: mean over pairs of classes of |cos(m_c, m_c') + 1/(C-1)|. Both NC2 pairs measure eq. D.7.
    weight_norms, weight_angles
        The same of the classifier's rows.
    self_duality
        NC3: |W/|W| - M/|M||² in Frobenius norms, M the matrix of the m_c. W is taken as it is, not centred.
    self_duality_rows
        NC3: mean over classes of |w_c/|w_c| - m_c/|m_c||, as in eq. D.8.
    nearest_class
        NC4: fraction of samples where the classifier argmax(Wx + b) differs from the nearest class mean (eq. D.9);
        None if it was not computed, because it needs a second pass over the features.
    classes
        Number of classes.
    between_rank
        Rank of Σ_b used in the pseudo-inverse: singular values above rounding in ``precision``.
    precision
        Floating-point type of the features.
    """

    within_class: float
    mean_norms: float
    mean_angles: float
    weight_norms: float
    weight_angles: float
    self_duality: float
    self_duality_rows: float
    nearest_class: float | None
    classes: int
    between_rank: int
    precision: str = "float64"

    def _rows(self) -> list[tuple[str, str]]:
        nearest = "not computed: pass batches=" if self.nearest_class is None else f"{self.nearest_class:.4g}"
        return [
            ("NC1 within-class over between-class", f"{self.within_class:.4g}"),
            ("NC2 norms of class means", f"{self.mean_norms:.4g}   (of weights {self.weight_norms:.4g})"),
            ("NC2 angles of class means", f"{self.mean_angles:.4g}   (of weights {self.weight_angles:.4g})"),
            ("NC3 self-duality", f"{self.self_duality:.4g}   (by rows {self.self_duality_rows:.4g})"),
            ("NC4 disagreement with nearest mean", nearest),
            ("class means", f"{self.classes}; centred, of rank {self.between_rank} above rounding in {self.precision}"),
        ]

    def to_json(self) -> str:
        """All numbers as a JSON string."""
        return json.dumps(dataclasses.asdict(self))


def collapse(
    statistics: FeatureStatistics, weights: Any, bias: Any = None, *, batches: Iterable[Any] | None = None
) -> CollapseReport:
    """Measures of neural collapse from statistics of labelled samples and the last layer f̂ = Wx + b.

    Parameters
    ----------
    statistics
        Moments of the features, with class labels as targets.
    weights
        W of shape (classes, features), as in ``torch.nn.Linear`` and ``equinox.nn.Linear``. With two classes it may
        have a single row w, whose sign decides; that is equivalent to the two rows ∓w/2.
    bias
        b of shape (classes,); zero if not given.
    batches
        A second pass over the features, for NC4: arrays of features, or tuples that begin with one.
    """
    offsets = statistics.class_offsets
    weights, bias = _last_layer(weights, bias, statistics)
    means = offsets - offsets.mean(axis=0)
    within, rank = _within_class(statistics, offsets, means)
    norms, rows = np.linalg.norm(means, axis=1), np.linalg.norm(weights, axis=1)
    for name, lengths in (("centred class means", norms), ("rows of the weights", rows)):
        if not lengths.all():
            raise ValueError(f"the {name} must not be zero, but that of class {int(np.argmin(lengths))} is")
    units, row_units = means / norms[:, None], weights / rows[:, None]
    return CollapseReport(
        within_class=within,
        mean_norms=float(norms.std() / norms.mean()),
        mean_angles=_angles(units),
        weight_norms=float(rows.std() / rows.mean()),
        weight_angles=_angles(row_units),
        self_duality=float(np.sum((weights / np.linalg.norm(weights) - means / np.linalg.norm(means)) ** 2)),
        self_duality_rows=float(np.linalg.norm(row_units - units, axis=1).mean()),
        nearest_class=None if batches is None else disagreement(statistics, weights, bias, batches),
        classes=len(offsets),
        between_rank=rank,
        precision=str(statistics.feature_rounding),
    )


def _within_class(statistics: FeatureStatistics, offsets: np.ndarray, means: np.ndarray) -> tuple[float, int]:
    """tr(Σ_W Σ_b⁺)/C and the rank of Σ_b, from the singular vectors of the class means: p x p is never inverted."""
    _, sizes, directions = np.linalg.svd(means, full_matrices=False)
    # The means sum to zero, so one singular value is a float64 rounding error; others may be those of the features.
    kept = sizes > max(means.shape) * 8 * FLOAT64.unit * sizes[0] + _rounding(statistics)
    if not kept.any():
        raise ValueError("all class means are equal, so nothing separates the classes and NC1 is undefined")
    directions, sizes = directions[kept], sizes[kept]
    total = np.sum(directions * (directions @ statistics.feature_covariance), axis=1)
    between = statistics.class_counts / statistics.count @ (offsets @ directions.T) ** 2
    return float(np.sum(np.maximum(total - between, 0) / sizes**2)), int(kept.sum())


def _rounding(statistics: FeatureStatistics) -> float:
    """The largest singular value of the class means that rounding of the features can produce.

    Rounding errors are practically independent, so averaging over a class divides them by the root of its size.
    """
    if statistics.feature_rounding == FLOAT64:
        return 0.0
    counts = statistics.class_counts
    squares = np.diag(statistics.feature_covariance) + statistics.feature_mean**2
    error = statistics.feature_rounding.error * np.sqrt(squares.max() / counts.min())
    return float(error * (np.sqrt(counts.size) + np.sqrt(statistics.features)))


def _angles(units: np.ndarray) -> float:
    classes = units.shape[0]
    off_diagonal = ~np.eye(classes, dtype=bool)
    return float(np.abs((units @ units.T)[off_diagonal] + 1 / (classes - 1)).mean())


def disagreement(statistics: FeatureStatistics, weights: np.ndarray, bias: np.ndarray, batches: Iterable[Any]) -> float:
    """Fraction of samples whose nearest class mean is not the class that the classifier chooses."""
    # Relative to the mean of all samples: |x - μ_c|² would lose digits if the features have a large mean.
    centre, offsets = statistics.feature_mean, statistics.class_offsets
    half_squares = np.sum(offsets**2, axis=1) / 2
    differ = count = 0
    for number, batch in enumerate(batches, start=1):
        array = to_numpy(batch[0] if isinstance(batch, tuple | list) else batch)
        if array.ndim != 2 or array.shape[1] != statistics.features:
            raise ValueError(
                f"features of batch {number} must have shape (samples, {statistics.features}), not {array.shape}"
            )
        x = np.asarray(array, np.float64)
        if not np.isfinite(x).all():
            raise ValueError(f"features of batch {number} are not all finite")
        nearest = np.argmax((x - centre) @ offsets.T - half_squares, axis=1)
        differ += int(np.sum(nearest != np.argmax(x @ weights.T + bias, axis=1)))
        count += x.shape[0]
    if not count:
        raise ValueError("batches must hold at least one sample for NC4; an exhausted iterator is empty")
    return differ / count


def _last_layer(weights: Any, bias: Any, statistics: FeatureStatistics) -> tuple[np.ndarray, np.ndarray]:
    weights = np.asarray(to_numpy(weights), np.float64)
    classes, features = statistics.classes, statistics.features
    bias = np.zeros(weights.shape[:1]) if bias is None else np.asarray(to_numpy(bias), np.float64)
    if classes == 2 and weights.shape == (1, features):
        weights, bias = np.concatenate([-weights, weights]) / 2, np.append(-bias, bias) / 2
    if weights.shape != (classes, features):
        raise ValueError(
            f"weights must have shape ({classes}, {features}), one row per class, not {weights.shape}"
            + (": transpose them" if weights.shape == (features, classes) else "")
        )
    if bias.shape != (classes,):
        raise ValueError(f"bias must have shape ({classes},), not {bias.shape}")
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        raise ValueError("weights and bias must be finite: the network has diverged")
    return weights, bias
