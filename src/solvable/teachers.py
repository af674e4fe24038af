"""Targets of index fields: the paper's square. Any JAX function of K fields can stand in its place."""

from solvable.activations import Polynomial


def square() -> Polynomial:
    """``h^2 / 2`` (delayed-features, eq. 1)."""
    return Polynomial((0.0, 0.0, 0.5))


def linear() -> Polynomial:
    """``h``: the linear teacher."""
    return Polynomial((0.0, 1.0))
