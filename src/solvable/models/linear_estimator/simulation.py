"""Finite-size runs: draw a teacher, a student and a training set, and train.

``exact_run`` evolves each mode of the drawn data in closed form to any step at once. ``descent_start`` and friends take
the steps. Both draw from the same key, so they train the same system and agree to rounding.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Float

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator

Activation = Callable[[Array], Array]
# With several outputs the test accuracy of a known student is estimated from this many draws of the error itself.
# How far the number of samples may be rounded, as a share of it, before it makes another system.
_ROUNDED = 0.1
ERROR_DRAWS = 4096


class System(NamedTuple):
    """What a run is made of. ``student`` and ``teacher`` are one matrix, or two with a hidden layer."""

    inputs: Float[Array, "sample input"]
    noise: Float[Array, "sample output"]
    student: tuple[Array, ...]
    teacher: tuple[Array, ...]
    test_inputs: Float[Array, "test input"]
    draws: Float[Array, "draw output"]
    batch_key: Array


class Measured(NamedTuple):
    train_loss: Array
    test_loss: Array
    train_accuracy: Array
    test_accuracy: Array


class Layout(NamedTuple):
    """The sizes of a run."""

    inputs: int
    samples: int
    outputs: int
    hidden: int | None
    test_samples: int | None

    @property
    def bytes_per_run(self) -> float:
        """Peak memory of one run: the data, its Gram matrix with eigenvectors, and the predictions."""
        small = min(self.inputs, self.samples)
        tests = (self.test_samples or 0) * (self.inputs + self.outputs) + ERROR_DRAWS * self.outputs
        return 8.0 * (2.5 * self.inputs * self.samples + 5 * small**2 + 4 * self.samples * self.outputs + tests)


def layout(model: "LinearEstimator", inputs: int, test_samples: int | None) -> Layout:
    wanted = inputs / model.aspect_ratio
    samples = max(1, round(wanted))
    if abs(samples / wanted - 1) > _ROUNDED:
        raise ValueError(
            f"aspect_ratio = {model.aspect_ratio:g} with inputs = {inputs} asks for {wanted:.3g} samples; {samples} "
            f"would make it {inputs / samples:.3g}, which is another system: raise inputs"
        )
    return Layout(inputs, samples, model.outputs, model.hidden, test_samples)


def draw(model: "LinearEstimator", sizes: Layout, key: Array) -> System:
    """Standard Gaussian inputs; weights of variance 1 / (2 fan_in fan_out) (paper, appendix A)."""
    keys = jax.random.split(key, 8)
    widths = [sizes.inputs, sizes.outputs] if sizes.hidden is None else [sizes.inputs, sizes.hidden, sizes.outputs]

    def weights(layer_keys: Array) -> list[Array]:
        return [
            jax.random.normal(layer_key, (fan_in, fan_out)) / np.sqrt(2 * fan_in * fan_out)
            for layer_key, fan_in, fan_out in zip(layer_keys, widths[:-1], widths[1:], strict=False)
        ]

    student = weights(keys[:2])
    student[0] = model.student_scale * student[0]
    several = sizes.outputs > 1 and sizes.test_samples is None
    return System(
        inputs=jax.random.normal(keys[4], (sizes.samples, sizes.inputs)),
        noise=model.label_noise * jax.random.normal(keys[5], (sizes.samples, sizes.outputs)),
        student=tuple(student),
        teacher=tuple(weights(keys[2:4])),
        test_inputs=jax.random.normal(keys[6], (sizes.test_samples or 0, sizes.inputs)),
        draws=jax.random.normal(keys[6], (ERROR_DRAWS if several else 0, sizes.outputs)),
        batch_key=keys[7],
    )


def exact_run(
    model: "LinearEstimator", sizes: Layout, steps: tuple[float, ...], momentum: float, key: Array
) -> tuple[Measured, Array]:
    """All asked steps of one run, and the largest eigenvalue of its data."""
    system = draw(model, sizes, key)
    eigenvalues, sample_vectors, input_vectors = _modes(system.inputs)
    teacher, student = system.teacher[0], system.student[0]
    teacher_in, teacher_out = _split(teacher, input_vectors)
    student_in, student_out = _split(student, input_vectors)
    noise_in, noise_out = _split(system.noise, sample_vectors)

    shift = model.weight_decay / 2
    values, roots = eigenvalues[:, None], jnp.sqrt(eigenvalues)[:, None]
    noise_scaled = noise_in / np.sqrt(sizes.samples)
    fixed_point = (values * teacher_in + roots * noise_scaled) / (values + shift)
    gap = student_in - fixed_point
    bias = shift * (teacher_in + noise_scaled / roots) / (values + shift)
    learned = (-shift * teacher_in + roots * noise_scaled) / (values + shift)
    rate = 2 * model.learning_rate / model.outputs

    def at(step: Array) -> Measured:
        left = _momentum_decay(rate * (values + shift), step, momentum)
        # Outside the span of the data only weight decay acts, and only on the student's start.
        left_outside = _momentum_decay(jnp.asarray(rate * shift), step, momentum)
        # Written so that nothing small is the difference of two large numbers: losses of 1e-30 keep their digits.
        residuals = np.sqrt(sizes.samples) * sample_vectors @ (roots * (left * gap - bias)) - noise_out
        error = input_vectors @ (left * gap + learned) + left_outside * student_out - teacher_out
        return _measure(model, system, residuals, error)

    return jax.lax.map(at, jnp.asarray(steps)), eigenvalues[-1]


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


def _momentum_decay(move: Array, steps: Array, momentum: float) -> Array:
    """What descent with heavy-ball momentum leaves of a start after some steps: ``(1 - move)^steps`` without."""
    if momentum == 0:
        return _power(1 - move, steps)
    half_trace = (1 + momentum - move) / 2
    gap = jnp.sqrt((half_trace**2 - momentum).astype(complex))
    # Where the two roots of r^2 - 2 half_trace r + momentum coincide the form below is 0 / 0; nudge them apart.
    gap = jnp.where(jnp.abs(gap) < 1e-9, 1e-9, gap)
    plus, minus = half_trace + gap, half_trace - gap
    share = ((1 - move) - minus) / (plus - minus)
    return (share * plus**steps + (1 - share) * minus**steps).real


def _power(base: Array, steps: Array) -> Array:
    """``base ** steps`` for whole steps and a base of either sign."""
    sign = jnp.where((base < 0) & (jnp.mod(steps, 2) == 1), -1.0, 1.0)
    return sign * jnp.abs(base) ** steps


def _measure(model: "LinearEstimator", system: System, residuals: Array, error: Array) -> Measured:
    """Losses and accuracies from the training residuals and the error matrix of a linear student."""
    train_square = jnp.mean(residuals**2, axis=1)
    if system.test_inputs.shape[0]:
        test_square = jnp.mean((system.test_inputs @ error) ** 2, axis=1)
        test_loss, test_accuracy = jnp.mean(test_square), jnp.mean(test_square <= model.threshold)
    else:
        test_loss = jnp.sum(error**2) / model.outputs
        test_accuracy = _population_accuracy(model, system, error, test_loss)
    return Measured(jnp.mean(train_square), test_loss, jnp.mean(train_square <= model.threshold), test_accuracy)


def _population_accuracy(model: "LinearEstimator", system: System, error: Array, test_loss: Array) -> Array:
    """Accuracy on infinitely many test inputs: closed for one output, from draws of the error for several."""
    if error.shape[1] == 1:
        return erf(jnp.sqrt(model.threshold / (2 * jnp.maximum(test_loss, 1e-300))))
    variances, directions = jnp.linalg.eigh(error.T @ error)
    errors = system.draws @ (jnp.sqrt(jnp.maximum(variances, 0.0))[:, None] * directions.T)
    return jnp.mean(jnp.mean(errors**2, axis=1) <= model.threshold)


class Walk(NamedTuple):
    """State of a run that takes the steps. Without a hidden layer ``weights`` is student minus teacher."""

    system: System
    weights: tuple[Array, ...]
    velocity: tuple[Array, ...]
    gram: Float[Array, "input input"]
    pull: Float[Array, "input output"]


def descent_start(model: "LinearEstimator", sizes: Layout, key: Array) -> Walk:
    system = draw(model, sizes, key)
    samples = sizes.samples
    # Student minus teacher, evolved as such, keeps its digits however small it gets.
    weights = system.student if sizes.hidden is not None else (system.student[0] - system.teacher[0],)
    return Walk(
        system,
        weights,
        tuple(jnp.zeros_like(weight) for weight in weights),
        gram=system.inputs.T @ system.inputs / samples,
        pull=system.inputs.T @ system.noise / samples,
    )


def descent_step(
    model: "LinearEstimator",
    momentum: float,
    batch: int | None,
    activation: Activation | None,
    walk: Walk,
    count: Array,
) -> Walk:
    """One step of (mini-batch) gradient descent with momentum and weight decay."""
    decay = model.weight_decay / model.outputs
    system, weights = walk.system, walk.weights
    gradients: tuple[Array, ...]
    if len(weights) == 1:
        gradients = (_slope(model, batch, walk, weights[0], count) + decay * (weights[0] + system.teacher[0]),)
    else:
        if activation is None:
            slope = _slope(model, batch, walk, weights[0] @ weights[1] - system.teacher[0] @ system.teacher[1], count)
            slopes = (slope @ weights[1].T, weights[0].T @ slope)
        else:
            slopes = jax.grad(_two_layer_loss)(weights, system, _batch(walk, batch, count), activation)
        gradients = tuple(slope + decay * weight for slope, weight in zip(slopes, weights, strict=True))
    velocity = tuple(momentum * v + gradient for v, gradient in zip(walk.velocity, gradients, strict=True))
    weights = tuple(weight - model.learning_rate * v for weight, v in zip(weights, velocity, strict=True))
    return walk._replace(weights=weights, velocity=velocity)


def _slope(model: "LinearEstimator", batch: int | None, walk: Walk, error: Array, count: Array) -> Array:
    """Gradient of the training loss in the error matrix of a linear student."""
    if batch is None:
        return 2 / model.outputs * (walk.gram @ error - walk.pull)
    inputs, noise = _batch(walk, batch, count)
    return 2 / (model.outputs * batch) * inputs.T @ (inputs @ error - noise)


def _batch(walk: Walk, batch: int | None, count: Array) -> tuple[Array, Array]:
    """The training set, or a batch of it drawn with replacement."""
    system = walk.system
    if batch is None:
        return system.inputs, system.noise
    chosen = jax.random.randint(jax.random.fold_in(system.batch_key, count), (batch,), 0, system.inputs.shape[0])
    return system.inputs[chosen], system.noise[chosen]


def _output(weights: tuple[Array, ...], inputs: Array, activation: Activation | None) -> Array:
    hidden = inputs @ weights[0]
    return (hidden if activation is None else activation(hidden)) @ weights[1]


def _two_layer_loss(
    weights: tuple[Array, ...], system: System, chosen: tuple[Array, Array], activation: Activation | None
) -> Array:
    inputs, noise = chosen
    return jnp.mean((_output(weights, inputs, activation) - _output(system.teacher, inputs, activation) - noise) ** 2)


def descent_measure(model: "LinearEstimator", activation: Activation | None, walk: Walk) -> Measured:
    system = walk.system
    if len(walk.weights) == 1:
        error = walk.weights[0]
        return _measure(model, system, system.inputs @ error - system.noise, error)
    if activation is None:
        error = walk.weights[0] @ walk.weights[1] - system.teacher[0] @ system.teacher[1]
        return _measure(model, system, system.inputs @ error - system.noise, error)

    def mismatch(inputs: Array) -> Array:
        return _output(walk.weights, inputs, activation) - _output(system.teacher, inputs, activation)

    train_square = jnp.mean((mismatch(system.inputs) - system.noise) ** 2, axis=1)
    test_square = jnp.mean(mismatch(system.test_inputs) ** 2, axis=1)
    return Measured(
        jnp.mean(train_square),
        jnp.mean(test_square),
        jnp.mean(train_square <= model.threshold),
        jnp.mean(test_square <= model.threshold),
    )


def largest_curvature(walk: Walk) -> Array:
    """Largest eigenvalue of the data covariance, times the layers' largest squared singular values if there are two.

    For two layers this bounds the tangent kernel at the start, for any activation of slope at most one.
    """
    samples, dimension = walk.system.inputs.shape
    gram = walk.gram if dimension <= samples else walk.system.inputs @ walk.system.inputs.T / samples
    largest = jnp.linalg.eigvalsh(gram)[-1]
    if len(walk.weights) == 2:
        largest = largest * sum(jnp.linalg.norm(weight, ord=2) ** 2 for weight in walk.weights)
    return largest
