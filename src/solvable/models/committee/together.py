"""Many committees in one program: planes of the latent closure on an accelerator.

A single run of the closure (:mod:`solvable.models.committee.closure`) multiplies matrices of a few rows, which leaves
an accelerator idle. Here the settings of a plane, and the runs of each, take every step together: the same operations
with one more axis. Settings may differ in all their numbers; they share the number of neurons and index fields, the
teacher, and the random numbers of each set of samples, so that differences between neighbours have little noise.

All settings open directions by the same rule as a single run, each when it needs one. How much of the signals lies
outside of the basis is seen from small matrices; only for those settings in which it is too much are the rows of the
basis read again, a part of all settings at a time. What is left, three readings of the rows in a step, is what an
accelerator's memory allows. All settings have as many rows as the one with most directions, which does not pay on a
CPU.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from solvable.activations import Polynomial
from solvable.models.committee.basis import ROUNDING
from solvable.models.committee.closure import start_coordinates
from solvable.models.committee.columns import Columns, Private
from solvable.models.committee.gaussian import derivative
from solvable.models.committee.population import measure_tests
from solvable.models.committee.problem import Problem, Solution
from solvable.models.committee.symmetry import symmetry_of
from solvable.training import GradientDescent

# Rows that a basis has at first and gains when it is full, and steps between two looks at how full it is.
_ROWS, _LOOK_EVERY = 64, 8
# Part of the device's memory that the bases may take.
_SHARE = 0.5
# Part of the settings in which directions are opened at a time.
_PART = 1 / 8


class Runs(NamedTuple):
    """Numbers of every run, along the first axis."""

    activation: Float[Array, "run degree"]
    slope: Float[Array, "run degree2"]
    readout: Float[Array, "run neuron"]
    gradient_readout: Float[Array, "run neuron"]
    ratio: Float[Array, "run"]
    shrunk: Float[Array, "run"]
    learning_rate: Float[Array, "run"]
    momentum: Float[Array, "run"]
    weight_decay: Float[Array, "run"]
    replicate: Int[Array, "run"]


class State(NamedTuple):
    """Basis, weights and velocity of every run."""

    latents: Float[Array, "run row sample"]
    directions: Float[Array, "run row sample"]
    used: Int[Array, "run"]
    weights: Float[Array, "run neuron row"]
    velocity: Float[Array, "run neuron row"]
    largest: Float[Array, "run"]


def have_common_program(problems: Sequence[Problem]) -> bool:
    """Whether :func:`solve_together` covers the problems.

    Parameters
    ----------
    problems
        The problems.
    """
    kinds = {(problem.neurons, problem.indices, problem.teacher) for problem in problems}
    return len(kinds) == 1 and all(_is_covered(problem, problems[0].training) for problem in problems)


def _is_covered(problem: Problem, first: Any) -> bool:
    """Whether the task is the plain one of polynomials, and the training gradient descent with constant numbers."""
    training: Any = problem.training
    if type(training) is not GradientDescent or not (problem.is_plain and problem.is_polynomial):
        return False
    numbers = ("learning_rate", "momentum", "weight_decay", "nesterov")
    others = [field for field in dataclasses.fields(training) if field.name not in numbers]
    plain = all(getattr(training, field.name) == field.default for field in others)
    # Exchangeable neurons have a closure of their own, with smaller errors.
    return plain and training.is_constant and training.nesterov == first.nesterov and symmetry_of(problem) is None


def solve_together(
    problems: Sequence[Problem],
    times: np.ndarray,
    *,
    samples: int,
    replicates: int,
    tolerance: float,
    key: int,
    memory: float,
    advance: Callable[[float], None] = lambda part: None,
) -> list[Solution]:
    """The solution of every problem, as :class:`solvable.solvers.Latent` with these settings has it.

    Parameters
    ----------
    problems
        Problems that :func:`have_common_program` accepts.
    times
        Increasing numbers of steps.
    samples, replicates, tolerance, key
        As in ``Latent`` and ``Committee.predict``.
    memory
        Bytes of the device's memory.
    advance
        Tells a progress bar how much more is done.
    """
    # As in a single prediction: the first set of samples with both conventions, the others half way.
    conventions = [(0, 0.0), (0, 1.0), *((replicate, 0.5) for replicate in range(1, replicates))]
    neurons, most = problems[0].neurons, _expected_rows(times)
    fitting = max(1, int(_SHARE * memory / (2 * 8 * samples * most * len(conventions))))
    # Parts of equal size: a smaller last one would be compiled anew.
    together = math.ceil(len(problems) / math.ceil(len(problems) / fitting))
    solutions: list[Solution] = []
    for begin in range(0, len(problems), together):
        part = problems[begin : begin + together]
        columns = [
            Columns(samples, (key, replicate), neurons + 1, neurons, Private()) for replicate in range(replicates)
        ]
        share = partial(_advance_part, advance, len(part) / len(problems))
        found = _follow(part, conventions, columns, samples, tolerance, times, share)
        solutions += [_solution(problem, conventions, *each) for problem, each in zip(part, found, strict=True)]
    return solutions


def _advance_part(advance: Callable[[float], None], share: float, part: float) -> None:
    advance(share * part)


def _expected_rows(times: np.ndarray) -> int:
    return int(3 * _ROWS + _ROWS * np.log10(1 + times[-1]))


def _follow(
    problems: Sequence[Problem],
    conventions: list[tuple[int, float]],
    columns: list[Columns],
    samples: int,
    tolerance: float,
    times: np.ndarray,
    advance: Callable[[float], None],
) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Weights (run, time, neuron, row), training losses (run, time) and the rank of every problem."""
    runs, fixed = _runs(problems, conventions), problems[0].neurons + 1
    count, neurons = len(problems) * len(conventions), problems[0].neurons
    normals = jnp.asarray(np.stack([each.normals(0, fixed + _ROWS + neurons) for each in columns]))
    target = jnp.asarray(np.stack([_target(problems[0], np.asarray(each)) for each in normals[:, 0]]))
    starts = np.stack([start_coordinates(problem) for problem in problems for _ in conventions])
    rows = fixed + _ROWS
    weights = jnp.asarray(np.pad(starts, ((0, 0), (0, 0), (0, rows - fixed))))
    latents = jnp.zeros((count, rows, samples)).at[:, :fixed].set(normals[runs.replicate][:, :fixed])
    state = State(
        latents, jnp.zeros_like(latents), jnp.full(count, fixed), weights, jnp.zeros_like(weights), jnp.zeros(count)
    )
    nesterov = bool(getattr(problems[0].training, "nesterov", False))
    step = partial(_step, fixed=fixed, tolerance=tolerance, nesterov=nesterov)
    saved, last = {int(time) for time in times}, int(times[-1])
    kept, losses = [], []
    for number in range(last + 1):
        before = state.weights
        if number in saved:
            # A step consumes the state that it begins with.
            kept.append(np.asarray(before))
        state, loss = step(runs, normals, target, state)
        if number in saved:
            losses.append(np.asarray(loss))
        if number % _LOOK_EVERY == 0 and int(state.used.max()) + neurons * (_LOOK_EVERY + 1) > state.latents.shape[1]:
            state = _with_more_rows(state)
            wanted = state.latents.shape[1] + neurons
            normals = jnp.asarray(np.stack([each.normals(0, wanted) for each in columns]))
        advance(1 / (last + 1))
    width = max(each.shape[-1] for each in kept)
    stacked = np.stack([np.pad(each, ((0, 0), (0, 0), (0, width - each.shape[-1]))) for each in kept], axis=1)
    shape = (len(problems), len(conventions))
    ranks = (np.asarray(state.used) - fixed).reshape(shape)
    return [
        (weights, loss, int(rank.max()))
        for weights, loss, rank in zip(
            stacked.reshape(*shape, *stacked.shape[1:]),
            np.stack(losses, axis=1).reshape(*shape, -1),
            ranks,
            strict=True,
        )
    ]


