"""A small convolutional network in three parameterisations."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.checks import check_count
from solvable.networks.convolutional.layers import (
    Convolution,
    Shape,
    check_images,
    check_shape,
    gaussians,
    max_pool,
    relu,
)
from solvable.networks.mlp import (
    Activation,
    Dense,
    Parameterisation,
    check_parameterisation,
    learning_rate_constant,
    make_activation,
)
from solvable.networks.parts import Constant


class CNN(eqx.Module):
    """A convolutional network: 3x3 convolutions, each with activation and 2x2 max pooling, and two linear layers.

    The parameterisations are those of :class:`MLP`, where the fan-in of a convolution is nine times the channels below
    it, and the width is that of the hidden linear layer. Biases start at zero. Scales may be traced.

    Parameters
    ----------
    shape
        Rows, columns and channels of an image.
    outputs
        Number of outputs.
    key
        JAX key of the initial weights.
    channels
        Channels of each convolution.
    width
        Number of neurons of the hidden linear layer.
    weight_scale
        Scale of the initial weights; sqrt(2) preserves the size of activations in a deep ReLU network.
    parameterisation, richness, activation, bias, dtype
        As in :class:`MLP`.

    >>> import jax
    >>> from solvable.networks.convolutional.cnn import CNN
    >>> network = CNN((8, 8, 1), 10, key=jax.random.key(0), channels=(4, 8), width=16)
    >>> network(jax.numpy.ones((8, 8, 1))).shape, network.features(jax.numpy.ones((8, 8, 1))).shape
    ((10,), (16,))
    """

    convolutions: tuple[Convolution, ...]
    hidden: Dense
    last: Dense
    activation: Callable[[Array], Array]
    learning_rate: Constant
    shape: Shape = eqx.field(static=True)
    parameterisation: str = eqx.field(static=True)

    def __init__(
        self,
        shape: Shape = (28, 28, 1),
        outputs: int = 10,
        *,
        key: jax.Array,
        channels: tuple[int, ...] = (32, 64),
        width: int = 1024,
        parameterisation: Parameterisation = "standard",
        richness: Any = 1.0,
        activation: Activation | Callable[[Array], Array] = "relu",
        weight_scale: Any = 1.0,
        bias: bool = True,
        dtype: Any = jnp.float32,
    ) -> None:
        rows, columns, below = self.shape = check_shape(shape)
        outputs, width = check_count("outputs", outputs), check_count("width", width)
        channels = tuple(check_count("each of channels", number) for number in channels)
        check_parameterisation(parameterisation, richness)
        if min(rows, columns) < 2 ** len(channels):
            raise ValueError(
                f"images of {rows} by {columns} are too small to be halved {len(channels)} times: "
                f"give fewer channels than {channels}, or images of {2 ** len(channels)} or more"
            )
        self.parameterisation = parameterisation
        self.activation = relu if activation == "relu" else make_activation(activation)
        plain = parameterisation == "standard"
        shapes: list[tuple[int, ...]] = []
        for number in channels:
            shapes.append((3, 3, below, number))
            rows, columns, below = rows // 2, columns // 2, number
        shapes += [(width, rows * columns * below), (outputs, width)]
        fan_in = [math.prod(shape[:-1]) for shape in shapes[:-2]] + [shape[1] for shape in shapes[-2:]]
        factors = [1 / jnp.sqrt(jnp.asarray(number, dtype)) for number in fan_in]
        scale = jnp.asarray(weight_scale, dtype)
        weights = gaussians(key, tuple(shapes), [scale * factor if plain else scale for factor in factors], dtype)
        numbers = [*channels, width, outputs]
        parts = [
            (weight, jnp.zeros(number, dtype) if bias else None, None if plain else factor)
            for weight, number, factor in zip(weights, numbers, factors, strict=True)
        ]
        self.convolutions = tuple(Convolution(*part) for part in parts[:-2])
        self.hidden = Dense(*parts[-2])
        divisor = jnp.asarray(richness, dtype) * jnp.sqrt(jnp.asarray(width, dtype))
        self.last = Dense(*parts[-1], 1 / divisor if parameterisation == "mean-field" else None)
        self.learning_rate = learning_rate_constant(parameterisation, richness, width, dtype)

    @property
    def learning_rate_scale(self) -> Array:
        """The factor by which the learning rate of gradient descent is to be multiplied in this parameterisation."""
        return self.learning_rate.value

    def features(self, x: Array) -> Array:
        """The activations of the hidden linear layer, which are the inputs of the last layer.

        Parameters
        ----------
        x
            One image of shape (rows, columns, channels).
        """
        images = check_images(jnp.asarray(x)[None], self.shape)
        for convolution in self.convolutions:
            images = max_pool(self.activation(convolution(images)))
        return self.activation(self.hidden(images.ravel()))

    def __call__(self, x: Array) -> Array:
        return self.last(self.features(x))
