"""The precision in which a network of the user runs: that of the program it comes from.

Sums over samples are taken in float64 (:mod:`solvable.diagnostics.moments`), but the network itself is run as its own
program runs it: with JAX in float32, unless the caller has switched float64 on or the network holds float64 arrays.
Networks that make arrays of their own (``jnp.zeros(3)`` as the first state of a scan) then give here what they give
there.
"""

import contextlib
from typing import Any

import jax
import numpy as np

_WIDE = (np.dtype(np.float64), np.dtype(np.complex128))


def holds_float64(*trees: Any) -> bool:
    """Whether a JAX array in these PyTrees is in float64, which JAX would truncate outside of its float64 mode."""
    return any(isinstance(leaf, jax.Array) and leaf.dtype in _WIDE for leaf in jax.tree.leaves(trees))


def precision_of(*trees: Any) -> contextlib.AbstractContextManager[Any]:
    """Context in which JAX keeps these arrays as they are: float64 where one of them is, else what the caller has.

    Leave it before control returns to the user, in particular before a ``yield``.
    """
    return in_float64_if(holds_float64(*trees))


def in_float64_if(wanted: bool) -> contextlib.AbstractContextManager[Any]:
    """Context with JAX in float64 if that is wanted, and otherwise as it is."""
    return jax.enable_x64(True) if wanted else contextlib.nullcontext()