def _runs(problems: Sequence[Problem], conventions: list[tuple[int, float]]) -> Runs:
    def every(values: list[Any]) -> Array:
        return jnp.repeat(jnp.asarray(np.array(values, float)), len(conventions), axis=0)

    def padded(values: list[tuple[float, ...]]) -> list[np.ndarray]:
        longest = max(map(len, values))
        return [np.pad(np.asarray(one, float), (0, longest - len(one))) for one in values]

    activations = [_coefficients(problem.activation) for problem in problems]
    trainings: list[Any] = [problem.training for problem in problems]
    return Runs(
        every(padded(activations)),
        every(padded([derivative(one) for one in activations])),
        every([np.asarray(problem.readout) for problem in problems]),
        every([np.asarray(problem.gradient_readout) for problem in problems]),
        every([float(problem.samples_per_dimension) for problem in problems]),
        jnp.tile(jnp.array([shrunk for _, shrunk in conventions]), len(problems)),
        every([float(training.learning_rate) for training in trainings]),
        every([float(training.momentum) for training in trainings]),
        every([float(training.weight_decay) for training in trainings]),
        jnp.tile(jnp.array([replicate for replicate, _ in conventions]), len(problems)),
    )


def _coefficients(function: Any) -> tuple[float, ...]:
    assert isinstance(function, Polynomial)
    return function.coefficients


