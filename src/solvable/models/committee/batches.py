"""Mini-batches: the weight of a sample in the batch of a step, in the limit of many samples and with literal indices.

With a batch of a fraction ``b`` of the samples a sample has the weight ``m / b``. In the limit ``m`` is a random
process of each sample on its own:

* ``subsets``: 1 with probability b, independently at every step;
* ``replacement``: a Poisson number of mean b, independently at every step;
* ``epochs``: a uniform slot in every epoch, 1 at the step of the slot; ``cyclic``: the same slot in every epoch. Where
  1/b is not a whole number the last slot is shorter, and every batch is averaged over its own size.

A simulation draws sets of indices instead, so that the process itself is put to the test.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.committee.columns import Columns
from solvable.training import Training

# 1/b is taken as a whole number where it is one up to rounding.
_ROUNDING = 1e-9


class Batches(NamedTuple):
    """How batches are drawn: ``sampling`` as in :class:`solvable.SGD`, and the fraction of the samples in a batch."""

    sampling: str
    fraction: float

    @property
    def per_epoch(self) -> int:
        """Number of batches in an epoch, the shorter one included."""
        return math.ceil(1 / self.fraction - _ROUNDING)

    @property
    def bounds(self) -> Float[np.ndarray, "bound"]:
        """Where the slots of an epoch begin and end, as fractions of the samples."""
        return np.minimum(np.arange(self.per_epoch + 1) * self.fraction, 1.0)

    def weights(self, columns: Columns, count: int) -> Float[np.ndarray, "sample"]:
        """Weights of the samples of the closure at a step."""
        if self.sampling == "subsets":
            return (columns.of_step(count) < self.fraction) / self.fraction
        if self.sampling == "replacement":
            return _poisson(columns.of_step(count), self.fraction) / self.fraction
        uniform = columns.of_epoch(count // self.per_epoch if self.sampling == "epochs" else 0)
        low, high = self.bounds[count % self.per_epoch : count % self.per_epoch + 2]
        return ((uniform >= low) & (uniform < high)) / (high - low)

    def drawn(self, key: Array, samples: int, count: Array) -> Float[Array, "sample"]:
        """Weights of the samples of a simulation at a step, from sets of indices."""
        size = max(1, round(self.fraction * samples))
        if self.sampling == "replacement":
            chosen = jax.random.randint(jax.random.fold_in(key, count), (size,), 0, samples)
            return jnp.zeros(samples).at[chosen].add(samples / size)
        if self.sampling == "subsets":
            order = jax.random.permutation(jax.random.fold_in(key, count), samples)
            return jnp.where(order < size, samples / size, 0.0)
        # The order in which the samples come is that of their drawing, shuffled for every epoch.
        order = jnp.arange(samples)
        if self.sampling == "epochs":
            order = jax.random.permutation(jax.random.fold_in(key, count // self.per_epoch), samples)
        ends = jnp.asarray(np.round(self.bounds * samples).astype(int))
        low, high = ends[count % self.per_epoch], ends[count % self.per_epoch + 1]
        return jnp.where((order >= low) & (order < high), samples / (high - low), 0.0)


def _poisson(uniform: Float[np.ndarray, "sample"], mean: float) -> Float[np.ndarray, "sample"]:
    """Poisson numbers by the inverse of their cumulative distribution."""
    # Beyond 12 standard deviations and 20 more there is nothing.
    counts = np.arange(int(mean + 12 * math.sqrt(mean) + 20))
    logs = counts * math.log(mean) - mean - np.array([math.lgamma(count + 1) for count in counts])
    return np.searchsorted(np.cumsum(np.exp(logs)), uniform, side="right").astype(float)


def batches_of(training: Training | Any) -> Batches | None:
    """The batches of a training, or None where every step sees all samples."""
    fraction, sampling = getattr(training, "batch_fraction", None), getattr(training, "sampling", None) or "epochs"
    if fraction is None or (fraction == 1 and sampling != "replacement"):
        return None
    return Batches(sampling, float(fraction))
