"""ResNet18 for small images."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.checks import check_count
from solvable.networks.convolutional.layers import (
    ConvolutionLayer,
    ImageNetwork,
    Shape,
    check_images,
    check_shape,
    he_layers,
    last_layer,
    mean_of_pixels,
    relu,
)
from solvable.networks.mlp import Dense
from solvable.networks.parts import Constant


class Block(eqx.Module):
    """Two 3x3 convolutions and a residual connection, with a 1x1 convolution where the size changes."""

    first: ConvolutionLayer
    second: ConvolutionLayer
    shortcut: ConvolutionLayer | None

    def __call__(self, images: Array, training: bool) -> tuple[Array, "Block"]:
        within, first = self.first(images, training)
        within, second = self.second(relu(within), training)
        shortcut = self.shortcut
        if shortcut is not None:
            images, shortcut = shortcut(images, training)
        return relu(within + images), Block(first, second, shortcut)


class ResNet18(ImageNetwork):
    """The residual network of 18 layers for small images: a 3x3 stem of stride 1 without pooling.

    Groups of blocks have 1, 2, 4 and 8 times ``width`` channels, and each but the first halves the image. The mean over
    pixels and one linear layer follow. Convolutions are initialised as in torchvision, with variance 2/(9 channels).

    The last layer is uniform within ±1/sqrt(features), or with a richness γ₀ that of a mean-field network with n
    features, ``f = (W φ / sqrt(n) + b) / (richness sqrt(n))`` with weights of variance 1. With learning rates times
    :attr:`learning_rate_scale` (richness² n, or 1 without richness), the function moves at first at a speed that does
    not depend on the richness, while features move in proportion to it.

    ``network(x)`` of one image uses the running means and variances of batch normalisation;
    ``network.training_forward(images)`` returns the outputs of a batch in training, and the network with updated
    running values.

    Parameters
    ----------
    shape
        Rows, columns and channels of an image.
    outputs
        Number of outputs.
    key
        JAX key of the initial weights.
    width
        Channels of the first group.
    blocks
        Number of blocks of each group.
    batch_norm
        Whether convolutions are followed by batch normalisation; otherwise they have biases.
    richness
        The richness γ₀ of the last layer; None for the initialisation of PyTorch.
    dtype
        Type of the weights.

    >>> import jax
    >>> from solvable.networks.convolutional.resnet import ResNet18
    >>> network = ResNet18((8, 8, 1), 10, key=jax.random.key(0), width=2)
    >>> network(jax.numpy.ones((8, 8, 1))).shape, network.features(jax.numpy.ones((8, 8, 1))).shape
    ((10,), (16,))
    """

    stem: ConvolutionLayer
    blocks: tuple[Block, ...]
    last: Dense
    learning_rate: Constant
    shape: Shape = eqx.field(static=True)

    def __init__(
        self,
        shape: Shape = (32, 32, 3),
        outputs: int = 10,
        *,
        key: jax.Array,
        width: int = 64,
        blocks: tuple[int, ...] = (2, 2, 2, 2),
        batch_norm: bool = True,
        richness: Any = None,
        dtype: Any = jnp.float32,
    ) -> None:
        self.shape = check_shape(shape)
        outputs, width = check_count("outputs", outputs), check_count("width", width)
        groups = [check_count("each of blocks", number) for number in blocks]
        if not groups:
            raise ValueError("blocks must have the number of blocks of one group or more, for example (2, 2, 2, 2)")
        plan, below = [(self.shape[2], width, 3, 1)], width
        for group, number in enumerate(groups):
            channels = width * 2**group
            for index in range(number):
                stride = 2 if group > 0 and index == 0 else 1
                plan += [(below, channels, 3, stride), (channels, channels, 3, 1)]
                plan += [(below, channels, 1, stride)] if stride > 1 else []
                below = channels
        layers_key, last_key = jax.random.split(key)
        layers = iter(he_layers(layers_key, plan, bias=not batch_norm, norm=batch_norm, dtype=dtype))
        self.stem = next(layers)
        halves = [group > 0 and index == 0 for group, number in enumerate(groups) for index in range(number)]
        self.blocks = tuple(Block(next(layers), next(layers), next(layers) if halving else None) for halving in halves)
        self.last, self.learning_rate = last_layer(last_key, below, outputs, richness, dtype)

    def _forward(self, images: Array, training: bool) -> tuple[Array, Self]:
        images, stem = self.stem(check_images(images, self.shape), training)
        images = relu(images)
        blocks = []
        for block in self.blocks:
            images, block = block(images, training)
            blocks.append(block)
        after = eqx.tree_at(lambda network: (network.stem, network.blocks), self, (stem, tuple(blocks)))
        return mean_of_pixels(images), after
