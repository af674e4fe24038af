"""The random numbers of the latent closure's samples, from one randomised Sobol sequence in the order of their use.

A sample of the closure has normal coordinates, and private uniform numbers that decide on its label, its noise and the
batches it is in. All come from the dimensions of one sequence: the earlier a dimension, the more evenly it is filled,
and the first steps of training matter most. A step uses the private numbers of its epoch and of itself, and then
opens at most one new coordinate per neuron:

    index fields and start | labels | step 0: private, coordinates | step 1: private, coordinates | ...

Without private numbers, dimension and coordinate are the same.
"""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from solvable.numerics.sobol import sobol_normals

_BLOCK = 128
# Later blocks are pseudo-random: many dimensions of a Sobol sequence are not more even than that.
_EVEN_BLOCKS = 2
# Blocks up to this many bytes are kept, so that both conventions and the next prediction find them drawn.
_KEPT, _KEPT_BYTES = 8, 2**24


@dataclasses.dataclass(frozen=True)
class Private:
    """How many uniform numbers a sample draws: once for its label, in each epoch, and at each step."""

    labels: int = 0
    per_epoch: int = 0
    per_step: int = 0
    steps_per_epoch: int = 1


class Columns:
    """Rows (column, sample) of normals and of uniform numbers.

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
    on_device
        Whether pseudo-random coordinates are drawn by JAX on its device and stay there.
    """

    def __init__(
        self,
        samples: int,
        key: tuple[int, ...],
        fixed: int,
        neurons: int,
        private: Private,
        on_device: bool = False,
    ) -> None:
        self._on_device = on_device
        self._samples, self._key, self._fixed, self._neurons, self._private = samples, key, fixed, neurons, private
        # Blocks that are too large to be kept for others: the last two.
        self._blocks: dict[int, np.ndarray] = {}
        self._last = -1, np.zeros(0)

    def normals(self, begin: int, end: int) -> Any:
        """The coordinates from ``begin`` up to, but not including, ``end``, (column, sample)."""
        columns = np.arange(begin, end)
        dimensions = np.where(columns < self._fixed, columns, self._dimension_of(columns))
        if self._on_device and len(dimensions) and dimensions[0] >= _BLOCK * _EVEN_BLOCKS:
            # Through the memory of the host, a hundred neurons would wait for their normals ten times longer.
            return _device_normals(_seed(self._key), dimensions, self._samples)
        return self._dimensions(dimensions)

    def of_label(self, place: int) -> Float[np.ndarray, "sample"]:
        """A uniform number for the label of every sample."""
        return self._uniform(self._fixed + place)

    def of_epoch(self, epoch: int) -> Float[np.ndarray, "sample"]:
        """A uniform number for an epoch."""
        return self._uniform(self._before(epoch * self._private.steps_per_epoch) - self._private.per_epoch)

    def of_step(self, count: int, place: int = 0) -> Float[np.ndarray, "sample"]:
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

    def _uniform(self, dimension: int) -> Float[np.ndarray, "sample"]:
        from scipy.special import ndtr

        # An epoch asks for its numbers at every step.
        if self._last[0] != dimension:
            normals = self._dimensions(np.array([dimension]))[0]
            # Pseudo-random numbers are made as even as those of a sequence: a permutation of equidistant ones.
            even = dimension < _BLOCK * _EVEN_BLOCKS
            self._last = dimension, ndtr(normals) if even else (np.argsort(np.argsort(normals)) + 0.5) / self._samples
        return self._last[1]

    def _dimensions(self, wanted: Int[np.ndarray, "column"]) -> Float[np.ndarray, "column sample"]:
        return np.stack([self._block(dimension // _BLOCK)[dimension % _BLOCK] for dimension in wanted.tolist()])

    def _block(self, block: int) -> Float[np.ndarray, "column sample"]:
        if 8 * self._samples * _BLOCK <= _KEPT_BYTES:
            return _kept_block(self._samples, self._key, block)
        if block not in self._blocks:
            kept = list(self._blocks.items())[-1:]
            self._blocks = {**dict(kept), block: _drawn_block(self._samples, self._key, block)}
        return self._blocks[block]


def _seed(key: tuple[int, ...]) -> int:
    return int(np.random.default_rng(key).integers(2**31))


@functools.partial(jax.jit, static_argnames="samples")
def _device_normals(seed: int, dimensions: jax.Array, samples: int) -> jax.Array:
    """Normals (column, sample), each column from a random key of its own."""
    key = jax.random.key(seed)
    return jax.vmap(lambda one: jax.random.normal(jax.random.fold_in(key, one), (samples,)))(dimensions)


def _drawn_block(samples: int, key: tuple[int, ...], block: int) -> Float[np.ndarray, "column sample"]:
    if block >= _EVEN_BLOCKS:
        columns = np.asarray(jax.random.normal(jax.random.key(_seed((*key, block))), (samples, _BLOCK)))
    else:
        columns = sobol_normals(samples, _BLOCK, (*key, block))
        if block:
            # Randomisations of the same points are not independent of each other; shuffled ones are.
            columns = np.random.default_rng((*key, block, 1)).permutation(columns)
    return np.ascontiguousarray(columns.T)


_kept_block = functools.lru_cache(maxsize=_KEPT)(_drawn_block)
