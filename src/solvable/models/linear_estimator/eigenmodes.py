"""The solver ``"eigenmodes"``: each mode of the drawn data is evolved in closed form, directly to any time.

It is for one layer, full batches and a constant learning rate. Gradient flow, gradient descent, the heavy ball and
Nesterov's momentum differ only in what they leave of the start of a mode.
"""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.linear_estimator.system import Measured, Sizes, draw, measure_linear
from solvable.models.linear_estimator.theory import AnyTraining
from solvable.training import GradientFlow

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator


def run_eigenmodes(
    model: "LinearEstimator", training: AnyTraining, sizes: Sizes, times: tuple[float, ...], key: Array
) -> tuple[Measured, Array]:
    """One run, measured at all times, and the largest eigenvalue of its data."""
    system = draw(model, sizes, key)
    eigenvalues, sample_vectors, input_vectors = _modes(system.inputs)
    teacher_in, teacher_out = _split(system.teacher[0], input_vectors)
    student_in, student_out = _split(system.student[0], input_vectors)
    noise_in, noise_out = _split(system.noise, sample_vectors)

    shift = training.weight_decay / 2
    values, roots = eigenvalues[:, None], jnp.sqrt(eigenvalues)[:, None]
    noise_scaled = noise_in / np.sqrt(sizes.samples)
    fixed_point = (values * teacher_in + roots * noise_scaled) / (values + shift)
    gap = student_in - fixed_point
    bias = shift * (teacher_in + noise_scaled / roots) / (values + shift)
    learned = (-shift * teacher_in + roots * noise_scaled) / (values + shift)
    curvature = 2 / model.outputs

    # A schedule of a flow is another clock.
    if isinstance(training, GradientFlow) and not training.is_constant:
        times, training = tuple(training.flow_time(times)), training.replace(learning_rate=1.0)

    def at(time: Array) -> Measured:
        left = _left(training, curvature * (values + shift), time)
        # Outside the span of the data only weight decay acts, and only on the student's start.
        left_outside = _left(training, jnp.asarray(curvature * shift), time)
        # Written so that nothing small is the difference of two large numbers: losses of 1e-30 keep their digits.
        residuals = np.sqrt(sizes.samples) * sample_vectors @ (roots * (left * gap - bias)) - noise_out
        error = input_vectors @ (left * gap + learned) + left_outside * student_out - teacher_out
        return measure_linear(model, system, residuals, error)

    return jax.lax.map(at, jnp.asarray(times)), eigenvalues[-1]


def _split(values: Float[Array, "row output"], basis: Float[Array, "row mode"]) -> tuple[Array, Array]:
    """Components in the span of the data, and what lies outside it: exactly nothing where the span is everything."""
    inside = basis.T @ values
    outside = values - basis @ inside if basis.shape[1] < basis.shape[0] else jnp.zeros_like(values)
    return inside, outside


def _modes(inputs: Float[Array, "sample input"]) -> tuple[Array, Array, Array]:
    """Non-zero eigenvalues of the data covariance, ascending, with sample- and input-space vectors."""
    samples, dimension = inputs.shape
    if dimension <= samples:
        eigenvalues, input_vectors = jnp.linalg.eigh(inputs.T @ inputs / samples)
        sample_vectors = inputs @ input_vectors / jnp.sqrt(samples * eigenvalues)
    else:
        eigenvalues, sample_vectors = jnp.linalg.eigh(inputs @ inputs.T / samples)
        input_vectors = inputs.T @ sample_vectors / jnp.sqrt(samples * eigenvalues)
    return eigenvalues, sample_vectors, input_vectors


def _left(training: AnyTraining, curvature: Array, time: Array) -> Array:
    """What is left of the start of a mode: ``exp(-move time)`` in gradient flow, ``(1 - move)^time`` in descent.

    ``move`` is the learning rate times the curvature. With momentum ``mu``, ``w`` obeys a recursion over two steps,
    ``w_(t+1) = trace w_t - determinant w_(t-1)``, with trace ``1 + mu - move`` and determinant ``mu`` for the heavy
    ball, and trace ``(1 + mu) (1 - move)`` and determinant ``mu (1 - move)`` for Nesterov's variant.
    """
    move = training.learning_rate * curvature
    if isinstance(training, GradientFlow):
        return jnp.exp(-move * time)
    momentum = training.momentum
    if momentum == 0:
        return _power(1 - move, time)
    if training.nesterov:
        return _two_step_power((1 + momentum) * (1 - move), momentum * (1 - move), 1 - (1 + momentum) * move, time)
    return _two_step_power(1 + momentum - move, momentum, 1 - move, time)


def _two_step_power(trace: Array, determinant: Any, first: Array, steps: Array) -> Array:
    """``w`` after some steps of ``w_(t+1) = trace w_t - determinant w_(t-1)``, from ``w_0 = 1`` and ``w_1 = first``."""
    gap = jnp.sqrt((trace**2 / 4 - determinant).astype(complex))
    # Where the two roots of r^2 - trace r + determinant coincide, the form below is 0 / 0: move them apart.
    gap = jnp.where(jnp.abs(gap) < 1e-9, 1e-9, gap)
    plus, minus = trace / 2 + gap, trace / 2 - gap
    share = (first - minus) / (plus - minus)
    return (share * plus**steps + (1 - share) * minus**steps).real


def _power(base: Array, steps: Array) -> Array:
    """``base ** steps`` for whole steps and a base of either sign."""
    sign = jnp.where((base < 0) & (jnp.mod(steps, 2) == 1), -1.0, 1.0)
    return sign * jnp.abs(base) ** steps
