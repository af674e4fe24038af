"""The tangent model of a network, trained like any network: the limit of lazy training."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.networks.parts import Constant, trainable


class Linearised(eqx.Module):
    """A network to first order in its parameters, about its initial ones; see :func:`linearised`.

    The trained arrays are the displacements ``moved`` of the parameters: small numbers, which are accurate in any
    precision.

    Parameters
    ----------
    initial
        The network at its initial parameters.
    moved
        Displacements of the parameters, which are trained.
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
    """``J(x) (θ - θ₀)`` with the Jacobian J of the network at its current parameters θ₀; it is zero at first.

    A centred network becomes this in the limit of vanishing richness, but its output is then a small difference of
    large numbers, which rounding spoils. The tangent model is exact, and costs about two forward passes. Gradient
    descent, momentum and adaptive learning rates act on it as on the network; weight decay would pull towards θ₀
    instead of zero.

    Parameters
    ----------
    network
        A network of one input.

    >>> import equinox, jax, solvable.networks
    >>> from solvable.networks.linearised import linearised
    >>> network = solvable.networks.MLP(2, 1, width=8, depth=2, key=jax.random.key(0))
    >>> float(linearised(network)(jax.numpy.ones(2))[0])
    0.0
    """
    return Linearised(Constant(network), jax.tree.map(jnp.zeros_like, eqx.filter(network, trainable(network))))
