"""Where the batches of a run come from: a fixed training set, or new samples at every step."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

Batch = tuple[Array, Array]
# Folded into the key of augmentations; the keys of permutations have the epoch folded in, which is smaller.
_AUGMENTATION = 2**31 - 1


class Fixed(eqx.Module):
    """A training set, and optionally a test set.

    Parameters
    ----------
    inputs, targets
        The training set, one row per sample.
    test_inputs, test_targets
        The test set.
    count
        How many of the first rows belong to the training set. It may be traced, so that training sets of many sizes
        are trained side by side in arrays of one size.
    augment
        A function ``augment(key, inputs)`` that changes the inputs of every batch of training, differently each time.
        Measurements use the inputs as they are.
    """

    inputs: Array = eqx.field(converter=jnp.asarray)
    targets: Array = eqx.field(converter=jnp.asarray)
    test_inputs: Any = None
    test_targets: Any = None
    count: Any = None
    augment: Callable[[jax.Array, Array], Array] | None = None

    def __check_init__(self) -> None:
        _check_rows("inputs", self.inputs, "targets", self.targets)
        _check_test(self)

    @property
    def size(self) -> int:
        """Number of rows of the training set."""
        return self.inputs.shape[0]


class Fresh(eqx.Module):
    """New samples at every step, and optionally a fixed test set.

    Parameters
    ----------
    sample
        A function ``sample(key, count)`` that returns inputs and targets.
    test_inputs, test_targets
        The test set.
    """

    sample: Callable[[jax.Array, int], Batch]
    test_inputs: Any = None
    test_targets: Any = None

    def __check_init__(self) -> None:
        _check_test(self)


Source = Fixed | Fresh


def _check_test(data: Any) -> None:
    if (data.test_inputs is None) != (data.test_targets is None):
        raise ValueError("a test set needs both test_inputs and test_targets")
    if data.test_inputs is not None:
        _check_rows("test_inputs", data.test_inputs, "test_targets", data.test_targets)


def _check_rows(name: str, inputs: Any, other: str, targets: Any) -> None:
    if jnp.ndim(inputs) == 0 or jnp.ndim(targets) == 0 or len(inputs) != len(targets):
        shapes = f"{jnp.shape(inputs)} and {jnp.shape(targets)}"
        raise ValueError(f"{name} and {other} must have equally many rows, one per sample, but have shapes {shapes}")
    if len(inputs) == 0:
        raise ValueError(f"{name} is empty: give at least one sample")


def initial_order(data: Source, batch_size: int | None) -> Array | None:
    """An array for the permutation of the samples in an epoch; None if there are no epochs."""
    if isinstance(data, Fixed) and batch_size is not None and data.count is None:
        return jnp.zeros(data.size, jnp.int32)
    return None


def next_batch(
    data: Source, batch_size: int | None, order: Array | None, key: jax.Array, step: Array
) -> tuple[Batch, Array | None]:
    """The batch of a step, augmented if the data say so, and the permutation of this epoch."""
    (inputs, targets), order = _samples(data, batch_size, order, key, step)
    if isinstance(data, Fixed) and data.augment is not None:
        inputs = data.augment(jax.random.fold_in(jax.random.fold_in(key, _AUGMENTATION), step), inputs)
    return (inputs, targets), order


def _samples(
    data: Source, batch_size: int | None, order: Array | None, key: jax.Array, step: Array
) -> tuple[Batch, Array | None]:
    """The samples of a step. A fixed set is reshuffled every epoch and read in whole batches.

    A set with a ``count`` is sampled with replacement instead, because its number of batches is not known beforehand.
    """
    if isinstance(data, Fresh):
        assert batch_size is not None
        return data.sample(jax.random.fold_in(key, step), batch_size), None
    if batch_size is None:
        return (data.inputs, data.targets), None
    if order is None:
        count = jnp.asarray(data.count, jnp.int32)
        rows = jax.random.randint(jax.random.fold_in(key, step), (batch_size,), 0, count)
        return (data.inputs[rows], data.targets[rows]), None
    batches = data.size // batch_size
    epoch, position = step // batches, step % batches
    order = jax.lax.cond(
        position == 0,
        lambda: jax.random.permutation(jax.random.fold_in(key, epoch), data.size).astype(jnp.int32),
        lambda: order,
    )
    rows = jax.lax.dynamic_slice_in_dim(order, position * batch_size, batch_size)
    return (data.inputs[rows], data.targets[rows]), order


def row_mask(data: Fixed) -> Array | None:
    """True for the rows that belong to the training set; None if all do."""
    return None if data.count is None else (jnp.arange(data.size) < data.count)


def equal_batch_size(count: int, most: int) -> int:
    """A batch size of at most ``most`` that divides ``count``, because every other size is compiled again.

    If only very small sizes divide it, the last batch is shorter.
    """
    equal = max(size for size in range(1, min(count, most) + 1) if count % size == 0)
    return equal if equal >= most // 4 or equal == count else most
