"""How fast gradient flow can relax at given weights: a bound from the spectrum of weighted random inputs.

The curvature of the loss is at most ``(1/gamma) sum_mu a_mu x^mu x^mu^T`` with a positive weight ``a`` for every
sample. Its largest eigenvalue says how long the steps of a stiff flow may be, and which learning rates are stable.
"""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.committee.problem import Problem
from solvable.models.committee.protocol import Weights

if TYPE_CHECKING:
    from solvable.models.committee.closure import LatentClosure

# Where the edge of a spectrum is looked for, relative to the largest weight of a sample.
_CANDIDATES = 1 + np.geomspace(1e-3, 1e3, 61)


def fastest_rate(problem: Problem, closure: "LatentClosure", weights: Weights) -> float:
    """An upper bound, from the samples, on the rate of the fastest relaxation of gradient flow at these weights."""
    bounds = _curvature_bound(problem.task, closure.fields(weights), closure.index_fields, closure.labels)
    if jax.default_backend() == "cpu":
        bounds = np.asarray(bounds)
    return largest_rate(bounds, float(problem.samples_per_dimension))


@jax.jit
def _curvature_bound(problem: Problem, *of_samples: Any) -> Array:
    return problem.curvature_bound(*of_samples)


def largest_rate(bounds: Float[np.ndarray, "sample"] | Float[Array, "sample"], ratio: float) -> float:
    """Upper edge of the spectrum of ``(1/gamma) sum_mu a_mu x^mu x^mu^T``, for positive weights ``a`` of the samples.

    The edge of a weighted Wishart matrix, ``min over y > max a of y/gamma + y <a / (y - a)>``; for a = 1 it is
    ``(1 + 1/sqrt gamma)^2``. It bounds how fast anything can relax, hence which learning rate is stable.
    """
    if not isinstance(bounds, np.ndarray):
        return float(_largest_rate(bounds, ratio))
    top = max(float(np.max(bounds)), 1e-300)
    if not np.isfinite(top):
        return top
    return min(float(y / ratio + y * np.mean(bounds / (y - bounds))) for y in top * _CANDIDATES)


@jax.jit
def _largest_rate(bounds: Array, ratio: float) -> Array:
    top = jnp.maximum(jnp.max(bounds), 1e-300)
    found = jax.lax.map(lambda y: y / ratio + y * jnp.mean(bounds / (y - bounds)), top * _CANDIDATES)
    return jnp.where(jnp.isfinite(top), jnp.min(found), top)
