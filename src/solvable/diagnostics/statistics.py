"""Everything the diagnostics need to know of a network's last layer, from one pass over batches."""

from typing import Any, Self

import numpy as np

from solvable.diagnostics.batches import check_finite, read_batch, to_numpy
from solvable.diagnostics.moments import Moments, add, start
from solvable.diagnostics.rounding import FLOAT64, Rounding, coarser, rounding_of
from solvable.precision import in_float64


class FeatureStatistics:
    """Second moments of features Φ (n, p), outputs f̂ (n, C) and targets, added up batch by batch in float64.

    ``update(features, outputs, targets)`` takes NumPy, JAX or PyTorch arrays; arrays on a GPU are added up there.
    ``targets`` are labels (whole numbers of shape (n,), from 0 to ``classes`` - 1), or real numbers (n, C) or (n,).
    Without ``classes`` there are as many as outputs, or two if there is one output. ``a + b`` joins the statistics of
    two shards. Memory is O((p + C)²) whatever n is, and nothing of size n x n is ever formed.

    Sums are taken about the mean of the first batch: features with a large mean keep their small variances, which are
    lost when squares of the mean are subtracted afterwards.
    """

    def __init__(self, classes: int | None = None) -> None:
        if classes is not None and (isinstance(classes, bool) or classes != int(classes) or classes < 2):
            raise ValueError(f"classes must be a whole number, 2 or more, or None for real targets, not {classes!r}")
        self.classes = None if classes is None else int(classes)
        self.batches = 0
        self.feature_rounding = self.output_rounding = self.target_rounding = FLOAT64
        self.outputs = 0
        self._moments: Moments | None = None
        self._host: Moments | None = None

    @in_float64
    def update(self, features: Any, outputs: Any, targets: Any) -> Self:
        """Add a batch. A batch that is refused with a ValueError leaves the statistics as they were."""
        number = self.batches + 1
        batch = read_batch(features, outputs, targets, number)
        classes = self._check_labels(batch, number)
        moments = self._moments
        if moments is not None and (self.features, self.outputs) != batch.sizes:
            raise ValueError(
                f"batch {number} has {batch.sizes[0]} features and {batch.sizes[1]} outputs a sample, the batches "
                f"before it {self.features} and {self.outputs}"
            )
        if batch.library == "numpy":
            check_finite(batch, number)
        if moments is not None and moments.library != batch.library:
            # Batches from different libraries meet on the host.
            fresh = FeatureStatistics(self.classes).update(batch.features, batch.outputs, batch.targets)
            moments, finite = moments.plus(fresh.moments), True
        else:
            count = classes or batch.targets.shape[1]
            moments, finite = add(moments or start(batch, count), batch, count)
        if not finite:
            check_finite(batch, number)
            raise ValueError(f"sums of squares overflow with batch {number}: divide features and outputs by a constant")
        self._moments, self._host = moments, None
        self.classes, self.batches, self.outputs = classes, number, batch.sizes[1]
        for name, array in (("feature", features), ("output", outputs), ("target", targets)):
            self._round(name, rounding_of(array))
        return self

    def __add__(self, other: "FeatureStatistics") -> "FeatureStatistics":
        if not isinstance(other, FeatureStatistics):
            return NotImplemented
        if self._moments is None or other._moments is None:
            return (other if self._moments is None else self)._copy()
        for name in ("features", "outputs", "classes"):
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                raise ValueError(f"statistics of {mine} {name} and of {its} {name} cannot be joined")
        joined = self._copy()
        joined._moments, joined._host = self._moments.plus(other._moments), None
        joined.batches = self.batches + other.batches
        for name in ("feature", "output", "target"):
            joined._round(name, getattr(other, f"{name}_rounding"))
        return joined

    def _round(self, name: str, rounding: Rounding) -> None:
        """Take note of numbers of this precision: the coarsest that was added up counts."""
        setattr(self, f"{name}_rounding", coarser(getattr(self, f"{name}_rounding"), rounding))

    @property
    def precision(self) -> float:
        """The rounding unit of the features and outputs, whichever is coarser."""
        return coarser(self.feature_rounding, self.output_rounding).unit

    def _copy(self) -> "FeatureStatistics":
        copy = FeatureStatistics(self.classes)
        copy.batches, copy.outputs = self.batches, self.outputs
        for name in ("feature", "output", "target"):
            copy._round(name, getattr(self, f"{name}_rounding"))
        copy._moments = None if self._moments is None else self._moments.on_host()
        return copy

    def __getstate__(self) -> dict[str, Any]:
        """Statistics travel between processes in host memory, wherever they were added up."""
        return vars(self._copy())

    def _check_labels(self, batch: Any, number: int) -> int | None:
        """The number of classes, or None for real targets."""
        if not batch.labelled:
            if self.classes is not None:
                raise ValueError(
                    f"targets of batch {number} must be labels, whole numbers of shape (samples,), because there are "
                    f"{self.classes} classes; they are {batch.targets.dtype} of shape {tuple(batch.targets.shape)}"
                )
            return None
        if self.classes is None and self.batches:
            raise ValueError(f"targets of batch {number} are labels, but those of the batches before it real numbers")
        classes = self.classes or max(2, batch.sizes[1])
        low, high = int(batch.targets.min()), int(batch.targets.max())
        if low < 0 or high >= classes:
            whence = "" if self.classes else f" (there are {batch.sizes[1]} outputs)"
            raise ValueError(
                f"labels of batch {number} must lie between 0 and {classes - 1}, but go from {low} to {high}{whence}: "
                "number the classes from 0; if there are more classes than outputs, gather the features in "
                "solvable.diagnostics.FeatureStatistics(classes=...) yourself"
            )
        return classes

    @property
    def moments(self) -> Moments:
        """The sums, in host memory."""
        if self._moments is None:
            raise ValueError("no batch has been added: call update(features, outputs, targets) first")
        if self._host is None:
            self._host = self._moments.on_host()
        return self._host

    @property
    def count(self) -> int:
        """Number of samples, n."""
        return 0 if self._moments is None else round(float(to_numpy(self._moments.side)[-1, -1]))

    @property
    def features(self) -> int:
        """Number of features, p."""
        return 0 if self._moments is None else int(self._moments.feature_shift.shape[0])

    @property
    def feature_offset(self) -> np.ndarray:
        """Mean of the features less the shift, (p,)."""
        return self.moments.cross[:, -1] / self.count

    @property
    def feature_mean(self) -> np.ndarray:
        """⟨Φ⟩, (p,)."""
        return self.moments.feature_shift + self.feature_offset

    @property
    def output_mean(self) -> np.ndarray:
        """⟨f̂⟩, (C,)."""
        return self._side_mean[: self.outputs]

    @property
    def target_mean(self) -> np.ndarray:
        """⟨f*⟩, with labels the frequencies of the classes, (T,)."""
        return self._side_mean[self.outputs :]

    @property
    def feature_covariance(self) -> np.ndarray:
        """⟨ΦΦᵀ⟩ - ⟨Φ⟩⟨Φ⟩ᵀ, (p, p)."""
        return self.moments.feature_covariance

    @property
    def output_covariance(self) -> np.ndarray:
        """⟨f̂f̂ᵀ⟩ - ⟨f̂⟩⟨f̂⟩ᵀ, (C, C)."""
        return self._side_covariance[: self.outputs, : self.outputs]

    @property
    def target_covariance(self) -> np.ndarray:
        """⟨f*f*ᵀ⟩ - ⟨f*⟩⟨f*⟩ᵀ, (T, T)."""
        return self._side_covariance[self.outputs :, self.outputs :]

    @property
    def feature_output_covariance(self) -> np.ndarray:
        """⟨Φf̂ᵀ⟩ - ⟨Φ⟩⟨f̂⟩ᵀ, (p, C)."""
        return self._cross_covariance[:, : self.outputs]

    @property
    def feature_target_covariance(self) -> np.ndarray:
        """⟨Φf*ᵀ⟩ - ⟨Φ⟩⟨f*⟩ᵀ, (p, T)."""
        return self._cross_covariance[:, self.outputs :]

    @property
    def _side_mean(self) -> np.ndarray:
        return self.moments.side_shift + self.moments.side[:-1, -1] / self.count

    @property
    def _side_covariance(self) -> np.ndarray:
        offset = self.moments.side[:-1, -1] / self.count
        return self.moments.side[:-1, :-1] / self.count - np.outer(offset, offset)

    @property
    def _cross_covariance(self) -> np.ndarray:
        offset = self.moments.side[:-1, -1] / self.count
        return self.moments.cross[:, :-1] / self.count - np.outer(self.feature_offset, offset)

    @property
    def class_counts(self) -> np.ndarray:
        """Number of samples of each class, (classes,)."""
        self._need_labels()
        return np.rint(self.moments.side[self.outputs : -1, -1]).astype(int)

    @property
    def class_offsets(self) -> np.ndarray:
        """Mean features of each class less the mean of all samples, (classes, p): exact where the means are large."""
        counts = self.class_counts
        if (counts == 0).any():
            raise ValueError(f"class {int(np.argmin(counts))} has no sample, so it has no mean: add more batches")
        return (self.moments.cross[:, self.outputs : -1] / counts).T - self.feature_offset

    @property
    def class_means(self) -> np.ndarray:
        """Mean features of each class, μ_c, (classes, p)."""
        return self.class_offsets + self.feature_mean

    def _need_labels(self) -> None:
        if self.classes is None:
            raise ValueError("classes need labels: targets of shape (samples,) that are whole numbers")

    def __repr__(self) -> str:
        targets = "real targets" if self.classes is None else f"{self.classes} classes"
        return f"FeatureStatistics({self.count} samples, {self.features} features, {self.outputs} outputs, {targets})"
