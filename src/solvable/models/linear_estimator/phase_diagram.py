"""Crossing times over a grid of parameters of the model and options of the training."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.linear_estimator.grokking import Times, crossing_times
from solvable.models.linear_estimator.stability import check_smooth
from solvable.models.linear_estimator.theory import AnyTraining

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator

# Options of a training that may be axes of a phase diagram.
_TRAINING_AXES = ("learning_rate", "weight_decay")


def checked_axes(
    model: "LinearEstimator", training: AnyTraining, axes: Mapping[str, Any]
) -> dict[str, Float[np.ndarray, "value"]]:
    """The axes as arrays, if all of their values are allowed."""
    if not axes:
        raise ValueError("a phase diagram needs at least one axis, such as weight_decay=[...]")
    grids = {name: _checked_axis(model, training, name, values) for name, values in axes.items()}
    # Modes overshoot soonest where the learning rate, the aspect ratio and the weight decay are largest.
    worst = {name: values.min() if name == "outputs" else values.max() for name, values in grids.items()}
    check_smooth(*_replace_either(model, training, worst))
    return grids


def _checked_axis(
    model: "LinearEstimator", training: AnyTraining, name: str, values: Any
) -> Float[np.ndarray, "value"]:
    values = np.atleast_1d(np.asarray(values, dtype=float))
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"axis {name} must be a flat, non-empty list of values")
    if name == "width":
        raise ValueError("width cannot be an axis: a hidden layer changes the equations, not only a number")
    if name not in model.parameters() and name not in _TRAINING_AXES:
        known = ", ".join([*(field for field in model.parameters() if field != "width"), *_TRAINING_AXES])
        raise ValueError(f"a phase diagram has no axis {name!r}; its axes can be {known}")
    for value in values:
        _replace_either(model, training, {name: value})
    return values


@partial(jax.jit, static_argnames=("names", "noisy"))
def _times_on_grid(
    model: "LinearEstimator",
    training: AnyTraining,
    names: tuple[str, ...],
    values: tuple[Array, ...],
    accuracy: float,
    *,
    noisy: bool,
) -> Times:
    """Nested over the axes, so that whatever depends on one axis only is computed once along it."""
    if not names:
        return crossing_times(model, training, accuracy, noisy=noisy)

    def cell(value: Array) -> Times:
        changed = _replace_either(model, training, {names[0]: value})
        return _times_on_grid(*changed, names[1:], values[1:], accuracy, noisy=noisy)

    # The innermost axis is vectorised, the outer ones are walked: a row fits in the cache, a plane does not.
    return jax.vmap(cell)(values[0]) if len(names) == 1 else jax.lax.map(cell, values[0])


def _replace_either(
    model: "LinearEstimator", training: AnyTraining, changes: dict[str, Any]
) -> tuple["LinearEstimator", AnyTraining]:
    """Model and training with changed values; the training's options are those that the model does not have."""
    ours = {name: value for name, value in changes.items() if name in model.parameters()}
    return model.replace(**ours), training.replace(**{name: changes[name] for name in changes.keys() - ours.keys()})


def times_on_grid(
    model: "LinearEstimator",
    training: AnyTraining,
    grids: Mapping[str, Float[np.ndarray, "value"]],
    accuracy: float,
    *,
    noisy: bool,
) -> Times:
    """Crossing times with one axis for each of the grids, in their order."""
    values = tuple(map(jnp.asarray, grids.values()))
    return _times_on_grid(model, training, tuple(grids), values, accuracy, noisy=noisy)
