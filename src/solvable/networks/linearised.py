"""The tangent model of a network: what lazy training gives in the limit, trained like any network."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from solvable.networks.mlp import Constant, trainable


class Linearised(eqx.Module):
    """A network to first order in its parameters, about those it was made with; see :func:`linearised`."""

    network: Any
    initial: Constant

    def __call__(self, x: Array) -> Array:
        wanted = trainable(self.network)
        now, rest = eqx.partition(self.network, wanted)
        start = jax.lax.stop_gradient(eqx.filter(self.initial.value, wanted))
        moved = jax.tree.map(lambda new, old: new - old, now, start)
        return jax.jvp(lambda parameters: eqx.combine(parameters, rest)(x), (start,), (moved,))[1]

    @property
    def learning_rate_scale(self) -> Array:
        return self.network.learning_rate_scale


def linearised(network: Any) -> Linearised:
    """``J(x) (θ - θ₀)``: the derivative of the network at its parameters θ₀ as they are now, and zero to begin with.

    A centred network of vanishing richness becomes this; trained as it is, its output would be a small difference of
    large numbers, which needs many digits. This one needs none to spare, and costs about two forward passes.

    >>> import equinox, jax, solvable.networks
    >>> from solvable.networks.linearised import linearised
    >>> network = solvable.networks.MLP(2, 1, width=8, depth=2, key=jax.random.key(0))
    >>> float(linearised(network)(jax.numpy.ones(2))[0])
    0.0
    """
    return Linearised(network, Constant(jax.tree.map(lambda leaf: leaf, network)))
