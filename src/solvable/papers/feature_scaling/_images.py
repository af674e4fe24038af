"""What figure 6 needs: streamed images, lazy and rich convolutional networks, and what the kernel at the start says.

Time is ``t = sum of learning rates`` on half of the squared error, summed over outputs, with the rate of the mean-field
parameterisation taken out: a lazy network's modes fade as ``exp(-λ_k t)``, whatever its richness.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Float

from solvable.networks import Constant, Fresh, Training, centred, load_images, log_steps, train, trainable
from solvable.networks.convolutional.cnn import CNN
from solvable.networks.convolutional.layers import halved
from solvable.networks.data.augmentation import heavy, streamed
from solvable.networks.spectral_laws import (
    Estimate,
    Modes,
    clearance,
    estimate,
    last_decade,
    neighbours,
    trusted_modes,
)

# Images whose slopes are found at a time.
_PIECE = 512
# Variance 2 / fan_in, which keeps activations of ReLU layers as large as they are.
_HE = 2**0.5
_KEY = 6


class Task(NamedTuple):
    """Which images are streamed to which networks, and how they are trained; ``None``: all images there are."""

    images: str
    channels: tuple[int, ...]
    width: int
    batch: int
    held_out: int | None = None
    train: int | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        rows, columns, channels = stream(self).test_inputs.shape[1:]
        return rows, columns, channels

    def network(self, key: jax.Array, richness: Any = 1.0) -> CNN:
        return CNN(
            self.shape,
            10,
            key=key,
            channels=self.channels,
            width=self.width,
            parameterisation="mean-field",
            richness=richness,
            weight_scale=_HE,
        )


@functools.lru_cache(maxsize=2)
def stream(task: Task) -> Fresh:
    """Heavily augmented images, new ones at every step; the test set is of held-out images, augmented alike and fixed.

    Targets are one-hot rows less their mean, so that the constant, which is learned at once, is no part of the loss.
    """
    images = load_images(task.images, train=task.train, test=task.held_out, flatten=False, standardise=True)
    level = np.float32(1 / len(images.classes))
    images = dataclasses.replace(
        images, train_targets=images.train_targets - level, test_targets=images.test_targets - level
    )
    source = streamed(images, heavy())
    test = jax.jit(heavy())(jax.random.key(_KEY), jnp.asarray(images.test_inputs))
    return Fresh(source.sample, test, images.test_targets)


def drawn(task: Task, count: int, seed: int = 0) -> tuple[Array, Array]:
    """Images from the stream, and their targets."""
    return eqx.filter_jit(stream(task).sample)(jax.random.fold_in(jax.random.key(_KEY), seed), count)


class Linearised(eqx.Module):
    """The model tangent to a network where it starts, ``f(x) = ∂f/∂θ (θ - θ₀)``: training it is lazy training."""

    network: Any
    initial: Constant

    def __call__(self, x: Array) -> Array:
        start, rest = eqx.partition(self.initial.value, trainable(self.initial.value))
        start = jax.lax.stop_gradient(start)
        moved = jax.tree.map(jnp.subtract, eqx.filter(self.network, trainable(self.network)), start)
        return jax.jvp(lambda own: eqx.combine(own, rest)(x), (start,), (moved,))[1]

    @property
    def learning_rate_scale(self) -> Array:
        return self.network.learning_rate_scale


def linearised(network: Any) -> Linearised:
    return Linearised(network, Constant(jax.tree.map(lambda leaf: leaf, network)))


def tangent_kernel(network: Any, inputs: Any, *, outputs: int | None = None) -> Float[Array, "image image"]:
    """The tangent kernel of one output of a CNN, the mean over its first ``outputs`` (all), times its rate; in float64.

    A layer adds ``sum_c <G_c(x), G_c(x')>`` with ``G = sum over places of patch ⊗ slope``. Slopes come from one pass
    back through the network; no gradient of the dense layer's weights, which are nearly all, is ever made.
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

    convolved, dense = jax.lax.map(of_one, images, batch_size=min(_PIECE, len(images)))
    kernel = sum(rows @ rows.T for rows in convolved)
    return kernel + sum((below @ below.T) * (slopes @ slopes.T) for below, slopes in dense)


def _gradients(network: Any, image: Array, output: Array) -> tuple[list[Array], list[tuple[Array, Array]]]:
    """Of one output on one image: gradients of the convolutions, and (input, slope) of the dense layers."""
    convolutions, dense = network.convolutions, (network.hidden, network.last)

    def forward(taps: list[Array]) -> tuple[Array, list[Array]]:
        hidden, seen = image, []
        for layer, tap in zip(convolutions, taps, strict=False):
            seen.append(hidden)
            hidden = halved(network.activation(layer(hidden[None]) + tap))[0]
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


def training(
    task: Task,
    richness: Sequence[float],
    rates: Sequence[float],
    *,
    steps: int,
    seeds: int,
    lazy: bool = False,
    per_decade: int = 12,
    on_divergence: Any = "raise",
) -> Training:
    """Networks on the stream, one variant for each pair of richness and rate; ``lazy``: the models tangent to them."""

    def network(key: jax.Array, richness: Any, rate: Any) -> Any:
        del rate
        made = task.network(key, richness)
        return linearised(made) if lazy else centred(made)

    return train(
        network,
        stream(task),
        lambda richness, rate: optax.sgd(rate * richness**2 * task.width),
        steps=steps,
        batch=task.batch,
        at=log_steps(steps, per_decade),
        loss="half-mse",
        variants={"richness": list(richness), "rate": list(rates)},
        seeds=seeds,
        key=_KEY,
        matmul_precision="highest",
        at_once=1,
        on_divergence=on_divergence,
        progress=False,
    )
