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

import numpy as np
from jaxtyping import Array, ArrayLike, Float

from solvable.checks import is_traced
from solvable.numerics.arrays import numpy_unless_traced, stop_gradient

# Squares of squares of the layers must neither overflow nor vanish.
SMALLEST, LARGEST = 1e-70, 1e70
# Bounds the growth of what is zero, of which only the derivative is left.
_SMALLEST_ROOT = 1e-150

# Traced by JAX, or of NumPy.
Numbers = Array | np.ndarray


class Flow(NamedTuple):
    """``growth`` is gamma; ``remaining`` is ``(S - theta(t)) / (S - theta(0))``, between 1 and 0."""

    growth: Float[Numbers, "*shape"]
    remaining: Float[Numbers, "*shape"]


def aligned_and_opposed(
    first: ArrayLike, second: ArrayLike, scale: ArrayLike = 1.0, axis: int | None = None
) -> tuple[Numbers, Numbers]:
    """P and Q of the layers: over all pairs along ``axis``, or pair by pair if None."""
    aligned, opposed = _sums_and_differences(first, second, scale)
    return (aligned, opposed) if axis is None else (aligned.sum(axis), opposed.sum(axis))


@numpy_unless_traced
def _sums_and_differences(xp: Any, first: Any, second: Any, scale: Any) -> tuple[Any, Any]:
    return (first + second) ** 2 / (2 * scale), (first - second) ** 2 / (2 * scale)


@numpy_unless_traced
def flow(xp: Any, aligned: Any, opposed: Any, target: Any, clock: Any) -> Flow:
    """gamma and the remaining error after the time ``clock`` (y above); the arguments broadcast."""
    aligned, opposed, target, clock = xp.broadcast_arrays(*map(xp.asarray, (aligned, opposed, target, clock)))
    speed, speed_plus, speed_minus = _speeds(xp, aligned, opposed, target)
    still = speed == 0
    safe_speed = xp.where(still, 1.0, speed)
    decay = xp.where(still, 1.0, xp.exp(-2 * speed * clock))
    saturation = -xp.expm1(-2 * speed * clock) / (1 + decay)
    unsaturated = 2 * decay / (1 + decay)
    elapsed = xp.where(still, clock, saturation / safe_speed)
    numerator = unsaturated + (speed_plus + opposed) * elapsed
    denominator = unsaturated + (speed_minus + aligned) * elapsed
    smaller, larger = xp.minimum(numerator, denominator), xp.maximum(numerator, denominator)
    # One of the two may be ``unsaturated`` itself, which underflows: their ratio is then one, not 0 / 0.
    vanished = smaller == 0
    share = xp.where(vanished, 1.0, unsaturated / xp.where(vanished, 1.0, smaller))
    return Flow(numerator / denominator, share * (1 + saturation) / larger)


@numpy_unless_traced
def final_growth(xp: Any, aligned: Any, opposed: Any, target: Any) -> Numbers:
    """gamma as time goes to infinity: ``(S + K) / P``; infinite without any aligned part, if the target is positive.

    Without aligned part the start lies on the stable manifold of the saddle: differences vanish, nothing is learned.
    """
    aligned, opposed, target = xp.broadcast_arrays(*map(xp.asarray, (aligned, opposed, target)))
    _, speed_plus, speed_minus = _speeds(xp, aligned, opposed, target)
    top, bottom = xp.where(target >= 0, speed_plus, opposed), xp.where(target >= 0, aligned, speed_minus)
    never_moves = (target == 0) & (opposed == 0)
    unbounded = xp.where(never_moves, 1.0, xp.inf)
    return xp.where(bottom == 0, unbounded, top / xp.where(bottom == 0, 1.0, bottom))


@numpy_unless_traced
def time_to_reach(xp: Any, fraction: Any, aligned: Any, opposed: Any, target: Any) -> Numbers:
    """The clock y at which ``theta / S`` reaches a fraction in (0, 1); 0 if it starts beyond, infinite if never.

    From ``exp(-2 K y) = (gamma_+ - gamma)(1 - gamma_-) / ((gamma - gamma_-)(gamma_+ - 1))``, all four differences
    written without cancellation. A negative target is a positive one with one layer's sign changed.
    """
    fraction, aligned, opposed, target = xp.broadcast_arrays(*map(xp.asarray, (fraction, aligned, opposed, target)))
    positive = target > 0
    aligned, opposed = xp.where(positive, aligned, opposed), xp.where(positive, opposed, aligned)
    size = xp.abs(target)
    speed = xp.sqrt(aligned * opposed + size**2)
    slack = aligned * opposed / (speed + size)
    start = (aligned - opposed) / 2 / size

    def below_target(part: Numbers, inner: Numbers) -> Numbers:
        return (1 - part) * size * (1 + size * (1 + part) / (speed + inner))

    inner = xp.sqrt(aligned * opposed + (fraction * size) ** 2)
    there = below_target(fraction, inner) * (aligned + slack)
    here = below_target(start, (aligned + opposed) / 2) * (fraction * size + inner + slack)
    learns = there > 0
    waits = start < fraction
    ratio = xp.where(learns & waits, here / xp.where(learns, there, 1.0), 1.0)
    return xp.where(~waits, 0.0, xp.where(learns, xp.log(ratio) / (2 * speed), xp.inf))


@numpy_unless_traced
def layers_at(xp: Any, first: Any, second: Any, growth: Any) -> tuple[Numbers, Numbers]:
    """The layers when their sums have grown by ``sqrt(gamma)`` and their differences shrunk by it (eqs. 6.10, 6.11)."""
    root = xp.sqrt(growth)
    together, apart = (first + second) / 2, (first - second) / 2
    # A sum that is zero stays zero however large the factor has become, and likewise a difference. Their derivatives
    # are that factor, as large as it is but finite.
    bounded = stop_gradient(xp, xp.clip(root, _SMALLEST_ROOT, 1 / _SMALLEST_ROOT))
    together = together * xp.where(together == 0, bounded, root)
    apart = apart / xp.where(apart == 0, bounded, root)
    return together + apart, together - apart


def _speeds(xp: Any, aligned: Numbers, opposed: Numbers, target: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """K, K + S and K - S."""
    square = aligned * opposed + target**2
    still = square == 0
    speed = xp.where(still, 0.0, xp.sqrt(xp.where(still, 1.0, square)))
    positive = target >= 0
    large = speed + xp.where(positive, target, -target)
    small = aligned * opposed / xp.where(still, 1.0, large)
    # Where nothing moves exponentially, K adds nothing and the target enters linearly: its derivative is then right.
    plus = xp.where(still, target, xp.where(positive, large, small))
    minus = xp.where(still, -target, xp.where(positive, small, large))
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
