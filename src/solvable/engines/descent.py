"""Gradient descent and gradient flow on one clock: time is learning rate times steps.

>>> import numpy as np
>>> from solvable.engines.descent import descend
>>> flow = descend(lambda x: -x, lambda x: x, 1.0, np.array([0.0, 1.0, 2.0]), learning_rate=0.01, method="flow")
>>> np.asarray(flow).round(4)
array([1.    , 0.3679, 0.1353])
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

PyTree = Any


def stretches(
    times: Float[np.ndarray, "time"], learning_rate: float
) -> tuple[Int[np.ndarray, "time"], Float[np.ndarray, "time"]]:
    """How many steps lead from each time to the next, and how long they are: equal, and at most ``learning_rate``.

    Times need not be multiples of the learning rate; every stretch between two of them is cut into whole steps.
    """
    spans = np.diff(times, prepend=0.0)
    # A span that is a whole number of steps up to rounding takes just that many.
    counts = np.ceil(spans / learning_rate * (1 - 1e-12)).astype(int)
    return counts, spans / np.maximum(counts, 1)


def descend(
    velocity: Callable[[PyTree], PyTree],
    measure: Callable[[PyTree], PyTree],
    state: PyTree,
    times: Float[np.ndarray, "time"],
    learning_rate: float,
    method: str = "descent",
) -> PyTree:
    """Follow ``velocity`` (minus the gradient) from time 0; measured at each time, the first axis of what comes back.

    ``descent`` takes steps of at most ``learning_rate``. ``flow`` takes as many, each of fourth order (Runge-Kutta), so
    that next to nothing is left of their length.
    """
    step = _euler if method == "descent" else _runge_kutta
    return jax.vmap(measure)(_states(step, velocity, state, *stretches(times, learning_rate)))


def descend_with_error(
    velocity: Callable[[PyTree], PyTree],
    measure: Callable[[PyTree], PyTree],
    state: PyTree,
    times: Float[np.ndarray, "time"],
    learning_rate: float,
    method: str,
    stable_rate: float,
) -> tuple[PyTree, PyTree]:
    """As :func:`descend`, with an estimate of how far each measured value is from the flow's, as a second tree.

    ``descent`` is compared with a flow in steps of a tenth of ``stable_rate``, the learning rate from which descent is
    unstable: there a Runge-Kutta step is wrong by about 1e-5, and descent by its learning rate over ``stable_rate``.
    ``flow`` takes half the steps asked for and is compared with the whole ones; the difference is about fifteen times
    the error of the half steps. Rounding comes on top: that of N steps adds up to N times the machine precision of each
    number of the state at most, and what that changes in the measured values is tried out.

    >>> values, errors = descend_with_error(lambda x: -x, lambda x: x, 1.0, np.array([1.0]), 0.1, "descent", 2.0)
    >>> round(float(values[0]), 4), round(float(errors[0]), 4)
    (0.3487, 0.0192)
    """
    plan = stretches(times, learning_rate)
    if method == "descent":
        states = _states(_euler, velocity, state, *plan)
        other = _states(_runge_kutta, velocity, state, *stretches(times, 0.1 * stable_rate))
    else:
        counts, lengths = plan
        states = _states(_runge_kutta, velocity, state, 2 * counts, lengths / 2)
        other = _states(_runge_kutta, velocity, state, counts, lengths)
    # A flow takes four evaluations for each of its half steps.
    taken = np.cumsum(plan[0]) * (1 if method == "descent" else 8)
    values = jax.vmap(measure)(states)
    errors = _distance(values, jax.vmap(measure)(other))
    for moved in _rounded(states, np.finfo(float).eps * (taken + 1.0)):
        errors = jax.tree.map(jnp.add, errors, _distance(values, jax.vmap(measure)(moved)))
    return values, errors


def _states(
    step: Callable[..., PyTree], velocity: Callable[[PyTree], PyTree], state: PyTree, counts: Any, lengths: Any
) -> PyTree:
    """The state at the end of each stretch."""

    def stretch(state: PyTree, plan: tuple[jax.Array, jax.Array]) -> tuple[PyTree, PyTree]:
        count, length = plan
        state = jax.lax.fori_loop(0, count, lambda _, inner: step(velocity, inner, length), state)
        return state, state

    start = jax.tree.map(lambda value: jnp.asarray(value, float), state)
    return jax.lax.scan(stretch, start, (jnp.asarray(counts), jnp.asarray(lengths)))[1]


def _distance(one: PyTree, two: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.abs(a - b), one, two)


def _rounded(states: PyTree, share: Float[np.ndarray, "time"]) -> Iterator[PyTree]:
    """The states with every number changed by a share of itself: all upwards, then neighbours in opposite directions.

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


def _euler(velocity: Callable[[PyTree], PyTree], state: PyTree, length: jax.Array) -> PyTree:
    return _moved(state, velocity(state), length)


def _runge_kutta(velocity: Callable[[PyTree], PyTree], state: PyTree, length: jax.Array) -> PyTree:
    first = velocity(state)
    second = velocity(_moved(state, first, length / 2))
    third = velocity(_moved(state, second, length / 2))
    fourth = velocity(_moved(state, third, length))
    mean = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, first, second, third, fourth)
    return _moved(state, mean, length)


def _moved(state: PyTree, direction: PyTree, length: jax.Array) -> PyTree:
    return jax.tree.map(lambda value, speed: value + length * speed, state, direction)


def check_learning_rate(learning_rate: Any, limit: float) -> float:
    """A positive learning rate below ``limit``, from which on descent is unstable; or a ValueError that says so."""
    if isinstance(learning_rate, bool) or not 0 < learning_rate < np.inf:
        raise ValueError(f"learning_rate must be a positive finite number, not {learning_rate!r}")
    if learning_rate >= limit:
        raise ValueError(
            f"learning_rate = {learning_rate:g} is not below {limit:.4g}, from where on descent is unstable: lower it"
        )
    return float(learning_rate)
