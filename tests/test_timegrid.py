"""Times handed in by users: good ones pass unchanged, bad ones are named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvable.engines.timegrid import check_times, log_times, whole_steps


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
        ("soon", "numbers"),
        (None, "finite"),
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
