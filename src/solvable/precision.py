"""Theory is computed in float64, whatever the rest of the process computes in.

Importing ``solvable`` changes nothing for the rest of the process. Its public functions switch JAX to float64 for their
own duration and in their own thread only, and return NumPy arrays:

>>> import jax, solvable
>>> solvable.ScalarNetwork().predict([0.0, 1.0]).test_loss.dtype
dtype('float64')
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from solvable.checks import is_traced

P = ParamSpec("P")
R = TypeVar("R")


def is_float64() -> bool:
    """Whether JAX computes in float64 here and now, in this thread."""
    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64


def in_float64(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: run a function with JAX in float64, and leave JAX as it was afterwards.

    A function that JAX traces cannot change the precision of the trace that it is part of, and says so.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        if is_float64():
            return function(*arguments, **options)
        _refuse_traced(function, (arguments, options))
        with jax.enable_x64(True):
            return function(*arguments, **options)

    return call


def _refuse_traced(function: Callable[..., Any], values: Any) -> None:
    if is_traced(values):
        raise ValueError(
            f"{function.__qualname__} is differentiated or vectorised by JAX in float32, and its numbers need float64: "
            'call jax.config.update("jax_enable_x64", True), or put the transformation into '
            '"with jax.enable_x64(True):"'
        )


def require_float64() -> None:
    """Raise a ValueError with the remedy where JAX computes in float32; for functions that are not decorated."""
    if not is_float64():
        raise ValueError(
            'JAX computes in float32 here, and every number here needs float64: put the call into "with '
            'jax.enable_x64(True):", or call jax.config.update("jax_enable_x64", True)'
        )
