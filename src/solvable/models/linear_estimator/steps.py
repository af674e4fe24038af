"""The solver ``"steps"``: (mini-batch) gradient descent step by step, also with a hidden layer and an activation.

It draws the same systems from the same key as the solver ``"eigenmodes"``, and agrees with it to rounding.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from solvable.models.linear_estimator.system import (
    Activation,
    Measured,
    Sizes,
    System,
    draw,
    measure_linear,
    measure_squares,
)
from solvable.numerics.descent import optimiser_step
from solvable.training import GradientDescent

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator


class State(NamedTuple):
    """State of a run. Without a hidden layer ``weights`` is student minus teacher."""

    system: System
    weights: tuple[Array, ...]
    velocity: tuple[Array, ...]
    gram: Float[Array, "input input"]
    pull: Float[Array, "input output"]


def initial_state(model: "LinearEstimator", sizes: Sizes, key: Array) -> State:
    system = draw(model, sizes, key)
    # Student minus teacher, evolved as such, keeps its digits however small it gets.
    weights = system.student if sizes.width is not None else (system.student[0] - system.teacher[0],)
    return State(
        system,
        weights,
        tuple(jnp.zeros_like(weight) for weight in weights),
        gram=system.inputs.T @ system.inputs / sizes.samples,
        pull=system.inputs.T @ system.noise / sizes.samples,
    )


def take_step(
    model: "LinearEstimator",
    training: GradientDescent,
    batch_size: int | None,
    activation: Activation | None,
    state: State,
    count: Array,
) -> State:
    """One step of (mini-batch) gradient descent with momentum and weight decay; ``count`` steps came before it."""
    gradients = _gradients(model, training.weight_decay / model.outputs, batch_size, activation, state, count)
    weights, velocity = optimiser_step(training, state.weights, state.velocity, gradients, training.rate_at(count))
    return state._replace(weights=weights, velocity=velocity)


def _gradients(
    model: "LinearEstimator",
    decay: float,
    batch_size: int | None,
    activation: Activation | None,
    state: State,
    count: Array,
) -> tuple[Array, ...]:
    """Gradients of the training loss with the penalty of weight decay, in each layer."""
    system, weights = state.system, state.weights
    if len(weights) == 1:
        return (_slope(model, batch_size, state, weights[0], count) + decay * (weights[0] + system.teacher[0]),)
    if activation is None:
        error = weights[0] @ weights[1] - system.teacher[0] @ system.teacher[1]
        slope = _slope(model, batch_size, state, error, count)
        slopes = (slope @ weights[1].T, weights[0].T @ slope)
    else:
        slopes = jax.grad(_two_layer_loss)(weights, system, _batch(state, batch_size, count), activation)
    return tuple(slope + decay * weight for slope, weight in zip(slopes, weights, strict=True))


def _slope(model: "LinearEstimator", batch_size: int | None, state: State, error: Array, count: Array) -> Array:
    """Gradient of the training loss in the error matrix of a linear student."""
    if batch_size is None:
        return 2 / model.outputs * (state.gram @ error - state.pull)
    inputs, noise = _batch(state, batch_size, count)
    return 2 / (model.outputs * batch_size) * inputs.T @ (inputs @ error - noise)


def _batch(state: State, batch_size: int | None, count: Array) -> tuple[Array, Array]:
    """The training set, or a mini-batch of it drawn with replacement."""
    system = state.system
    if batch_size is None:
        return system.inputs, system.noise
    chosen = jax.random.randint(jax.random.fold_in(system.batch_key, count), (batch_size,), 0, system.inputs.shape[0])
    return system.inputs[chosen], system.noise[chosen]


def _output(weights: tuple[Array, ...], inputs: Array, activation: Activation) -> Array:
    return activation(inputs @ weights[0]) @ weights[1]


def _two_layer_loss(
    weights: tuple[Array, ...], system: System, chosen: tuple[Array, Array], activation: Activation
) -> Array:
    inputs, noise = chosen
    return jnp.mean((_output(weights, inputs, activation) - _output(system.teacher, inputs, activation) - noise) ** 2)


def measure_state(model: "LinearEstimator", activation: Activation | None, state: State) -> Measured:
    system, weights = state.system, state.weights
    if activation is None:
        error = weights[0] if len(weights) == 1 else weights[0] @ weights[1] - system.teacher[0] @ system.teacher[1]
        return measure_linear(model, system, system.inputs @ error - system.noise, error)

    def mismatch(inputs: Array) -> Array:
        return _output(weights, inputs, activation) - _output(system.teacher, inputs, activation)

    train_square = jnp.mean((mismatch(system.inputs) - system.noise) ** 2, axis=1)
    return measure_squares(model, train_square, jnp.mean(mismatch(system.test_inputs) ** 2, axis=1))


def largest_curvature(model: "LinearEstimator", sizes: Sizes, key: Array) -> Array:
    """Largest eigenvalue of the data covariance, times the layers' largest squared singular values if there are two.

    For two layers this bounds the tangent kernel at the start, for any activation of slope at most one.
    """
    state = initial_state(model, sizes, key)
    inputs = state.system.inputs
    gram = state.gram if sizes.dimension <= sizes.samples else inputs @ inputs.T / sizes.samples
    largest = jnp.linalg.eigvalsh(gram)[-1]
    if len(state.weights) == 2:
        largest = largest * sum(jnp.linalg.norm(weight, ord=2) ** 2 for weight in state.weights)
    return largest
