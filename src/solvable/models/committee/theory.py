"""From a request to a dataset: choose the solver, raise its samples to the accuracy asked for, and name the results."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.checks import check_choice, check_count, check_fraction
from solvable.dataset import Stopwatch, make_dataset, provenance
from solvable.divergence import DivergedError
from solvable.models.committee.fixed_point import FixedPoint
from solvable.models.committee.flow import Flow
from solvable.models.committee.latent import Latent
from solvable.models.committee.online import Online
from solvable.models.committee.outputs import DIMS, MEANINGS, OutputRequest, Solution, Solver, relative_error, summarise
from solvable.models.committee.problem import Problem, problem_of
from solvable.models.committee.response import Response
from solvable.progress import progress_bar
from solvable.training import SGD, GradientFlow, Training, check_training

if TYPE_CHECKING:
    from solvable.models.committee.model import Committee

SOLVERS: dict[str, Callable[[], Solver]] = {
    "latent": Latent,
    "flow": Flow,
    "online": Online,
    "response": Response,
    "fixed-point": FixedPoint,
}
ON_DIVERGENCE = ("raise", "keep")
# Above this many samples the error falls too slowly for more samples to be worth their cost.
_MOST_SAMPLES = 2**20


def solve(
    model: "Committee",
    times: np.ndarray,
    training: Training,
    solver: Any,
    request: OutputRequest,
    accuracy: float | None,
    key: int,
    on_divergence: str,
    progress: bool | None,
) -> xr.Dataset:
    """Solve the theory of a model at checked times; the options are those of ``Committee.predict``."""
    watch = Stopwatch()
    check_count("key", key, 0)
    check_choice("on_divergence", on_divergence, ON_DIVERGENCE)
    if accuracy is not None:
        check_fraction(accuracy, "accuracy")
    problem, solver = problem_of(model, training), choose_solver(solver, model.samples_per_dimension, training)
    solver.check_cost(problem, times)

    def solved(solver: Solver) -> Solution:
        with progress_bar(f"solving {model.name}", 1.0, progress) as advance:
            return solver.solve(problem, times, request, key, advance)

    solver, solution = (solver, solved(solver)) if accuracy is None else refine(solved, solver, accuracy)
    values, errors = summarise(solution)
    reached = relative_error(values, errors)
    settings = {"solver": str(solver), "key": key, **solution.notes}
    ratio = None if isinstance(solver, Online) else float(model.samples_per_dimension)
    system = {"dimension": None, "samples_per_dimension": ratio}
    attributes = provenance(model, "theory", settings, watch, reached, training=training, system=system)
    if accuracy is not None:
        attributes["accuracy_reached"] = str(reached <= accuracy)
    if solution.diverged_at is not None:
        attributes["diverged_at"] = solution.diverged_at
    dataset = _dataset(model, times, problem, solution, values, errors, attributes)
    if solution.diverged_at is not None and on_divergence == "raise":
        raise _diverged(training, solution, dataset)
    return dataset


def choose_solver(solver: Any, samples_per_dimension: float, training: Training) -> Solver:
    """The solver that is asked for, or the default one, if it covers the training."""
    online = math.isinf(samples_per_dimension)
    if solver is None:
        solver = "online" if online else "flow" if isinstance(training, GradientFlow) else "latent"
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(SOLVERS)}, or one of solvable.solvers, not {solver!r}")
        solver = SOLVERS[solver]()
    if not hasattr(solver, "solve"):
        raise ValueError(f"solver must be one of solvable.solvers (Latent, Flow, Online, ...), not {solver!r}")
    if online and not isinstance(solver, Online):
        raise ValueError(
            f"samples_per_dimension is infinite: that is the online limit, use Online() and not {solver!r}"
        )
    remedy = "Leave solver out, and it is chosen by the training."
    check_training(training, solver.covers, f"the solver {type(solver).__name__}", remedy)
    return solver


def coordinates(model: "Committee") -> dict[str, np.ndarray]:
    """Neurons and index fields, counted from 1."""
    neurons, indices = model.initial_alignment.shape
    numbers = np.arange(1, neurons + 1)
    return {"neuron": numbers, "other_neuron": numbers, "index": np.arange(1, indices + 1)}


def _dataset(
    model: "Committee",
    times: np.ndarray,
    problem: Problem,
    solution: Solution,
    values: dict[str, np.ndarray],
    errors: dict[str, np.ndarray],
    attributes: dict[str, Any],
) -> xr.Dataset:
    axes = {"time": times, **coordinates(model)}
    if any("earlier_time" in DIMS[name] for name in values):
        axes["earlier_time"] = times
    variables = {name: (DIMS[name], value) for name, value in values.items()}
    variables |= {f"{name}_error": (DIMS[name], error) for name, error in errors.items()}
    diverged = solution.diverged_at is not None
    dataset = make_dataset(variables, axes, attributes, MEANINGS, may_diverge=diverged, training=problem.training)
    if isinstance(problem.training, SGD):
        dataset["time"].attrs["units"] = "D steps"
    if "earlier_time" in axes:
        dataset["earlier_time"].attrs["units"] = dataset["time"].attrs["units"]
    for name in errors:
        count = solution.values[name].shape[0]
        # The spread over few replicates of the samples is itself not well known.
        if count > 1:
            dataset[f"{name}_error"].attrs["degrees_of_freedom"] = count - 1
    return dataset


def _diverged(training: Training, solution: Solution, partial: xr.Dataset) -> DivergedError:
    """The error that says when the solution diverged, and which learning rate would do."""
    time, stable = float(solution.diverged_at or 0.0), solution.stable_learning_rate
    remedy = "lower the learning rate" if stable is None else f"a learning rate below {stable:.2g} is stable there"
    return DivergedError(
        f"training diverged at time {time:g} with {training!r}: {remedy} (or pass on_divergence='keep' for the results "
        "up to it)",
        step=int(time) if training.counts_steps else None,
        time=time,
        stable_learning_rate=stable,
        partial=partial,
    )


def refine(solved: Callable[[Solver], Solution], solver: Any, accuracy: float) -> tuple[Solver, Solution]:
    """Raise the samples, fourfold at a time, until the error is small enough; a warning says if it cannot be."""
    solution = solved(solver)
    while solution.diverged_at is None and (reached := relative_error(*summarise(solution))) > accuracy:
        message = _why_no_more_samples(solver)
        if message is None:
            larger = dataclasses.replace(solver, samples=4 * solver.samples)
            try:
                solution = solved(larger)
                solver = larger
                continue
            except MemoryError as error:
                message = str(error)
        warnings.warn(f"accuracy {accuracy:g} not reached, only {reached:.2g}: {message}", stacklevel=4)
        break
    return solver, solution


def _why_no_more_samples(solver: Any) -> str | None:
    """Why more samples would not help, or None if they may."""
    if not hasattr(solver, "samples"):
        return f"{solver} has no samples to raise"
    if 4 * solver.samples > _MOST_SAMPLES:
        return (
            f"the error falls slowly with samples, and {solver.samples} are many already: pass a solver with more of "
            "them, or ask for earlier times"
        )
    return None
