"""VGG16 for small images."""

import itertools
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
    max_pool,
    mean_of_pixels,
    relu,
)
from solvable.networks.mlp import Dense
from solvable.networks.parts import Constant

# Convolutions of each group, and their channels as multiples of the width.
_GROUPS = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))


class VGG16(ImageNetwork):
    """VGG16 for small images: thirteen 3x3 convolutions in five groups, each with 2x2 max pooling, and a linear layer.

    At 32 by 32 pixels the last pooling leaves one pixel with 8 ``width`` channels, which are the features; the three
    large linear layers of the original are left out. Smaller images skip the first poolings, so that no convolution
    acts on a single pixel; for larger ones the remaining pixels are averaged. Convolutions have biases with and without
    ``batch_norm``, and are initialised as in torchvision, with variance 2/(9 channels).

    Parameters
    ----------
    width
        Channels of the first group.
    batch_norm
        Whether convolutions are followed by batch normalisation.
    shape, outputs, key, richness, dtype
        As in :class:`ResNet18`, which also describes calls and :meth:`training_forward`.

    >>> import jax
    >>> from solvable.networks.convolutional.vgg import VGG16
    >>> network = VGG16((8, 8, 1), 10, key=jax.random.key(0), width=2)
    >>> network(jax.numpy.ones((8, 8, 1))).shape, network.features(jax.numpy.ones((8, 8, 1))).shape
    ((10,), (16,))
    """

    groups: tuple[tuple[ConvolutionLayer, ...], ...]
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
        batch_norm: bool = True,
        richness: Any = None,
        dtype: Any = jnp.float32,
    ) -> None:
        self.shape = check_shape(shape)
        outputs, width = check_count("outputs", outputs), check_count("width", width)
        channels = [times * width for number, times in _GROUPS for _ in range(number)]
        plan = [(below, above, 3, 1) for below, above in zip([self.shape[2], *channels], channels, strict=False)]
        layers_key, last_key = jax.random.split(key)
        layers = iter(he_layers(layers_key, plan, bias=True, norm=batch_norm, dtype=dtype))
        self.groups = tuple(tuple(itertools.islice(layers, number)) for number, _ in _GROUPS)
        self.last, self.learning_rate = last_layer(last_key, channels[-1], outputs, richness, dtype)

    def _forward(self, images: Array, training: bool) -> tuple[Array, Self]:
        images = check_images(images, self.shape)
        without_pool = len(self.groups) - min(self.shape[:2]).bit_length() + 1
        groups = []
        for index, group in enumerate(self.groups):
            layers = []
            for layer in group:
                images, layer = layer(images, training)
                images = relu(images)
                layers.append(layer)
            groups.append(tuple(layers))
            if index >= without_pool:
                images = max_pool(images)
        return mean_of_pixels(images), eqx.tree_at(lambda network: network.groups, self, tuple(groups))
