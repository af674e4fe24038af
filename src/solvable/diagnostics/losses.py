"""Losses by name, each as a loss per sample, in JAX. Networks are trained with them, and curvatures measured."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

LossName = Literal["mse", "half-mse", "cross-entropy"]
SampleLoss = Callable[[Array, Array], Array]


def sample_loss(loss: LossName | SampleLoss) -> SampleLoss:
    """The loss of each sample, given the outputs (samples, outputs) and targets of a batch.

    ``"mse"`` is the mean square over the outputs, ``"half-mse"`` half the sum of squares (as in the theory of this
    package), ``"cross-entropy"`` takes class numbers or one-hot rows. A function is returned unchanged.
    """
    if callable(loss):
        return loss
    if loss not in _LOSSES:
        raise ValueError(
            f"loss must be one of {', '.join(_LOSSES)}, or a function of outputs and targets, not {loss!r}"
        )
    return _LOSSES[loss]


def _mse(outputs: Array, targets: Array) -> Array:
    return jnp.mean(_squares(outputs, targets), axis=1)


def _half_mse(outputs: Array, targets: Array) -> Array:
    return 0.5 * jnp.sum(_squares(outputs, targets), axis=1)


def _squares(outputs: Array, targets: Array) -> Array:
    """Squared errors (samples, outputs). Targets without an axis for the outputs are a column."""
    if targets.ndim < outputs.ndim:
        targets = targets.reshape(*targets.shape, *([1] * (outputs.ndim - targets.ndim)))
    targets = jnp.broadcast_to(targets, outputs.shape).astype(outputs.dtype)
    return ((outputs - targets) ** 2).reshape(outputs.shape[0], -1)


def _cross_entropy(outputs: Array, targets: Array) -> Array:
    logarithms = jax.nn.log_softmax(outputs)
    if jnp.issubdtype(targets.dtype, jnp.integer):
        return -jnp.take_along_axis(logarithms, targets[:, None], axis=1)[:, 0]
    return -jnp.sum(targets * logarithms, axis=1)


def checked_values(found: Any, samples: int) -> Any:
    """What a loss function returned, if it is a number or has one for each sample; else a ValueError.

    Parameters
    ----------
    found
        What it returned: an array or tensor.
    samples
        Number of samples in the batch.
    """
    shape = getattr(found, "shape", None)
    if isinstance(found, int | float) or (shape is not None and (not len(shape) or shape[0] == samples)):
        return found
    given = type(found).__name__ if shape is None else f"shape {tuple(shape)}"
    raise ValueError(f"loss must return a number or one for each of {samples} samples, not {given}")


_LOSSES: dict[Any, SampleLoss] = {"mse": _mse, "half-mse": _half_mse, "cross-entropy": _cross_entropy}
