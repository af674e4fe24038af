"""A second-order explicit integrator for stiff gradient flows: Runge-Kutta-Chebyshev, which Diffrax lacks.

A flow whose slowest direction matters at times far beyond its fastest one is stiff. Implicit schemes need an inner
solve for every step; the Chebyshev scheme of Sommeijer, Shampine and Verwer (RKC2) instead takes s explicit stages,
stable up to ``step * rate = 0.65 (s^2 - 1)``: the cost of a step grows only as the square root of its length.

States may grow: a velocity may have more columns (last axis) than the state it belongs to. Columns missing count as
zero.

>>> from solvable.models.committee.stabilised import stages_needed
>>> stages_needed(step=1.0, rate=1.0), stages_needed(step=1.0, rate=1000.0)
(2, 40)
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_DAMPING = 2 / 13


class _Scheme(NamedTuple):
    first: float
    mu: list[float]
    nu: list[float]
    mu_velocity: list[float]
    gamma_velocity: list[float]


def stages_needed(step: float, rate: float) -> int:
    """The fewest stages (2 at least) that keep a step stable where the flow relaxes at up to ``rate``."""
    return max(2, 1 + math.floor(math.sqrt(1 + 1.54 * step * rate)))


@lru_cache(maxsize=256)
def _scheme(stages: int) -> _Scheme:
    """The coefficients, from Chebyshev polynomials and their derivatives at ``1 + damping / stages^2``."""
    at = 1 + _DAMPING / stages**2
    value, slope, bend = [1.0, at], [0.0, 1.0], [0.0, 0.0]
    for _ in range(2, stages + 1):
        bend.append(2 * at * bend[-1] - bend[-2] + 4 * slope[-1])
        slope.append(2 * at * slope[-1] - slope[-2] + 2 * value[-1])
        value.append(2 * at * value[-1] - value[-2])
    width = slope[stages] / bend[stages]
    b = [bend[j] / slope[j] ** 2 if j >= 2 else 0.0 for j in range(stages + 1)]
    b[0] = b[1] = b[2]
    a = [1 - b[j] * value[j] for j in range(stages + 1)]
    indices = range(2, stages + 1)
    mu = [2 * b[j] * at / b[j - 1] for j in indices]
    nu = [-b[j] / b[j - 2] for j in indices]
    mu_velocity = [2 * b[j] * width / b[j - 1] for j in indices]
    gamma_velocity = [-a[j - 1] * tilde for j, tilde in zip(indices, mu_velocity, strict=True)]
    return _Scheme(b[1] * width, mu, nu, mu_velocity, gamma_velocity)


def chebyshev_step(
    velocity: Callable[[Array], Array],
    state: Float[Array, "row column"],
    first_velocity: Float[Array, "row column2"],
    step: float,
    stages: int,
) -> Float[Array, "row column3"]:
    """The state after ``step``, from its velocity at the beginning and ``stages - 1`` evaluations more."""
    scheme = _scheme(stages)
    before, now = state, combine((1.0, scheme.first * step), (state, first_velocity))
    for mu, nu, mu_velocity, gamma_velocity in zip(*scheme[1:], strict=True):
        weights = (1 - mu - nu, mu, nu, mu_velocity * step, gamma_velocity * step)
        before, now = now, combine(weights, (state, now, before, velocity(now), first_velocity))
    return now


def local_error(
    state: Float[Array, "row column"],
    velocity: Float[Array, "row column2"],
    next_state: Float[Array, "row column3"],
    next_velocity: Float[Array, "row column4"],
    step: float,
) -> Float[Array, "row column5"]:
    """The scheme's own estimate of the error made in one step, ``0.8 (y0 - y1) + 0.4 h (f0 + f1)``: third order."""
    return combine((0.8, -0.8, 0.4 * step, 0.4 * step), (state, next_state, velocity, next_velocity))


def combine(weights: Sequence[float], arrays: Sequence[Array]) -> Array:
    """``sum_i weights[i] arrays[i]``, narrower arrays padded by zeros."""
    widest = max(array.shape[-1] for array in arrays)
    padded = [
        array if array.shape[-1] == widest else jnp.pad(array, ((0, 0), (0, widest - array.shape[-1])))
        for array in arrays
    ]
    return _combine(np.asarray(weights, dtype=float), padded)


@jax.jit
def _combine(weights: Array, arrays: list[Array]) -> Array:
    return sum(weights[i] * array for i, array in enumerate(arrays))  # type: ignore[return-value]


def geometric_steps(begin: float, end: float, ratio: float, shift: float) -> Float[np.ndarray, "step"]:
    """Steps from ``begin`` to ``end`` whose lengths grow with ``t + shift``, each at most ``ratio`` times the last."""
    count = max(1, math.ceil(math.log((end + shift) / (begin + shift)) / math.log(ratio) - 1e-9))
    nodes = np.geomspace(begin + shift, end + shift, count + 1) - shift
    nodes[0], nodes[-1] = begin, end
    return np.diff(nodes)
