"""The exact flow of a product of layers: 60-digit arithmetic, the differential equation, limits, inverses."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from solvable.numerics import layer_product

sizes = st.floats(-2, 2)
targets = st.one_of(st.just(0.0), st.floats(-3, 3))


def exact(first, second, target, clock):
    """gamma and the remaining error with as many digits as cancellation needs, straight from the Riccati solution."""
    with mpmath.workdps(400):
        pairs = [(mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in zip(first, second, strict=True)]
        target, clock = mpmath.mpf(target), mpmath.mpf(clock)
        aligned = sum((a + b) ** 2 for a, b in pairs) / 2
        opposed = sum((a - b) ** 2 for a, b in pairs) / 2
        speed = mpmath.sqrt(aligned * opposed + target**2)
        elapsed = mpmath.tanh(speed * clock) / speed if speed else clock
        growth = (1 + (target + opposed) * elapsed) / (1 + (aligned - target) * elapsed)
        start = (aligned - opposed) / 2
        error = target - (aligned * growth - opposed / growth) / 2
        return growth, error / (target - start) if target != start else None


EXTREME_STARTS = {
    "tiny": ([1.1e-6, -2.3e-6], [0.7e-6, 1.9e-6]),
    "tiny and equal": ([1e-6], [1e-6]),
    "tiny and unequal by rounding": ([1e-6], [1e-6 * (1 + 1e-10)]),
    "opposed": ([1.0, 0.5], [-1.0 + 1e-9, -0.5]),
    "tiny and opposed": ([1e-6], [-1e-6 * (1 - 1e-12)]),
    "exactly opposed": ([0.3], [-0.3]),
    "large": ([30.0, -7.0], [11.0, 5.0]),
    "one layer zero": ([1e-6, 2e-6], [0.0, 0.0]),
}


@pytest.mark.parametrize("start", EXTREME_STARTS, ids=str)
@pytest.mark.parametrize("target", [1.0, -1.0, 0.0, 1e-6, -2.7, 3.3])
@pytest.mark.parametrize("clock", [0.0, 1e-9, 0.37, 4.1, 14.0])
def test_growth_has_all_digits_at_extreme_starts(start, target, clock):
    first, second = map(np.array, EXTREME_STARTS[start])
    growth, remaining = exact(first, second, target, clock)
    flow = layer_product.flow(*layer_product.aligned_and_opposed(first, second, axis=0), target, clock)
    # Rounding only: some ten operations, and an exponent below 100 whose own rounding is a relative error.
    assert abs(float(flow.growth) / growth - 1) < 1e-14
    if remaining is None:
        return
    product = np.prod(layer_product.aligned_and_opposed(first, second, axis=0))
    exponent = float(2 * np.sqrt(target**2 + product) * clock)
    # exp(-exponent) itself cannot be better than the rounding of its exponent, nor smaller than the smallest double.
    assert abs(float(flow.remaining) - remaining) <= 1e-14 * max(1, exponent / 20) * abs(remaining) + 1e-300


def test_the_form_as_it_is_usually_written_loses_digits():
    """The reason for the form above: with Sigma and S_0 the same start is off by more than 1e-5."""
    first, second, target, clock = np.array([1e-6]), np.array([1.5e-6]), 1.0, 14.0
    sigma, start = (first**2 + second**2).sum() / 2, (first * second).sum()
    speed = np.sqrt(sigma**2 - start**2 + target**2)
    decay = np.exp(-2 * speed * clock)
    naive = (sigma - start + target + speed + (-sigma + start - target + speed) * decay) / (
        sigma + start - target + speed + (-sigma - start + target + speed) * decay
    )
    growth, _ = exact(first, second, target, clock)
    assert abs(naive / float(growth) - 1) > 1e-5
    flow = layer_product.flow(*layer_product.aligned_and_opposed(first, second, axis=0), target, clock)
    assert abs(float(flow.growth) / growth - 1) < 1e-14


@given(sizes, sizes, targets, st.floats(0, 20))
def test_growth_obeys_its_riccati_equation(first, second, target, clock):
    aligned, opposed = (first + second) ** 2 / 2, (first - second) ** 2 / 2
    growth, slope = jax.jvp(
        lambda time: layer_product.flow(aligned, opposed, target, time).growth, (jnp.asarray(clock),), (jnp.ones(()),)
    )
    expected = opposed + 2 * target * growth - aligned * growth**2
    scale = opposed + 2 * abs(target) * growth + aligned * growth**2
    assert abs(slope - expected) <= 1e-12 * scale * (1 + clock)


@given(sizes, sizes, targets, st.floats(0.01, 8))
def test_layers_solve_the_flow(first, second, target, clock):
    def rates(_, layers):
        return layers[::-1] * (target - layers[0] * layers[1])

    solution = solve_ivp(rates, (0, clock), [first, second], method="DOP853", rtol=1e-12, atol=1e-13)
    flow = layer_product.flow(*layer_product.aligned_and_opposed(first, second), target, clock)
    layers = layer_product.layers_at(first, second, flow.growth)
    np.testing.assert_allclose(layers, solution.y[:, -1], atol=1e-9)
    product = solution.y[0, -1] * solution.y[1, -1]
    assert float((target - first * second) * flow.remaining) == pytest.approx(target - product, abs=1e-9)


@given(sizes, sizes, targets)
def test_flow_ends_at_the_final_growth(first, second, target):
    aligned, opposed = layer_product.aligned_and_opposed(first, second)
    speed = float(np.sqrt(aligned * opposed + target**2))
    final = float(layer_product.final_growth(aligned, opposed, target))
    if speed > 1e-3:
        late = layer_product.flow(aligned, opposed, target, 1e6 / speed)
        assert float(late.growth) == pytest.approx(final, rel=1e-13) or (final == 0 and late.growth < 1e-300)
        assert np.isfinite(late.remaining)


@pytest.mark.parametrize(
    ("aligned", "opposed", "target", "final"),
    [(0, 0, 0, 1), (2, 0, 0, 0), (0, 2, 0, np.inf), (0, 2, 1, np.inf), (2, 0, -1, 0), (2, 0, 1, 1), (0, 2, -1, 1)],
)
def test_final_growth_where_one_part_is_missing(aligned, opposed, target, final):
    assert float(layer_product.final_growth(float(aligned), float(opposed), float(target))) == final


def test_flow_decays_algebraically_without_a_target():
    """S = 0 and equal layers: d(a^2)/dy = -2 a^4, so gamma = 1 / (1 + P y)."""
    clock = np.array([0.0, 1.0, 1e3, 1e9])
    flow = layer_product.flow(0.5, 0.0, 0.0, clock)
    np.testing.assert_allclose(flow.growth, 1 / (1 + 0.5 * clock), rtol=1e-15)


def test_start_on_the_saddle_stays_finite():
    """a = -b with a positive target: both layers die, the growth overflows, and nothing becomes NaN."""
    flow = layer_product.flow(0.0, 0.18, 1.0, np.array([1.0, 300.0, 1e4]))
    first, second = layer_product.layers_at(0.3, -0.3, flow.growth)
    assert np.isinf(flow.growth[-1])
    np.testing.assert_allclose(flow.remaining * 1.09, 1 - first * second, rtol=1e-14)
    assert float(first[-1]) == 0


@given(sizes, sizes, st.floats(0.1, 3), st.booleans(), st.floats(0.01, 0.99))
def test_time_to_reach_is_the_inverse_of_the_flow(first, second, size, positive, share):
    target = size if positive else -size
    aligned, opposed = layer_product.aligned_and_opposed(first, second)
    time = float(layer_product.time_to_reach(share, aligned, opposed, target))
    start = first * second / target
    if start >= share:
        # Rounding decides when the start is the share itself.
        assert time < 1e-14 / size
        return
    towards = aligned if positive else opposed
    if towards < 1e-200:
        assert time > 100 / size
        return
    flow = layer_product.flow(aligned, opposed, target, time)
    # An error of one rounding in the exponent shows in the strength at most as the slope times the time.
    assert 1 - float(flow.remaining) * (1 - start) == pytest.approx(share, abs=1e-13 * (1 + size * time))


@pytest.mark.parametrize("layers", [(0.4, 0.4), (0.4, -0.1), (0.4, -0.4), (0.0, 0.3)])
@pytest.mark.parametrize("target", [0.0, 0.7, -0.7])
def test_derivatives_are_those_of_finite_differences(layers, target):
    """Also where formulas change branch: no target, equal and opposed layers."""

    def growth(values):
        aligned, opposed = layer_product.aligned_and_opposed(values[0], values[1])
        return layer_product.flow(aligned, opposed, values[2], 1.3).growth

    point = np.array([*layers, target])
    step = 1e-5
    slopes = [(growth(point + step * unit) - growth(point - step * unit)) / (2 * step) for unit in np.eye(3)]
    # Central differences: step^2 times a third derivative of order ten.
    np.testing.assert_allclose(jax.grad(growth)(point), slopes, atol=1e-8)


def test_flow_maps_over_parameters():
    targets = jnp.linspace(-1, 1, 5)
    mapped = jax.vmap(lambda target: layer_product.flow(0.3, 0.2, target, 2.0).growth)(targets)
    np.testing.assert_allclose(mapped, layer_product.flow(0.3, 0.2, targets, 2.0).growth, rtol=1e-15)


@pytest.mark.parametrize("value", [1e-80, 1e80])
def test_sizes_whose_squares_are_no_numbers_are_refused(value):
    with pytest.raises(ValueError, match="first must be zero or between"):
        layer_product.check_sizes("first", np.array([0.0, value]))
