"""Times handed in by users: good ones pass unchanged, bad ones are named."""

import datetime
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvable.timegrid import check_times, log_times, whole_steps


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([], "empty"),
        ([1.0, 1.0], "increase"),
        ([2.0, 1.0], "increase"),
        ([-1.0, 1.0], "not negative"),
        ([1.0, np.nan], "finite"),
        ([1.0, np.inf], "finite"),
        ([[1.0, 2.0]], "one-dimensional"),
        ("soon", "strings"),
        (["1", "2"], "strings: convert them with float"),
        (np.array(["1"]), "strings"),
        (None, "finite"),
        (1j, "complex numbers: pass their real parts"),
        (np.array([1.0 + 0j, 2.0]), "complex"),
        (np.datetime64("2024-01-01"), "dates"),
        ([datetime.date(2024, 1, 1)], "dates"),
        (np.array([1, 2], dtype="timedelta64[s]"), "durations: pass numbers since the start"),
        ([datetime.timedelta(seconds=1)], "durations"),
        (True, "truth values"),
        ([True, 2.0], "truth values"),
        (np.array([False, True]), "truth values"),
        (np.ma.array([1.0, 2.0], mask=[False, True]), r"times\[1\] is masked: pass times.compressed"),
        ([1.0, [2.0, 3.0]], "flat list of numbers"),
        ({1.0: 2.0}, "numbers"),
        (object(), "numbers"),
    ],
)
def test_bad_times_are_refused_with_the_rule(times: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_times(times)


def test_whole_steps_are_asked_for_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"times\[1\] = 1.5.*whole_steps"):
        check_times([1, 1.5], whole=True)


@given(st.lists(st.floats(0, 1e12), min_size=1, unique=True))
def test_whole_steps_are_always_acceptable(values: list[float]) -> None:
    steps = whole_steps(sorted(values))
    assert np.array_equal(check_times(steps, whole=True), steps)
    assert abs(steps[-1] - max(values)) <= 0.5


def test_log_times_have_constant_ratio() -> None:
    times = log_times(1, 1e5, 11)
    assert np.allclose(times[1:] / times[:-1], np.sqrt(10))
    with pytest.raises(ValueError, match="0 < first < last"):
        log_times(0, 10, 5)


@pytest.mark.parametrize(
    "times",
    [
        (1, 2),
        range(1, 3),
        np.array([1, 2], dtype=np.int8),
        np.array([1, 2], dtype=np.float16),
        jnp.array([1.0, 2.0]),
        np.ma.array([1.0, 2.0]),
        [Fraction(1), Fraction(2)],
    ],
)
def test_real_numbers_of_any_kind_are_times(times: object) -> None:
    found = check_times(times)
    assert found.dtype == np.float64
    assert found.tolist() == [1.0, 2.0]


def test_traced_times_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="times cannot be traced by JAX"):
        jax.jit(lambda time: check_times(time))(1.0)


def test_counts_of_steps_that_no_integer_holds_are_refused() -> None:
    """Casting 1e300 to an integer gives a negative one, silently."""
    with pytest.raises(ValueError, match=r"at most 2\^62, but times\[0\] = 1e\+300"):
        check_times([1e300], whole=True)
