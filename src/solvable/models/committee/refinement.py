"""Accuracy on request: what it costs, and refining the samples and time steps of a solver until it is reached."""

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from solvable.models.committee.problem import Problem, Solution, Solver
from solvable.numerics.cost import check_cost, in_time

# Above this many samples the error falls too slowly for more samples to be worth their cost.
_MOST_SAMPLES = 2**20
# The samples are raised by at most this power of four at a time, and not where that takes longer than this, in seconds.
_MOST_FOURFOLD, _LONGEST_REFINEMENT = 3, 3600.0
# An error that is still too large after this often is not falling.
_MOST_REFINEMENTS = 6
# A relative error that is not worth asking for.
_USELESS = 0.3


def summarise(solution: Solution) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Means over the runs, and errors: spread over runs, bias and time steps in quadrature."""
    values = {name: array.mean(0) for name, array in solution.values.items()}
    errors = {}
    for name, array in solution.values.items():
        count = array.shape[0]
        spread = array.std(0, ddof=1) / math.sqrt(count) if count > 1 else np.zeros(array.shape[1:])
        parts = [part[name] for part in (solution.bias, solution.time_error) if name in part]
        errors[name] = np.sqrt(spread**2 + sum(part**2 for part in parts))
    return values, errors


def relative_error(values: Mapping[str, np.ndarray], errors: Mapping[str, np.ndarray]) -> float:
    """The largest error: of losses relative to each loss, of alignment and overlap relative to the largest."""
    found = [0.0]
    for name, relative_to_each in (("train_loss", True), ("test_loss", True), ("alignment", False), ("overlap", False)):
        if name in values and np.isfinite(values[name]).any():
            largest = np.nanmax(np.abs(values["overlap"])) ** (0.5 if name == "alignment" else 1)
            scale = np.abs(values[name]) if relative_to_each else largest
            found.append(float(np.nanmax(errors[name] / np.maximum(scale, 1e-300))))
    return max(found)


def check_accuracy(solver: Any, problem: Problem, times: np.ndarray, key: int, accuracy: float) -> None:
    """Refuse an accuracy that would take hours before the work begins, by what a small run says.

    Parameters
    ----------
    solver
        The solver that would be refined. Those without samples are not checked.
    problem
        Network, target, start, samples per dimension and training.
    times
        Increasing times, in the units of the training.
    key
        Random key of the samples.
    accuracy
        The relative error asked for.
    """
    estimate = solver.rehearse(problem, times, key) if hasattr(solver, "rehearse") else None
    if estimate is None:
        return
    took, reached = estimate
    if reached > accuracy:
        known = f"{solver.samples} samples reach about {reached:.1g} in about {in_time(took)}"
        _check_time(accuracy, known, solver.samples, reached, took, _Refinement(_fourfold(reached, accuracy), 0))


class _Refinement(NamedTuple):
    """How a solver is refined: its samples times ``4^fourfold``, its time steps halved ``halvings`` times."""

    fourfold: int
    halvings: int

    @property
    def cost(self) -> float:
        """By which factor a run takes longer."""
        return 4.0**self.fourfold * 2.0**self.halvings

    def of(self, solver: Any) -> Any:
        """The refined solver."""
        if self.halvings:
            solver = solver.with_shorter_steps(self.halvings)
        return dataclasses.replace(solver, samples=4**self.fourfold * solver.samples) if self.fourfold else solver


def _fourfold(error: float, target: float) -> int:
    """The power of four by which samples are raised: the error falls about as one over the samples."""
    return max(1, round(math.log(error / target, 4)))


def _refinement(solver: Any, solution: Solution, accuracy: float) -> _Refinement | str:
    """How to reach an accuracy from a solution that misses it, or why it cannot be reached.

    The error of the samples and that of the time steps, which falls fourfold where steps are halved, are added in
    quadrature. Each gets half of the square where both are too large, and the samples all that the time steps leave.
    """
    values = {name: array.mean(0) for name, array in solution.values.items()}
    steps = relative_error(values, {name: solution.time_error.get(name, np.zeros(1)) for name in values})
    samples = relative_error(*summarise(solution._replace(time_error={})))
    half, halvings = accuracy / math.sqrt(2), 0
    if steps > half and hasattr(solver, "with_shorter_steps"):
        halvings = math.ceil(math.log(steps / half, 4))
        steps = half
    if steps >= accuracy:
        return f"{steps:.2g} of it does not fall with the samples"
    left = math.sqrt(accuracy**2 - steps**2)
    return _Refinement(_fourfold(samples, left) if samples > left else 0, halvings)


def _check_time(accuracy: float, known: str, samples: int, reached: float, took: float, refined: _Refinement) -> None:
    """Refuse a refinement that takes too long."""
    nearest = f"accuracy={reached * min(took / 60, 1):.1g} takes about a minute"
    if took > 60:
        fewer = 2 ** max(4, math.floor(math.log2(samples * 60 / took)))
        rough = reached * samples / fewer
        nearest = (
            f"a solver with {fewer} samples and no accuracy, which reaches about {rough:.1g}, takes about a minute"
        )
        if rough > _USELESS:
            nearest = f"accuracy={reached:.1g} takes about {in_time(took)}"
    check_cost(
        f"accuracy {accuracy:g} here, where {known},",
        seconds=took * refined.cost,
        remedy=f"{nearest}, or run it inside solvable.numerics.cost.unlimited()",
        longest=_LONGEST_REFINEMENT,
    )


def refine(solved: Callable[[Solver], Solution], solver: Any, accuracy: float) -> tuple[Solver, Solution]:
    """Raise the samples and shorten the time steps until the error is small enough; a warning says if it cannot be.

    How far is known from the first run, and so is the time that it will take.
    """
    begin = time.monotonic()
    solution, most = solved(solver), _MOST_FOURFOLD
    took, refinements = time.monotonic() - begin, 0
    while solution.diverged_at is None and (reached := relative_error(*summarise(solution))) > accuracy:
        wanted: _Refinement | str = f"it does not fall any more after {refinements} refinements"
        if refinements < _MOST_REFINEMENTS:
            wanted, refinements = _refinement(solver, solution, accuracy), refinements + 1
        tried = wanted if isinstance(wanted, str) else _possible(solver, wanted, most)
        if isinstance(wanted, str) or isinstance(tried, str):
            _warn(accuracy, reached, str(tried))
            break
        # The cost of the accuracy asked for, even where the samples cannot be raised so far at once.
        known = f"{solver.samples} samples reached {reached:.2g} in {in_time(took)}"
        _check_time(accuracy, known, solver.samples, reached, took, wanted)
        begin = time.monotonic()
        try:
            finer = tried.of(solver)
            solution, solver, took = solved(finer), finer, time.monotonic() - begin
        except MemoryError as error:
            if tried.fourfold <= 1:
                _warn(accuracy, reached, str(error))
                break
            most = tried.fourfold - 1
    return solver, solution


def _possible(solver: Any, wanted: _Refinement, most: int) -> _Refinement | str:
    """The refinement with as many samples as there may be, or why there may be no more."""
    if not hasattr(solver, "samples"):
        return f"{solver} has no samples to raise"
    power = min(wanted.fourfold, most)
    while power > 0 and 4**power * solver.samples > _MOST_SAMPLES:
        power -= 1
    if wanted.fourfold > 0 and power == 0:
        return (
            f"the error falls slowly with samples, and {solver.samples} are many already: pass a solver with more of "
            "them, or ask for earlier times"
        )
    return _Refinement(power, wanted.halvings)


def _warn(accuracy: float, reached: float, why: str) -> None:
    warnings.warn(f"accuracy {accuracy:g} not reached, only {reached:.2g}: {why}", stacklevel=7)
