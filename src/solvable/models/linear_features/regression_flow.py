"""Gradient flow of linear regression on finitely many Gaussian samples, in expectation, for any spectrum.

With features of covariance ``diag(rho)`` and ``n`` samples, the resolvent of the sample covariance at ``-z`` is
equivalent, as n grows, to that of the population with ``kappa(z)`` in place of z, where

    n = sum_k rho_k / (rho_k + kappa) + n z / kappa        (eq. 1.35 of the layerwise thesis at z = 0)

and a product of two resolvents around ``diag(rho)`` to the product of the equivalents over ``1 - gamma``,

    gamma(z, z') = 1/n sum_k rho_k^2 / ((rho_k + kappa)(rho_k + kappa')).

Everything about the flow from zero is an inverse Laplace transform of these
(:mod:`solvable.models.linear_features.laplace`):

    share of mode k still to be learned      L^-1[kappa / (z (rho_k + kappa))](t)
    share of training noise not yet fitted   L^-1[1 / kappa](t)
    training loss                            1/2 L^-1[sum_k w_k^2 / (rho_k + kappa) + sigma^2 / kappa](2 t)
    test loss by the signal                  1/2 L^-1 L^-1[sum_k w_k^2 kappa kappa' /
                                                 ((rho_k + kappa)(rho_k + kappa') z z' (1 - gamma))](t, t)
    test loss by the noise                   sigma^2/2 (2 h(t) - h(2 t) - 1),  h = L^-1[(kappa - kappa(0)) / z^2]

``w_k`` is the target's coefficient, ``sigma`` the standard deviation of label noise, and losses are halved squares.
The equivalents are exact as n and the number of modes grow together; at finite n they are off by O(1/n).

>>> import jax.numpy as jnp
>>> from solvable.models.linear_features.regression_flow import kappa_or_zero
>>> spectrum = 1 / jnp.arange(1.0, 9.0) ** 2
>>> ridge = kappa_or_zero(spectrum, jnp.array(4.0))
>>> round(float((spectrum / (spectrum + ridge)).sum()), 8), float(kappa_or_zero(spectrum, jnp.array(9.0)))
(4.0, 0.0)
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from solvable.models.linear_features.laplace import (
    MORE_NODES,
    Contour,
    Numbers,
    hyperbola,
    invert,
    invert_twice,
)
from solvable.numerics.arrays import array_module, stop_gradient
from solvable.numerics.kappa import shares, solve

_NEWTON_STEPS = 40


class FlowState(NamedTuple):
    """What is expected of the flow at each time."""

    missing: Float[Numbers, "*time mode"]
    noise_left: Float[Numbers, "*time"]
    train_loss: Float[Numbers, "*time"]
    signal_loss: Float[Numbers, "*time"]
    noise_loss: Float[Numbers, "*time"]


def flow_state(intensities: Any, target: Any, samples: Any, noise: Any, time: Any, nodes: Any) -> FlowState:
    """The expected state of the flow at a positive time, or at many, by a quadrature of at most ``MORE_NODES`` nodes.

    ``intensities`` and ``target`` have one entry per mode.
    """
    xp = array_module(intensities, target, samples, noise, time, nodes)
    # Only products of intensity and time matter: in units of the strongest mode nothing overflows.
    unit = stop_gradient(xp, xp.max(intensities))
    intensities, time = intensities / unit, time * unit
    power = target**2
    final = kappa_or_zero(intensities, samples)
    # Compiled code has one size for all numbers of nodes.
    capacity = None if xp is np else MORE_NODES
    once, twice = hyperbola(time, nodes, capacity), hyperbola(2 * time, nodes, capacity)
    inner, outer = (kappa_along(intensities, samples, contour) for contour in (once, twice))
    missing = inner[..., None] / (once.points[..., None] * (intensities + inner[..., None]))
    unfitted = xp.sum(power / (intensities + outer[..., None]), axis=-1) + noise**2 / outer
    growth, growth_twice = (
        invert(contour, _rise(xp, intensities, samples, values, final) / contour.points)
        for contour, values in ((once, inner), (twice, outer))
    )
    return FlowState(
        missing=invert(once, missing),
        noise_left=invert(once, 1 / inner),
        train_loss=invert(twice, unfitted) / 2,
        signal_loss=_signal_loss(intensities, power, samples, once, inner),
        noise_loss=noise**2 / 2 * (2 * growth - growth_twice - 1),
    )


def kappa_or_zero(intensities: Any, samples: Any) -> Any:
    """``kappa(0)``, which is zero where there are at least as many samples as modes."""
    return solve(intensities, np.ones(np.shape(intensities)), samples, 0.0)


def _signal_loss(intensities: Any, power: Any, samples: Any, contour: Contour, kappas: Any) -> Any:
    learned = intensities / (intensities + kappas[..., None])
    missing = kappas[..., None] / (contour.points[..., None] * (intensities + kappas[..., None]))

    def pairs(other_learned: Any, other_missing: Any) -> Any:
        overlap = learned @ other_learned.swapaxes(-1, -2) / samples
        return (missing * power) @ other_missing.swapaxes(-1, -2) / (1 - overlap)

    return invert_twice(contour, pairs(learned, missing), pairs(learned.conj(), missing.conj())) / 2


def _rise(xp: Any, intensities: Any, samples: Any, kappas: Any, final: Any) -> Any:
    """``(kappa(z) - kappa(0)) / z``, from the difference of the two equations rather than of the two values."""
    column = kappas[..., None]
    positive = intensities > 0
    beyond = intensities + final
    safe = xp.where(beyond == 0, 1.0, beyond)
    with_fewer = samples / kappas / xp.sum(intensities / ((intensities + column) * safe), -1)
    spare = samples - xp.sum(positive) + _sum_beyond_absent(xp, positive, column / (intensities + column))
    return xp.where(final > 0, with_fewer, samples / spare)


def kappa_along(intensities: Any, samples: Any, contour: Contour) -> Any:
    """``kappa(z)`` at the points of a contour, followed from its crossing of the real axis by Newton's method."""
    xp = array_module(intensities, samples, contour)
    values = _followed(xp, *stop_gradient(xp, (intensities, samples, contour)))
    # One step from the converged values changes nothing but carries their derivatives.
    return values + _step(xp, intensities, samples, contour.points, values)


