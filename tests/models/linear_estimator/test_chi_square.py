"""Accuracy from loss and back, against SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erf, gammainc, gammaincinv

from solvable.models.linear_estimator import chi_square
from solvable.models.linear_estimator.chi_square import mean_square_for, probability_below


@given(st.integers(1, 2000), st.floats(-6, 4))
def test_probability_is_the_incomplete_gamma_function(degrees: int, log_ratio: float) -> None:
    ratio = np.exp(log_ratio)
    expected = gammainc(degrees / 2, degrees / 2 * ratio)
    assert float(probability_below(ratio, 1.0, degrees)) == pytest.approx(expected, rel=1e-11, abs=1e-300)


def test_one_degree_is_the_error_function() -> None:
    assert float(probability_below(1e-3, 2.5e-4, 1)) == pytest.approx(erf(np.sqrt(2)), rel=1e-14, abs=0)


@given(st.floats(1, 3000), st.floats(1e-6, 1 - 1e-9))
def test_inverse(degrees: float, probability: float) -> None:
    expected = 0.01 * degrees / 2 / gammaincinv(degrees / 2, probability)
    assert float(mean_square_for(probability, 0.01, degrees)) == pytest.approx(expected, rel=1e-9, abs=0)


def test_no_error_is_always_correct() -> None:
    assert float(probability_below(1e-3, 0.0, 1)) == 1.0
    assert float(probability_below(1e-3, 1e-310, 5)) == 1.0


def test_the_inverse_is_compiled_once() -> None:
    """A bisection over weight decays asks for it a hundred times."""
    chi_square._inverse_gammainc.clear_cache()
    for probability in (0.5, 0.9, 0.95):
        mean_square_for(probability, 1e-3, 1)
    assert chi_square._inverse_gammainc._cache_size() == 1
