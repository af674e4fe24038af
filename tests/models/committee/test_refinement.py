"""Accuracy on request: samples are raised and time steps shortened, each as far as its own part of the error needs."""

import dataclasses
import json
import re
import warnings

import numpy as np
import pytest
import xarray as xr

from solvable import Committee, GradientFlow, activations, solvers
from solvable.models.committee.problem import Solution, problem_of
from solvable.models.committee.refinement import refine
from solvable.precision import in_float64

FOUR = Committee(
    samples_per_dimension=4.5,
    output_scale=0.5,
    activation=activations.quadratic(0.05),
    initial_alignment=0.3 * np.array([[1.0], [-1.0], [1.0], [-1.0]]),
    initial_overlap=np.eye(4),
)


@dataclasses.dataclass(frozen=True)
class Pretended:
    """A solver of a loss of 1 whose errors are ``of_samples / samples`` and ``of_steps`` times the squared step."""

    samples: int = 1000
    step: float = 1.0
    of_samples: float = 10.0
    of_steps: float = 0.02

    def with_shorter_steps(self, halvings: int) -> "Pretended":
        return dataclasses.replace(self, step=self.step / 2**halvings)

    def solution(self) -> Solution:
        return Solution(
            {"train_loss": np.ones((2, 1)), "overlap": np.ones((2, 1))},
            {"train_loss": np.array([self.of_samples / self.samples]), "overlap": np.zeros(1)},
            {"train_loss": np.array([self.of_steps * self.step**2]), "overlap": np.zeros(1)},
        )


@pytest.mark.parametrize(
    ("accuracy", "samples", "step"),
    [
        # Errors at the start: 0.01 of the samples and 0.02 of the steps, 0.0224 together.
        (0.03, 1000, 1.0),
        # Steps of a half leave 0.005, next to which 0.01 is small enough.
        (0.015, 1000, 0.5),
        # 0.02 / 4^2 = 0.00125 is below 0.005 / sqrt(2), and 0.01 / 4 is below what is left of 0.005.
        (0.005, 4000, 0.25),
    ],
)
def test_each_part_of_the_error_is_refined_as_far_as_it_must(accuracy, samples, step):
    solver, _ = refine(Pretended.solution, Pretended(), accuracy)
    assert (solver.samples, solver.step) == (samples, step)


def test_samples_are_not_raised_for_an_error_of_the_steps():
    """They were, up to a million, before steps could be shortened; the error stayed where it was."""
    solver, _ = refine(Pretended.solution, Pretended(of_samples=0.01), 1e-3)
    assert solver.samples == 1000
    assert solver.step == 1 / 8


def test_an_error_that_does_not_fall_ends_in_a_warning():
    def stubborn(solver: Pretended) -> Solution:
        return Pretended().solution()

    with pytest.warns(UserWarning, match="accuracy 0.005 not reached, only 0.022: it does not fall any more after 6"):
        refine(stubborn, Pretended(samples=16), 0.005)


def test_an_error_that_samples_do_not_lower_is_said_at_once():
    @dataclasses.dataclass(frozen=True)
    class WholeSteps:
        samples: int = 1000

    calls = []

    def solved(solver: WholeSteps) -> Solution:
        calls.append(solver)
        return Pretended().solution()

    with pytest.warns(UserWarning, match=r"accuracy 0\.01 not reached, only 0\.022: 0\.02 of it does not fall"):
        refine(solved, WholeSteps(), 0.01)
    assert len(calls) == 1


@in_float64
def test_shorter_steps_have_the_error_of_a_second_order_scheme():
    """Four halvings of the logarithm of the ratio: a factor of 4 each, but for what the basis leaves out."""
    problem, times = problem_of(FOUR, GradientFlow()), np.array([2.0, 6.0])
    coarse = solvers.Flow(samples=1024, ratio=1.6, tolerance=1e-3)
    errors = [
        coarse.with_shorter_steps(halvings).time_error(problem, times, 0, 60)["train_loss"].max()
        for halvings in range(4)
    ]
    falls = np.array(errors[:-1]) / errors[1:]
    assert np.all((falls > 2.5) & (falls < 6.5)), falls


def test_shorter_adaptive_steps_are_a_tighter_local_error():
    finer = solvers.Flow(grid="adaptive", accuracy=8e-3).with_shorter_steps(1)
    assert finer.accuracy == pytest.approx(1e-3)
    assert finer.tolerance == pytest.approx(1.5e-3)
    assert solvers.Flow(tolerance=2e-6).with_shorter_steps(3).tolerance == 1e-6


def test_accuracy_shortens_the_steps_of_a_flow_and_keeps_its_word():
    """The error of long steps is seen on the same samples with short ones; what was refined is within its accuracy."""
    times, coarse = [2, 6], solvers.Flow(samples=1024, replicates=2, ratio=1.6)

    def predict(solver: solvers.Flow, accuracy: float | None = None) -> xr.Dataset:
        return FOUR.predict(times, GradientFlow(), solver=solver, accuracy=accuracy, progress=False)

    def error_of_steps(solver: solvers.Flow, found: xr.Dataset) -> float:
        short = predict(dataclasses.replace(solver, ratio=1.08))
        return max(float(abs(found[name] / short[name] - 1).max()) for name in ("train_loss", "test_loss"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refined = predict(coarse, accuracy=0.005)
    assert refined.attrs["numerical_error"] <= 0.005
    numbers = dict(re.findall(r"(\w+)=([\d.e-]+)", json.loads(refined.attrs["solver"])["solver"]))
    assert float(numbers["ratio"]) < 1.6
    solver = dataclasses.replace(
        coarse,
        samples=int(numbers["samples"]),
        ratio=float(numbers["ratio"]),
        tolerance=float(numbers["tolerance"]),
    )
    assert error_of_steps(coarse, predict(coarse)) > 0.005 > error_of_steps(solver, refined)
