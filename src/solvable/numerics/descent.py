"""Gradient flow and gradient descent of a state that JAX can follow, with the numerical error of what is measured.

>>> import numpy as np
>>> from solvable import GradientFlow
>>> from solvable.numerics.descent import train_with_error
>>> values, errors = train_with_error(lambda x: x, lambda x: x, 1.0, np.array([0.0, 1.0, 2.0]), GradientFlow(), 2.0)
>>> np.asarray(values).round(4)
array([1.    , 0.3679, 0.1353])
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from solvable.checks import check_count
from solvable.coverage import Covers
from solvable.numerics.cost import STEP, check_cost
from solvable.numerics.ensemble import Traceable, ensemble
from solvable.precision import in_float64
from solvable.training import GradientDescent, GradientFlow, Schedule, Training

PyTree = Any
# A Runge-Kutta step is at most this fraction of the learning rate from which gradient descent is unstable; its relative
# error is then about 1e-8.
_FLOW_STEP = 0.02
# What can be trained with the functions here.
SIMULATED = (
    Covers(GradientFlow, options=("weight_decay",), schedules=("learning_rate",)),
    Covers(
        GradientDescent, options=("momentum", "nesterov", "weight_decay", "decoupled"), schedules=("learning_rate",)
    ),
)


# Theories of networks that can be followed step by step on the population: the flow in closed form, steps exactly.
FOLLOWED = (Covers(GradientFlow, schedules=("learning_rate",)), SIMULATED[1])


class TrainingProblem(NamedTuple):
    """What one run trains: the gradient of its loss, what to measure of a state, and the initial state."""

    gradient: Callable[[PyTree], PyTree]
    measure: Callable[[PyTree], dict[str, Any]]
    initial_state: PyTree


@in_float64
def simulate_runs(
    draw: Callable[[jax.Array], TrainingProblem],
    times: Float[np.ndarray, "time"],
    training: Training,
    *,
    stable_rate: float,
    excess: float = 1.0,
    operations: float,
    **options: Any,
) -> dict[str, np.ndarray]:
    """Train once for each seed; every measured value and its ``<name>_error``, with the axes (seed, time, ...).

    Parameters
    ----------
    draw
        Draws the training problem of one run from its random key.
    times
        Increasing times, in the units of the training.
    training
        ``GradientFlow`` or ``GradientDescent``.
    stable_rate
        The learning rate from which plain gradient descent on the population is unstable: 2 over the curvature.
    excess
        By how much the curvature of a drawn training set may exceed that of the population.
    operations
        Operations of one step, roughly.
    **options
        Options of :func:`solvable.numerics.ensemble.ensemble`: ``seeds``, ``key``, ``bytes_per_run`` and others.
    """
    check_stable(training, stable_rate, times[-1])
    label = options.get("label", "simulating")
    check_training_cost(label, times, training, stable_rate / excess, options["seeds"], operations)

    plan = _plan(times, training, stable_rate / excess)
    # What the function is made of are arguments, too: calls for other numbers then share a compiled program.
    function, arguments = (draw.func, draw.args) if isinstance(draw, partial) and not draw.keywords else (draw, ())
    values, errors = ensemble(Traceable(_train_once, function, arguments, plan, training), **options)
    if not all(np.isfinite(value).all() for value in values.values()):
        raise ValueError(f"training diverged with {training!r}: lower learning_rate, or raise samples")
    return values | {f"{name}_error": error for name, error in errors.items()}


def _train_once(
    draw: Callable[..., TrainingProblem], arguments: tuple[Any, ...], plan: "_Plan", training: Training, key: jax.Array
) -> tuple[PyTree, PyTree]:
    return _trained(*draw(*arguments, key), plan, training)


def check_samples(samples: Any) -> int | None:
    """Return the size of a training set; None and infinity stand for the population, and give None."""
    return None if samples is None or samples == math.inf else check_count("samples", samples)


@in_float64
def train_with_error(
    gradient: Callable[[PyTree], PyTree],
    measure: Callable[[PyTree], PyTree],
    state: PyTree,
    times: Float[np.ndarray, "time"],
    training: Training,
    stable_rate: float,
) -> tuple[PyTree, PyTree]:
    """Train, and measure at each time; both trees that come back have time as their first axis.

    Parameters
    ----------
    gradient
        Gradient of the loss as a function of the state.
    measure
        What to measure of a state.
    state
        The initial state, a PyTree of numbers.
    times
        Increasing times, in the units of the training.
    training
        ``GradientFlow``, which is integrated by fourth-order Runge-Kutta steps, or ``GradientDescent``.
    stable_rate
        The learning rate from which gradient descent is unstable; it sets the length of the Runge-Kutta steps.

    Returns
    -------
    values, errors
        The measured values and their estimated numerical errors. Gradient descent has no error but rounding. The flow
        is computed with two step lengths, whose difference is about fifteen times the error of the finer one. Rounding
        adds up to at most N times the machine precision over N steps; its effect on the measured values is estimated by
        perturbing the states.
    """
    return _trained(gradient, measure, state, _plan(times, training, stable_rate), training)


class _Plan(NamedTuple):
    """Steps that lead to each of the times, Runge-Kutta steps of a flow with their lengths; and how many there were."""

    counts: Int[Any, "time"]
    lengths: Float[Any, "time"] | None
    taken: Float[Any, "time"]


def _plan(times: Float[np.ndarray, "time"], training: Training, stable_rate: float) -> _Plan:
    if isinstance(training, GradientDescent):
        return _Plan(times.astype(int), None, times)
    counts, lengths = flow_steps(training.flow_time(times), _decayed_rate(stable_rate, training))
    # A Runge-Kutta step evaluates the gradient four times.
    return _Plan(counts, lengths, 8.0 * np.cumsum(counts))


def _trained(
    gradient: Callable[[PyTree], PyTree],
    measure: Callable[[PyTree], PyTree],
    state: PyTree,
    plan: _Plan,
    training: Training,
) -> tuple[PyTree, PyTree]:
    """:func:`train_with_error` in the steps of a plan."""
    if plan.lengths is None:
        states = _descended(gradient, state, plan.counts, cast(GradientDescent, training))
        values = jax.vmap(measure)(states)
        errors = jax.tree.map(jnp.zeros_like, values)
    else:
        pull = _decayed(gradient, training)
        states = _flowed(pull, state, 2 * plan.counts, plan.lengths / 2)
        values = jax.vmap(measure)(states)
        errors = _distance(values, jax.vmap(measure)(_flowed(pull, state, plan.counts, plan.lengths)))
    for moved in _rounded(states, np.finfo(float).eps * (plan.taken + 1.0)):
        errors = jax.tree.map(jnp.add, errors, _distance(values, jax.vmap(measure)(moved)))
    return values, errors


@in_float64
def follow_steps(
    draw: Callable[..., TrainingProblem],
    model: PyTree,
    times: Float[np.ndarray, "time"],
    training: GradientDescent,
    *options: Any,
    operations: float,
    counts: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Measure a network without randomness after each number of steps; exact but for rounding.

    One compiled program serves all numbers of a model and a training: they are its arguments.

    Parameters
    ----------
    draw
        Function of a module, which makes of the model the gradient of the population's loss, what to measure, and the
        initial state.
    model
        The model.
    times
        Increasing whole numbers of steps.
    training
        How the steps are taken.
    *options
        Further arguments of ``draw``, which is compiled for each of their values.
    operations
        Operations of one step, roughly.
    counts
        Fields of the model that ``draw`` needs as plain numbers, such as the size of an array.
    """
    check_cost(
        f"{times[-1]:.3g} gradient-descent steps",
        operations=times[-1] * (STEP + operations),
        remedy="ask for earlier times, or use GradientFlow",
    )
    traced = jax.tree.map(eqx.is_inexact_array_like, (model, training))
    traced = eqx.tree_at(lambda pair: [getattr(pair[0], name) for name in counts], traced, [False] * len(counts))
    numbers, rest = eqx.partition((model, training), traced)
    steps = jnp.asarray(times.astype(int))
    values: dict[str, Any] = _followed(numbers, steps, draw, rest, options)
    return values