def _followed(xp: Any, intensities: Any, samples: Any, contour: Contour) -> Any:
    first = solve(intensities, np.ones(np.shape(intensities)), samples, samples * contour.crossing).astype(complex)

    def advance(previous: tuple[Any, Any, Any], point: Any) -> tuple[tuple[Any, Any, Any], Any]:
        last_point, last_value, last_slope = previous
        guess = last_value * (point / last_point) ** (last_point * last_slope / last_value)
        value = _newton(xp, intensities, samples, point, guess)
        return (point, value, _slope(xp, intensities, samples, value)), value

    state = (contour.crossing.astype(complex), first, _slope(xp, intensities, samples, first))
    if xp is jnp:
        return jax.lax.scan(advance, state, contour.points)[1]
    values = []
    for point in np.moveaxis(contour.points, -1, 0):
        state, value = advance(state, point)
        values.append(value)
    return np.stack(values, -1)


def _newton(xp: Any, intensities: Any, samples: Any, point: Any, guess: Any) -> Any:
    def unfinished(state: tuple[Any, Any, Any]) -> Any:
        value, step, count = state
        return (count < _NEWTON_STEPS) & (xp.abs(step) > 1e-15 * xp.abs(value))

    def refine(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        value, _, count = state
        step = _step(xp, intensities, samples, point, value)
        # Never by more than half: the solution keeps its quadrant and zero is not crossed.
        step = step * xp.minimum(1.0, 0.5 * xp.abs(value) / xp.maximum(xp.abs(step), 1e-300))
        return value + step, step, count + 1

    state = (guess, xp.full_like(guess, xp.inf), xp.zeros((), int))
    if xp is jnp:
        return jax.lax.while_loop(unfinished, refine, state)[0]
    while unfinished(state).any():
        state = refine(state)
    return state[0]


def _step(xp: Any, intensities: Any, samples: Any, point: Any, value: Any) -> Any:
    learned, left = shares(intensities, value[..., None])
    positive = intensities > 0
    # Of the two ways to write 1 - sum(learned) / n, the one that keeps its digits where kappa goes to zero.
    many = (samples - xp.sum(positive) + _sum_beyond_absent(xp, positive, left)) / samples
    few = 1 - xp.sum(learned, -1) / samples
    spare = xp.where(samples >= xp.sum(positive), many, few)
    return (point - value * spare) * _slope(xp, intensities, samples, value)


def _slope(xp: Any, intensities: Any, samples: Any, value: Any) -> Any:
    """``d kappa / d z = 1 / (1 - gamma(z, z))``."""
    learned, left = shares(intensities, value[..., None])
    positive = intensities > 0
    # 1 - gamma with samples at least modes: what is spare, and sum (1 - learned^2).
    many = (samples - xp.sum(positive) + _sum_beyond_absent(xp, positive, left * (1 + learned))) / samples
    few = 1 - xp.sum(learned**2, -1) / samples
    return 1 / xp.where(samples >= xp.sum(positive), many, few)


def _sum_beyond_absent(xp: Any, positive: Any, left: Any) -> Any:
    """The sum over modes of positive intensity. Absent modes add nothing, yet a first bit of intensity would take it
    away: they count in the derivative."""
    return xp.sum(xp.where(positive, left, left - stop_gradient(xp, left)), axis=-1)
