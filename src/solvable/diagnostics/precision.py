"""The precision of a network and of its numbers: how it is run, and what rounding alone can produce.

A network runs in the precision of the program that it comes from: with JAX in float32, unless the caller has switched
float64 on or the network holds float64 arrays. Networks that create arrays themselves (``jnp.zeros(3)`` as the first
state of a scan) then return the same here as there.

Features and kernels are summed in float64, but they are only as accurate as the numbers that were given. Tolerances for
float64 would take the rounding errors of a float16 or float32 network for directions of its features.
"""

import contextlib
from typing import Any, NamedTuple

import jax
import numpy as np

from solvable.diagnostics.batches import library_of, to_numpy

# Bits of the significand, including the leading one.
PRECISIONS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
_WIDE = (np.dtype(np.float64), np.dtype(np.complex128))
# This many entries of an array are examined to see whether they were rounded to fewer bits than the array has.
_EXAMINED = 1_000_000


def holds_float64(*trees: Any) -> bool:
    """Whether a JAX array in these PyTrees is in float64, which JAX would truncate outside its float64 mode."""
    return any(isinstance(leaf, jax.Array) and leaf.dtype in _WIDE for leaf in jax.tree.leaves(trees))


def precision_of(*trees: Any) -> contextlib.AbstractContextManager[Any]:
    """Context in which JAX keeps these arrays as they are: float64 if one of them is, else the caller's setting.

    Leave it before control returns to the user, in particular before a ``yield``.
    """
    return in_float64_if(holds_float64(*trees))


def in_float64_if(condition: bool) -> contextlib.AbstractContextManager[Any]:
    """Context with JAX in float64 if the condition holds, and otherwise with JAX as it is."""
    return jax.enable_x64(True) if condition else contextlib.nullcontext()


class Rounding(NamedTuple):
    """A floating-point format: its name, and whether it was ``found`` in the entries of an array of a wider type."""

    name: str = "float64"
    found: bool = False

    @property
    def unit(self) -> float:
        """The distance from 1 to the next representable number."""
        return 2.0 ** (1 - PRECISIONS[self.name])

    @property
    def error(self) -> float:
        """Bound on the relative error of a computed number.

        Two units for the number itself and those it was computed from, and eight of the arithmetic, which runs in
        float32 at least: matrix products in half precision are accumulated in float32.
        """
        return max(2 * self.unit, 8 * min(self.unit, 2.0**-23))

    def __str__(self) -> str:
        return f"{self.name} (numbers rounded to it in a wider array)" if self.found else self.name


FLOAT64 = Rounding()


def coarser(first: Rounding, second: Rounding) -> Rounding:
    """The format of lower precision."""
    return second if second.unit > first.unit else first


def rounding_of(array: Any) -> Rounding:
    """The precision of an array: that of its type, or a lower one if all of its entries were rounded to it.

    Integers are exact, and count as float64.
    """
    if not hasattr(array, "dtype"):
        array = np.asarray(array)
    name = str(array.dtype).rpartition(".")[2]
    if name not in PRECISIONS:
        return FLOAT64
    found = None if name in ("float16", "bfloat16") else _rounded_to(array, PRECISIONS[name])
    return Rounding(name) if found is None else Rounding(found, True)


def _rounded_to(array: Any, bits: int) -> str | None:
    """A format with fewer bits to which the entries appear to have been rounded; None if there is none.

    Counts, indicators and other multiples of a common step also need few bits, but are exact. Rounded numbers use all
    bits of their format, at many exponents, so that no fixed-point format of as few bits can hold them.
    """
    numbers = _first_entries(array)
    if not np.isfinite(numbers).all() or not numbers.any():
        return None
    used = _significant_bits(numbers)
    for name in ("bfloat16", "float16", "float32"):
        available = PRECISIONS[name]
        if used in (available - 1, available) and available < bits and _fixed_point_bits(numbers) > used + 1:
            return name
    return None


def examined_rows(array: Any, limit: int = _EXAMINED // 100) -> int:
    """How many rows of an array on an accelerator :func:`rounding_of` looks at."""
    shape = tuple(array.shape)
    return max(1, limit // max(1, int(np.prod(shape[1:], dtype=float)))) if shape else 1


def _first_entries(array: Any) -> np.ndarray:
    """Entries of an array in float64 on the host; the first rows of a large array, or of one on an accelerator."""
    shape = tuple(array.shape)
    rows = examined_rows(array, _EXAMINED if library_of(array) == "numpy" else _EXAMINED // 100)
    return np.ascontiguousarray(to_numpy(array[:rows] if shape else array), np.float64).ravel()


def _significant_bits(numbers: np.ndarray) -> int:
    """The largest number of bits, from the leading to the last non-zero one, that any of the numbers needs."""
    fractions = int(np.bitwise_or.reduce(numbers.view(np.uint64)) & np.uint64(2**52 - 1))
    return 53 - (52 if fractions == 0 else (fractions & -fractions).bit_length() - 1)


def _fixed_point_bits(numbers: np.ndarray) -> int:
    """Bits of the largest number, in units of the largest power of two of which all are multiples."""
    numbers = np.abs(numbers[numbers != 0])
    fraction, exponent = np.frexp(numbers)
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    lowest = exponent - 53 + np.log2((mantissa & -mantissa).astype(float)).astype(int)
    return int(exponent.max() - lowest.min())
