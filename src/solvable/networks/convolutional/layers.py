"""Layers of image networks: convolution, batch normalisation, pooling, and the base class of these networks.

They take batches (image, row, column, channel) and compute in the type of their input; sums over a batch are float32,
or wider where the input is.
"""

import abc
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.checks import check_count
from solvable.networks.mlp import Dense, check_positive
from solvable.networks.parts import Constant, Running

Shape = tuple[int, int, int]

_EPSILON = 1e-5
# Decay of running values per batch; PyTorch calls one minus this the momentum.
_DECAY = 0.9
_DIMENSIONS = ("NHWC", "HWIO", "NHWC")
_WITHIN_CHANNELS = (0, 1, 2)


class Convolution(eqx.Module):
    """A convolution with zero padding, so that only the stride shrinks the image; ``factor`` is as in Dense."""

    weight: Array  # row, column, channel below, channel
    bias: Array | None
    factor: Constant | None
    stride: int = eqx.field(static=True)

    def __init__(self, weight: Array, bias: Array | None = None, factor: Any = None, stride: int = 1) -> None:
        self.weight, self.bias, self.stride = weight, bias, stride
        self.factor = None if factor is None else Constant(factor)

    def without_bias(self, images: Array) -> Array:
        weight = self.weight.astype(images.dtype)
        if self.factor is not None:
            weight = weight * jnp.asarray(self.factor.held, images.dtype)
        around = [(size // 2, size // 2) for size in weight.shape[:2]]
        strides = (self.stride, self.stride)
        return jax.lax.conv_general_dilated(images, weight, strides, around, dimension_numbers=_DIMENSIONS)

    def __call__(self, images: Array) -> Array:
        summed = self.without_bias(images)
        return summed if self.bias is None else summed + self.bias.astype(summed.dtype)


class BatchNorm(eqx.Module):
    """Batch normalisation: each channel gets the mean ``shift`` and the standard deviation ``scale``.

    In training, the statistics are those of the batch; otherwise the running ones, which keep 0.9 of their value at
    each batch (``momentum=0.1`` in PyTorch). The running variance is the unbiased one.
    """

    scale: Array
    shift: Array
    mean: Running
    variance: Running

    def __init__(self, channels: int, dtype: Any = jnp.float32) -> None:
        self.scale, self.shift = jnp.ones(channels, dtype), jnp.zeros(channels, dtype)
        self.mean, self.variance = Running(jnp.zeros(channels, dtype)), Running(jnp.ones(channels, dtype))

    def __call__(self, images: Array) -> Array:
        """Normalise with the running mean and variance: one product and one sum."""
        wide = _sums(images.dtype)
        factor = self.scale.astype(wide) * jax.lax.rsqrt(self.variance.held.astype(wide) + _EPSILON)
        offset = self.shift.astype(wide) - self.mean.held.astype(wide) * factor
        return (images.astype(wide) * factor + offset).astype(images.dtype)

    def training_forward(self, images: Array, bias: Array | None = None) -> tuple[Array, "BatchNorm"]:
        """Normalise with the mean and variance of this batch; also returns the layer with updated running values.

        A ``bias`` of the layer below changes only the running mean, so it need not be added to the images.
        """
        count = images.size // images.shape[-1]
        if count < 2:
            raise ValueError("batch normalisation needs more than one number per channel: take a batch of 2 or more")
        normalised, mean, variance = _normalised(images, self.scale, self.shift, self.mean.held)
        mean, variance = jax.lax.stop_gradient((mean, variance))
        if bias is not None:
            mean = mean + jax.lax.stop_gradient(bias).astype(mean.dtype)
        fresh = mean, variance * (count / (count - 1))
        values = tuple(
            (_DECAY * old.held + (1 - _DECAY) * new).astype(old.value.dtype)
            for old, new in zip((self.mean, self.variance), fresh, strict=True)
        )
        return normalised, eqx.tree_at(lambda norm: (norm.mean.value, norm.variance.value), self, values)


def _sums(dtype: Any) -> Any:
    return jnp.promote_types(dtype, jnp.float32)


@jax.custom_vjp
def _normalised(images: Array, scale: Array, shift: Array, about: Array) -> tuple[Array, Array, Array]:
    return _normalise(images, scale, shift, about)[0]


def _normalise(images: Array, scale: Array, shift: Array, about: Array) -> tuple[tuple[Array, Array, Array], Any]:
    """Normalised images, mean and variance of the batch, from one pass for both sums and one to normalise.

    The variance is computed ``about`` the running mean, which is near the mean, so that little cancels. The derivatives
    are written out because automatic ones would store the images a second time in float32. Mean and variance themselves
    have no derivative: they are for running values only.
    """
    wide = _sums(images.dtype)
    about = about.astype(wide)
    away = images.astype(wide) - about
    distance = jnp.mean(away, _WITHIN_CHANNELS)
    variance = jnp.maximum(jnp.mean(away * away, _WITHIN_CHANNELS) - distance * distance, 0)
    inverse = jax.lax.rsqrt(variance + _EPSILON)
    mean = about + distance
    normalised = (images.astype(wide) - mean) * (inverse * scale.astype(wide)) + shift.astype(wide)
    return (normalised.astype(images.dtype), mean, variance), (images, scale, shift, mean, inverse)


def _normalise_backward(saved: Any, slopes: tuple[Array, Array, Array]) -> tuple[Array, Array, Array, None]:
    images, scale, shift, mean, inverse = saved
    wide = mean.dtype
    slope = slopes[0].astype(wide)
    unit = (images.astype(wide) - mean) * inverse
    along_shift = jnp.sum(slope, _WITHIN_CHANNELS)
    along_scale = jnp.sum(slope * unit, _WITHIN_CHANNELS)
    count = images.size // images.shape[-1]
    inside = slope - along_shift / count - unit * (along_scale / count)
    images_slope = (inside * (inverse * scale.astype(wide))).astype(images.dtype)
    return images_slope, along_scale.astype(scale.dtype), along_shift.astype(shift.dtype), None


_normalised.defvjp(_normalise, _normalise_backward)


class ImageNetwork(eqx.Module):
    """A network that ends in the mean over pixels and one linear layer: of one image, or of a batch in training."""

    last: eqx.AbstractVar[Dense]
    learning_rate: eqx.AbstractVar[Constant]

    @abc.abstractmethod
    def _forward(self, images: Array, training: bool) -> tuple[Array, Self]:
        """The features of a batch, and the network with updated running values."""

    @property
    def learning_rate_scale(self) -> Array:
        """The factor for the learning rate of gradient descent: richness² features, or 1 without a richness."""
        return self.learning_rate.value

    def features(self, x: Array) -> Array:
        """The inputs of the last layer: the mean over pixels of the layer below.

        Parameters
        ----------
        x
            One image of shape (rows, columns, channels).
        """
        return self._forward(jnp.asarray(x)[None], training=False)[0][0]

    def __call__(self, x: Array) -> Array:
        return self.last(self.features(x))

    def training_forward(self, inputs: Array) -> tuple[Array, Self]:
        """The outputs of a batch in training, and the network with updated running values.

        Parameters
        ----------
        inputs
            A batch of images.
        """
        features, after = self._forward(inputs, training=True)
        return jax.vmap(self.last)(features), after


class ConvolutionLayer(eqx.Module):
    """A convolution, optionally with batch normalisation. It returns the images and the updated layer."""

    convolution: Convolution
    norm: BatchNorm | None

    def __call__(self, images: Array, training: bool) -> tuple[Array, "ConvolutionLayer"]:
        if self.norm is None:
            return self.convolution(images), self
        if not training:
            return self.norm(self.convolution(images)), self
        images, norm = self.norm.training_forward(self.convolution.without_bias(images), self.convolution.bias)
        return images, ConvolutionLayer(self.convolution, norm)


def he_layers(
    key: jax.Array, plan: Sequence[tuple[int, int, int, int]], *, bias: bool, norm: bool, dtype: Any
) -> list[ConvolutionLayer]:
    """Layers by a plan of (channels below, channels, size of the filter, stride).

    Weights are Gaussian with variance 2/(size² channels), "fan out" as torchvision draws them; biases are zero.
    """
    shapes = tuple((size, size, below, channels) for below, channels, size, _ in plan)
    spreads = tuple((2 / (size * size * channels)) ** 0.5 for _, channels, size, _ in plan)
    layers = []
    for weight, (_, channels, _, stride) in zip(gaussians(key, shapes, spreads, dtype), plan, strict=True):
        offset = jnp.zeros(channels, dtype) if bias else None
        convolution = Convolution(weight, offset, stride=stride)
        layers.append(ConvolutionLayer(convolution, BatchNorm(channels, dtype) if norm else None))
    return layers


@functools.partial(jax.jit, static_argnums=(1, 3))
def gaussians(key: jax.Array, shapes: tuple[tuple[int, ...], ...], spreads: Sequence[Any], dtype: Any) -> list[Array]:
    """Gaussian arrays with these standard deviations, split from one array of random numbers.

    Random numbers for each of twenty layers take longer to compile than the rest of the network.
    """
    sizes = [math.prod(shape) for shape in shapes]
    parts = jnp.split(jax.random.normal(key, (sum(sizes),), dtype), list(itertools.accumulate(sizes))[:-1])
    return [
        part.reshape(shape) * jnp.asarray(spread, dtype)
        for part, shape, spread in zip(parts, shapes, spreads, strict=True)
    ]


def last_layer(key: jax.Array, features: int, outputs: int, richness: Any, dtype: Any) -> tuple[Dense, Constant]:
    """The last linear layer, and the ``learning_rate_scale``.

    Without a richness, weights and biases are uniform within ±1/sqrt(features), as in PyTorch. With one, the layer is
    that of a mean-field MLP: ``f = (W φ / sqrt(features) + b) / (richness sqrt(features))`` with weights of variance 1
    and b = 0, and the scale is richness² features.
    """
    if richness is None:
        bound = features**-0.5
        drawn = jax.random.uniform(key, (outputs, features + 1), dtype, -bound, bound)
        return Dense(drawn[:, :-1], drawn[:, -1]), Constant(jnp.ones((), dtype))
    check_positive("richness", richness)
    root = jnp.sqrt(jnp.asarray(features, dtype))
    richness = jnp.asarray(richness, dtype)
    weight = jax.random.normal(key, (outputs, features), dtype)
    layer = Dense(weight, jnp.zeros(outputs, dtype), 1 / root, 1 / (richness * root))
    return layer, Constant(richness**2 * features)


@jax.custom_jvp
def relu(inputs: Array) -> Array:
    """``max(h, 0)``; the derivative uses the output, which is stored anyway, so that the input need not be."""
    return jnp.maximum(inputs, 0)


relu.defjvps(lambda slope, output, inputs: jnp.where(output > 0, slope, jnp.zeros_like(slope)))


@jax.custom_jvp
def larger(first: Array, second: Array) -> Array:
    """The larger of two; the derivative is that of the first where they are equal."""
    return jnp.maximum(first, second)


@larger.defjvp
def _larger_slope(values: tuple[Array, Array], slopes: tuple[Array, Array]) -> tuple[Array, Array]:
    # JAX's own derivative of a maximum tests which inputs equal the output. In compiled code, inputs may be computed
    # twice with different rounding: then none does, and the derivative is 0/0.
    return larger(*values), jnp.where(values[0] >= values[1], *slopes)


def max_pool(images: Array) -> Array:
    """2x2 max pooling; an odd row or column at the end is dropped."""
    count, rows, columns, channels = images.shape
    even = images[:, : rows // 2 * 2, : columns // 2 * 2]
    # Not reduce_window: on accelerators its derivative is slow and not deterministic.
    squares = even.reshape(count, rows // 2, 2, columns // 2, 2, channels)
    upper, lower = (larger(squares[:, :, row, :, 0], squares[:, :, row, :, 1]) for row in (0, 1))
    return larger(upper, lower)


def mean_of_pixels(images: Array) -> Array:
    return jnp.mean(images.astype(_sums(images.dtype)), (1, 2)).astype(images.dtype)


def check_shape(shape: Any) -> Shape:
    """Rows, columns and channels of an image."""
    if not isinstance(shape, tuple | list) or len(shape) != 3:
        raise ValueError(f"shape must be (rows, columns, channels) of an image, for example (32, 32, 3), not {shape!r}")
    rows, columns, channels = (
        check_count(f"{name} of the shape", value)
        for name, value in zip(("rows", "columns", "channels"), shape, strict=True)
    )
    return rows, columns, channels


def check_images(images: Any, shape: Shape) -> Array:
    """Images as an array of real numbers, with the shape that the network was made for."""
    images = jnp.asarray(images)
    if images.ndim != 4 or images.shape[1:] != shape:
        raise ValueError(
            f"this network takes images (rows, columns, channels) of {shape}, not of {images.shape[1:]}: "
            "pass them one by one, or as a batch to `training_forward`"
        )
    return images if jnp.issubdtype(images.dtype, jnp.inexact) else images.astype(jnp.float32)
