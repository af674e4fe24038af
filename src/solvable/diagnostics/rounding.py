"""The precision of the numbers that were given, and what rounding alone can make of them.

Features and kernels are added up in float64, but they are only as good as the numbers that went in. A tolerance that
follows float64 would take the rounding of a float16 or float32 network for directions of its features.
"""

from typing import Any, NamedTuple

import numpy as np

from solvable.diagnostics.batches import library_of, to_numpy

# Bits of the significand, the leading one included.
PRECISIONS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
# So many numbers of an array tell whether they were rounded to fewer bits than the array has.
_LOOKED_AT = 1_000_000


class Rounding(NamedTuple):
    """A floating-point format: its name, and whether it was ``found`` in the numbers of a wider array."""

    name: str = "float64"
    found: bool = False

    @property
    def unit(self) -> float:
        """The distance from 1 to the next number."""
        return 2.0 ** (1 - PRECISIONS[self.name])

    @property
    def error(self) -> float:
        """How far, relatively, a computed number may be off.

        Two units for the numbers themselves and those they were made from, and eight of the arithmetic, which runs in
        float32 at least: matrix products of half precision are added up in float32.
        """
        return max(2 * self.unit, 8 * min(self.unit, 2.0**-23))

    def __str__(self) -> str:
        return f"{self.name} (numbers rounded to it in a wider array)" if self.found else self.name


FLOAT64 = Rounding()


def coarser(first: Rounding, second: Rounding) -> Rounding:
    """The one of lower precision."""
    return second if second.unit > first.unit else first


def rounding_of(array: Any) -> Rounding:
    """The precision of an array: that of its type, or a lower one if all of its numbers were rounded to it.

    Integers are exact, and count as float64.
    """
    name = str(getattr(array, "dtype", "float64")).rpartition(".")[2]
    if name not in PRECISIONS:
        return FLOAT64
    found = None if name in ("float16", "bfloat16") else _rounded_to(array, PRECISIONS[name])
    return Rounding(name) if found is None else Rounding(found, True)


def _rounded_to(array: Any, bits: int) -> str | None:
    """A format with fewer bits that holds every number of the array, if the numbers look as if rounded to it.

    Counts, indicators and other multiples of a common step also need few bits, but are exact. Rounded numbers use all
    bits of their format, at many exponents, so that no common step of as few bits holds them.
    """
    numbers = _some(array)
    if not np.isfinite(numbers).all() or not numbers.any():
        return None
    used = _significant_bits(numbers)
    for name in ("bfloat16", "float16", "float32"):
        if (
            used in (PRECISIONS[name] - 1, PRECISIONS[name])
            and PRECISIONS[name] < bits
            and _fixed_point_bits(numbers) > used + 1
        ):
            return name
    return None


def _some(array: Any) -> np.ndarray:
    """Numbers of an array in float64 on the host; of a large array, or one on an accelerator, the first rows."""
    shape = tuple(array.shape)
    most = _LOOKED_AT if library_of(array) == "numpy" else _LOOKED_AT // 100
    rows = max(1, most // max(1, int(np.prod(shape[1:], dtype=float)))) if shape else 1
    return np.ascontiguousarray(to_numpy(array[:rows] if shape else array), np.float64).ravel()


def _significant_bits(numbers: np.ndarray) -> int:
    """The largest number of bits, from the leading to the last that is set, that any of the numbers needs."""
    fractions = int(np.bitwise_or.reduce(numbers.view(np.uint64)) & np.uint64(2**52 - 1))
    return 53 - (52 if fractions == 0 else (fractions & -fractions).bit_length() - 1)


def _fixed_point_bits(numbers: np.ndarray) -> int:
    """Bits of the largest number in units of the largest power of two of which all are multiples."""
    numbers = np.abs(numbers[numbers != 0])
    fraction, exponent = np.frexp(numbers)
    whole = np.ldexp(fraction, 53).astype(np.int64)
    lowest = exponent - 53 + np.log2((whole & -whole).astype(float)).astype(int)
    return int(exponent.max() - lowest.min())
