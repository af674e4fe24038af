"""Implicit steps of gradient flow, for times so late that explicit ones need hundreds of stages.

A stabilised explicit step of length h needs ``sqrt(h rate)`` evaluations, so that a decade of time costs three times as
much as the one before; and every evaluation may open a direction, which makes all later ones dearer. In the latent
coordinates the Jacobian of the flow ``F(U) = <g(U . Y) Y> - d U`` is a matrix of a few thousand rows,

    J[(i, a), (j, b)] = <(dg_i / dh_j) Y_a Y_b> - d 1,

and a step that solves with ``I - h J`` costs the same at all times. The scheme is the singly diagonally implicit
Runge-Kutta method of two stages (SDIRK2, Alexander 1977), which is of second order and damps what has relaxed:

    U_1 = U_0 + c h F(U_1),     U_2 = U_0 + (1 - c) h F(U_1) + c h F(U_2),     c = 1 - 1/sqrt(2).

Each stage is solved by Newton's method. Late in training fields hardly change from step to step, so that the
derivatives ``dg/dh`` of one step serve the following ones, too, until the iteration becomes slow: on a CPU a Jacobian
takes as long as dozens of velocities. Columns that the signals of an iterate open join the Jacobian at once, since a
stiff direction without its row of J would run away.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.committee.closure import LatentClosure
from solvable.models.committee.problem import Problem
from solvable.models.committee.protocol import Weights, combine_arrays

_STAGE = 1 - 1 / math.sqrt(2)
# Change of the weights, relative to them, at which Newton's iteration ends: far below the error of the time steps.
_CONVERGED, _MOST_ITERATIONS = 1e-7, 12
# How many steps one Jacobian serves, roughly: on an accelerator a new one costs less than the iterations that an old
# one adds. One that takes more iterations than this for the two stages of a step is not used for another.
_USUAL_STEPS, _MANY_ITERATIONS = 6, 18


class NotConvergedError(ArithmeticError):
    """Newton's iteration did not find the end of a step: a shorter one may do."""


class Linearisation:
    """The Jacobian of the flow at fixed weights, which grows with the basis, and solutions with ``1 - factor J``.

    Parameters
    ----------
    closure
        The latent basis and its samples.
    weights
        The weights at which the signals are differentiated.
    decay
        Weight decay.
    """

    def __init__(self, closure: LatentClosure, weights: np.ndarray, decay: float) -> None:
        fields = closure.fields(Weights(weights))
        self._slopes = _signal_slopes(closure.problem, fields, closure.index_fields)
        self._closure, self._decay = closure, decay
        self._matrix, self._extent = closure.jacobian(self._slopes, None, ()), closure.extent
        self._factors: tuple[Any, float, tuple[int, ...]] | None = None
        self._solved, self._solved_before = 0, 0

    def solve(self, factor: float, right: Float[np.ndarray, "neuron column"]) -> Float[np.ndarray, "neuron column"]:
        """``(1 - factor J)^-1`` applied to a vector, whose missing columns are zero.

        Parameters
        ----------
        factor
            What the Jacobian is multiplied by.
        right
            The vector.
        """
        closure, extent = self._closure, self._closure.extent
        self._solved += 1
        if self._extent != extent:
            self._matrix = closure.jacobian(self._slopes, self._matrix, self._extent)
            self._extent = extent
        if self._factors is None or self._factors[1:] != (factor, extent):
            self._factors = closure.factorise(self._matrix, factor, 1 + factor * self._decay), factor, extent
        padded = combine_arrays((1.0, 1.0), (right, np.zeros((len(right), closure.width))))
        return closure.solve(self._factors[0], padded)

    def serves_again(self) -> bool:
        """Whether the step since the last call took so few iterations that the Jacobian does for the next one."""
        taken, self._solved_before = self._solved - self._solved_before, self._solved
        return steps_of_a_jacobian() > 1 and taken <= _MANY_ITERATIONS


def steps_of_a_jacobian() -> int:
    """How many steps one Jacobian serves, roughly, on the default device."""
    return _USUAL_STEPS if jax.default_backend() == "cpu" else 1


@jax.jit
def _signal_slopes(problem: Problem, fields: Array, index: Array) -> Float[Array, "neuron neuron2 sample"]:
    """``dg_i / dh_j`` of every sample."""

    def along(neuron: Array) -> Array:
        tangent = jnp.zeros_like(fields).at[neuron].set(1.0)
        return jax.jvp(lambda values: problem.signals(values, index)[0], (fields,), (tangent,))[1]

    return jnp.moveaxis(jax.lax.map(along, jnp.arange(fields.shape[0])), 0, 1)


def implicit_step(
    velocity: Callable[[np.ndarray], np.ndarray], linear: Linearisation, state: np.ndarray, length: float
) -> Float[np.ndarray, "neuron column"]:
    """The state after a step. Raises :class:`NotConvergedError` where a shorter step is needed.

    Parameters
    ----------
    velocity
        The flow; it may have more columns than the state that it is of.
    linear
        Its Jacobian at the state.
    state
        Where the step begins.
    length
        How long it is.
    """
    factor = _STAGE * length
    first = _stage(velocity, linear, state, state, factor)
    # From the first stage itself: c h F(U_1) = U_1 - U_0, without the rounding errors of a stiff F.
    inside = combine_arrays((1.0, -1.0), (first, state))
    base = combine_arrays((1.0, (1 - _STAGE) / _STAGE), (state, inside))
    guess = combine_arrays((1.0, 1 / _STAGE), (state, inside))
    return _stage(velocity, linear, base, guess, factor)


def _stage(
    velocity: Callable[[np.ndarray], np.ndarray],
    linear: Linearisation,
    base: np.ndarray,
    guess: np.ndarray,
    factor: float,
) -> np.ndarray:
    """The solution of ``U = base + factor F(U)`` by Newton's method with a fixed Jacobian."""
    now, last = guess, np.inf
    for _ in range(_MOST_ITERATIONS):
        residual = combine_arrays((1.0, factor, -1.0), (base, velocity(now), now))
        change = linear.solve(factor, residual)
        size = float(np.linalg.norm(change) / np.linalg.norm(now))
        now = combine_arrays((1.0, 1.0), (now, change))
        if size < _CONVERGED:
            return now
        if not size < 2 * last:
            break
        last = size
    raise NotConvergedError(f"the weights still change by {size:.2g} of themselves")
