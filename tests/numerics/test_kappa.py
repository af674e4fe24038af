"""The constant of eq. 1.35 and the effective dimension: identities, closed forms, extreme spectra, derivatives."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvable.numerics.kappa import effective_dimension, kappa, learnability, power_law

spectra = st.lists(st.floats(-30, 30), min_size=2, max_size=12).map(lambda logs: np.exp(np.array(logs)))


@given(spectra, st.floats(0.01, 0.99))
def test_learnabilities_add_up_to_the_samples(intensities: np.ndarray, share: float) -> None:
    samples = share * len(intensities)
    value = kappa(intensities, samples)
    # Summing a dozen numbers below 1: rounding of the sum.
    assert float(learnability(intensities, value).sum()) == pytest.approx(samples, abs=1e-13 * len(intensities))


@given(spectra, st.floats(0.01, 0.99), st.floats(-250, 250))
def test_intensities_may_have_any_unit(intensities: np.ndarray, share: float, decades: float) -> None:
    samples, unit = share * len(intensities), 10.0**decades
    # log kappa is resolved to eps * |log kappa|, here up to 600.
    ratio = float(kappa(unit * intensities, samples) / kappa(intensities, samples)) / unit
    assert ratio == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("samples", [1, 7, 49.5, 99, 99.999999, 1e-6])
def test_flat_spectrum_has_a_closed_form(samples: float) -> None:
    assert float(kappa(np.full(100, 3.0), samples)) == pytest.approx(3 * (100 - samples) / samples, rel=1e-13)


@pytest.mark.parametrize("tail", [1e-4, 1e-30, 1e-300])
def test_between_two_groups_it_is_their_geometric_mean(tail: float) -> None:
    """As many samples as strong modes: d kappa = (p - d) tail / kappa to first order in tail / kappa and kappa."""
    value = float(kappa(np.r_[np.ones(5), np.full(1995, tail)], 5))
    exact = mpmath.findroot(lambda k: 5 * k / (1 + k) - 1995 * tail / (tail + k), value) if tail == 1e-4 else None
    expected = float(exact) if exact is not None else np.sqrt(1995 * tail / 5)
    assert value == pytest.approx(expected, rel=1e-12)


def test_close_to_as_many_samples_as_modes_it_is_linear() -> None:
    """p - n = kappa sum 1/rho (1 + O(kappa)): nothing is lost to the difference of p and n."""
    intensities = np.arange(1, 11.0) ** -2
    missing = 1e-9
    value = float(kappa(intensities, 10 - missing))
    assert value * np.sum(1 / intensities) == pytest.approx(10 - (10 - missing), rel=1e-6)


def test_against_fifty_digits() -> None:
    mpmath.mp.dps = 50
    intensities = np.arange(1, 201.0) ** -1.7
    exact = [mpmath.mpf(float(rho)) for rho in intensities]
    for samples in (1, 13, 120, 199):
        value = float(kappa(intensities, samples))
        balance = lambda k: sum(rho / (rho + k) for rho in exact) - samples  # noqa: B023, E731
        assert value == pytest.approx(float(mpmath.findroot(balance, value)), rel=1e-13)


def test_a_ridge_moves_the_balance() -> None:
    intensities = np.arange(1, 11.0) ** -2
    for samples, ridge in ((4, 0.3), (10, 0.01), (40, 2.0), (40, 1e-250)):
        value = kappa(intensities, samples, ridge)
        assert float(learnability(intensities, value).sum() + ridge / value) == pytest.approx(samples, rel=1e-13)
    assert float(kappa(intensities, 4, 1e-200)) == float(kappa(intensities, 4))


def test_multiplicities_repeat_modes() -> None:
    intensities, counts = np.array([3.0, 1.0, 0.2]), np.array([2.0, 5.0, 40.0])
    repeated = np.repeat(intensities, counts.astype(int))
    assert float(kappa(intensities, 9, multiplicities=counts)) == pytest.approx(float(kappa(repeated, 9)), rel=1e-14)
    assert float(effective_dimension(intensities, counts)) == pytest.approx(
        float(effective_dimension(repeated)), rel=1e-13
    )


@pytest.mark.parametrize("samples", [1, 10, 1000, 1e6])
def test_infinite_power_law_has_a_closed_form_at_exponent_two(samples: float) -> None:
    """sum 1 / (1 + kappa k^2) = (x coth x - 1) / 2 with x = pi / sqrt(kappa)."""
    spectrum = power_law(2.0)
    value = kappa(spectrum.intensities, samples, multiplicities=spectrum.multiplicities)
    x = np.pi / np.sqrt(float(value))
    assert (x / np.tanh(x) - 1) / 2 == pytest.approx(samples, rel=1e-12)


@pytest.mark.parametrize("exponent", [1.01, 1.5, 8.0])
def test_infinite_power_law_against_the_zeta_function(exponent: float) -> None:
    """Where kappa is above every intensity, sum rho / (rho + kappa) = sum_j (-1)^j zeta(a (j + 1)) / kappa^(j + 1)."""
    spectrum = power_law(exponent)
    value = float(kappa(spectrum.intensities, 0.2, multiplicities=spectrum.multiplicities))
    mpmath.mp.dps = 30
    series = mpmath.nsum(
        lambda j: (-1) ** int(j) * mpmath.zeta(exponent * (j + 1)) / mpmath.mpf(value) ** (j + 1), [0, 60]
    )
    assert float(series) == pytest.approx(0.2, rel=1e-12)


def test_a_million_modes_directly_and_as_a_few_hundred() -> None:
    direct = np.arange(1, 1e6 + 1) ** -1.3
    spectrum = power_law(1.3, 1e6)
    assert len(spectrum.intensities) < 500
    assert spectrum.multiplicities.sum() == pytest.approx(1e6, rel=1e-14)
    for samples in (3, 1000, 900_000):
        value = float(kappa(direct, samples))
        few = float(kappa(spectrum.intensities, samples, multiplicities=spectrum.multiplicities))
        assert few == pytest.approx(value, rel=1e-12)
        assert float(learnability(direct, value).sum()) == pytest.approx(samples, rel=1e-12)


def test_derivatives_are_those_of_the_implicit_function() -> None:
    intensities = jnp.arange(1, 11.0) ** -2
    value = kappa(intensities, 4)
    learned = learnability(intensities, value)
    slope = jnp.sum(learned * (1 - learned)) / value
    by_intensity, by_samples, by_ridge = jax.grad(kappa, argnums=(0, 1, 2))(intensities, 4.0, 0.0)
    assert np.allclose(by_intensity, (1 - learned) / (intensities + value) / slope, rtol=1e-12)
    assert float(by_samples) == pytest.approx(float(-1 / slope), rel=1e-12)
    assert float(by_ridge) == pytest.approx(float(1 / value / slope), rel=1e-12)
    step = 1e-4
    second = jax.grad(jax.grad(lambda n: kappa(intensities, n)))(4.0)
    difference = (kappa(intensities, 4 + step) - 2 * value + kappa(intensities, 4 - step)) / step**2
    assert float(second) == pytest.approx(float(difference), rel=1e-5)


def test_a_mode_of_no_intensity_counts_for_nothing_but_has_a_derivative() -> None:
    intensities = np.array([2.0, 1.0, 0.5])
    assert float(kappa(np.r_[intensities, 0.0], 2)) == float(kappa(intensities, 2))
    slope = jax.grad(lambda extra: kappa(jnp.append(jnp.asarray(intensities), extra), 2.0))(0.0)
    difference = (kappa(np.r_[intensities, 1e-7], 2) - kappa(intensities, 2)) / 1e-7
    assert float(slope) == pytest.approx(float(difference), rel=1e-5)


def test_vectorised_and_compiled_it_is_the_same_and_zero_where_nothing_is_left_to_choose() -> None:
    intensities = np.arange(1, 6.0) ** -1
    values = jax.jit(jax.vmap(lambda n: kappa(intensities, n)))(jnp.array([1.0, 2.5, 5.0, 9.0]))
    assert np.allclose(values[:2], [kappa(intensities, 1), kappa(intensities, 2.5)], rtol=1e-14)
    assert np.all(values[2:] == 0)
    slopes = jax.vmap(jax.grad(lambda n: kappa(intensities, n)))(jnp.array([5.0, 9.0]))
    assert np.all(slopes == 0)


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=30).filter(lambda values: max(values) > 1e-3))
def test_effective_dimension_lies_between_one_and_the_number_of_modes(values: list[float]) -> None:
    dimension = float(effective_dimension(values))
    assert 1 - 1e-12 <= dimension <= np.count_nonzero(values) * (1 + 1e-12)
    assert float(effective_dimension(1e-200 * np.array(values))) == pytest.approx(dimension, rel=1e-10)


def test_effective_dimension_of_simple_spectra() -> None:
    assert float(effective_dimension(np.ones(7))) == pytest.approx(7, rel=1e-14)
    assert float(effective_dimension([5.0, 0.0, 0.0])) == 1
    # Shares 3/4 and 1/4: (4/3)^(3/4) 4^(1/4).
    assert float(effective_dimension([3.0, 1.0])) == pytest.approx((4 / 3) ** 0.75 * 4**0.25, rel=1e-14)
    assert np.allclose(effective_dimension(np.eye(3) + 1e-300), 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kappa([1.0, -1.0], 1), r"not negative, but intensities\[1\] = -1"),
        (lambda: kappa([1.0, np.nan], 1), "finite"),
        (lambda: kappa([], 1), "at least one mode"),
        (lambda: kappa([0.0, 0.0], 1), "at least one of the intensities must be positive"),
        (lambda: kappa([[1.0, 2.0]], 1), "one-dimensional"),
        (lambda: kappa([1.0, 2.0], 2), "fewer samples than modes.*2 samples for 2 modes"),
        (lambda: kappa([1.0, 2.0, 0.0], 2), "fewer samples than modes.*2 samples for 2 modes"),
        (lambda: kappa([1.0, 2.0], 0), "samples must be a positive"),
        (lambda: kappa([1.0, 2.0], 1, ridge=-1), "ridge must be"),
        (lambda: kappa([1.0, 2.0], 1, multiplicities=[1.0]), "one entry for each of the 2"),
        (lambda: kappa([1.0, 2.0], 1, multiplicities=[1.0, 0.0]), "multiplicities must be positive"),
        (lambda: effective_dimension([]), "at least one mode"),
        (lambda: effective_dimension([-1.0]), "not negative"),
        (lambda: power_law(1.0), "above 1 for infinitely many"),
        (lambda: power_law(-1.0, 10), "exponent must be positive"),
        (lambda: power_law(2.0, 1.5), "modes must be a whole number"),
    ],
)
def test_bad_input_is_refused_with_the_rule(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
