"""Training of finite committees: the cost of the forms of a step, compared with the bandwidth of the memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.timing import Result, seconds
from solvable import Committee, GradientDescent, activations
from solvable.models.committee import simulation
from solvable.models.committee.problem import problem_of
from solvable.models.committee.protocol import Descent
from solvable.models.committee.simulation import FORMS, choose_form, draw_inputs
from solvable.models.committee.start import initial_weights
from solvable.precision import in_float64

MODEL = Committee(
    samples_per_dimension=2.0,
    output_scale=1.0,
    activation=activations.quadratic(0.5),
    initial_overlap=[[1, 0.2], [0.2, 1]],
    initial_alignment=[[0.3], [-0.1]],
)
STEP = 0.1


@in_float64
def run() -> list[Result]:
    on_gpu = jax.default_backend() == "gpu"
    dimension, seeds, count = (3500, 10, 100) if on_gpu else (500, 2, 20)
    results = [*_bandwidth(dimension, seeds, count, on_gpu), *_forms(dimension, seeds, count)]
    return [*results, *_whole(dimension, seeds)]


def steps_of(form: str, samples: int, dimension: int, seeds: int, count: int) -> Callable[[], Any]:
    """A function that takes ``count`` steps of this form on fixed datasets, and returns the students."""
    problem = problem_of(MODEL, GradientDescent(STEP))
    descent = Descent(problem.training)
    weights = jnp.asarray(initial_weights(MODEL.initial_overlap, MODEL.initial_alignment, dimension))

    def start(key: jax.Array) -> Any:
        inputs = draw_inputs(key, samples, dimension, "float64")
        data = FORMS[form].of(problem, inputs, weights, key)
        return descent.start(data), data

    @jax.jit
    def many(students: Any, data: Any) -> Any:
        def one(student: Any, data: Any) -> Any:
            return jax.lax.fori_loop(0, count, lambda step, at: descent.step(data, at, step), student)

        return jax.vmap(one)(students, data)

    students, data = jax.jit(jax.vmap(start))(jax.random.split(jax.random.key(0), seeds))
    return partial(many, students, data)


def copy_bandwidth(numbers: int) -> float:
    """Bytes per second that are read and written when an array of float64 is copied."""
    values = jnp.ones(numbers)
    # Adding one forces the compiler to write; its cost is negligible compared with memory access.
    return 16 * numbers / seconds(lambda: _plus_one(values), repeats=10)


@jax.jit
def _plus_one(values: jax.Array) -> jax.Array:
    return values + 1


def _bandwidth(dimension: int, seeds: int, count: int, on_gpu: bool) -> list[Result]:
    samples = 2 * dimension
    copied = copy_bandwidth(seeds * samples * dimension)
    taken = seconds(steps_of("primal", samples, dimension, seeds, count)) / count
    read = 2 * 8 * seeds * samples * dimension / taken
    label = f"D = {dimension}, γ = 2, {seeds} datasets, float64"
    return [
        Result(f"copying {8e-6 * seeds * samples * dimension:.0f} MB, read and written", copied / 1e9, "GB/s"),
        Result(f"primal, {label}: one step", 1e3 * taken, "ms"),
        Result("primal, two reads of X per step", read / 1e9, "GB/s"),
        # On a CPU, caches make this number meaningless: it is promised on an accelerator only.
        Result("primal, fraction of the copy bandwidth", read / copied, "", at_least=0.85 if on_gpu else None),
    ]


def _forms(dimension: int, seeds: int, count: int) -> list[Result]:
    results = []
    for gamma in (0.5, 1.0, 2.0, 4.0):
        samples = round(gamma * dimension)
        primal, dual = (seconds(steps_of(form, samples, dimension, seeds, count)) for form in ("primal", "dual"))
        chosen = choose_form(samples, dimension, 2, 10**4)
        # Here the dual form reads a quarter of the data, and must be clearly faster on any machine.
        promise = 1.5 if gamma == 0.5 else None
        results.append(Result(f"γ = {gamma:g}: primal over dual time (auto: {chosen})", primal / dual, "x", promise))
    return results


def _whole(dimension: int, seeds: int) -> list[Result]:
    def whole() -> Any:
        problem = problem_of(MODEL, GradientDescent(STEP))
        setup = simulation.set_up(problem, 100, dimension=dimension, dtype="float64", form="auto")
        return simulation.simulate(setup, [0, 10, 100], seeds=seeds, key=0, progress=False)

    return [Result("simulate, 100 steps, compilation and drawing of data included", seconds(whole, 1), "s")]
