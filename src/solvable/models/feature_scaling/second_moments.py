"""Lazy networks of infinitely many features on new samples: mean and covariance of every mode, step by step.

Each mode's weight and velocity ``(w_k, u_k)`` move linearly, pulled by ``lambda_k (w*_k - w_k)`` and by the noise of
the batch, whose variance is ``lambda_k (L_t + sigma^2) / B_t``. So their mean and their covariance close on
themselves, and a step costs a few operations per mode, where the two-time equations (:mod:`two_time`, which have the
same loss) need all earlier steps. With neither momentum nor weight decay it is the recursion of :mod:`best_schedule`.

>>> from solvable.models.feature_scaling.mode_quadrature import power_law_modes
>>> from solvable.models.feature_scaling.second_moments import NoisySteps, follow
>>> modes = power_law_modes(capacity=1.5, source=0.5, modes=100, scale=100.0)
>>> follow(modes, NoisySteps(0.1, batch=4.0, momentum=0.5), steps=20).shape == (20, modes.ranks.size)
True
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from solvable.models.feature_scaling.mode_quadrature import Modes
from solvable.models.feature_scaling.optimiser import rates_of


class NoisySteps(NamedTuple):
    """Steps on batches of new samples; learning rate, batch and momentum are one number, or one number per step."""

    learning_rate: Any
    batch: Any
    momentum: Any = 0.0
    nesterov: bool = False
    weight_decay: Any = 0.0
    decoupled: bool = False
    # Variance of the noise on labels.
    label_noise: Any = 0.0


class Moments(NamedTuple):
    """Means of weight and velocity in units of the target, and their covariance, of every mode."""

    weight: Array
    velocity: Array
    weight_variance: Array
    covariance: Array
    velocity_variance: Array


def follow(modes: Modes, plan: NoisySteps, steps: int) -> Float[Array, "time node"]:
    """What each node adds to the loss before each of the steps ``0 ... steps - 1``."""
    each = (rates_of(value, steps) for value in (plan.learning_rate, plan.batch, plan.momentum))
    nodes = tuple(jnp.asarray(value, float) for value in modes[1:])
    numbers = (jnp.asarray(value, float) for value in (plan.weight_decay, plan.label_noise))
    return _follow(nodes, jnp.stack(list(each), 1), *numbers, plan.nesterov, plan.decoupled)


@partial(jax.jit, static_argnames=("nesterov", "decoupled"))
def _follow(
    nodes: tuple[Array, ...], plan: Array, decay: Array, label_noise: Array, nesterov: bool, decoupled: bool
) -> Array:
    eigenvalues, counts, targets = nodes

    def step(state: Moments, now: Array) -> tuple[Moments, Array]:
        rate, batch, momentum = now
        node = eigenvalues * (targets * (1 - state.weight) ** 2 + counts * state.weight_variance)
        noise = eigenvalues * (node.sum() + label_noise) / batch
        # The new velocity is pulled * weight + momentum * velocity + pull; the weight moves along it, or ahead of it.
        pulled = -eigenvalues - (0.0 if decoupled else decay)
        ahead = 1 + momentum if nesterov else 1.0
        of_weight = 1 + rate * (ahead * pulled - (decay if decoupled else 0.0))
        of_velocity = rate * (momentum**2 if nesterov else momentum)
        moved = rate * ahead
        return _moved(state, (of_weight, of_velocity, moved), (pulled, momentum), eigenvalues, noise), node

    nothing = jnp.zeros_like(eigenvalues)
    return jax.lax.scan(step, Moments(*[nothing] * 5), plan)[1]


def _moved(
    state: Moments, weight: tuple[Array, Array, Array], velocity: tuple[Array, Array], pull: Array, noise: Array
) -> Moments:
    """Moments after a step of a linear map: what weight, velocity and pull add to the next weight and velocity."""
    (ww, wu, wp), (uw, uu) = weight, velocity
    variance, covariance, other = state.weight_variance, state.covariance, state.velocity_variance
    return Moments(
        ww * state.weight + wu * state.velocity + wp * pull,
        uw * state.weight + uu * state.velocity + pull,
        ww**2 * variance + 2 * ww * wu * covariance + wu**2 * other + wp**2 * noise,
        ww * uw * variance + (ww * uu + wu * uw) * covariance + wu * uu * other + wp * noise,
        uw**2 * variance + 2 * uw * uu * covariance + uu**2 * other + noise,
    )
