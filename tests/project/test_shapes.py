"""The tests check shapes at run time; this checks that they do."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, TypeCheckError, jaxtyped
from shapes import check

from solvable.models.skills.binomial import small_count_chances
from solvable.networks.tasks.parity import SparseParity


def test_all_of_the_package_is_checked() -> None:
    """Numerics, models and networks; functions and methods."""
    assert small_count_chances(5, jnp.array([0.1, 0.2]), 2).shape == (2, 3)
    with pytest.raises(TypeCheckError):
        small_count_chances(5, jnp.array([[0.1, 0.2]]), 2)
    task, words = SparseParity(skills=3, skill_bits=9), jnp.zeros(4, jnp.uint32)
    assert task.parity(jnp.zeros(4, int), words).shape == (4,)
    with pytest.raises(TypeCheckError):
        task.parity(jnp.zeros(5, int), words)
    with pytest.raises(TypeCheckError):
        task.parity(jnp.zeros(4), words)


def test_only_shapes_are_checked() -> None:
    """What is no array is for the package's own checks, whose errors name the value, the rule and the remedy."""

    @jaxtyped(typechecker=check)
    def first(rows: Float[Array, " n"], count: int) -> int:
        return rows[0]

    assert first(jnp.ones(2), "two") == 1  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError):
        first("rows", 2)  # type: ignore[arg-type]


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
