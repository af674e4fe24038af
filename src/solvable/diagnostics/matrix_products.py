"""Matrices in the parameters of a JAX function ``apply(parameters, inputs)`` whose gradients are outer products.

A matrix that a function uses once, as ``x @ matrix`` with one vector x for one input, has the gradient ``x δ^T``, as a
linear layer has (see :mod:`solvable.diagnostics.linear_layers`). A stand-in for the matrix records x, and adds an
offset to the product, whose derivative is δ. Where a function does anything else with a matrix, it is differentiated as
usual.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from solvable.diagnostics.linear_layers import NotAnOuterProductError

PyTree = Any
# Attributes that a function may read without using the entries.
_HARMLESS = ("shape", "ndim", "size", "dtype")


class _TappedMatrix:
    """A matrix that can be multiplied from the left once, with an offset that is added to the product."""

    # NumPy leaves products with this class to it.
    __array_ufunc__ = None

    def __init__(self, matrix: jax.Array, offset: jax.Array, position: int) -> None:
        self._matrix, self._offset, self._position = matrix, offset, position
        self.below: list[Any] = []

    def __rmatmul__(self, x: Any) -> Any:
        product = x @ self._matrix
        if product.size != self._offset.size:
            raise NotAnOuterProductError(self._position)
        self.below.append(jnp.ravel(x))
        return product + self._offset.reshape(product.shape)

    def __getattr__(self, name: str) -> Any:
        if name in _HARMLESS:
            return getattr(self._matrix, name)
        if name.startswith("__"):  # JAX and NumPy ask for protocols before they leave the product to this class
            raise AttributeError(name)
        raise NotAnOuterProductError(self._position)


def matrices(trained: PyTree) -> tuple[int, ...]:
    """Positions, among the leaves, of the matrices."""
    return tuple(position for position, leaf in enumerate(jax.tree.leaves(trained)) if leaf.ndim == 2)


def separate(trained: PyTree, positions: tuple[int, ...]) -> tuple[PyTree, PyTree]:
    """The trained arrays but for these matrices, and the matrices."""
    leaves, tree = jax.tree.flatten(trained)
    outside = [position not in positions for position in range(len(leaves))]
    return eqx.partition(trained, jax.tree.unflatten(tree, outside))


def tapped(
    apply: Callable[[PyTree], Any], trained: PyTree, rest: PyTree, positions: tuple[int, ...], offsets: list[Any]
) -> tuple[Any, list[Any]]:
    """The value of ``apply`` for the parameters with offsets on these products, and the vector of each of them."""
    leaves, tree = jax.tree.flatten(trained)
    taps = [_TappedMatrix(leaves[place], offset, place) for place, offset in zip(positions, offsets, strict=True)]
    for place, tap in zip(positions, taps, strict=True):
        leaves[place] = tap
    values = apply(eqx.combine(jax.tree.unflatten(tree, leaves), rest))
    for place, tap in zip(positions, taps, strict=True):
        if len(tap.below) != 1:
            raise NotAnOuterProductError(place)
    return values, [tap.below[0] for tap in taps]
