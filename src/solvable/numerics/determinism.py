"""Deterministic kernels: programs that give the same bits whenever they are compiled, on a GPU as on a CPU.

The compiler of a GPU times several kernels for each operation and takes the fastest, which is another one on another
day; some add numbers in the order in which they happen to arrive. Inside :func:`deterministic_kernels` it is asked for
neither. On a CPU nothing changes.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax

from solvable.checks import is_traced

# What XLA calls it. It implies that no kernel is chosen by timing.
COMPILER_OPTIONS = {"xla_gpu_deterministic_ops": True}

_wanted = contextvars.ContextVar("deterministic_kernels", default=False)


@contextlib.contextmanager
def deterministic_kernels(wanted: bool = True) -> Iterator[None]:
    """Context in which functions decorated with :func:`jit` are compiled with deterministic kernels.

    Parameters
    ----------
    wanted
        Whether they are; with False the context changes nothing.
    """
    token = _wanted.set(wanted or _wanted.get())
    try:
        yield
    finally:
        _wanted.reset(token)


def compiler_options() -> dict[str, bool] | None:
    """Options for ``jax.jit`` in this context; None for those of the compiler."""
    return dict(COMPILER_OPTIONS) if _wanted.get() and jax.default_backend() == "gpu" else None


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """``equinox.filter_jit`` that follows :func:`deterministic_kernels`. Each kind of program is compiled once.

    Parameters
    ----------
    function
        The function to compile.
    """
    usual = eqx.filter_jit(function)
    # Equinox passes what it does not know on to jax.jit.
    fixed = eqx.filter_jit(function, compiler_options=COMPILER_OPTIONS)  # type: ignore[call-overload]

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        # Inside another compiled function the options are those of that one.
        inside = compiler_options() is None or is_traced((arguments, options))
        return (usual if inside else fixed)(*arguments, **options)

    return call