@partial(jax.jit, static_argnames=("draw", "rest", "options"))
def _followed(
    numbers: PyTree, steps: Array, draw: Callable[..., TrainingProblem], rest: PyTree, options: tuple[Any, ...]
) -> PyTree:
    """What is measured after each number of steps; ``numbers`` and ``rest`` are the two parts of model and training."""
    model, training = eqx.combine(numbers, rest)
    problem = draw(model, *options)
    return jax.vmap(problem.measure)(_descended(problem.gradient, problem.initial_state, steps, training))


def flow_steps(
    clock: Float[np.ndarray, "time"], stable_rate: float
) -> tuple[Int[np.ndarray, "time"], Float[np.ndarray, "time"]]:
    """Number and length of the Runge-Kutta steps that lead from each flow time to the next."""
    spans = np.diff(clock, prepend=0.0)
    counts = np.ceil(spans / (_FLOW_STEP * stable_rate)).astype(int)
    return counts, spans / np.maximum(counts, 1)


def check_training_cost(
    label: str,
    times: Float[np.ndarray, "time"],
    training: Training,
    stable_rate: float,
    seeds: int,
    operations: float,
) -> None:
    """Refuse a run whose steps, each of the given number of operations, would take too long."""
    if isinstance(training, GradientDescent):
        steps, evaluations = float(times[-1]), 1
    else:
        longest = _FLOW_STEP * _decayed_rate(stable_rate, training)
        steps, evaluations = float(training.flow_time(times[-1:])[0]) / longest, 12
    check_cost(
        f"{label} for {steps:.3g} steps and {seeds:.3g} seeds",
        operations=evaluations * steps * (STEP + seeds * operations),
        remedy="ask for earlier times or fewer seeds",
    )


