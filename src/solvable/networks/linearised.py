"""The tangent model of a network: what lazy training gives in the limit, trained like any network."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.networks.parts import Constant, trainable


class Linearised(eqx.Module):
    """A network to first order in its parameters, about those it was made with; see :func:`linearised`.

    What is trained is how far they ``moved``: small numbers, which keep their digits in any precision.
    """

    initial: Constant
    moved: Any

    def __call__(self, x: Array) -> Array:
        start, rest = eqx.partition(self.initial.value, trainable(self.initial.value))
        start = jax.lax.stop_gradient(start)
        return jax.jvp(lambda parameters: eqx.combine(parameters, rest)(x), (start,), (self.moved,))[1]

    @property
    def learning_rate_scale(self) -> Array:
        return self.initial.value.learning_rate_scale


def linearised(network: Any) -> Linearised:
    """``J(x) (θ - θ₀)``: the derivative of the network at its parameters θ₀ as they are now, and zero to begin with.

    A centred network of vanishing richness becomes this; trained as it is, its output would be a small difference of
    large numbers, which needs many digits. This one needs none to spare, and costs about two forward passes. Descent,
    momentum and adaptive rates act on it as on the network; weight decay would pull towards θ₀, and not towards zero.

    >>> import equinox, jax, solvable.networks
    >>> from solvable.networks.linearised import linearised
    >>> network = solvable.networks.MLP(2, 1, width=8, depth=2, key=jax.random.key(0))
    >>> float(linearised(network)(jax.numpy.ones(2))[0])
    0.0
    """
    return Linearised(Constant(network), jax.tree.map(jnp.zeros_like, eqx.filter(network, trainable(network))))
