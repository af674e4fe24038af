"""Where a run's batches come from: a fixed training set, or new points every step."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

Batch = tuple[Array, Array]
# Tells draws of augmentations from those of orders, which are folded in by epoch.
_AUGMENTED = 2**31 - 1


class Fixed(eqx.Module):
    """A training set, and a test set if there is one.

    ``count`` says how many of the first rows belong to the training set; it may be traced, so that sets of many sizes
    train side by side in arrays of one size. ``augment(key, inputs)`` changes the inputs of every batch that is trained
    on, each time anew; what is measured is measured on the points as they are.
    """

    inputs: Array = eqx.field(converter=jnp.asarray)
    targets: Array = eqx.field(converter=jnp.asarray)
    test_inputs: Any = None
    test_targets: Any = None
    count: Any = None
    augment: Callable[[jax.Array, Array], Array] | None = None

    def __check_init__(self) -> None:
        check_rows("inputs", self.inputs, "targets", self.targets)
        _check_test(self)

    @property
    def size(self) -> int:
        return self.inputs.shape[0]


class Fresh(eqx.Module):
    """New points every step: ``sample(key, count)`` gives inputs and targets. A test set, if there is one, is fixed."""

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
        check_rows("test_inputs", data.test_inputs, "test_targets", data.test_targets)


def check_rows(name: str, inputs: Any, other: str, targets: Any) -> None:
    if jnp.ndim(inputs) == 0 or jnp.ndim(targets) == 0 or len(inputs) != len(targets):
        shapes = f"{jnp.shape(inputs)} and {jnp.shape(targets)}"
        raise ValueError(f"{name} and {other} must have as many rows, one a point, but have shapes {shapes}")
    if len(inputs) == 0:
        raise ValueError(f"{name} is empty: give at least one point")


def first_order(data: Source, batch: int | None) -> Array | None:
    """Room for the order of the points in this epoch, where there are epochs."""
    if isinstance(data, Fixed) and batch is not None and data.count is None:
        return jnp.zeros(data.size, jnp.int32)
    return None


def next_batch(
    data: Source, batch: int | None, order: Array | None, key: jax.Array, step: Array
) -> tuple[Batch, Array | None]:
    """The points of a step, augmented where that is asked for, and the order of this epoch."""
    (inputs, targets), order = _points(data, batch, order, key, step)
    if isinstance(data, Fixed) and data.augment is not None:
        inputs = data.augment(jax.random.fold_in(jax.random.fold_in(key, _AUGMENTED), step), inputs)
    return (inputs, targets), order


def _points(
    data: Source, batch: int | None, order: Array | None, key: jax.Array, step: Array
) -> tuple[Batch, Array | None]:
    """The points of a step. A fixed set is gone through in a new order every epoch, in whole batches.

    A set with a ``count`` is drawn from with replacement instead: how many batches it has is not known beforehand.
    """
    if isinstance(data, Fresh):
        assert batch is not None
        return data.sample(jax.random.fold_in(key, step), batch), None
    if batch is None:
        return (data.inputs, data.targets), None
    if order is None:
        count = jnp.asarray(data.count, jnp.int32)
        rows = jax.random.randint(jax.random.fold_in(key, step), (batch,), 0, count)
        return (data.inputs[rows], data.targets[rows]), None
    batches = data.size // batch
    epoch, place = step // batches, step % batches
    order = jax.lax.cond(
        place == 0,
        lambda: jax.random.permutation(jax.random.fold_in(key, epoch), data.size).astype(jnp.int32),
        lambda: order,
    )
    rows = jax.lax.dynamic_slice_in_dim(order, place * batch, batch)
    return (data.inputs[rows], data.targets[rows]), order


def weights_of(data: Fixed) -> Array | None:
    """1 for the rows that count, 0 for the others; None if all do."""
    return None if data.count is None else (jnp.arange(data.size) < data.count)


def equal_pieces(count: int, most: int) -> int:
    """How many points to take at a time, at most ``most``: in equal pieces, since every other size is compiled anew.

    Where only very small ones are equal, the last piece is shorter.
    """
    equal = max(size for size in range(1, min(count, most) + 1) if count % size == 0)
    return equal if equal >= most // 4 or equal == count else most