def check_stable(training: Training, stable_rate: float, last: float) -> None:
    """Refuse gradient descent whose largest learning rate is not below the largest stable one."""
    if not isinstance(training, GradientDescent):
        return
    # Heavy-ball momentum is stable up to 2 (1 + momentum) over the curvature, Nesterov's up to less.
    momenta = training.momenta(0, 1 if training.is_constant else min(max(int(last), 1), 10**6))
    factor = float(np.min((1 + momenta) / (1 + 2 * momenta) if training.nesterov else 1 + momenta))
    limit = factor * _decayed_rate(stable_rate, training, float(np.max(momenta)))
    rate = training.learning_rate
    largest = float(np.max(training.learning_rates(0, min(int(last), 10**6)))) if isinstance(rate, Schedule) else rate
    if largest >= limit:
        raise ValueError(
            f"learning_rate = {largest:g} is not below {limit:.4g}, from which gradient descent is unstable: lower it"
        )


def _decayed_rate(stable_rate: float, training: Any, momentum: float = 0.0) -> float:
    """The largest stable learning rate with weight decay, which adds its strength to the curvature.

    Decoupled from momentum, it is not damped by it either: the edge is at ``curvature + (1 + momentum) weight_decay``.
    """
    decay = float(training.weight_decay)
    if getattr(training, "decoupled", False):
        decay *= 1 + momentum
    return 2 / (2 / stable_rate + decay)


