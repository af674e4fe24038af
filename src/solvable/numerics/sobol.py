"""Quasi-Monte-Carlo points: sequences that fill a box more evenly than random numbers do, and normals made from them.

>>> from solvable.numerics.sobol import sobol_normals
>>> normals = sobol_normals(1024, 3, key=0)
>>> normals.shape, bool(abs(normals.mean(0)).max() < 0.01)
((1024, 3), True)
"""

import functools
import importlib.util
import inspect
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

# scipy ships direction numbers up to this dimension.
SOBOL_LIMIT = 21201
_BITS = 30


def sequence(kind: Any, dimension: int, generator: np.random.Generator, **options: Any) -> Any:
    """A sequence of :mod:`scipy.stats.qmc` that is randomised by a generator."""
    # SciPy renamed the argument in 1.15.
    name = "rng" if "rng" in inspect.signature(kind.__init__).parameters else "seed"
    return kind(dimension, **{name: generator}, **options)


def sobol_normals(count: int, dimension: int, key: int | Sequence[int]) -> Float[np.ndarray, "{count} {dimension}"]:
    """``count`` standard normal vectors from one scrambled Sobol sequence; another ``key`` randomises it differently.

    ``key`` is an integer or a few of them, ``(key, replicate)``. Counts that are powers of two are balanced best. Sobol
    numbers exist for ``SOBOL_LIMIT`` dimensions; the columns beyond are pseudo-random normals, right but noisier.
    """
    from scipy.special import ndtri

    if count < 1 or dimension < 0:
        raise ValueError(f"sobol_normals needs count >= 1 and dimension >= 0, not {count} and {dimension}")
    if count > 2**_BITS:
        raise ValueError(f"sobol_normals draws at most 2^{_BITS} points, not {count}: draw several replicates instead")
    generator = np.random.default_rng(key)
    normals = np.empty((count, dimension))
    even = min(dimension, SOBOL_LIMIT)
    if even:
        # Points sit on a lattice of 2^-30 that holds zero, where the normal would be infinite: move by half a cell.
        normals[:, :even] = ndtri(_scrambled(count, even, generator) + 0.5 ** (_BITS + 1))
    normals[:, even:] = generator.standard_normal((count, dimension - even))
    return normals


def _scrambled(count: int, dimension: int, generator: np.random.Generator) -> Float[np.ndarray, "count dimension"]:
    """The points of ``scipy.stats.qmc.Sobol``, scrambled by the generator.

    The same numbers, from the table of SciPy: importing ``scipy.stats`` takes a second, most of a first prediction.
    """
    table = _table()
    if table is None:
        from scipy.stats import qmc

        points = sequence(qmc.Sobol, dimension, generator, scramble=True, bits=_BITS)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The balance properties", category=UserWarning)
            return points.random(count)
    # SciPy's sequence has a generator of its own.
    generator = generator.spawn(1)[0]
    weights = 2 ** np.arange(_BITS, dtype=np.uint32)
    shift = generator.integers(2, size=(dimension, _BITS), dtype=np.uint32) @ weights
    # Lower triangular matrices over the integers modulo two, one for each dimension, with ones on the diagonal.
    lower = np.tril(generator.integers(2, size=(dimension, _BITS, _BITS), dtype=np.uint32))
    lower[:, np.arange(_BITS), np.arange(_BITS)] = 1
    masks = lower @ weights[::-1]
    directions = _directions(dimension, *table)
    # Bit ``_BITS - 1 - p`` of a scrambled number is the parity of its bits under the p-th mask.
    parities = np.bitwise_count(directions[:, :, None] & masks[:, None, :]) & 1
    scrambled = parities.astype(np.uint32) @ weights[::-1]
    numbers = np.broadcast_to(shift, (count, dimension)).copy()
    places = np.arange(count, dtype=np.uint32)
    gray = places ^ (places >> 1)
    for bit in range(int(count - 1).bit_length()):
        numbers[(gray >> bit) & 1 == 1] ^= scrambled[:, bit]
    return numbers * 0.5**_BITS


def _directions(dimension: int, polynomials: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Direction numbers (Joe and Kuo): the given first ones, and the recurrence of the primitive polynomials."""
    numbers = np.ones((dimension, _BITS), dtype=np.uint64)
    for row in range(1, dimension):
        polynomial = int(polynomials[row])
        degree = polynomial.bit_length() - 1
        found = [int(value) for value in first[row, :degree]]
        for place in range(degree, _BITS):
            new = found[place - degree]
            for step in range(degree):
                if (polynomial >> (degree - 1 - step)) & 1:
                    new ^= found[place - step - 1] << (step + 1)
            found.append(new)
        numbers[row] = found
    return (numbers << np.arange(_BITS - 1, -1, -1, dtype=np.uint64)).astype(np.uint32)


@functools.cache
def _table() -> tuple[np.ndarray, np.ndarray] | None:
    """Polynomials and first direction numbers, as SciPy ships them; None where it does not, or in another form."""
    package = importlib.util.find_spec("scipy")
    folder = None if package is None or package.origin is None else Path(package.origin).parent
    try:
        with np.load(str(folder / "stats" / "_sobol_direction_numbers.npz")) as table:  # type: ignore[operator]
            polynomials, first = table["poly"], table["vinit"]
    except (OSError, KeyError, ValueError, TypeError):
        return None
    known = hasattr(np, "bitwise_count") and polynomials.shape == (SOBOL_LIMIT,) and len(first) == SOBOL_LIMIT
    return (polynomials, first) if known else None
