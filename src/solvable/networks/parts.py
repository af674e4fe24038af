"""What the arrays of a network are to its training: trained, held constant, or carried along."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array


class Constant(eqx.Module):
    """A part of a network that training leaves alone: no gradient, no weight decay.

    Read it by ``held``, which has no derivative, so that kernels of gradients do not count it as a parameter.
    """

    value: Any

    @property
    def held(self) -> Any:
        return jax.lax.stop_gradient(self.value)


class Running(eqx.Module):
    """An array that training carries along without a gradient: a running mean, for example.

    A network that has any learns by ``learning(inputs) -> (outputs, network)``, which takes a whole batch and also
    gives the network with its new running values. Called with one input it uses the values it has.
    """

    value: Array

    @property
    def held(self) -> Array:
        return jax.lax.stop_gradient(self.value)


def trainable(network: Any) -> Any:
    """Which leaves of a network are trained, as a filter for :func:`equinox.partition`: its arrays of real numbers.

    >>> import equinox, jax, solvable.networks
    >>> network = solvable.networks.MLP(2, 1, width=3, depth=2, key=jax.random.key(0))
    >>> trained, rest = equinox.partition(network, solvable.networks.trainable(network))
    >>> sum(leaf.size for leaf in jax.tree.leaves(trained))
    13
    """
    return _by_part(network, (), eqx.is_inexact_array)


def running(network: Any) -> Any:
    """Which leaves of a network are :class:`Running`, as a filter. One that is inside a constant is constant."""
    return _by_part(network, (Running,), lambda _: False)


def cast(tree: Any, precision: Any) -> Any:
    """Arrays of real numbers in this precision; the rest as it is."""
    return jax.tree.map(lambda leaf: leaf.astype(precision) if eqx.is_inexact_array(leaf) else leaf, tree)


def learning(network: Any, inputs: Array) -> tuple[Array, Any]:
    """Outputs of a batch as they are in training, and the network with its new running values, if it has any."""
    if hasattr(network, "learning"):
        return network.learning(inputs)
    if any(jax.tree.leaves(running(network))):
        raise TypeError(
            f"{type(network).__name__} has networks.Running parts, and so needs a method learning(inputs) that gives "
            "the outputs of a batch and the network with its new running values"
        )
    return jax.vmap(network)(inputs), network


def forward(network: Any, inputs: Array, low: Any = None) -> tuple[Array, Any]:
    """The same in the precision ``low``, if that is given: outputs and running values come back as they are kept."""
    if low is None:
        return learning(network, inputs)
    kept, computed = eqx.partition(network, running(network))
    outputs, after = learning(eqx.combine(cast(computed, low), kept), cast(jnp.asarray(inputs), low))
    outputs = outputs.astype(jnp.float32)
    return outputs, eqx.combine(eqx.filter(after, running(after)), network)


def _by_part(network: Any, yes: tuple[type, ...], otherwise: Any) -> Any:
    """True in parts of the kinds ``yes``, False in the other kind; elsewhere what ``otherwise`` says of a leaf."""
    kinds = (Constant, Running)

    def one(node: Any) -> Any:
        return jax.tree.map(lambda _: isinstance(node, yes), node) if isinstance(node, kinds) else otherwise(node)

    return jax.tree.map(one, network, is_leaf=lambda node: isinstance(node, kinds))
