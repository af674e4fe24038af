"""Theory is computed in float64, whatever precision the rest of the process uses.

Importing ``solvable`` changes nothing for the rest of the process. Its public functions switch JAX to float64 only
while they run and only in their own thread, and return NumPy arrays:

>>> import jax, solvable
>>> solvable.ScalarNetwork().predict([0.0, 1.0]).test_loss.dtype
dtype('float64')
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import numpy as np

from solvable.checks import is_traced

P = ParamSpec("P")
R = TypeVar("R")


def is_float64() -> bool:
    """Whether JAX currently computes in float64 in this thread."""
    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64


def in_float64(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: run a function with JAX in float64, and restore the precision afterwards.

    A function that is traced by JAX cannot change the precision of the trace; in float32 it raises a ValueError.

    Parameters
    ----------
    function
        The function to decorate.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        if is_float64():
            return function(*arguments, **options)
        if is_traced((arguments, options)):
            raise ValueError(
                f"{function.__qualname__} is differentiated or vectorised by JAX in float32, but needs float64: call "
                'jax.config.update("jax_enable_x64", True), or put the transformation into '
                '"with jax.enable_x64(True):"'
            )
        with jax.enable_x64(True):
            return function(*arguments, **options)

    return call


def require_float64() -> None:
    """Raise a ValueError if JAX computes in float32; for functions that are not decorated."""
    if not is_float64():
        raise ValueError(
            'JAX computes in float32 here, but this function needs float64: put the call into "with '
            'jax.enable_x64(True):", or call jax.config.update("jax_enable_x64", True)'
        )
