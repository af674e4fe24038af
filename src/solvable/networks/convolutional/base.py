"""What image networks that end in the mean over pixels and one linear layer have in common."""

import abc
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.networks.mlp import Dense
from solvable.networks.parts import Constant


class ImageNetwork(eqx.Module):
    """A network of one image in use; in training, of a batch, after which it has new running values."""

    last: eqx.AbstractVar[Dense]
    learning_rate: eqx.AbstractVar[Constant]

    @abc.abstractmethod
    def _forward(self, images: Array, learning: bool) -> tuple[Array, Self]:
        """The features of a batch, and the network after it."""

    @property
    def learning_rate_scale(self) -> Array:
        """What the step of gradient descent is to be multiplied by: richness² features, or 1 without a richness."""
        return self.learning_rate.value

    def features(self, x: Array) -> Array:
        """What the last layer reads: the mean over pixels of the layer below."""
        return self._forward(jnp.asarray(x)[None], learning=False)[0][0]

    def __call__(self, x: Array) -> Array:
        return self.last(self.features(x))

    def learning(self, inputs: Array) -> tuple[Array, Self]:
        """The outputs of a whole batch in training, and the network with the running values after it."""
        features, after = self._forward(inputs, learning=True)
        return jax.vmap(self.last)(features), after
