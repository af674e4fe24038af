"""Sums without truncation, and expectations over a binomial number, against independent routes to the same number."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from solvable.models.skills import binomial, tail_sums
from solvable.models.skills.tail_sums import power_sum, sum_grid

# Compiled as in the model, where one program serves all examples.
expected_shortfall = jax.jit(binomial.expected_shortfall, static_argnames="wanted")
gauss_rule = jax.jit(binomial.gauss_rule, static_argnames="nodes")
partial_sums = jax.jit(tail_sums.partial_sums)
small_count_chances = jax.jit(binomial.small_count_chances, static_argnames="most")


@given(st.floats(1.001, 8.0), st.integers(1, 10**7))
def test_the_infinite_power_sum_is_the_hurwitz_zeta_function(power: float, first: int) -> None:
    # A power of a number near 1e7 has a rounding error of power * log(1e7) = 130 units in the last place.
    with mpmath.workdps(40):
        exact = mpmath.zeta(mpmath.mpf(power), first)
    assert float(power_sum(power, first) / float(exact) - 1) == pytest.approx(0, abs=5e-14)


@given(st.floats(1.0001, 6.0), st.integers(1, 1000), st.integers(0, 3000))
def test_finite_power_sums_are_the_sum_of_their_terms(power: float, first: int, count: int) -> None:
    exact = math.fsum(k**-power for k in range(first, first + count))
    # Relative to the largest term's sum to infinity, which is what is subtracted.
    scale = float(power_sum(power, first)) * min(power - 1, 1)
    assert float(power_sum(power, first, first + count - 1)) == pytest.approx(exact, rel=1e-13, abs=2e-15 * scale)


def test_the_derivative_of_the_power_sum_is_that_of_the_zeta_function() -> None:
    derivative = jax.jit(jax.grad(power_sum), static_argnums=1)
    for power in (1.1, 1.6, 3.0):
        slope = derivative(power, 5)
        assert float(slope) == pytest.approx(float(mpmath.zeta(power, 5, 1)), rel=1e-12)


@given(st.floats(0.5, 6.0), st.lists(st.integers(0, 5000), min_size=5, max_size=5))
def test_sums_to_many_ends_match_direct_sums(size: float, ends: list[int]) -> None:
    """``1 / (k^2 + size^2)`` has poles at ``k = ± i size``, so it is smooth on the scale of one beyond the head."""
    grid = sum_grid(np.array(ends), 40, lambda _: 0.4, reach=1e9)
    values = 1 / (grid.points**2 + size**2)
    sums, reached = partial_sums(grid, values[:, None])
    exact = [math.fsum(1 / (k * k + size * size) for k in range(1, end + 1)) for end in ends]
    assert np.allclose(sums[:, 0], exact, rtol=3e-15, atol=1e-16)
    whole = (math.pi * size / math.tanh(math.pi * size) - 1) / (2 * size**2)
    assert float(reached[0]) + 1 / grid.reach == pytest.approx(whole, rel=1e-14)


def test_a_summand_that_needs_too_many_panels_is_refused() -> None:
    with pytest.raises(ValueError, match="varies too fast"):
        sum_grid(np.array([10**6]), 64, lambda _: 1e-7)


@given(st.integers(1, 3000), st.floats(1e-6, 0.999))
def test_chances_of_small_counts_are_binomial(trials: int, chance: float) -> None:
    found = small_count_chances(trials, jnp.array([chance]), most=40)[0]
    # SciPy's own error grows with the number of trials; its logarithms are of the order of trials.
    assert np.allclose(found, binom.pmf(np.arange(41), trials, chance), rtol=1e-10, atol=1e-300)


def test_chances_survive_certainty_and_a_trillion_trials() -> None:
    certain = small_count_chances(3.0, jnp.array([1.0]), most=3)[0]
    assert np.allclose(certain, [0, 0, 0, 1], atol=1e-15)
    rare = small_count_chances(1e12, jnp.array([2e-12]), most=5)[0]
    poisson = [math.exp(-2) * 2**d / math.factorial(d) for d in range(6)]
    # Binomial and Poisson differ by about mean^2 / trials.
    assert np.allclose(rare, poisson, rtol=1e-11)


@given(st.integers(1, 10**9), st.floats(1e-9, 0.9))
def test_the_gauss_rule_has_the_moments_of_the_binomial(trials: int, chance: float) -> None:
    counts, weights = (part[0] for part in gauss_rule(trials, jnp.array([chance]), nodes=12))
    assert float(weights.sum()) == pytest.approx(1, abs=1e-13)
    mean, variance = trials * chance, trials * chance * (1 - chance)
    assert float(weights @ counts) == pytest.approx(mean, rel=1e-9, abs=1e-12)
    assert float(weights @ (counts - mean) ** 2) == pytest.approx(variance, rel=1e-7, abs=1e-12)
    third = float(weights @ (counts - mean) ** 3)
    assert third == pytest.approx(variance * (1 - 2 * chance), rel=1e-6, abs=1e-7 * variance**1.5 + 1e-12)


@given(st.integers(1, 400), st.sampled_from([1, 2, 9, 60]), st.floats(1e-4, 0.99))
def test_the_shortfall_is_what_is_missing_to_the_wanted_count(trials: int, wanted: int, chance: float) -> None:
    counts = np.arange(trials + 1)
    expected = binom.pmf(counts, trials, chance) @ np.minimum(counts, wanted) / wanted
    found = 1 - float(expected_shortfall(trials, jnp.array([chance]), wanted=wanted)[0])
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-13)
