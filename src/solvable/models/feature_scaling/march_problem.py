"""What the march through the steps of gradient descent is given, and what it returns."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from solvable.models.feature_scaling.optimiser import Kernels


class Descent(NamedTuple):
    """How the network is trained; infinite ``features``, ``batch`` or ``samples`` must be concrete to be seen."""

    # One number, or one number per step.
    learning_rate: Any
    richness: Any
    features: Any = np.inf
    # One number, or one number per step.
    batch: Any = np.inf
    samples: Any = np.inf
    momentum: Any = 0.0
    nesterov: bool = False
    # Variance of the noise on labels.
    label_noise: Any = 0.0
    # How batches are drawn from a training set: "replacement", "epochs" or "cyclic".
    sampling: str = "replacement"
    # The optimiser, where it is more than learning_rate, momentum and nesterov say.
    kernels: Kernels | None = None


class Kinds(NamedTuple):
    """Which of the sizes are finite: they decide which equations there are."""

    features: bool
    batch: bool
    samples: bool
    exact_batch: bool
    sampling: str


class Numbers(NamedTuple):
    """The numbers of the equations; those of infinite sizes are not used."""

    richness: Any
    features: Any
    samples: Any
    label_noise: Any
    steps_per_epoch: Any


class StepPlan(NamedTuple):
    """What differs from step to step: the optimiser's kernels, and one over the batch size."""

    kernels: Kernels
    inverse_batch: Float[Array | np.ndarray, "time"]

    def until(self, end: int) -> "StepPlan":
        readout, features, kept = self.kernels
        return StepPlan(Kernels(readout[:end, :end], features[:end, :end], kept[:end]), self.inverse_batch[:end])


class Solution(NamedTuple):
    """Curves and two-time functions over the steps ``0 ... T - 1``."""

    test_loss: Float[Array | np.ndarray, "time"]
    train_loss: Float[Array | np.ndarray, "time"]
    # What each node adds to the test loss.
    node_loss: Float[Array | np.ndarray, "time node"]
    weight_correlation: Float[Array | np.ndarray, "time time"]
    correlation_2: Float[Array | np.ndarray, "time time"]
    correlation_3: Float[Array | np.ndarray, "time time"]
    correlation_0: Float[Array | np.ndarray, "time time"]
    response_3: Float[Array | np.ndarray, "time time"]
    response_24: Float[Array | np.ndarray, "time time"]
    # G R3 R1: what moves each mode; without momentum the kernel's growth times eta on its first subdiagonal.
    drive: Float[Array | np.ndarray, "time time"]
    # Test loss of the averaged weights, for each row of averages that is asked for.
    averaged_loss: Float[Array | np.ndarray, "average"] | None = None


def is_finite(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer) or bool(np.any(np.isfinite(value)))
