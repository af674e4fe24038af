"""How often the mean square of Gaussian errors stays below a threshold, and the inverse of that.

>>> from solvable.models.linear_estimator.chi_square import probability_below
>>> round(float(probability_below(1e-3, 0.26032e-3, 1)), 4)
0.95
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammainc, gammaln, ndtri
from jaxtyping import Array
from scipy import special

from solvable.checks import is_traced
from solvable.precision import in_float64


@in_float64
def probability_below(threshold: Any, mean_square: Any, degrees: Any) -> Any:
    """``Pr(q <= threshold)`` for ``q`` of mean ``mean_square`` distributed as chi-square with ``degrees`` of freedom.

    For ``degrees = n`` this is the chance that the mean of ``n`` squared Gaussian errors, each of variance
    ``mean_square``, is at most ``threshold``. A zero ``mean_square`` is certain success.
    """
    if not is_traced(threshold, mean_square, degrees):
        # SciPy needs no compilation, which for JAX's function takes a second.
        return _on_the_host(*map(np.asarray, (threshold, mean_square, degrees)))
    half = jnp.asarray(degrees, float) / 2
    mean_square = jnp.asarray(mean_square, float)
    positive = jnp.where(mean_square > 0, mean_square, 1.0)
    below = gammainc(half, half * threshold / positive)
    return jnp.where(mean_square > 0, below, 1.0)


def _on_the_host(threshold: np.ndarray, mean_square: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    half = degrees / 2
    positive = np.where(mean_square > 0, mean_square, 1.0)
    # The smallest numbers are far below any threshold.
    with np.errstate(over="ignore"):
        return np.where(mean_square > 0, special.gammainc(half, half * threshold / positive), 1.0)


@in_float64
def mean_square_for(probability: Array | float, threshold: Array | float, degrees: Array | float) -> Array:
    """The mean square at which :func:`probability_below` equals ``probability``."""
    half = jnp.asarray(degrees, float) / 2
    probability = jnp.asarray(probability, float)
    # Smooth in the threshold only: the degrees of freedom are a count, the probability a convention.
    return threshold * half / _inverse_gammainc(jax.lax.stop_gradient(half), jax.lax.stop_gradient(probability))


# Outside of a compiled function, a loop compiles anew at every call: half a second each time.
@jax.jit
def _inverse_gammainc(a: Array, probability: Array) -> Array:
    """``x`` with ``P(a, x) = probability``, by Newton's method in ``log x`` kept inside a bracket."""

    def residual(log_x: Array) -> Array:
        return gammainc(a, jnp.exp(log_x)) - probability

    def narrow(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, log_x = state
        error = residual(log_x)
        low, high = jnp.where(error < 0, log_x, low), jnp.where(error < 0, high, log_x)
        slope = jnp.exp(a * log_x - jnp.exp(log_x) - gammaln(a))
        proposal = log_x - error / slope
        return low, high, jnp.where((proposal >= low) & (proposal <= high), proposal, (low + high) / 2)

    # Wilson-Hilferty: the cube root of a chi-square variable is nearly Gaussian.
    cube_root = 1 - 1 / (9 * a) + ndtri(probability) / (3 * jnp.sqrt(a))
    guess = jnp.log(a) + 3 * jnp.log(jnp.maximum(cube_root, 1e-3))
    state = (jnp.full_like(guess, -700.0), jnp.log(a) + 50.0 / jnp.sqrt(a) + 5.0, guess)
    return jnp.exp(jax.lax.fori_loop(0, 40, narrow, state)[2])
