"""Training sets drawn and trained on: gradient flow and minimum-norm regression, both in closed form."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class Run(NamedTuple):
    """What one drawn training set gives."""

    coefficient: Array
    test_loss: Array
    train_loss: Array
    noise_loss: Array
    noise_fit: Array
    learnability: Array
    limit_coefficient: Array
    limit_test_loss: Array
    limit_train_loss: Array
    limit_noise_loss: Array
    inputs: Array
    labels: Array


def train_once(
    intensities: Array,
    target: Array,
    noise: Array,
    times: Array,
    count: int,
    features: str,
    listed: int,
    key: Array,
) -> Run:
    """Gradient flow on one training set: ``theta(t) = V (1 - exp(-s^2 t / n)) / s U^T y``."""
    total = intensities.shape[0]
    input_key, noise_key = jax.random.split(key)
    inputs = jax.random.uniform(input_key, (count,))
    if features == "sine":
        basis = np.sqrt(2) * jnp.sin(2 * np.pi * jnp.arange(1, total + 1) * inputs[:, None])
    else:
        basis = jax.random.normal(input_key, (count, total))
    label_noise = noise * jax.random.normal(noise_key, (count,))
    labels = basis @ target + label_noise
    left, values, right = jnp.linalg.svd(basis * jnp.sqrt(intensities), full_matrices=False)
    present = values > jnp.finfo(float).eps * max(count, total) * values[0]
    inverse = jnp.where(present, 1 / jnp.where(present, values, 1.0), 0.0)
    rates = jnp.where(present, values**2 / count, 0.0)
    fitted = -jnp.expm1(-times[:, None] * rates)
    along, noise_along = left.T @ labels, left.T @ label_noise
    outside = jnp.sum((labels - left @ (left.T @ labels)) ** 2) if count > total else 0.0

    def function(components: Array) -> Array:
        return (components * inverse) @ right * jnp.sqrt(intensities)

    coefficient, limit = function(fitted * along), function(present * along)
    return Run(
        coefficient=coefficient[:, :listed],
        test_loss=jnp.sum((coefficient - target) ** 2, axis=1) / 2,
        train_loss=(jnp.sum(((1 - fitted) * along) ** 2, axis=1) + outside) / (2 * count),
        noise_loss=jnp.sum(function(fitted * noise_along) ** 2, axis=1) / 2,
        noise_fit=jnp.sum(fitted, axis=1) / count,
        learnability=(present @ right**2)[:listed],
        limit_coefficient=limit[:listed],
        limit_test_loss=jnp.sum((limit - target) ** 2) / 2,
        limit_train_loss=(jnp.sum(jnp.where(present, 0.0, along) ** 2) + outside) / (2 * count),
        limit_noise_loss=jnp.sum(function(present * noise_along) ** 2) / 2,
        inputs=inputs,
        labels=labels,
    )
