"""When the accuracies are reached, if ever: grokking times, planes of them, and where they cease to exist."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from solvable.models.linear_estimator import two_layer
from solvable.models.linear_estimator.chi_square import mean_square_for
from solvable.models.linear_estimator.spectra import MarchenkoPastur, trapezoid_rule
from solvable.models.linear_estimator.stability import check_smooth
from solvable.models.linear_estimator.theory import AnyTraining, Losses, limits, losses_at, rate
from solvable.numerics.roots import differentiable_root, first_dip, root_in_bracket
from solvable.precision import in_float64

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator

# Times are searched in y = log(2 kappa t): from long before anything happens to long after the slowest mode that the
# quadrature resolves has died.
_EARLIEST, _LATEST = -25.0, 60.0
# Options of a training that may be axes of a phase diagram.
_TRAINING_AXES = ("learning_rate", "weight_decay")


class Times(NamedTuple):
    """Times at which the accuracies are first reached; NaN where they never are."""

    train: Float[Array, "*cell"]
    test: Float[Array, "*cell"]
    train_reached: Bool[Array, "*cell"]
    test_reached: Bool[Array, "*cell"]


@in_float64
def loss_threshold(model: "LinearEstimator", accuracy: Array | float) -> Array:
    """The loss at which the accuracy is reached (inverse of eq. 13)."""
    return mean_square_for(accuracy, model.threshold, model.outputs)


@partial(jax.jit, static_argnames="noisy")
def crossing_times(model: "LinearEstimator", training: AnyTraining, accuracy: Array | float, *, noisy: bool) -> Times:
    """Crossing times, real numbers also for gradient descent, whose losses are interpolated between steps.

    With label noise (``noisy``) the test loss is not monotone.
    """
    if not noisy:
        # A constant, which spares the terms of label noise in every evaluation.
        model = dataclasses.replace(model, label_noise=0.0)
    # Descent is followed between its steps only where no mode overshoots, so the upper edge needs no extra nodes.
    spectrum = MarchenkoPastur(model.aspect_ratio, trapezoid_rule())
    kappa = rate(model, training)
    wanted = jnp.log(loss_threshold(model, accuracy))

    def at(log_time: Array) -> Losses:
        return losses_at(model, training, spectrum, jnp.exp(log_time) / (2 * kappa))

    start = losses_at(model, training, spectrum, jnp.zeros(()))
    train_limit, test_limit = limits(model, training, spectrum)

    def solve(curve: Callable[[Array], Array], at_start: Array, limit: Array, monotone: bool) -> tuple[Array, Array]:
        immediately = at_start <= wanted
        high, reached = jnp.asarray(_LATEST), jnp.log(limit) < wanted
        if not monotone:
            dip, dips = first_dip(lambda y: jax.lax.stop_gradient(curve(y)), _EARLIEST, _LATEST)
            high, reached = jnp.where(dips, dip, high), dips
        # Where there is no crossing, an empty bracket ends the search immediately.
        low = jnp.where(reached & ~immediately, _EARLIEST, high)
        root = root_in_bracket(curve, low, high)
        time = jnp.exp(differentiable_root(curve, root)) / (2 * kappa)
        reached = reached & (root < _LATEST - 1e-9) | immediately
        return jnp.where(immediately, 0.0, jnp.where(reached, time, jnp.nan)), reached

    train, train_reached = solve(lambda y: at(y).log_train - wanted, start.log_train, train_limit, True)
    test, test_reached = solve(lambda y: at(y).log_test - wanted, start.log_test, test_limit, not noisy)
    return Times(train, test, train_reached, test_reached)


def two_layer_times(model: "LinearEstimator", training: AnyTraining, accuracy: float, points: int = 1500) -> Times:
    """Crossing times of gradient flow with a hidden layer, from the marched curve and the spline through it."""
    from scipy.interpolate import CubicSpline

    wanted = float(np.log(loss_threshold(model, accuracy)))
    train_limit, test_limit = (float(value) for value in two_layer.limits(model, training))
    slowest = _slowest_time(model, training)
    times = np.concatenate([[0.0], np.geomspace(1e-3 / float(rate(model, training)), slowest, points)])
    curve = two_layer.flow_losses(model, training, times)

    def solve(log_loss: np.ndarray, limit: float) -> tuple[float, bool]:
        if log_loss[0] <= wanted:
            return 0.0, True
        below = np.nonzero(log_loss <= wanted)[0]
        if below.size == 0:
            # Only a monotone curve can still be above its reachable limit at the end of the march.
            if limit < np.exp(wanted) and model.label_noise == 0:
                raise ValueError(
                    f"the accuracy {accuracy:g} is reached, but later than at time {slowest:.3g}: use predict instead"
                )
            return np.nan, False
        last = below[0]
        spline = CubicSpline(np.log(times[1:]), log_loss[1:] - wanted)
        roots = spline.solve(0.0, extrapolate=False)
        inside = roots[(roots >= np.log(max(times[last - 1], times[1]))) & (roots <= np.log(times[last]))]
        return float(np.exp(inside[0])), True

    train, train_reached = solve(np.asarray(curve.log_train), train_limit)
    test, test_reached = solve(np.asarray(curve.log_test), test_limit)
    return Times(*(jnp.asarray(value) for value in (train, test, train_reached, test_reached)))


def _slowest_time(model: "LinearEstimator", training: AnyTraining) -> float:
    """A time by which every data mode that matters has relaxed, at most 1e12 times the fastest one."""
    kappa = float(rate(model, training))
    fastest = kappa / (2 * model.outputs)
    edge = float(MarchenkoPastur(model.aspect_ratio).edge)
    slow = max(edge, 1e-9) * fastest * (1 - (model.outputs / cast(int, model.width)) ** 0.5) ** 2
    if training.weight_decay > 0:
        slow = max(slow, 1e-9 * fastest) if model.aspect_ratio < 1 else kappa * training.weight_decay / 2
    return min(200 / slow, 1e12 / fastest)


def critical_weight_decay(model: "LinearEstimator", training: AnyTraining, accuracy: float) -> float:
    """The largest weight decay at which the test accuracy is still reached; 0 if never, infinity if always."""

    def excess(log_decay: float) -> float:
        return _log_excess(model, training.replace(weight_decay=float(np.exp(log_decay))), accuracy)

    return _largest(excess, -80.0, 40.0)


def critical_aspect_ratio(model: "LinearEstimator", training: AnyTraining, accuracy: float) -> float:
    """The largest aspect ratio at which the test accuracy is still reached; 0 if never, infinity if always."""
    if training.weight_decay == 0 and model.width is None:
        # (1 - 1/lambda) (1 + alpha^2) / (2 d_out) = threshold
        null_mass = 2 * model.outputs * float(loss_threshold(model, accuracy)) / (1 + model.initial_scale**2)
        return float(1 / (1 - null_mass)) if null_mass < 1 else float("inf")

    def excess(log_ratio: float) -> float:
        return _log_excess(model.replace(aspect_ratio=float(np.exp(log_ratio))), training, accuracy)

    return _largest(excess, -40.0, 40.0)


def _log_excess(model: "LinearEstimator", training: AnyTraining, accuracy: float) -> float:
    """Logarithm of the final test loss over the loss at which the accuracy is reached."""
    if model.width is None:
        limit = float(limits(model, training, MarchenkoPastur(model.aspect_ratio))[1])
    else:
        limit = float(two_layer.limits(model, training)[1])
    return float(np.log(max(limit, 1e-300)) - np.log(loss_threshold(model, accuracy)))


def _largest(excess: Callable[[float], float], low: float, high: float) -> float:
    """``exp`` of the zero of a function that increases from "reached" (negative) to "not reached"."""
    from scipy.optimize import brentq

    if excess(high) <= 0:
        return float("inf")
    if excess(low) > 0:
        return 0.0
    return float(np.exp(brentq(excess, low, high, xtol=1e-13, rtol=1e-14)))


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
