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

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from solvable.models.linear_features.laplace import MORE_NODES, Contour, hyperbola, invert, invert_twice
from solvable.numerics.kappa import kappa, shares

_NEWTON_STEPS = 40


class FlowState(NamedTuple):
    """What is expected of the flow at one time."""

    missing: Float[Array, "mode"]
    noise_left: Float[Array, ""]
    train_loss: Float[Array, ""]
    signal_loss: Float[Array, ""]
    noise_loss: Float[Array, ""]


def flow_state(
    intensities: Float[Array, "mode"],
    target: Float[Array, "mode"],
    samples: Float[Array, ""],
    noise: Float[Array, ""],
    time: Float[Array, ""],
    nodes: Array | int,
) -> FlowState:
    """The expected state of the flow at one positive time, by a quadrature of at most ``MORE_NODES`` nodes."""
    # Only products of intensity and time matter: in units of the strongest mode nothing overflows.
    unit = jax.lax.stop_gradient(jnp.max(intensities))
    intensities, time = intensities / unit, time * unit
    power = target**2
    final = kappa_or_zero(intensities, samples)
    once = hyperbola(time, nodes, MORE_NODES)
    twice = hyperbola(2 * time, nodes, MORE_NODES)
    inner, outer = (kappa_along(intensities, samples, contour) for contour in (once, twice))
    missing = inner[:, None] / (once.points[:, None] * (intensities + inner[:, None]))
    unfitted = jnp.sum(power / (intensities + outer[:, None]), axis=1) + noise**2 / outer
    growth, growth_twice = (
        invert(contour, _rise(intensities, samples, values, final) / contour.points)
        for contour, values in ((once, inner), (twice, outer))
    )
    return FlowState(
        missing=invert(once, missing),
        noise_left=invert(once, 1 / inner),
        train_loss=invert(twice, unfitted) / 2,
        signal_loss=_signal_loss(intensities, power, samples, once, inner),
        noise_loss=noise**2 / 2 * (2 * growth - growth_twice - 1),
    )


def kappa_or_zero(intensities: Float[Array, "mode"], samples: Float[Array, ""]) -> Float[Array, ""]:
    """``kappa(0)``, which is zero where there are at least as many samples as modes."""
    return jax.jit(kappa)(intensities, samples)


def _signal_loss(
    intensities: Float[Array, "mode"],
    power: Float[Array, "mode"],
    samples: Float[Array, ""],
    contour: Contour,
    kappas: Complex[Array, "node"],
) -> Float[Array, ""]:
    learned = intensities / (intensities + kappas[:, None])
    missing = kappas[:, None] / (contour.points[:, None] * (intensities + kappas[:, None]))

    def pairs(other_learned: Array, other_missing: Array) -> Array:
        overlap = learned @ other_learned.T / samples
        return (missing * power) @ other_missing.T / (1 - overlap)

    return invert_twice(contour, pairs(learned, missing), pairs(learned.conj(), missing.conj())) / 2


def _rise(
    intensities: Float[Array, "mode"],
    samples: Float[Array, ""],
    kappas: Complex[Array, "node"],
    final: Float[Array, ""],
) -> Complex[Array, "node"]:
    """``(kappa(z) - kappa(0)) / z``, from the difference of the two equations rather than of the two values."""
    column = kappas[:, None]
    positive = intensities > 0
    with_fewer = samples / kappas / jnp.sum(intensities / ((intensities + column) * _not_zero(intensities + final)), 1)
    spare = samples - jnp.sum(positive) + _sum_beyond_absent(positive, column / (intensities + column))
    return jnp.where(final > 0, with_fewer, samples / spare)


def kappa_along(
    intensities: Float[Array, "mode"], samples: Float[Array, ""], contour: Contour
) -> Complex[Array, "node"]:
    """``kappa(z)`` at the points of a contour, followed from its crossing of the real axis by Newton's method."""
    values = _followed(*jax.lax.stop_gradient((intensities, samples, contour)))
    # One step from the converged values changes nothing but carries their derivatives.
    steps = jax.vmap(lambda point, value: _step(intensities, samples, point, value))(contour.points, values)
    return values + steps


def _followed(intensities: Array, samples: Array, contour: Contour) -> Array:
    start = kappa(intensities, samples, ridge=samples * contour.crossing)

    def advance(previous: tuple[Array, Array, Array], point: Array) -> tuple[tuple[Array, Array, Array], Array]:
        last_point, last_value, last_slope = previous
        guess = last_value * (point / last_point) ** (last_point * last_slope / last_value)
        value = _newton(intensities, samples, point, guess)
        return (point, value, _slope(intensities, samples, value)), value

    first, crossing = start.astype(complex), contour.crossing.astype(complex)
    state = (crossing, first, _slope(intensities, samples, first))
    return jax.lax.scan(advance, state, contour.points)[1]


def _newton(intensities: Array, samples: Array, point: Array, guess: Array) -> Array:
    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        value, step, count = state
        return (count < _NEWTON_STEPS) & (jnp.abs(step) > 1e-15 * jnp.abs(value))

    def refine(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        value, _, count = state
        step = _step(intensities, samples, point, value)
        # Never by more than half: the solution keeps its quadrant and zero is not crossed.
        step = step * jnp.minimum(1.0, 0.5 * jnp.abs(value) / jnp.maximum(jnp.abs(step), 1e-300))
        return value + step, step, count + 1

    return jax.lax.while_loop(unfinished, refine, (guess, jnp.full_like(guess, jnp.inf), jnp.zeros((), int)))[0]


def _step(intensities: Array, samples: Array, point: Array, value: Array) -> Array:
    learned, left = shares(intensities, value)
    positive = intensities > 0
    # Of the two ways to write 1 - sum(learned) / n, the one that keeps its digits where kappa goes to zero.
    many = (samples - jnp.sum(positive) + _sum_beyond_absent(positive, left)) / samples
    few = 1 - jnp.sum(learned) / samples
    spare = jnp.where(samples >= jnp.sum(positive), many, few)
    return (point - value * spare) * _slope(intensities, samples, value)


def _slope(intensities: Array, samples: Array, value: Array) -> Array:
    """``d kappa / d z = 1 / (1 - gamma(z, z))``."""
    learned, left = shares(intensities, value)
    positive = intensities > 0
    # 1 - gamma with samples at least modes: what is spare, and sum (1 - learned^2).
    many = (samples - jnp.sum(positive) + _sum_beyond_absent(positive, left * (1 + learned))) / samples
    few = 1 - jnp.sum(learned**2) / samples
    return 1 / jnp.where(samples >= jnp.sum(positive), many, few)


def _sum_beyond_absent(positive: Array, left: Array) -> Array:
    """The sum over modes of positive intensity. Absent modes add nothing, yet a first bit of intensity would take it
    away: they count in the derivative."""
    return jnp.sum(jnp.where(positive, left, left - jax.lax.stop_gradient(left)), axis=-1)


def _not_zero(values: Array) -> Array:
    return jnp.where(values == 0, 1.0, values)
