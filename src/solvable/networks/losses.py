"""Losses by name, each as the loss of every point."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

LossName = Literal["mse", "half-mse", "cross-entropy"]
PointLoss = Callable[[Array, Array], Array]


def point_loss(loss: LossName | PointLoss) -> PointLoss:
    """The loss of each point of a batch of outputs (points, outputs).

    ``"mse"`` is the mean of squares over the outputs, ``"half-mse"`` half their sum (as the theory of this package has
    it), ``"cross-entropy"`` takes class numbers or one-hot rows. Your own function gets outputs and targets of a batch.
    """
    if callable(loss):
        return loss
    if loss not in _LOSSES:
        raise ValueError(
            f"loss must be one of {', '.join(_LOSSES)}, or a function of outputs and targets, not {loss!r}"
        )
    return _LOSSES[loss]


def as_outputs(targets: Array, outputs: Array) -> Array:
    """Targets shaped like outputs: a list of numbers is a column."""
    if targets.ndim < outputs.ndim:
        targets = targets.reshape(*targets.shape, *([1] * (outputs.ndim - targets.ndim)))
    return jnp.broadcast_to(targets, outputs.shape).astype(outputs.dtype)


def _mse(outputs: Array, targets: Array) -> Array:
    return jnp.mean(_squares(outputs, targets), axis=1)


def _half_mse(outputs: Array, targets: Array) -> Array:
    return 0.5 * jnp.sum(_squares(outputs, targets), axis=1)


def _squares(outputs: Array, targets: Array) -> Array:
    return ((outputs - as_outputs(targets, outputs)) ** 2).reshape(outputs.shape[0], -1)


def _cross_entropy(outputs: Array, targets: Array) -> Array:
    logarithms = jax.nn.log_softmax(outputs)
    if jnp.issubdtype(targets.dtype, jnp.integer):
        return -jnp.take_along_axis(logarithms, targets[:, None], axis=1)[:, 0]
    return -jnp.sum(targets * logarithms, axis=1)


_LOSSES: dict[Any, PointLoss] = {"mse": _mse, "half-mse": _half_mse, "cross-entropy": _cross_entropy}


def is_classification(outputs: int, targets: Array) -> bool:
    """Class numbers, or rows of several outputs of which one is the largest."""
    return bool(jnp.issubdtype(targets.dtype, jnp.integer)) or (outputs > 1 and targets.ndim == 2)


def correct(outputs: Array, targets: Array) -> Array:
    """1 where the largest output is that of the class."""
    classes = targets if jnp.issubdtype(targets.dtype, jnp.integer) else jnp.argmax(targets, axis=1)
    return (jnp.argmax(outputs, axis=1) == classes).astype(outputs.dtype)
