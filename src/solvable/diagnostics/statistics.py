"""Statistics of the last layer of a network, from one pass over batches: all that the feature metrics need."""

from typing import Any, Self

import numpy as np

from solvable.checks import check_count
from solvable.diagnostics.batches import check_finite, read_batch, to_numpy
from solvable.diagnostics.moments import Moments, add, start
from solvable.diagnostics.precision import FLOAT64, Rounding, coarser, rounding_of
from solvable.precision import in_float64


class FeatureStatistics:
    """Second moments of features Φ (n, p), outputs f̂ (n, C) and targets, summed batch by batch in float64.

    ``a + b`` combines the statistics of two shards. Memory is O((p + C)²) for any n, and no n x n matrix is formed.
    Sums are taken about the mean of the first batch: features with a large mean keep their small variances, which would
    be lost if squares of the mean were subtracted afterwards.

    Parameters
    ----------
    classes
        Number of classes, for targets that are labels. By default that of the outputs, or two if there is one output.
    """

    def __init__(self, classes: int | None = None) -> None:
        self.classes = None if classes is None else check_count("classes", classes, least=2)
        self.batches = 0
        self.feature_rounding = self.output_rounding = self.target_rounding = FLOAT64
        self.outputs = 0
        self._moments: Moments | None = None
        self._host: Moments | None = None

    @classmethod
    def of_moments(cls, moments: Moments, classes: int | None, features: Any, outputs: Any, targets: Any) -> Self:
        """Statistics of sums that were made elsewhere.

        Parameters
        ----------
        moments
            The sums over all samples, in host memory.
        classes
            Number of classes; None for real targets.
        features, outputs, targets
            The first rows of each, which show its precision.
        """
        made = cls(classes)
        made._moments, made.batches, made.outputs = moments, 1, outputs.shape[1]
        for name, array in (("feature", features), ("output", outputs), ("target", targets)):
            made._note_rounding(name, rounding_of(array))
        return made

    @in_float64
    def update(self, features: Any, outputs: Any, targets: Any) -> Self:
        """Add a batch. A batch that is rejected with a ValueError leaves the statistics unchanged.

        Parameters
        ----------
        features
            Φ of shape (n, p): a NumPy, JAX or PyTorch array. Arrays on a GPU are summed there.
        outputs
            f̂ of shape (n, C) or (n,).
        targets
            Labels, whole numbers of shape (n,) from 0 to ``classes`` - 1; or real numbers of shape (n, C) or (n,).
        """
        number = self.batches + 1
        batch = read_batch(features, outputs, targets, number)
        classes = self._check_labels(batch, number)
        moments = self._moments
        if moments is not None and (self.features, self.outputs) != batch.sizes:
            raise ValueError(
                f"batch {number} has {batch.sizes[0]} features and {batch.sizes[1]} outputs per sample, the "
                f"batches before it {self.features} and {self.outputs}"
            )
        if batch.library == "numpy":
            check_finite(batch, number)
        if moments is not None and moments.library != batch.library:
            # Batches of different libraries are combined on the host.
            fresh = FeatureStatistics(self.classes).update(batch.features, batch.outputs, batch.targets)
            moments, finite = moments.plus(fresh.moments), True
        else:
            count = classes or batch.targets.shape[1]
            moments, finite = add(moments or start(batch, count), batch, count)
        if not finite:
            check_finite(batch, number)
            raise ValueError(f"sums of squares overflow with batch {number}: rescale features and outputs")
        self._moments, self._host = moments, None
        self.classes, self.batches, self.outputs = classes, number, batch.sizes[1]
        for name, array in (("feature", features), ("output", outputs), ("target", targets)):
            self._note_rounding(name, rounding_of(array))
        return self

    def __add__(self, other: "FeatureStatistics") -> "FeatureStatistics":
        if not isinstance(other, FeatureStatistics):
            return NotImplemented
        if self._moments is None or other._moments is None:
            return (other if self._moments is None else self)._copy()
        for name in ("features", "outputs", "classes"):
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                raise ValueError(f"statistics of {mine} {name} and of {its} {name} cannot be combined")
        combined = self._copy()
        combined._moments, combined._host = self._moments.plus(other._moments), None
        combined.batches = self.batches + other.batches
        for name in ("feature", "output", "target"):
            combined._note_rounding(name, getattr(other, f"{name}_rounding"))
        return combined

    def _note_rounding(self, name: str, rounding: Rounding) -> None:
        """Record the precision of a batch: the coarsest of all batches counts."""
        setattr(self, f"{name}_rounding", coarser(getattr(self, f"{name}_rounding"), rounding))

    @property
    def precision(self) -> float:
        """The rounding unit of the features and outputs, whichever is coarser."""
        return coarser(self.feature_rounding, self.output_rounding).unit

    def _copy(self) -> "FeatureStatistics":
        copy = FeatureStatistics(self.classes)
        copy.batches, copy.outputs = self.batches, self.outputs
        for name in ("feature", "output", "target"):
            copy._note_rounding(name, getattr(self, f"{name}_rounding"))
        copy._moments = None if self._moments is None else self._moments.on_host()
        return copy

    def __getstate__(self) -> dict[str, Any]:
        """Statistics are pickled from host memory, wherever they were summed."""
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
            reason = "" if self.classes else f" (there are {batch.sizes[1]} outputs)"
            raise ValueError(
                f"labels of batch {number} must lie between 0 and {classes - 1}, but go from {low} to {high}{reason}: "
                "number the classes from 0; if there are more classes than outputs, collect the features in "
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
        """Mean of the features minus the shift, (p,)."""
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
        if self.classes is None:
            raise ValueError("classes need labels: targets of shape (samples,) that are whole numbers")
        return np.rint(self.moments.side[self.outputs : -1, -1]).astype(int)

    @property
    def class_offsets(self) -> np.ndarray:
        """Mean features of each class minus the mean of all samples, (classes, p): accurate for large means."""
        counts = self.class_counts
        if (counts == 0).any():
            raise ValueError(f"class {int(np.argmin(counts))} has no sample, so it has no mean: add more batches")
        return (self.moments.cross[:, self.outputs : -1] / counts).T - self.feature_offset

    @property
    def class_means(self) -> np.ndarray:
        """Mean features of each class, μ_c, (classes, p)."""
        return self.class_offsets + self.feature_mean

    def __repr__(self) -> str:
        targets = "real targets" if self.classes is None else f"{self.classes} classes"
        return f"FeatureStatistics({self.count} samples, {self.features} features, {self.outputs} outputs, {targets})"
