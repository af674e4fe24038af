"""When the accuracies are reached, if ever: grokking times, and where they cease to exist."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from solvable.models.linear_estimator import two_layer
from solvable.models.linear_estimator.chi_square import mean_square_for
from solvable.models.linear_estimator.spectra import MarchenkoPastur
from solvable.models.linear_estimator.theory import Losses, discrete_decay, flow_decay, limits, losses, rate, rule_for
from solvable.numerics.roots import differentiable_root, first_dip, root_in_bracket

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator

# Times are searched in y = log(2 kappa t): from long before anything happens to long after the slowest mode that the
# quadrature resolves has died.
_EARLIEST, _LATEST = -25.0, 60.0


class Times(NamedTuple):
    """Times at which the accuracies are first reached; NaN where they never are."""

    train: Float[Array, "*cell"]
    test: Float[Array, "*cell"]
    train_reached: Bool[Array, "*cell"]
    test_reached: Bool[Array, "*cell"]


def loss_threshold(model: "LinearEstimator", accuracy: Array | float) -> Array:
    """The loss at which the accuracy is reached (inverse of eq. 13)."""
    return mean_square_for(accuracy, model.threshold, model.outputs)


@partial(jax.jit, static_argnames=("noisy", "descent"))
def crossing_times(model: "LinearEstimator", accuracy: Array | float, noisy: bool, descent: str = "flow") -> Times:
    """Crossing times, real numbers also for whole steps. With label noise (``noisy``) the test loss is not monotone."""
    if not noisy:
        # A constant, which spares the terms of label noise in every evaluation.
        model = dataclasses.replace(model, label_noise=0.0)
    spectrum = MarchenkoPastur(model.aspect_ratio, rule_for("flow"))
    wanted = jnp.log(loss_threshold(model, accuracy))

    decay = flow_decay if descent == "flow" else discrete_decay

    def at(log_time: Array) -> Losses:
        return losses(model, spectrum, decay(model, spectrum, jnp.exp(log_time) / (2 * rate(model))))

    start = losses(model, spectrum, decay(model, spectrum, jnp.zeros(())))
    train_limit, test_limit = limits(model, spectrum)

    def solve(curve: Callable[[Array], Array], at_start: Array, limit: Array, monotone: bool) -> tuple[Array, Array]:
        immediately = at_start <= wanted
        high, reached = jnp.asarray(_LATEST), jnp.log(limit) < wanted
        if not monotone:
            dip, dips = first_dip(lambda y: jax.lax.stop_gradient(curve(y)), _EARLIEST, _LATEST)
            high, reached = jnp.where(dips, dip, high), dips
        # Nothing is searched where nothing is to be found: an empty bracket ends the search at once.
        low = jnp.where(reached & ~immediately, _EARLIEST, high)
        root = root_in_bracket(curve, low, high)
        time = jnp.exp(differentiable_root(curve, root)) / (2 * rate(model))
        reached = reached & (root < _LATEST - 1e-9) | immediately
        return jnp.where(immediately, 0.0, jnp.where(reached, time, jnp.nan)), reached

    train, train_reached = solve(lambda y: at(y).log_train - wanted, start.log_train, train_limit, True)
    test, test_reached = solve(lambda y: at(y).log_test - wanted, start.log_test, test_limit, not noisy)
    return Times(train, test, train_reached, test_reached)


def two_layer_times(model: "LinearEstimator", accuracy: float, points: int = 1500) -> Times:
    """Crossing times with a hidden layer, from the marched curve and the spline through it."""
    from scipy.interpolate import CubicSpline

    wanted = float(np.log(loss_threshold(model, accuracy)))
    train_limit, test_limit = (float(value) for value in two_layer.limits(model))
    slowest = _slowest_time(model)
    times = np.concatenate([[0.0], np.geomspace(1e-3 / float(rate(model)), slowest, points)])
    curve = two_layer.flow_losses(model, times)

    def solve(log_loss: np.ndarray, limit: float) -> tuple[float, bool]:
        if log_loss[0] <= wanted:
            return 0.0, True
        below = np.nonzero(log_loss <= wanted)[0]
        if below.size == 0:
            # Only a monotone curve can still be above its reachable limit at the end of the march.
            if limit < np.exp(wanted) and model.label_noise == 0:
                raise ValueError(
                    f"the accuracy {accuracy:g} is reached, but later than {slowest:.3g} steps: use predict instead"
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


def _slowest_time(model: "LinearEstimator") -> float:
    """A time by which every data mode that matters has relaxed, at most 1e12 times the fastest one."""
    fastest = float(rate(model)) / (2 * model.outputs)
    edge = float(MarchenkoPastur(model.aspect_ratio).edge)
    slow = max(edge, 1e-9) * fastest * (1 - (model.outputs / cast(int, model.hidden)) ** 0.5) ** 2
    if model.weight_decay > 0:
        slow = max(slow, 1e-9 * fastest) if model.aspect_ratio < 1 else float(rate(model)) * model.weight_decay / 2
    return min(200 / slow, 1e12 / fastest)


def critical_weight_decay(model: "LinearEstimator", accuracy: float) -> float:
    """The largest weight decay at which the test accuracy is still reached; 0 if never, infinity if always."""
    threshold = float(loss_threshold(model, accuracy))

    def excess(log_decay: float) -> float:
        return np.log(_test_limit(model.replace(weight_decay=float(np.exp(log_decay))))) - np.log(threshold)

    return _largest(excess, -80.0, 40.0)


def critical_aspect_ratio(model: "LinearEstimator", accuracy: float) -> float:
    """The largest aspect ratio at which the test accuracy is still reached; 0 if never, infinity if always."""
    threshold = float(loss_threshold(model, accuracy))
    if model.weight_decay == 0 and model.hidden is None:
        # (1 - 1/lambda) (1 + alpha^2) / (2 d_out) = threshold
        null_mass = 2 * model.outputs * threshold / (1 + model.student_scale**2)
        return float(1 / (1 - null_mass)) if null_mass < 1 else float("inf")

    def excess(log_ratio: float) -> float:
        return np.log(_test_limit(model.replace(aspect_ratio=float(np.exp(log_ratio))))) - np.log(threshold)

    return _largest(excess, -40.0, 40.0)


def _test_limit(model: "LinearEstimator") -> float:
    if model.hidden is not None:
        return max(float(two_layer.limits(model)[1]), 1e-300)
    return max(float(limits(model, MarchenkoPastur(model.aspect_ratio))[1]), 1e-300)


def _largest(excess: Callable[[float], float], low: float, high: float) -> float:
    """``exp`` of the zero of a function that increases from "reached" (negative) to "not reached"."""
    from scipy.optimize import brentq

    if excess(high) <= 0:
        return float("inf")
    if excess(low) > 0:
        return 0.0
    return float(np.exp(brentq(excess, low, high, xtol=1e-13, rtol=1e-14)))
