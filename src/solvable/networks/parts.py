"""The roles of the arrays of a network in training: trained, held constant, or updated without a gradient."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array


class Constant(eqx.Module):
    """A part of a network that is not trained: it has no gradient and no weight decay.

    Read it through ``held``, which has no derivative, so that tangent kernels do not count it as a parameter.

    Parameters
    ----------
    value
        An array, or any PyTree, such as a network.
    """

    value: Any

    @property
    def held(self) -> Any:
        """The value, without a derivative."""
        return jax.lax.stop_gradient(self.value)


class Running(eqx.Module):
    """An array that training updates without a gradient: a running mean, for example.

    A network with such parts has a method ``training_forward(inputs) -> (outputs, network)``, which takes a whole batch
    and also returns the network with updated running values. Called with one input, it uses the current values.

    Parameters
    ----------
    value
        The array.
    """

    value: Array

    @property
    def held(self) -> Array:
        """The value, without a derivative."""
        return jax.lax.stop_gradient(self.value)


def trainable(network: Any) -> Any:
    """Which leaves of a network are trained (arrays of real numbers), as a filter for :func:`equinox.partition`.

    Parameters
    ----------
    network
        An Equinox module.

    >>> import equinox, jax, solvable.networks
    >>> network = solvable.networks.MLP(2, 1, width=3, depth=2, key=jax.random.key(0))
    >>> trained, rest = equinox.partition(network, solvable.networks.trainable(network))
    >>> sum(leaf.size for leaf in jax.tree.leaves(trained))
    13
    """
    return _filter(network, (), eqx.is_inexact_array)


def running(network: Any) -> Any:
    """Which leaves of a network are :class:`Running`, as a filter. A running value inside a constant is constant."""
    return _filter(network, (Running,), lambda _: False)


def cast(tree: Any, dtype: Any) -> Any:
    """The PyTree with arrays of real numbers in this precision."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, tree)


def training_forward(network: Any, inputs: Array, dtype: Any = None) -> tuple[Array, Any]:
    """Outputs of a batch in training, and the network with updated running values, if it has any.

    With a ``dtype``, the forward pass is computed in this lower precision; outputs and running values are not.
    """
    if dtype is not None:
        kept, computed = eqx.partition(network, running(network))
        inputs = cast(jnp.asarray(inputs), dtype)
        outputs, after = training_forward(eqx.combine(cast(computed, dtype), kept), inputs)
        return outputs.astype(jnp.float32), eqx.combine(eqx.filter(after, running(after)), network)
    if hasattr(network, "training_forward"):
        return network.training_forward(inputs)
    if any(jax.tree.leaves(running(network))):
        raise TypeError(
            f"{type(network).__name__} has networks.Running parts, and so needs a method training_forward(inputs) that "
            "returns the outputs of a batch and the network with updated running values"
        )
    return jax.vmap(network)(inputs), network


def _filter(network: Any, chosen: tuple[type, ...], otherwise: Any) -> Any:
    """True in parts of the ``chosen`` classes, False in the other class; elsewhere ``otherwise`` of each leaf."""
    parts = (Constant, Running)

    def mark(node: Any) -> Any:
        return jax.tree.map(lambda _: isinstance(node, chosen), node) if isinstance(node, parts) else otherwise(node)

    return jax.tree.map(mark, network, is_leaf=lambda node: isinstance(node, parts))
