"""Numerics that knows no model: spectral quadratures, root finding, many runs at once."""

import jax

# Every engine computes in float64; see the note in ``solvable/__init__.py``.
jax.config.update("jax_enable_x64", True)
