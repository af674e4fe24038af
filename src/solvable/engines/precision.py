"""Theory is computed in float64, and never silently in anything less.

Importing ``solvable`` switches JAX to float64 for the whole process. A user may switch it back, and every result would
then be wrong from the seventh digit on, with error estimates that read zero because both estimates round alike.
"""

import jax
import numpy as np


def require_float64() -> None:
    """Raise a ValueError with the remedy where JAX computes in float32.

    >>> from solvable.engines.precision import require_float64
    >>> require_float64()
    """
    if jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
        raise ValueError(
            "JAX computes in float32 here, because jax_enable_x64 was switched off after solvable was imported, and "
            'every number here needs float64: call jax.config.update("jax_enable_x64", True)'
        )