def _target(problem: Problem, index_field: np.ndarray) -> np.ndarray:
    return np.polynomial.polynomial.polyval(index_field, _coefficients(problem.teacher))


def _with_more_rows(state: State) -> State:
    def wider(array: Array, axis: int) -> Array:
        return jnp.pad(array, [(0, _ROWS if place == axis else 0) for place in range(array.ndim)])

    return State(
        wider(state.latents, 1),
        wider(state.directions, 1),
        state.used,
        wider(state.weights, 2),
        wider(state.velocity, 2),
        state.largest,
    )


@partial(jax.jit, static_argnames=("fixed", "nesterov"), donate_argnames="state")
def _step(
    runs: Runs, normals: Array, target: Array, state: State, *, fixed: int, tolerance: float, nesterov: bool
) -> tuple[State, Array]:
    """One step of gradient descent of every run, and the training loss before it."""
    signals, errors = jax.vmap(partial(_signals, target))(runs, state.weights, state.latents)
    state = _extend(runs, signals, normals, state, fixed, tolerance)
    force = _averages(signals, state.latents)

    def one(run: Runs, weights: Array, velocity: Array, force: Array) -> tuple[Array, Array]:
        pulled = run.momentum * velocity + force - run.weight_decay * weights
        moved = force - run.weight_decay * weights + run.momentum * pulled if nesterov else pulled
        return weights + run.learning_rate * moved, pulled

    weights, velocity = jax.vmap(one)(runs, state.weights, state.velocity, force)
    return state._replace(weights=weights, velocity=velocity), jnp.mean(errors**2, axis=1)


def _signals(target: Array, run: Runs, weights: Array, latents: Array) -> tuple[Array, Array]:
    """Signals of one run, (neuron, sample), and its errors."""
    fields = weights @ latents
    error = target[run.replicate] - run.readout @ _polynomial(run.activation, fields)
    return _polynomial(run.slope, fields) * error * run.gradient_readout[:, None], error


def _averages(values: Array, rows: Array) -> Array:
    """``<v r>`` over the samples, for every run."""
    return jnp.einsum("rvs,ras->rva", values, rows) / rows.shape[2]


