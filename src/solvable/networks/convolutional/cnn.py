"""A small convolutional network in three parameterisations."""

import math
from collections.abc import Callable
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.checks import check_choice, check_count
from solvable.networks.convolutional.layers import (
    Convolution,
    Shape,
    check_images,
    check_positive,
    check_shape,
    gaussians,
    halved,
    relu,
)
from solvable.networks.mlp import Activation, Dense, Parameterisation, _activation
from solvable.networks.parts import Constant


class CNN(eqx.Module):
    """For each of ``channels`` a 3x3 convolution, the activation and a 2x2 max pool; a hidden layer; the last layer.

    Each layer computes ``h = W φ / factor + b`` as in :class:`MLP`, where the fan-in of a convolution is nine times the
    channels below it:

    * ``"standard"``: weights of variance ``weight_scale² / fan_in``, no factor.
    * ``"ntk"``: weights of variance ``weight_scale²`` and the factor ``sqrt(fan_in)``.
    * ``"mean-field"``: the same, and the output divided by ``richness sqrt(width)``. With steps of gradient descent
      multiplied by :attr:`learning_rate_scale`, which is richness² width, the function moves at a speed that depends on
      neither, while features move in proportion to the richness. ``width`` is that of the hidden layer.

    Biases start at zero. ``weight_scale`` of sqrt(2) keeps the size of the activations of a deep ReLU network. Scales
    may be traced.

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
        check_choice("parameterisation", parameterisation, get_args(Parameterisation))
        check_positive("richness", richness)
        if min(rows, columns) < 2 ** len(channels):
            raise ValueError(
                f"images of {rows} by {columns} are too small to be halved {len(channels)} times: "
                f"give fewer channels than {channels}, or images of {2 ** len(channels)} or more"
            )
        if parameterisation != "mean-field" and not (isinstance(richness, float | int) and richness == 1):
            raise ValueError(f"richness belongs to parameterisation='mean-field', not to {parameterisation!r}")
        self.parameterisation = parameterisation
        self.activation = relu if activation == "relu" else _activation(activation, 1)
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
        mean_field = parameterisation == "mean-field"
        divisor = jnp.asarray(richness, dtype) * jnp.sqrt(jnp.asarray(width, dtype))
        self.last = Dense(*parts[-1], 1 / divisor if mean_field else None)
        rate = jnp.asarray(richness, dtype) ** 2 * width if mean_field else 1.0
        self.learning_rate = Constant(jnp.asarray(rate, dtype))

    @property
    def learning_rate_scale(self) -> Array:
        """What the step of gradient descent must be multiplied by in this parameterisation."""
        return self.learning_rate.value

    def features(self, x: Array) -> Array:
        """The activations of the hidden layer, which the last layer reads."""
        images = check_images(jnp.asarray(x)[None], self.shape)
        for convolution in self.convolutions:
            images = halved(self.activation(convolution(images)))
        return self.activation(self.hidden(images.ravel()))

    def __call__(self, x: Array) -> Array:
        return self.last(self.features(x))
