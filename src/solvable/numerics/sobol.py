"""Quasi-Monte-Carlo points: sequences that fill a box more evenly than random numbers do, and normals made from them.

>>> from solvable.numerics.sobol import sobol_normals
>>> normals = sobol_normals(1024, 3, key=0)
>>> normals.shape, bool(abs(normals.mean(0)).max() < 0.01)
((1024, 3), True)
"""

import inspect
import warnings
from collections.abc import Sequence
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
    from scipy.stats import qmc

    if count < 1 or dimension < 0:
        raise ValueError(f"sobol_normals needs count >= 1 and dimension >= 0, not {count} and {dimension}")
    if count > 2**_BITS:
        raise ValueError(f"sobol_normals draws at most 2^{_BITS} points, not {count}: draw several replicates instead")
    generator = np.random.default_rng(key)
    normals = np.empty((count, dimension))
    even = min(dimension, SOBOL_LIMIT)
    if even:
        points = sequence(qmc.Sobol, even, generator, scramble=True, bits=_BITS)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The balance properties", category=UserWarning)
            uniform = points.random(count)
        # Points sit on a lattice of 2^-30 that holds zero, where the normal would be infinite: move by half a cell.
        normals[:, :even] = ndtri(uniform + 0.5 ** (_BITS + 1))
    normals[:, even:] = generator.standard_normal((count, dimension - even))
    return normals
