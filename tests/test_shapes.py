"""The tests check shapes at run time; this checks that they do."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, TypeCheckError, jaxtyped
from shapes import check

from solvable.models.skills.binomial import small_count_chances


def test_engines_are_checked() -> None:
    assert small_count_chances(5, jnp.array([0.1, 0.2]), 2).shape == (2, 3)
    with pytest.raises(TypeCheckError):
        small_count_chances(5, jnp.array([[0.1, 0.2]]), 2)


def test_inner_functions_are_checked_every_time() -> None:
    def made(factor: float):
        @jaxtyped(typechecker=check)
        def product(first: Float[Array, " n"], second: Float[Array, " n"]) -> Float[Array, " n"]:
            return factor * first * second if factor else first[:1]

        return product

    pair, triple = jnp.ones(2), jnp.ones(3)
    for factor in (1.0, 2.0):
        np.testing.assert_array_equal(made(factor)(triple, triple), factor * triple)
        with pytest.raises(TypeCheckError):
            made(factor)(pair, triple)
    with pytest.raises(TypeCheckError):
        made(0.0)(triple, triple)


def test_functions_of_one_name_and_other_shapes_are_told_apart() -> None:
    def made(shape: str):
        @jaxtyped(typechecker=check)
        def first(rows: Float[Array, shape]) -> float:
            return float(rows.ravel()[0])

        return first

    assert made("n")(jnp.ones(2)) == made("n k")(jnp.ones((2, 2))) == 1
    with pytest.raises(TypeCheckError):
        made("n k")(jnp.ones(2))
