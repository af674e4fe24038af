"""Formulas that NumPy computes at once, and that JAX compiles only where it differentiates or vectorises them.

Compiling a formula takes JAX up to seconds, and computing it at a few hundred times takes NumPy a millisecond. Such
formulas are written once, for the array module that they get as their first argument:

>>> import jax
>>> from solvable.numerics.arrays import numpy_unless_traced
>>> @numpy_unless_traced
... def cube(xp, values):
...     return xp.asarray(values) ** 3
>>> type(cube(2.0)), float(jax.grad(cube)(2.0))
(<class 'numpy.float64'>, 12.0)
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.checks import is_traced
from solvable.precision import in_float64


def numpy_unless_traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for a function of an array module and of arrays, or PyTrees of them.

    The decorated function takes the arrays alone. If JAX traces one of them, the function is compiled and gets
    ``jax.numpy``. Otherwise it gets NumPy and NumPy arrays, and floating-point warnings are off, as they are in JAX.

    Parameters
    ----------
    function
        The function to decorate.
    """
    compiled = in_float64(jax.jit(functools.partial(function, jnp)))

    @functools.wraps(function)
    def call(*arrays: Any) -> Any:
        if is_traced(arrays):
            return compiled(*arrays)
        with np.errstate(all="ignore"):
            return function(np, *jax.tree.map(np.asarray, arrays))

    del call.__wrapped__  # type: ignore[attr-defined]
    return call


def array_module(*values: Any) -> Any:
    """``jax.numpy`` if JAX traces one of the values, NumPy otherwise.

    Parameters
    ----------
    *values
        Arrays, or PyTrees of them.
    """
    return jnp if is_traced(*values) else np


def stop_gradient(xp: ModuleType, values: Any) -> Any:
    """The values, as constants to the derivatives of JAX.

    Parameters
    ----------
    xp
        The array module.
    values
        Arrays, or PyTrees of them.
    """
    return values if xp is np else jax.lax.stop_gradient(values)
