"""Losses by name, each as a loss per sample, and what counts as correct."""

import jax.numpy as jnp
from jaxtyping import Array

from solvable.diagnostics.losses import LossName, SampleLoss, checked_values, sample_loss

__all__ = ["LossName", "SampleLoss", "checked_values", "correct", "is_classification", "sample_loss"]


def is_classification(outputs: int, targets: Array) -> bool:
    """Whether targets are class numbers, or rows of several outputs, the largest of which marks the class."""
    return bool(jnp.issubdtype(targets.dtype, jnp.integer)) or (outputs > 1 and targets.ndim == 2)


def correct(outputs: Array, targets: Array) -> Array:
    """1 where the largest output is that of the class, else 0."""
    classes = targets if jnp.issubdtype(targets.dtype, jnp.integer) else jnp.argmax(targets, axis=1)
    return (jnp.argmax(outputs, axis=1) == classes).astype(outputs.dtype)