def _extend(runs: Runs, signals: Array, normals: Array, state: State, fixed: int, tolerance: float) -> State:
    """The bases after the parts of the signals that lie outside of them have joined, some of the runs at a time."""
    size = jnp.sqrt(jnp.mean(signals**2, axis=2))
    largest = jnp.maximum(state.largest, size.max(axis=1))
    size = jnp.where(size > ROUNDING * largest[:, None], size, jnp.inf)
    known = _averages(signals, state.directions) / size[..., None]
    outside = jnp.mean(signals**2, axis=2) / size**2 - jnp.sum(known**2, axis=2)
    count = max(1, math.ceil(_PART * len(signals)))

    def some(carried: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        waiting, latents, directions, used = carried
        # Places beyond the last run fill up what there is too little of; nothing is written there.
        chosen = jnp.nonzero(waiting, size=count, fill_value=len(waiting))[0]
        of = partial(jnp.take, indices=chosen, axis=0, mode="clip")
        fresh = jax.vmap(lambda rows, begin: jax.lax.dynamic_slice(rows, (begin, 0), signals.shape[1:]))(
            jnp.take(normals, of(runs.replicate), axis=0), of(used)
        )
        opened = jax.vmap(partial(_opened, tolerance))(
            jax.tree.map(of, runs), of(signals), of(size), of(known), fresh, of(directions), of(used)
        )
        rows = of(used)[:, None] + jnp.arange(signals.shape[1])
        return (
            waiting.at[chosen].set(False, mode="drop"),
            latents.at[chosen[:, None], rows].set(opened[0], mode="drop"),
            directions.at[chosen[:, None], rows - fixed].set(opened[1], mode="drop"),
            used.at[chosen].add(opened[2], mode="drop"),
        )

    waiting = (outside > tolerance**2).any(axis=1)
    begin = (waiting, state.latents, state.directions, state.used)
    _, latents, directions, used = jax.lax.while_loop(lambda carried: carried[0].any(), some, begin)
    return state._replace(latents=latents, directions=directions, used=used, largest=largest)


def _opened(
    tolerance: float, run: Runs, signals: Array, size: Array, known: Array, fresh: Array, directions: Array, used: Array
) -> tuple[Array, Array, Array]:
    """New latents and directions of one run, in rows of which those without a direction are zero, and their number."""
    neurons, samples = signals.shape
    # Gram-Schmidt twice, as in a single run; the normals need one pass.
    rest = signals / size[:, None] - known @ directions
    both = jnp.concatenate([rest, fresh])
    both = both - (both @ directions.T / samples) @ directions
    rest, fresh = both[:neurons], both[neurons:]
    turn, count = _orthonormal(rest @ rest.T / samples, tolerance)
    new = turn @ rest
    place = jnp.arange(neurons)
    fresh = jnp.where(place[:, None] < count, fresh - (fresh @ new.T / samples) @ new, 0.0)
    taken = run.shrunk * (used + place) * run.ratio / samples
    steps = jnp.sqrt(jnp.maximum(1 - taken, 0.0) / run.ratio)
    return fresh + new * steps[:, None], new, count


def _orthonormal(gram: Array, tolerance: float) -> tuple[Array, Array]:
    """Orthonormal combinations of vectors, one by one and those that are long enough first, and how many there are."""
    neurons = gram.shape[0]
    found, count = jnp.zeros((neurons, neurons)), jnp.asarray(0)
    for unit in jnp.eye(neurons):
        rest = unit
        for _ in range(2):
            rest = rest - (found @ (gram @ rest)) @ found
        square = rest @ gram @ rest
        opens = square > tolerance**2
        row = jnp.where(opens, rest / jnp.sqrt(jnp.where(opens, square, 1.0)), 0.0)
        # A row of zeros is overwritten by the next combination.
        found = jax.lax.dynamic_update_slice(found, row[None], (count, 0))
        count = count + opens
    return found, count


def _polynomial(coefficients: Array, fields: Array) -> Array:
    total = jnp.full_like(fields, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * fields + coefficient
    return total


def _solution(
    problem: Problem, conventions: list[tuple[int, float]], weights: np.ndarray, losses: np.ndarray, rank: int
) -> Solution:
    """Order parameters of one problem: the first set of samples is the mean of its two conventions."""
    found = []
    for one, loss in zip(weights, losses, strict=True):
        alignment, overlap = one[:, :, :1], np.einsum("tia,tja->tij", one, one)
        test = measure_tests(problem.task, alignment, overlap, None)
        found.append(
            {"train_loss": loss, "test_loss": np.asarray(test.test_loss), "alignment": alignment, "overlap": overlap}
        )
    names = list(found[0])
    values = {
        name: np.stack([(found[0][name] + found[1][name]) / 2, *(each[name] for each in found[2:])]) for name in names
    }
    bias = {name: abs(found[0][name] - found[1][name]) / 2 for name in names}
    return Solution(values, bias, {}, {"rank": rank})
