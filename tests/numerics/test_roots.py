"""Root finding: right, differentiable, and able to say never."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvable.numerics.roots import differentiable_root, first_dip, root_in_bracket


# One compiled program serves all examples.
@jax.jit
def logarithm(level: jax.Array) -> jax.Array:
    return root_in_bracket(lambda y: level - jnp.exp(y), jnp.asarray(-25.0), jnp.asarray(60.0))


@given(st.floats(0.1, 50.0))
def test_root_of_a_falling_curve(level: float) -> None:
    assert float(logarithm(level)) == pytest.approx(np.log(level), abs=1e-13)


def test_root_where_newton_alone_fails() -> None:
    """A step in the curve sends Newton's method away from either side."""
    root = root_in_bracket(lambda y: -jnp.arctan(50 * (y - 3.0)), jnp.asarray(-25.0), jnp.asarray(60.0))
    assert float(root) == pytest.approx(3.0, abs=1e-13)


def test_derivative_of_a_root() -> None:
    def solve(level: jax.Array) -> jax.Array:
        def curve(y: jax.Array) -> jax.Array:
            return level - y**3

        frozen = jax.lax.stop_gradient(level)
        return differentiable_root(curve, root_in_bracket(lambda y: frozen - y**3, jnp.asarray(0.1), jnp.asarray(9.0)))

    assert float(jax.jit(jax.grad(solve))(jnp.asarray(8.0))) == pytest.approx(1 / 12, rel=1e-12, abs=0)


@jax.jit
def dip_of_a_parabola(depth: jax.Array) -> tuple[jax.Array, jax.Array]:
    return first_dip(lambda y: (y - 1.2345) ** 2 - depth, -5.0, 5.0, points=41)


@pytest.mark.parametrize(("depth", "exists"), [(1e-4, True), (-1e-4, False)])
def test_a_dip_between_grid_points_is_found(depth: float, exists: bool) -> None:
    """A parabola whose bottom lies between two grid points, just below or just above zero."""
    point, found = dip_of_a_parabola(depth)
    assert bool(found) is exists
    if exists:
        assert abs(float(point) - 1.2345) < 1e-2


def test_the_first_of_two_dips_is_taken() -> None:
    point, found = jax.jit(lambda: first_dip(lambda y: jnp.cos(y) + 0.5, 0.0, 12.0))()
    assert bool(found)
    # cos(y) = -1/2 first at 2 pi / 3; any point of the first valley will do
    assert 2 * np.pi / 3 <= float(point) < 4 * np.pi / 3
