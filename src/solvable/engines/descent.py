"""Gradient descent and gradient flow on one clock: time is learning rate times steps.

>>> import numpy as np
>>> from solvable.engines.descent import descend
>>> flow = descend(lambda x: -x, lambda x: x, 1.0, np.array([0.0, 1.0, 2.0]), learning_rate=0.01, method="flow")
>>> np.asarray(flow).round(4)
array([1.    , 0.3679, 0.1353])
"""

from collections.abc import Callable
from functools import partial
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
    counts, lengths = stretches(times, learning_rate)
    step = partial(_euler if method == "descent" else _runge_kutta, velocity)

    def stretch(state: PyTree, plan: tuple[jax.Array, jax.Array]) -> tuple[PyTree, PyTree]:
        count, length = plan
        state = jax.lax.fori_loop(0, count, lambda _, inner: step(inner, length), state)
        return state, measure(state)

    return jax.lax.scan(stretch, state, (jnp.asarray(counts), jnp.asarray(lengths)))[1]


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
