"""ResNet18 for small images."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.checks import check_count
from solvable.networks.convolutional.base import ImageNetwork
from solvable.networks.convolutional.layers import (
    ConvolutionLayer,
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
    """Two 3x3 convolutions, added to what went in; through a 1x1 convolution where the size changes."""

    first: ConvolutionLayer
    second: ConvolutionLayer
    shortcut: ConvolutionLayer | None

    def __call__(self, images: Array, learning: bool) -> tuple[Array, "Block"]:
        within, first = self.first(images, learning)
        within, second = self.second(relu(within), learning)
        shortcut = self.shortcut
        if shortcut is not None:
            images, shortcut = shortcut(images, learning)
        return relu(within + images), Block(first, second, shortcut)


class ResNet18(ImageNetwork):
    """The residual network of 18 layers in its form for small images: a 3x3 stem of stride 1 and no pool after it.

    Four groups of ``blocks`` with 1, 2, 4 and 8 times ``width`` channels; each but the first halves the image. Then the
    mean over pixels and one linear layer. Weights start as torchvision's: convolutions with variance 2/(9 channels),
    the last layer uniform. With ``batch_norm=False`` convolutions have biases instead.

    With a ``richness`` γ₀ the last layer is that of a mean-field network with n features,
    ``f = (W φ / sqrt(n) + b) / (richness sqrt(n))`` with weights of variance 1; the layers below stay as they are.
    :attr:`learning_rate_scale` is richness² n then, else 1: with steps multiplied by it, the function's first steps are
    as fast at any richness, while features move in proportion to the richness.

    ``network(x)`` of one image is the network in use, with the running means and variances of batch normalisation;
    ``network.learning(images)`` gives the outputs of a batch as they are in training, and the network with new running
    values.

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

    def _forward(self, images: Array, learning: bool) -> tuple[Array, Self]:
        images, stem = self.stem(check_images(images, self.shape), learning)
        images = relu(images)
        blocks = []
        for block in self.blocks:
            images, block = block(images, learning)
            blocks.append(block)
        after = eqx.tree_at(lambda network: (network.stem, network.blocks), self, (stem, tuple(blocks)))
        return mean_of_pixels(images), after
