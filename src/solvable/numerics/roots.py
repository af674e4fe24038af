"""First crossings of smooth curves, vectorised and differentiable, with a flag where there is none.

>>> import jax.numpy as jnp
>>> from solvable.numerics.roots import root_in_bracket
>>> round(float(root_in_bracket(jnp.cos, jnp.array(1.0), jnp.array(2.0))), 6)
1.570796
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Bracket = tuple[Array, Array, Array, Array, Array]
Curve = Callable[[Float[Array, ""]], Float[Array, ""]]

_WIDTH = 1e-14


def root_in_bracket(curve: Curve, low: Array, high: Array, iterations: int = 120) -> Array:
    """The zero of a curve that is positive at ``low`` and not positive at ``high``.

    Newton's method while it stays inside the bracket and at least halves the step, bisection otherwise.
    """

    def unfinished(state: Bracket) -> Array:
        _, _, _, step, count = state
        return (count < iterations) & (jnp.abs(step) > _WIDTH)

    def refine(state: Bracket) -> Bracket:
        low, high, point, step, count = state
        value, slope = jax.jvp(curve, (point,), (jnp.ones_like(point),))
        low, high = jnp.where(value > 0, point, low), jnp.where(value > 0, high, point)
        newton = -value / slope
        good = (point + newton >= low) & (point + newton <= high) & (2 * jnp.abs(newton) <= jnp.abs(step))
        move = jnp.where(good, newton, (low + high) / 2 - point)
        return low, high, point + move, move, count + 1

    start = (low + high) / 2
    state = (low, high, start, high - low, jnp.zeros((), int))
    return jax.lax.while_loop(unfinished, refine, state)[2]


def differentiable_root(curve: Curve, root: Array) -> Array:
    """The same root with the right derivative in everything the curve depends on.

    One Newton step from a converged root changes nothing but carries the derivative of the implicit function theorem.
    """
    root = jax.lax.stop_gradient(root)
    value, slope = jax.jvp(curve, (root,), (jnp.ones_like(root),))
    return root - value / jax.lax.stop_gradient(slope)


def first_dip(curve: Curve, low: float, high: float, points: int = 320) -> tuple[Array, Array]:
    """A point by which the curve has first dropped to zero or below, and whether there is one.

    For curves that need not be monotone. The curve is sampled on a grid; where it only dips between two grid points,
    the dip is found from the parabola through the neighbours and refined by golden section.
    """
    grid = jnp.linspace(low, high, points)
    values = jax.lax.map(curve, grid, batch_size=32)
    left, here, right = values[:-2], values[1:-1], values[2:]
    curvature = left - 2 * here + right
    vertex = here - (right - left) ** 2 / (8 * jnp.where(curvature > 0, curvature, jnp.inf))
    is_dip = (here <= left) & (here <= right)
    touches = jnp.zeros(points, bool).at[1:-1].set(is_dip & (vertex <= 0)) | (values <= 0)
    index = jnp.where(touches.any(), jnp.argmax(touches), jnp.clip(jnp.argmin(values), 1, points - 2))
    spacing = grid[1] - grid[0]
    bottom = minimum(curve, grid[index] - spacing, grid[index] + spacing)
    point = jnp.where(values[index] <= 0, grid[index], bottom)
    return point, curve(point) <= 0


def minimum(curve: Curve, low: Array, high: Array, iterations: int = 45) -> Array:
    """Where a curve with a single dip in the interval is least, by golden-section search."""
    golden = (5**0.5 - 1) / 2

    def shrink(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = state
        inner_left, inner_right = high - golden * (high - low), low + golden * (high - low)
        lower_on_left = curve(inner_left) < curve(inner_right)
        return jnp.where(lower_on_left, low, inner_left), jnp.where(lower_on_left, inner_right, high)

    low, high = jax.lax.fori_loop(0, iterations, shrink, (low, high))
    return (low + high) / 2
