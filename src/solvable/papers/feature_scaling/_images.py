"""What figure 6 needs: streamed images, lazy and rich convolutional networks, and what the kernel at the start says.

Time is ``t = sum of learning rates`` on half of the squared error, summed over outputs, with the rate of the mean-field
parameterisation taken out: a lazy network's modes fade as ``exp(-λ_k t)``, whatever its richness.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.networks import Constant, Fresh, trainable
from solvable.networks.spectral_laws import (
    Estimate,
    Modes,
    Window,
    clearance,
    estimate,
    last_decade,
    neighbours,
    trusted_modes,
)

_PIECE = 512


class Linearised(eqx.Module):
    """The model tangent to a network where it starts, ``f(x) = ∂f/∂θ (θ - θ₀)``: training it is lazy training."""

    network: Any
    initial: Constant

    def __call__(self, x: Array) -> Array:
        start, rest = eqx.partition(self.initial.held, trainable(self.initial.value))
        moved = jax.tree.map(jnp.subtract, eqx.filter(self.network, trainable(self.network)), start)
        return jax.jvp(lambda own: eqx.combine(own, rest)(x), (start,), (moved,))[1]

    @property
    def learning_rate_scale(self) -> Array:
        return self.network.learning_rate_scale


def linearised(network: Any) -> Linearised:
    return Linearised(network, Constant(jax.tree.map(lambda leaf: leaf, network)))


class Flow(NamedTuple):
    """Losses of kernel gradient flow at given times, on the points it learns from and on others."""

    train: np.ndarray
    test: np.ndarray


def kernel_flow(kernel: Any, targets: Any, points: int, times: Any) -> Flow:
    """Half the squared error of flow on the first ``points`` of a kernel, on those and on the rest.

    ``f(t) = K_*n V (1 - e^(-λ t)) / (n λ) V^T y`` from the eigenvalues λ of ``K_nn / n``. Points that are learned from
    come out too well and others too badly: a network that sees new points all the time lies between the two, and
    where they are close to each other there are points enough.
    """
    kernel, targets = jnp.asarray(kernel), jnp.asarray(targets, jnp.float64)
    values, vectors = jnp.linalg.eigh(kernel[:points, :points] / points)
    values = jnp.maximum(values, 0.0)
    known = vectors.T @ targets[:points]
    across = kernel[points:, :points] @ vectors / points

    def losses(time: Array) -> tuple[Array, Array]:
        faded = jnp.exp(-values * time)[:, None] * known
        # (1 - e^(-λt)) / λ is t where the eigenvalue is rounding.
        grown = time * jnp.where(values * time > 1e-12, -jnp.expm1(-values * time) / (values * time), 1.0)
        missing = targets[points:] - across @ (grown[:, None] * known)
        return jnp.sum(faded**2) / (2 * points), jnp.sum(missing**2) / (2 * (len(targets) - points))

    times = jnp.maximum(jnp.asarray(times, jnp.float64), 1e-30)
    return Flow(*(np.asarray(part) for part in jax.lax.map(jax.jit(losses), times)))


class Source(NamedTuple):
    """Capacity and source exponents of a kernel on images, and how far they move with the window and the images."""

    capacity: float
    source: float
    capacity_error: float
    source_error: float
    eigenvalues: np.ndarray
    power: np.ndarray


def modes_of(kernel: Any, targets: Any) -> Modes:
    """Eigenvalues over the images, in falling order, and the share of the targets in each mode."""
    size = len(targets)
    values, vectors = jnp.linalg.eigh(jnp.asarray(kernel) / size)
    power = jnp.sum((vectors.T @ jnp.asarray(targets, jnp.float64)) ** 2, axis=1)
    kept = np.asarray(values)[::-1] > 1e-12 * float(values[-1])
    return Modes(np.asarray(values)[::-1][kept], np.asarray(power / jnp.sum(power))[::-1][kept])


def source_of(kernel: Any, targets: Any) -> Source:
    """As :func:`solvable.networks.forecast.forecast` fits them, of a kernel that is already there."""
    kernel, targets = np.asarray(kernel), np.asarray(targets)
    modes = modes_of(kernel, targets)

    def fit(modes: Modes, size: int) -> tuple[Estimate, list[Estimate]]:
        clear, trusted = clearance(modes, size), trusted_modes(modes.power.size, size)
        window, powers = last_decade(trusted), last_decade(min(trusted, clear.last))
        others = neighbours(window, powers, 2 * trusted)
        return estimate(modes, window, powers, clear.floor), [estimate(modes, *one, clear.floor) for one in others]

    central, others = fit(modes, len(targets))
    half = len(targets) // 2
    parts = [fit(modes_of(kernel[one, one], targets[one]), half)[0] for one in (slice(half), slice(half, None))]

    def error(name: str) -> float:
        value = getattr(central, name)
        away = [np.array([getattr(one, name) for one in group]) - value for group in (others, parts)]
        own = getattr(central, name + "_error")
        return float(np.sqrt(own**2 + sum(np.nanmean(one**2) for one in away)))

    return Source(central.capacity, central.source, error("capacity"), error("source"), *modes)
