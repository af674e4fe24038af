"""The tangent kernel of a CNN on images, gradient descent with it, and its capacity and source."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.networks.convolutional.layers import max_pool
from solvable.networks.spectral_laws import (
    Estimate,
    Modes,
    clearance,
    estimate,
    last_decade,
    neighbours,
    trusted_modes,
)

# Number of images whose gradients are computed together.
_BATCH_SIZE = 512


def tangent_kernel(network: Any, inputs: Any, *, outputs: int | None = None) -> Float[Array, "image image"]:
    """The tangent kernel of a CNN, averaged over its first ``outputs`` (by default all), times its learning-rate scale.

    It is computed in float64. A layer adds ``sum_c <G_c(x), G_c(x')>`` with ``G = sum over places of patch ⊗ slope``.
    Slopes come from one backward pass; gradients with respect to the weights of the dense layer, which are nearly all
    weights, are never formed.
    """
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf, network)
    images = jnp.asarray(inputs, jnp.float64)
    count = wide.last.weight.shape[0] if outputs is None else outputs
    kernel = jnp.zeros((len(images), len(images)))
    for output in range(count):
        kernel = kernel + _kernel_of_output(wide, images, jnp.asarray(output))
    return kernel * (wide.learning_rate_scale / count)


@eqx.filter_jit
def _kernel_of_output(network: Any, images: Array, output: Array) -> Array:
    def of_one(image: Array) -> tuple[list[Array], list[tuple[Array, Array]]]:
        return _gradients(network, image, output)

    convolved, dense = jax.lax.map(of_one, images, batch_size=min(_BATCH_SIZE, len(images)))
    kernel = sum(rows @ rows.T for rows in convolved)
    return kernel + sum((below @ below.T) * (slopes @ slopes.T) for below, slopes in dense)


def _gradients(network: Any, image: Array, output: Array) -> tuple[list[Array], list[tuple[Array, Array]]]:
    """Of one output on one image: gradients of the convolutions, and (input, slope) of the dense layers."""
    convolutions, dense = network.convolutions, (network.hidden, network.last)

    def forward(taps: list[Array]) -> tuple[Array, list[Array]]:
        hidden, seen = image, []
        for layer, tap in zip(convolutions, taps, strict=False):
            seen.append(hidden)
            hidden = max_pool(network.activation(layer(hidden[None]) + tap))[0]
        hidden = hidden.ravel()
        seen.append(hidden)
        hidden = network.activation(dense[0](hidden) + taps[-2])
        seen.append(hidden)
        return (dense[1](hidden) + taps[-1])[output], seen

    shapes = _shapes(network, image)
    slopes, below = jax.grad(forward, has_aux=True)([jnp.zeros(shape) for shape in shapes])
    convolved = []
    for layer, hidden, slope in zip(convolutions, below, slopes, strict=False):
        weights = jnp.einsum("rcf,rco->fo", _patches(hidden), slope) * layer.factor.held
        convolved.append(jnp.concatenate([weights.ravel(), slope.sum((0, 1))]))
    pairs = []
    for layer, hidden, slope in zip(dense, below[-2:], slopes[-2:], strict=True):
        inner = 1.0 if layer.input_factor is None else layer.input_factor.held
        outer = 1.0 if layer.output_factor is None else layer.output_factor.held
        pairs.append((jnp.append(hidden * inner, 1.0), slope * outer))
    return convolved, pairs


def _shapes(network: Any, image: Array) -> list[tuple[int, ...]]:
    rows, columns, _ = image.shape
    found: list[tuple[int, ...]] = []
    for layer in network.convolutions:
        found.append((rows, columns, layer.weight.shape[-1]))
        rows, columns = rows // 2, columns // 2
    return [*found, (network.hidden.weight.shape[0],), (network.last.weight.shape[0],)]


def _patches(image: Array) -> Array:
    """What each place of a 3x3 convolution sees, (row, column, 9 channels)."""
    rows, columns, _ = image.shape
    wide = jnp.pad(image, ((1, 1), (1, 1), (0, 0)))
    return jnp.concatenate([wide[i : i + rows, j : j + columns] for i in range(3) for j in range(3)], axis=-1)


class Descent(NamedTuple):
    """Losses of gradient descent with a fixed kernel, on the points it learns from and on others."""

    train: np.ndarray
    test: np.ndarray


def kernel_descent(kernel: Any, targets: Any, points: int, rate: float, measure_at: Any) -> Descent:
    """Half the squared error of gradient descent on the first ``points`` of a kernel, on those and on the rest.

    The residuals evolve as ``r <- r - rate K_*n r_n / n``. The loss on points that are learned from is too small, and
    on others too large: a network that sees new points all the time lies between the two, and where they are close to
    each other there are enough points. One product per step costs much less than the modes of the kernel.

    Parameters
    ----------
    kernel
        The kernel between all points.
    targets
        The targets of all points, (point, output).
    points
        The number of points that are learned from.
    rate
        The learning rate.
    measure_at
        Increasing steps at which losses are measured.
    """
    kernel, targets = jnp.asarray(kernel), jnp.asarray(targets, jnp.float64)
    descend = _descend(points)
    residuals, done, losses = targets, 0, []
    for step in np.asarray(measure_at, int):
        residuals = descend(kernel, residuals, rate / points, int(step) - done)
        done = int(step)
        losses.append([float(jnp.sum(part**2) / (2 * len(part))) for part in (residuals[:points], residuals[points:])])
    return Descent(*np.transpose(losses))


@functools.cache
def _descend(points: int) -> Any:
    @jax.jit
    def descend(kernel: Array, residuals: Array, rate: Array, steps: Array) -> Array:
        across = kernel[:, :points]
        return jax.lax.fori_loop(0, steps, lambda _, left: left - rate * (across @ left[:points]), residuals)

    return descend


class Source(NamedTuple):
    """Capacity and source of a kernel on images, and how much they change with the window and the images."""

    capacity: float
    source: float
    capacity_error: float
    source_error: float
    eigenvalues: np.ndarray
    power: np.ndarray


def modes_of(kernel: Any, targets: Any) -> Modes:
    """Eigenvalues over the images, in decreasing order, and the fraction of the targets' power in each mode."""
    size = len(targets)
    values, vectors = jnp.linalg.eigh(jnp.asarray(kernel) / size)
    power = jnp.sum((vectors.T @ jnp.asarray(targets, jnp.float64)) ** 2, axis=1)
    kept = np.asarray(values)[::-1] > 1e-12 * float(values[-1])
    return Modes(np.asarray(values)[::-1][kept], np.asarray(power / jnp.sum(power))[::-1][kept])


def source_of(kernel: Any, targets: Any) -> Source:
    """Capacity and source as :func:`solvable.networks.forecast.forecast` fits them, for a given kernel."""
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
