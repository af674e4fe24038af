"""A few weighted modes against the sums they stand for."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import zeta

from solvable import FeatureScaling, GradientFlow
from solvable.models.feature_scaling.mode_quadrature import Modes, compress_modes, power_law_modes, static_error

STANDARD = {"head": 12, "per_decade": 6.0, "reach": 1e2}


def direct(capacity: float, source: float, count: int) -> Modes:
    ranks = np.arange(1.0, count + 1)
    return Modes(ranks, ranks**-capacity, np.ones(count), ranks ** (capacity * (1 - source) - 1))


@pytest.mark.parametrize("capacity", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("source", [0.2, 0.5, 1.0, 2.0])
def test_about_seventy_nodes_do_for_infinitely_many_modes_to_late_times(capacity: float, source: float) -> None:
    times = np.geomspace(1, 1e8, 17)
    nodes = power_law_modes(capacity, source, np.inf, 1e8, **STANDARD)
    # Three thousand exact modes and eight times as many nodes a decade: errors below 1e-8.
    finer = power_law_modes(capacity, source, np.inf, 1e8, head=3000, per_decade=40, reach=1e5)
    assert len(nodes.ranks) <= 71
    assert static_error(nodes, finer, times) < 3e-5


@pytest.mark.parametrize(("capacity", "source"), [(1.2, 0.3), (1.5, 0.4), (2.5, 1.3)])
def test_totals_are_zeta_functions(capacity: float, source: float) -> None:
    nodes = power_law_modes(capacity, source, np.inf, 1e6)
    # Gauss panels and the junction: measured below 2e-7 for these.
    assert float(nodes.trace) == pytest.approx(zeta(capacity), rel=1e-6)
    assert float(nodes.signal) == pytest.approx(zeta(capacity * source + 1), rel=1e-6)


@pytest.mark.parametrize("count", [70, 1000, 20_000])
@pytest.mark.parametrize("scale", [10.0, 1e4, 1e7])
def test_a_finite_power_law_is_summed_with_its_last_modes(count: int, scale: float) -> None:
    """At 1e7 all but the last modes have decayed, which an integral over modes would get wrong by percents."""
    nodes = power_law_modes(1.5, 0.4, count, scale)
    assert static_error(nodes, direct(1.5, 0.4, count), np.geomspace(1, scale, 17)) < 3e-6
    assert len(nodes.ranks) <= 150


def test_a_long_finite_power_law_is_cut_at_its_end() -> None:
    nodes = power_law_modes(1.5, 0.4, 1e6, 1e5)
    assert static_error(nodes, direct(1.5, 0.4, 10**6), np.geomspace(1, 1e5, 9)) < 3e-6


def test_short_lists_stay_exact() -> None:
    eigenvalues, targets = np.array([3.0, 0.1, 1.0]), np.array([1.0, 2.0, 0.0])
    nodes = compress_modes(eigenvalues, targets, 100.0)
    np.testing.assert_array_equal(nodes.eigenvalues, [3.0, 1.0, 0.1])
    np.testing.assert_array_equal(nodes.targets, [1.0, 0.0, 2.0])
    np.testing.assert_array_equal(nodes.counts, 1.0)


@given(st.integers(0, 1000), st.floats(0.5, 3.0), st.floats(1.0, 1e5))
def test_any_spectrum_keeps_its_sums_and_positive_weights(seed: int, steepness: float, scale: float) -> None:
    generator = np.random.default_rng(seed)
    eigenvalues = np.exp(-steepness * 5 * np.sort(generator.random(800)))
    targets = generator.standard_normal(800) ** 2
    nodes = compress_modes(eigenvalues, targets, scale)
    assert (nodes.counts >= 0).all()
    assert (nodes.targets >= 0).all()
    exact = Modes(np.arange(800.0), eigenvalues, np.ones(800), targets)
    # Twelve Chebyshev points a panel of about a decade: 3^-12.
    assert static_error(nodes, exact, np.geomspace(0.1, scale, 9)) < 2e-5


@pytest.mark.parametrize(("value", "count"), [(0.2, 100), (1e-3, 300), (1e-6, 20)])
def test_equal_eigenvalues_are_one_mode(value: float, count: int) -> None:
    """Panels of equal eigenvalues were halved until Python ran out of stack."""
    others = np.arange(1.0, 70) ** -1.5
    eigenvalues, targets = np.append(others, np.full(count, value)), np.append(np.ones(69), np.full(count, 0.5))
    nodes = compress_modes(eigenvalues, targets, 1e3)
    exact = Modes(np.arange(69.0 + count), eigenvalues, np.ones(69 + count), targets)
    assert static_error(nodes, exact, np.geomspace(0.1, 1e3, 9)) < 2e-5
    # In the limit of many features equal modes act as one mode with the signal of all, at any richness.
    whole = FeatureScaling(spectrum=eigenvalues, target=np.sqrt(targets), richness=1.0)
    merged = FeatureScaling(
        spectrum=np.append(others, value), target=np.append(np.ones(69), np.sqrt(0.5 * count)), richness=1.0
    )
    curves = [model.predict([1.0, 10, 100], GradientFlow()).test_loss.values for model in (whole, merged)]
    np.testing.assert_allclose(*curves, rtol=1e-4)


def test_nodes_of_traced_exponents_agree_with_concrete_ones() -> None:
    def trace(capacity: float) -> jax.Array:
        return power_law_modes(capacity, 0.4, np.inf, 100.0).trace

    # Nodes are then placed for any capacity, and still good to 1e-5.
    assert float(jax.jit(trace)(1.5)) == pytest.approx(zeta(1.5), rel=1e-5)
    slope = (zeta(1.5 + 1e-5) - zeta(1.5 - 1e-5)) / 2e-5
    assert float(jax.grad(trace)(1.5)) == pytest.approx(slope, rel=1e-4)
