"""The random numbers of the latent closure's samples, from one randomised Sobol sequence in the order of their use.

A sample of the closure has normal coordinates, and private uniform numbers that decide on its label, its noise and the
batches it is in. All come from the dimensions of one sequence: the earlier a dimension, the more evenly it is filled,
and the first steps of training matter most. A step uses the private numbers of its epoch and of itself, and then
opens at most one new coordinate per neuron:

    index fields and start | labels | step 0: private, coordinates | step 1: private, coordinates | ...

Without private numbers, dimension and coordinate are the same.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from solvable.numerics.sobol import sobol_normals

_BLOCK = 128
# Later blocks are pseudo-random: many dimensions of a Sobol sequence are not more even than that.
_EVEN_BLOCKS = 2
_KEPT_BLOCKS = 2


@dataclasses.dataclass(frozen=True)
class Private:
    """How many uniform numbers a sample draws: once for its label, in each epoch, and at each step."""

    labels: int = 0
    per_epoch: int = 0
    per_step: int = 0
    steps_per_epoch: int = 1


class Columns:
    """Columns (sample, column) of normals and of uniform numbers.

    Parameters
    ----------
    samples
        Number of samples.
    key
        Random seeds.
    fixed
        Number of coordinates that are there from the start.
    neurons
        Number of coordinates that a step may open.
    private
        The private numbers of a sample.
    """

    def __init__(self, samples: int, key: tuple[int, ...], fixed: int, neurons: int, private: Private) -> None:
        self._samples, self._key, self._fixed, self._neurons, self._private = samples, key, fixed, neurons, private
        # On the host: picking columns there needs no compilation.
        self._blocks: dict[int, np.ndarray] = {}

    def normals(self, begin: int, end: int) -> Float[Array, "sample column"]:
        """The coordinates from ``begin`` up to, but not including, ``end``."""
        columns = np.arange(begin, end)
        return self._dimensions(np.where(columns < self._fixed, columns, self._dimension_of(columns)))

    def of_label(self, place: int) -> Float[Array, "sample"]:
        """A uniform number for the label of every sample."""
        return self._uniform(self._fixed + place)

    def of_epoch(self, epoch: int) -> Float[Array, "sample"]:
        """A uniform number for an epoch."""
        return self._uniform(self._before(epoch * self._private.steps_per_epoch) - self._private.per_epoch)

    def of_step(self, count: int, place: int = 0) -> Float[Array, "sample"]:
        """A uniform number for a step."""
        return self._uniform(self._before(count) + place)

    def _before(self, count: int) -> int:
        """The dimension of the first private number of a step, which follow those of its epoch."""
        private = self._private
        epochs = count // private.steps_per_epoch + 1
        return self._fixed + private.labels + count * (self._neurons + private.per_step) + epochs * private.per_epoch

    def _dimension_of(self, columns: Int[np.ndarray, "column"]) -> Int[np.ndarray, "column"]:
        private, steps = self._private, (columns - self._fixed) // self._neurons
        epochs = steps // private.steps_per_epoch + 1
        return columns + private.labels + (steps + 1) * private.per_step + epochs * private.per_epoch

    def _uniform(self, dimension: int) -> Array:
        column = self._dimensions(np.array([dimension]))[:, 0]
        if dimension < _BLOCK * _EVEN_BLOCKS:
            return jax.scipy.special.ndtr(column)
        # Pseudo-random numbers are made as even as those of a sequence: a permutation of equidistant ones.
        return (jnp.argsort(jnp.argsort(column)) + 0.5) / self._samples

    def _dimensions(self, wanted: Int[np.ndarray, "column"]) -> Array:
        parts = []
        for block in range(int(wanted[0]) // _BLOCK, int(wanted[-1]) // _BLOCK + 1):
            if block not in self._blocks:
                kept = list(self._blocks.items())[-_KEPT_BLOCKS + 1 :]
                self._blocks = {**dict(kept), block: self._block(block)}
            inside = wanted[(wanted >= block * _BLOCK) & (wanted < (block + 1) * _BLOCK)] - block * _BLOCK
            if inside.size:
                parts.append(self._blocks[block][:, inside])
        return jnp.asarray(np.concatenate(parts, axis=1))

    def _block(self, block: int) -> np.ndarray:
        if block >= _EVEN_BLOCKS:
            seed = int(np.random.default_rng((*self._key, block)).integers(2**31))
            return np.asarray(jax.random.normal(jax.random.key(seed), (self._samples, _BLOCK)))
        columns = sobol_normals(self._samples, _BLOCK, (*self._key, block))
        if block:
            # Randomisations of the same points are not independent of each other; shuffled ones are.
            columns = np.random.default_rng((*self._key, block, 1)).permutation(columns)
        return columns
