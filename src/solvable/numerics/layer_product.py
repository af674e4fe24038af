"""The exact flow of a product of two layers, in a form that loses no digits.

Many pairs (a_i, b_i) learn one number ``theta = sum_i a_i b_i / Z`` by gradient flow towards ``S``. Sums ``a_i + b_i``
grow by the factor ``sqrt(gamma)`` and differences ``a_i - b_i`` shrink by it, the same for every pair, and gamma obeys
the Riccati equation ``d gamma / dy = Q + 2 S gamma - P gamma^2`` from ``gamma(0) = 1``, with

    P = sum (a_i + b_i)^2 / (2 Z),    Q = sum (a_i - b_i)^2 / (2 Z),    y = E[x^2] t / Z.

With ``K = sqrt(P Q + S^2)``, ``T = tanh(K y) / K`` and ``w = 1 - K T`` its solution is ``gamma = N / D``,

    N = w + (K + S + Q) T,    D = w + (K - S + P) T,    S - theta = (S - theta(0)) w (2 - w) / (N D).

Every sum above has positive terms only, once the smaller of ``K + S`` and ``K - S`` is taken as ``P Q`` over the larger
one: that is what keeps all digits at tiny and at opposed layers. P and Q must come from sums and differences of the
layers, never from ``sum a^2 + b^2`` and ``sum a b``, whose difference cancels.

>>> from solvable.numerics.layer_product import flow, time_to_reach
>>> half = time_to_reach(0.5, 1e-4, 0.0, 1.0)
>>> round(float(half), 3), round(float(flow(1e-4, 0.0, 1.0, half).remaining), 6)
(4.952, 0.500025)
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from solvable.checks import is_traced
from solvable.precision import in_float64

# Squares of squares of the layers must neither overflow nor vanish.
SMALLEST, LARGEST = 1e-70, 1e70
# Bounds the growth of what is zero, of which only the derivative is left.
_SMALLEST_ROOT = 1e-150


class Flow(NamedTuple):
    """``growth`` is gamma; ``remaining`` is ``(S - theta(t)) / (S - theta(0))``, between 1 and 0."""

    growth: Float[Array, "*shape"]
    remaining: Float[Array, "*shape"]


@in_float64
def aligned_and_opposed(
    first: ArrayLike, second: ArrayLike, scale: ArrayLike = 1.0, axis: int | None = None
) -> tuple[Array, Array]:
    """P and Q of the layers: over all pairs along ``axis``, or pair by pair if None."""
    first, second = jnp.asarray(first), jnp.asarray(second)
    aligned, opposed = (first + second) ** 2 / (2 * scale), (first - second) ** 2 / (2 * scale)
    return (aligned, opposed) if axis is None else (aligned.sum(axis), opposed.sum(axis))


@in_float64
@jax.jit
def flow(aligned: ArrayLike, opposed: ArrayLike, target: ArrayLike, clock: ArrayLike) -> Flow:
    """gamma and the remaining error after the time ``clock`` (y above); the arguments broadcast."""
    aligned, opposed, target, clock = jnp.broadcast_arrays(*map(jnp.asarray, (aligned, opposed, target, clock)))
    speed, speed_plus, speed_minus = _speeds(aligned, opposed, target)
    still = speed == 0
    safe_speed = jnp.where(still, 1.0, speed)
    decay = jnp.where(still, 1.0, jnp.exp(-2 * speed * clock))
    saturation = -jnp.expm1(-2 * speed * clock) / (1 + decay)
    unsaturated = 2 * decay / (1 + decay)
    elapsed = jnp.where(still, clock, saturation / safe_speed)
    numerator = unsaturated + (speed_plus + opposed) * elapsed
    denominator = unsaturated + (speed_minus + aligned) * elapsed
    smaller, larger = jnp.minimum(numerator, denominator), jnp.maximum(numerator, denominator)
    # One of the two may be ``unsaturated`` itself, which underflows: their ratio is then one, not 0 / 0.
    vanished = smaller == 0
    share = jnp.where(vanished, 1.0, unsaturated / jnp.where(vanished, 1.0, smaller))
    return Flow(numerator / denominator, share * (1 + saturation) / larger)


@in_float64
@jax.jit
def final_growth(aligned: ArrayLike, opposed: ArrayLike, target: ArrayLike) -> Array:
    """gamma as time goes to infinity: ``(S + K) / P``; infinite without any aligned part, if the target is positive.

    Without aligned part the start lies on the stable manifold of the saddle: differences vanish, nothing is learned.
    """
    aligned, opposed, target = jnp.broadcast_arrays(*map(jnp.asarray, (aligned, opposed, target)))
    _, speed_plus, speed_minus = _speeds(aligned, opposed, target)
    top, bottom = jnp.where(target >= 0, speed_plus, opposed), jnp.where(target >= 0, aligned, speed_minus)
    never_moves = (target == 0) & (opposed == 0)
    unbounded = jnp.where(never_moves, 1.0, jnp.inf)
    return jnp.where(bottom == 0, unbounded, top / jnp.where(bottom == 0, 1.0, bottom))


@in_float64
@jax.jit
def time_to_reach(fraction: ArrayLike, aligned: ArrayLike, opposed: ArrayLike, target: ArrayLike) -> Array:
    """The clock y at which ``theta / S`` reaches a fraction in (0, 1); 0 if it starts beyond, infinite if never.

    From ``exp(-2 K y) = (gamma_+ - gamma)(1 - gamma_-) / ((gamma - gamma_-)(gamma_+ - 1))``, all four differences
    written without cancellation. A negative target is a positive one with one layer's sign changed.
    """
    fraction, aligned, opposed, target = jnp.broadcast_arrays(*map(jnp.asarray, (fraction, aligned, opposed, target)))
    positive = target > 0
    aligned, opposed = jnp.where(positive, aligned, opposed), jnp.where(positive, opposed, aligned)
    size = jnp.abs(target)
    speed = jnp.sqrt(aligned * opposed + size**2)
    slack = aligned * opposed / (speed + size)
    start = (aligned - opposed) / 2 / size

    def below_target(part: Array, inner: Array) -> Array:
        return (1 - part) * size * (1 + size * (1 + part) / (speed + inner))

    inner = jnp.sqrt(aligned * opposed + (fraction * size) ** 2)
    there = below_target(fraction, inner) * (aligned + slack)
    here = below_target(start, (aligned + opposed) / 2) * (fraction * size + inner + slack)
    learns = there > 0
    waits = start < fraction
    ratio = jnp.where(learns & waits, here / jnp.where(learns, there, 1.0), 1.0)
    return jnp.where(~waits, 0.0, jnp.where(learns, jnp.log(ratio) / (2 * speed), jnp.inf))


@in_float64
@jax.jit
def layers_at(first: ArrayLike, second: ArrayLike, growth: ArrayLike) -> tuple[Array, Array]:
    """The layers when their sums have grown by ``sqrt(gamma)`` and their differences shrunk by it (eqs. 6.10, 6.11)."""
    first, second, root = jnp.asarray(first), jnp.asarray(second), jnp.sqrt(growth)
    together, apart = (first + second) / 2, (first - second) / 2
    # A sum that is zero stays zero however large the factor has become, and likewise a difference. Their derivatives
    # are that factor, as large as it is but finite.
    bounded = jax.lax.stop_gradient(jnp.clip(root, _SMALLEST_ROOT, 1 / _SMALLEST_ROOT))
    together = together * jnp.where(together == 0, bounded, root)
    apart = apart / jnp.where(apart == 0, bounded, root)
    return together + apart, together - apart


def _speeds(aligned: Array, opposed: Array, target: Array) -> tuple[Array, Array, Array]:
    """K, K + S and K - S."""
    square = aligned * opposed + target**2
    still = square == 0
    speed = jnp.where(still, 0.0, jnp.sqrt(jnp.where(still, 1.0, square)))
    positive = target >= 0
    large = speed + jnp.where(positive, target, -target)
    small = aligned * opposed / jnp.where(still, 1.0, large)
    # Where nothing moves exponentially, K adds nothing and the target enters linearly: its derivative is then right.
    plus = jnp.where(still, target, jnp.where(positive, large, small))
    minus = jnp.where(still, -target, jnp.where(positive, small, large))
    return speed, plus, minus


def check_sizes(name: str, values: Any) -> None:
    """Raise a ValueError that names the first number whose fourth power is beyond the range of float64; zero passes.

    Traced values pass.
    """
    if is_traced(values):
        return
    sizes = np.atleast_1d(np.abs(np.asarray(values, dtype=float)))
    outside = (sizes != 0) & ((sizes < SMALLEST) | (sizes > LARGEST))
    if outside.any():
        place = int(np.argmax(outside))
        raise ValueError(
            f"{name} must be zero or between {SMALLEST:g} and {LARGEST:g} in size, but has {sizes[place]:g} at "
            f"place {place}: its fourth power would be beyond the range of float64; change the units"
        )
