"""Work that would take days or all memory is refused at once, with the estimate and the remedy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import solvable
from solvable.numerics.cost import check_cost, in_time, unlimited

DIAGONAL = solvable.DiagonalNetwork([1.0], [1.0], [0.1], [0.1])
ESTIMATES: dict[str, tuple[Callable[[], Any], str]] = {
    "committee": (lambda: solvable.Committee().predict([4e6]), r"4e\+06 steps.*GradientFlow"),
    "committee online": (
        lambda: solvable.Committee(samples_per_dimension=np.inf).predict([4e12]),
        r"4e\+12 steps.*GradientFlow",
    ),
    "committee response": (lambda: solvable.Committee().predict([4e4], solver="response"), r"4e\+04 steps"),
    "committee simulation": (lambda: solvable.Committee().simulate([4e6]), r"4e\+06 steps and 20 seeds"),
    "march": (
        lambda: solvable.FeatureScaling(1.5, 0.5, features=16, modes=50).predict([1e6]),
        r"GiB.*slot-march",
    ),
    "whole steps": (lambda: solvable.FeatureScaling(1.5, 0.5).predict([1e15]), r"GiB.*exponential-midpoint"),
    "features": (
        lambda: solvable.FeatureScaling(1.5, 0.5, features=16, modes=50).simulate([1e12]),
        "fewer seeds or a smaller system",
    ),
    "skills": (
        lambda: solvable.SkillModel(0.6, skills=1000).simulate([1e9], solvable.GradientDescent(1.0)),
        r"1e\+09 steps",
    ),
    "many skills": (lambda: solvable.SkillModel(0.6, skills=1e10).simulate([1.0]), "of memory"),
    "diagonal": (lambda: DIAGONAL.simulate([1e12]), "years.*ask for earlier times or fewer seeds"),
    "diagonal steps": (lambda: DIAGONAL.simulate([1e12], solvable.GradientDescent(0.01)), r"1e\+12 steps"),
    "scalar": (lambda: solvable.ScalarNetwork([1.0], [1.0], 2.0).simulate([1e300]), "years"),
    "parity": (lambda: solvable.ParityMode().simulate([1e12]), "years"),
    "descent": (lambda: solvable.LinearEstimator(0.9).simulate([1e9], solver="steps"), r"1e\+09 steps"),
    "two layers": (lambda: solvable.LinearEstimator(0.9, width=3).predict([1e9]), "use GradientFlow"),
    "batches": (
        lambda: solvable.LinearEstimator(0.9).predict([1e12], solvable.SGD(0.01, batch_size=10), dimension=100),
        "use GradientFlow",
    ),
    "phase diagram": (
        lambda: solvable.LinearEstimator(0.9).phase_diagram(
            weight_decay=np.linspace(0, 1, 10**6), aspect_ratio=np.linspace(0.1, 1, 10**6)
        ),
        r"1e\+12 cells.*fewer values on each axis",
    ),
}


@pytest.mark.parametrize("name", ESTIMATES)
def test_work_of_days_is_refused_before_it_begins(name: str) -> None:
    run, message = ESTIMATES[name]
    with pytest.raises(ValueError, match=message) as refused:
        run()
    assert "\n" not in str(refused.value)


def test_limits_can_be_lifted() -> None:
    with pytest.raises(ValueError, match="15.8 years, longer than 6 hours"):
        check_cost("it", operations=1e18)
    with pytest.raises(ValueError, match="it would take about 1e\\+06 PB of memory, and .* are free"):
        check_cost("it", memory=1e21)
    with unlimited():
        check_cost("it", operations=1e18, memory=1e21)
    with pytest.raises(ValueError, match="15.8 years"):
        check_cost("it", operations=1e18)


def test_ordinary_work_is_not_refused() -> None:
    """What documentation and papers run: thousands of steps of systems of a thousand."""
    check_cost("a committee of 2000 dimensions, 2000 steps, 20 seeds", operations=2000 * 20 * 2 * 2000 * 4000)
    found = solvable.SkillModel(0.6, skills=3).simulate([0, 10], seeds=2)
    assert found.sizes["time"] == 2


def test_durations_are_told_in_a_unit_that_suits() -> None:
    assert in_time(3) == "3 s"
    assert in_time(600) == "10 minutes"
    assert in_time(7200) == "2 hours"
    assert in_time(1e6) == "11.6 days"
    assert in_time(1e10) == "317 years"
