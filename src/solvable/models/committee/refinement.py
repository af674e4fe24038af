"""Accuracy on request: what it costs, and raising the samples of a solver until it is reached."""

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from solvable.models.committee.problem import Problem, Solution, Solver
from solvable.numerics.cost import check_cost, in_time

# Above this many samples the error falls too slowly for more samples to be worth their cost.
_MOST_SAMPLES = 2**20
# The samples are raised by at most this power of four at a time, and not where that takes longer than this, in seconds.
_MOST_FOURFOLD, _LONGEST_REFINEMENT = 3, 3600.0
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
        _check_time(accuracy, known, solver.samples, reached, took)


def _check_time(accuracy: float, known: str, samples: int, reached: float, took: float) -> None:
    """Refuse to raise the samples where that takes too long: the error falls about as one over the samples."""
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
        seconds=took * 4.0 ** max(1, round(math.log(reached / accuracy, 4))),
        remedy=f"{nearest}, or run it inside solvable.numerics.cost.unlimited()",
        longest=_LONGEST_REFINEMENT,
    )


def refine(solved: Callable[[Solver], Solution], solver: Any, accuracy: float) -> tuple[Solver, Solution]:
    """Raise the samples until the error is small enough; a warning says if it cannot be.

    The error falls about as one over the samples, so that the factor, a power of four, is known from the first run, and
    so is the time that it will take.
    """
    begin = time.monotonic()
    solution, most = solved(solver), _MOST_FOURFOLD
    while solution.diverged_at is None and (reached := relative_error(*summarise(solution))) > accuracy:
        took, begin = time.monotonic() - begin, time.monotonic()
        wanted = max(1, round(math.log(reached / accuracy, 4)))
        power = min(wanted, most)
        while power > 1 and _why_no_more_samples(solver, 4**power):
            power -= 1
        message = _why_no_more_samples(solver, 4**power)
        if message is None:
            # The cost of the accuracy asked for, even where the samples cannot be raised so far at once.
            known = f"{solver.samples} samples reached {reached:.2g} in {in_time(took)}"
            _check_time(accuracy, known, solver.samples, reached, took)
            larger = dataclasses.replace(solver, samples=4**power * solver.samples)
            try:
                solution = solved(larger)
                solver = larger
                continue
            except MemoryError as error:
                if power > 1:
                    most = power - 1
                    continue
                message = str(error)
        warnings.warn(f"accuracy {accuracy:g} not reached, only {reached:.2g}: {message}", stacklevel=6)
        break
    return solver, solution


def _why_no_more_samples(solver: Any, factor: int) -> str | None:
    """Why more samples would not help, or None if they may."""
    if not hasattr(solver, "samples"):
        return f"{solver} has no samples to raise"
    if factor * solver.samples > _MOST_SAMPLES:
        return (
            f"the error falls slowly with samples, and {solver.samples} are many already: pass a solver with more of "
            "them, or ask for earlier times"
        )
    return None
