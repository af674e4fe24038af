"""From a request to a dataset: choose the solver, raise its samples to the accuracy asked for, label the results."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.checks import check_choice, check_count, check_fraction
from solvable.coverage import check_training
from solvable.divergence import DivergedError
from solvable.models.committee import together
from solvable.models.committee.algorithm import Algorithm
from solvable.models.committee.batches import batches_of
from solvable.models.committee.flow import Flow
from solvable.models.committee.labels import labelled
from solvable.models.committee.latent import Latent
from solvable.models.committee.online import Online
from solvable.models.committee.problem import OutputRequest, Problem, Solution, Solver, problem_of
from solvable.models.committee.refinement import check_accuracy, refine, relative_error, summarise
from solvable.models.committee.response import FixedPoint, Response
from solvable.numerics.memory import memory_limit
from solvable.progress import progress_bar
from solvable.training import GradientFlow, Training

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


def solve(
    model: "Committee",
    times: np.ndarray,
    training: Training,
    request: OutputRequest,
    *,
    solver: Any = None,
    accuracy: float | None = None,
    key: int = 0,
    on_divergence: str = "raise",
    progress: bool | None = None,
) -> xr.Dataset:
    """Solve the theory of a model at checked times; the options are those of ``Committee.predict``."""
    check_count("key", key, 0)
    check_choice("on_divergence", on_divergence, ON_DIVERGENCE)
    if accuracy is not None:
        check_fraction(accuracy, "accuracy")
    problem = problem_of(model, training)
    by_name = solver is None or isinstance(solver, str)
    solver = choose_solver(solver, problem)
    if by_name and isinstance(solver, Latent):
        solver = solver.fitted(problem, times)
    _check_request(request, problem)
    solver.check_cost(problem, times)
    if accuracy is not None:
        check_accuracy(solver, problem, times, key, accuracy)

    def solved(solver: Solver) -> Solution:
        with progress_bar(f"solving {model.name}", 1.0, progress) as advance:
            return solver.solve(problem, times, request, key, advance)

    solver, solution = (solver, solved(solver)) if accuracy is None else refine(solved, solver, accuracy)
    return _as_dataset(model, times, training, solver, solution, key, accuracy, on_divergence)


def solve_many(
    models: Sequence["Committee"],
    times: Any,
    trainings: Sequence[Training],
    *,
    solver: Any = None,
    key: int = 0,
    progress: bool | None = None,
) -> list[xr.Dataset] | None:
    """Predictions of several models in one program; None where that is not possible. Times are checked here."""
    checked = [model._check_run(times, training, "predict") for model, training in zip(models, trainings, strict=True)]
    if any(math.isinf(model.samples_per_dimension) for model in models):
        return None
    times, trainings = checked[0][0], [training for _, training in checked]
    problems = [problem_of(model, training) for model, training in zip(models, trainings, strict=True)]
    chosen = choose_solver(solver, problems[0])
    if type(chosen) is not Latent or not together.have_common_program(problems):
        return None
    for problem in problems:
        chosen.check_cost(problem, times)
    # Settings that diverge have numbers beyond bounds, for which their caller looks.
    with (
        progress_bar(f"solving {len(models)} times {models[0].name}", 1.0, progress) as advance,
        np.errstate(over="ignore", invalid="ignore"),
    ):
        solutions = together.solve_together(
            problems,
            times,
            samples=chosen.samples,
            replicates=chosen.replicates,
            tolerance=chosen.tolerance,
            key=key,
            memory=memory_limit(chosen.memory_limit),
            advance=advance,
        )
        return [
            _as_dataset(model, times, training, chosen, solution, key, None, "keep")
            for model, training, solution in zip(models, trainings, solutions, strict=True)
        ]


def _as_dataset(
    model: "Committee",
    times: np.ndarray,
    training: Training,
    solver: Solver,
    solution: Solution,
    key: int,
    accuracy: float | None,
    on_divergence: str,
) -> xr.Dataset:
    """The dataset of a solution, with errors and provenance."""
    values, errors = summarise(solution)
    reached = relative_error(values, errors)
    ratio = None if isinstance(solver, Online) else float(model.samples_per_dimension)
    dataset = labelled(
        model,
        "theory",
        values | {f"{name}_error": error for name, error in errors.items()},
        times,
        {"solver": str(solver), "key": key, **solution.notes},
        training=training,
        system={"dimension": None, "samples_per_dimension": ratio},
        error=reached,
        may_diverge=solution.diverged_at is not None,
    )
    for name in errors:
        # The spread over few replicates of the samples is itself not well known.
        if (count := solution.values[name].shape[0]) > 1:
            dataset[f"{name}_error"].attrs["degrees_of_freedom"] = count - 1
    if accuracy is not None:
        dataset.attrs["accuracy_reached"] = str(reached <= accuracy)
    if solution.diverged_at is not None:
        dataset.attrs["diverged_at"] = solution.diverged_at
        if on_divergence == "raise":
            raise _diverged(training, solution, dataset)
    return dataset


def choose_solver(solver: Any, problem: Problem) -> Solver:
    """The solver that is asked for, or the default one, if it covers the training and the task."""
    online, training = math.isinf(problem.samples_per_dimension), problem.training
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
    if not isinstance(training, Algorithm):
        check_training(training, solver.covers, f"the solver {type(solver).__name__}", remedy)
    elif not isinstance(solver, Latent):
        raise ValueError(f"the solver {type(solver).__name__} does not cover algorithms of your own: use Latent")
    if not problem.is_plain and not getattr(solver, "covers_every_task", False):
        raise ValueError(
            f"the solver {type(solver).__name__} covers the squared error of a teacher without noise on Gaussian "
            f"inputs only, not {of_task(problem)}: use Latent or Online"
        )
    return solver


def _check_request(request: OutputRequest, problem: Problem) -> None:
    """Raise a ValueError where something is wanted that is defined for full batches of the plain task only."""
    training: Any = problem.training
    plain = problem.is_plain and batches_of(training) is None and not isinstance(training, Algorithm)
    if not plain or getattr(training, "readout_learning_rate", None) is not None:
        for name, wanted in dataclasses.asdict(request).items():
            if wanted:
                what = of_task(problem) or repr(training)
                raise ValueError(
                    f"{name} is defined for the squared error, full batches and fixed readouts only, not for {what}: "
                    "leave it out"
                )


def of_task(problem: Problem) -> str:
    """What of a task is not the plain one."""
    labelling = problem.labelling
    parts = {
        f"loss = {problem.loss.kind!r}": problem.loss.kind != "squared",
        f"labels = {labelling.kind!r}": labelling.kind != "teacher",
        f"label_noise = {labelling.noise:g}": labelling.noise > 0,
        f"label_flips = {labelling.flips:g}": labelling.flips > 0,
        "cluster_means": problem.clusters is not None,
    }
    return ", ".join(text for text, there in parts.items() if there)


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