def optimiser_step(
    training: GradientDescent, position: PyTree, velocity: PyTree, gradient: PyTree, rate: Any, momentum: Any = None
) -> tuple[PyTree, PyTree]:
    """Position and velocity after one step of gradient descent, with the momentum of a training.

    Parameters
    ----------
    training
        The training. Its weight decay must be part of the gradient, unless it is decoupled.
    position, velocity, gradient
        PyTrees of one structure. The velocity is zero at the start; it may be None where there is no momentum.
    rate
        Learning rate of the step: see :meth:`GradientDescent.rate_at`.
    momentum
        Momentum of the step, where it follows a schedule; None for that of the training.
    """
    move = gradient
    if velocity is not None:
        momentum = training.momentum if momentum is None else momentum
        velocity = _moved(gradient, velocity, momentum)
        move = _moved(gradient, velocity, momentum) if training.nesterov else velocity
    if training.decoupled:
        move = _moved(move, position, training.weight_decay)
    return _moved(position, move, -rate), velocity


def _descended(
    gradient: Callable[[PyTree], PyTree], state: PyTree, steps: Int[Any, "time"], training: GradientDescent
) -> PyTree:
    """The state after each number of steps."""
    pull = _decayed(gradient, training)

    def step(count: Any, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        return optimiser_step(training, *carry, pull(carry[0]), training.rate_at(count))

    def stretch(carry: tuple[PyTree, PyTree], ends: tuple[Any, Any]) -> tuple[tuple[PyTree, PyTree], PyTree]:
        carry = jax.lax.fori_loop(ends[0], ends[1], step, carry)
        return carry, carry[0]

    start = jax.tree.map(lambda value: jnp.asarray(value, float), state)
    steps = jnp.asarray(steps)
    ends = (jnp.concatenate([jnp.zeros(1, steps.dtype), steps[:-1]]), steps)
    return jax.lax.scan(stretch, (start, jax.tree.map(jnp.zeros_like, start)), ends)[1]


def _flowed(gradient: Callable[[PyTree], PyTree], state: PyTree, counts: Any, lengths: Any) -> PyTree:
    """The state at the end of each stretch of equal Runge-Kutta steps."""

    def stretch(state: PyTree, plan: tuple[jax.Array, jax.Array]) -> tuple[PyTree, PyTree]:
        count, length = plan
        state = jax.lax.fori_loop(0, count, lambda _, inner: _runge_kutta(gradient, inner, -length), state)
        return state, state

    start = jax.tree.map(lambda value: jnp.asarray(value, float), state)
    return jax.lax.scan(stretch, start, (jnp.asarray(counts), jnp.asarray(lengths)))[1]


def _decayed(gradient: Callable[[PyTree], PyTree], training: Any) -> Callable[[PyTree], PyTree]:
    """The gradient of the loss with the penalty of weight decay, unless the optimiser adds that itself."""
    if getattr(training, "decoupled", False):
        return gradient
    return lambda state: _moved(gradient(state), state, training.weight_decay)


def _distance(one: PyTree, two: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.abs(a - b), one, two)


def _rounded(states: PyTree, share: Float[Any, "time"]) -> Iterator[PyTree]:
    """The states with every number changed by a fraction of itself: all upwards, then neighbours in turn.

    Products of two layers change by the first, differences of their squares by the second.
    """
    leaves, structure = jax.tree.flatten(states)
    for alternate in (False, True):
        moved = []
        for place, leaf in enumerate(leaves):
            signs = (-1.0) ** (place + np.arange(leaf[0].size)) if alternate else np.ones(leaf[0].size)
            each = share.reshape(-1, *[1] * (leaf.ndim - 1))
            moved.append(leaf * (1 + each * signs.reshape(leaf.shape[1:])))
        yield jax.tree.unflatten(structure, moved)


def _runge_kutta(slope: Callable[[PyTree], PyTree], state: PyTree, length: jax.Array) -> PyTree:
    first = slope(state)
    second = slope(_moved(state, first, length / 2))
    third = slope(_moved(state, second, length / 2))
    fourth = slope(_moved(state, third, length))
    mean = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, first, second, third, fourth)
    return _moved(state, mean, length)


def _moved(state: PyTree, direction: PyTree, length: Any) -> PyTree:
    return jax.tree.map(lambda value, speed: value + length * speed, state, direction)
