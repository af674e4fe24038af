"""Losses of gradient descent with momentum or a learning-rate schedule, on full batches or mini-batches.

What is left of the start of a mode obeys a linear recursion of position x and velocity y, ``x = 1, y = 0`` at first.
With ``c = (2 / d_out) (nu + g)`` the curvature of the mode (symbols as in ``theory``),

    heavy ball   y <- mu y + c x,   x <- x - eta_t y
    Nesterov     y <- mu y + c x,   x <- x - eta_t (c x + mu y)

and ``e(nu)`` of ``theory`` is x. Mini-batches add the variance ``q = (2 / d_out)^2 (d_in / batch_size) nu L_tr`` to the
gradient at every step. Its effect on (x, y) is carried as a 2 x 2 covariance per mode, ``S <- M S M^T + q u u^T``, with
M the matrix of the recursion and u how the gradient enters it.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from solvable.models.linear_estimator.spectra import MarchenkoPastur
from solvable.models.linear_estimator.theory import AnyTraining, Decay, Losses, losses_of, with_excess

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator


class _Modes(NamedTuple):
    """Position and velocity of each mode, the null modes last, in units of ``exp(log_scale)``; covariance of noise."""

    position: Array
    velocity: Array
    log_scale: Array
    covariance: tuple[Array, Array, Array]


def stepped_losses(
    model: "LinearEstimator",
    training: AnyTraining,
    spectrum: MarchenkoPastur,
    rates: Float[Array, "step"],
    times: Float[Array, "time"],
    batch_ratio: Array | float | None,
) -> Losses:
    """The losses after each number of steps, with the learning rate of each step; ``batch_ratio`` as in ``theory``."""
    shift = training.weight_decay / 2
    momentum: Any = training.momentum  # type: ignore[union-attr]
    nesterov = training.nesterov  # type: ignore[union-attr]
    values = jnp.append(spectrum.nodes, 0.0)
    curvature = 2 / model.outputs * (values + shift)

    def full_batch(modes: _Modes) -> Losses:
        sizes = jnp.log(jnp.maximum(jnp.abs(modes.position), 1e-300)) + modes.log_scale
        reference = jax.lax.stop_gradient(jnp.max(sizes[:-1]))
        signs = jnp.where(modes.position < 0, -1.0, 1.0)
        decay = Decay(reference, sizes[:-1] - reference, signs[:-1], signs[-1] * jnp.exp(sizes[-1]))
        return losses_of(model, shift, spectrum, decay)

    def losses(modes: _Modes) -> Losses:
        full = full_batch(modes)
        return full if batch_ratio is None else with_excess(full, spectrum, modes.covariance[0][:-1])

    def step(count: Array, modes: _Modes) -> _Modes:
        rate = rates[count]
        # The gradient enters the velocity once, and the position by this much.
        entered = rate * (1 + momentum) if nesterov else rate
        kept = rate * momentum**2 if nesterov else rate * momentum

        def move(x: Array, y: Array) -> tuple[Array, Array]:
            return x - entered * curvature * x - kept * y, momentum * y + curvature * x

        position, velocity = move(modes.position, modes.velocity)
        size = jnp.maximum(jnp.maximum(jnp.abs(position), jnp.abs(velocity)), 1e-300)
        covariance = modes.covariance
        if batch_ratio is not None:
            train = jnp.exp(losses(modes).log_train)
            noise = (2 / model.outputs) ** 2 * batch_ratio * values * train
            xx, xy, yy = covariance
            first, second = move(xx, xy), move(xy, yy)
            (new_xx, new_xy), (_, new_yy) = move(first[0], second[0]), move(first[1], second[1])
            covariance = (new_xx + entered**2 * noise, new_xy - entered * noise, new_yy + noise)
        return _Modes(position / size, velocity / size, modes.log_scale + jnp.log(size), covariance)

    def until(carry: tuple[Array, _Modes], end: Array) -> tuple[tuple[Array, _Modes], Losses]:
        modes = jax.lax.fori_loop(carry[0], end, step, carry[1])
        return (end, modes), losses(modes)

    zeros = jnp.zeros_like(values)
    start = _Modes(jnp.ones_like(values), zeros, zeros, (zeros, zeros, zeros))
    ends = times.astype(int)
    return jax.lax.scan(until, (jnp.zeros((), ends.dtype), start), ends)[1]
