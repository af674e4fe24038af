"""What predictions share: the curves that a solver gives, and the batches of a training."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from solvable.models.feature_scaling.mode_quadrature import Modes
from solvable.models.feature_scaling.two_time import Solution
from solvable.optax_descent import OptaxDescent
from solvable.training import SGD, Schedule, Training

if TYPE_CHECKING:
    from solvable.models.feature_scaling.model import FeatureScaling


class Curves(NamedTuple):
    """Losses at the times asked for, with the nodes they were computed from and how."""

    modes: Modes
    test_loss: Any
    train_loss: Any | None
    node_loss: Any
    growth: Any
    solver: dict[str, Any]
    error: float | None
    two_time: Solution | None = None
    averaged_loss: Any | None = None


def batch_size(model: "FeatureScaling", training: Training) -> Any:
    """Number of samples in a batch, or a schedule of it; infinite for full batches."""
    if isinstance(training, SGD):
        return training.samples_per_batch(model.sample_count)
    size = training.batch_size if isinstance(training, OptaxDescent) else None
    return np.inf if size is None else size


def has_batches(training: Training) -> bool:
    """Whether training sees batches rather than everything at every step."""
    return isinstance(training, SGD) or (isinstance(training, OptaxDescent) and training.batch_size is not None)


def batch_sizes(model: "FeatureScaling", training: Training, steps: int) -> Any:
    """Number of samples in a batch, or that of each step where it follows a schedule."""
    size = batch_size(model, training)
    if isinstance(size, Schedule):
        assert isinstance(training, SGD)
        return training.batch_sizes(0, steps).astype(float)
    return size
