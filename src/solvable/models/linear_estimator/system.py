"""What a finite-size run consists of: a teacher, a student and a training set, and what is measured of them."""

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
# The number of samples is rounded to a whole number; beyond this relative change it would be another system.
_LARGEST_ROUNDING = 0.1
# With several outputs, the test accuracy of a known student is estimated from this many draws of the error itself.
ERROR_DRAWS = 4096


class Sizes(NamedTuple):
    """The sizes of a run."""

    dimension: int
    samples: int
    outputs: int
    width: int | None
    test_samples: int | None

    @property
    def bytes_per_run(self) -> float:
        """Peak memory of one run: the data, its Gram matrix with eigenvectors, and the predictions."""
        small = min(self.dimension, self.samples)
        tests = (self.test_samples or 0) * (self.dimension + self.outputs) + ERROR_DRAWS * self.outputs
        return 8.0 * (2.5 * self.dimension * self.samples + 5 * small**2 + 4 * self.samples * self.outputs + tests)


class System(NamedTuple):
    """The data and the weights of a run. ``student`` and ``teacher`` are one matrix, or two with a hidden layer."""

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


def sizes_of(model: "LinearEstimator", dimension: int, test_samples: int | None = None) -> Sizes:
    """Sizes of a run, with ``dimension / aspect_ratio`` samples rounded to a whole number."""
    wanted = dimension / model.aspect_ratio
    samples = max(1, round(wanted))
    if abs(samples / wanted - 1) > _LARGEST_ROUNDING:
        raise ValueError(
            f"aspect_ratio = {model.aspect_ratio:g} with dimension = {dimension} asks for {wanted:.3g} samples; "
            f"{samples} would make it {dimension / samples:.3g}, which is another system: raise dimension"
        )
    return Sizes(dimension, samples, model.outputs, model.width, test_samples)


def draw(model: "LinearEstimator", sizes: Sizes, key: Array) -> System:
    """Standard Gaussian inputs; weights of variance 1 / (2 fan_in fan_out) (paper, appendix A)."""
    keys = jax.random.split(key, 8)
    hidden = [] if sizes.width is None else [sizes.width]
    widths = [sizes.dimension, *hidden, sizes.outputs]

    def weights(layer_keys: Array) -> list[Array]:
        return [
            jax.random.normal(layer_key, (fan_in, fan_out)) / np.sqrt(2 * fan_in * fan_out)
            for layer_key, fan_in, fan_out in zip(layer_keys, widths[:-1], widths[1:], strict=False)
        ]

    student = weights(keys[:2])
    student[0] = model.initial_scale * student[0]
    several = sizes.outputs > 1 and sizes.test_samples is None
    return System(
        inputs=jax.random.normal(keys[4], (sizes.samples, sizes.dimension)),
        noise=model.label_noise * jax.random.normal(keys[5], (sizes.samples, sizes.outputs)),
        student=tuple(student),
        teacher=tuple(weights(keys[2:4])),
        test_inputs=jax.random.normal(keys[6], (sizes.test_samples or 0, sizes.dimension)),
        draws=jax.random.normal(keys[6], (ERROR_DRAWS if several else 0, sizes.outputs)),
        batch_key=keys[7],
    )


def measure_linear(
    model: "LinearEstimator", system: System, residuals: Float[Array, "sample output"], error: Float[Array, "in out"]
) -> Measured:
    """Losses and accuracies from the training residuals and the error matrix of a linear student."""
    train_square = jnp.mean(residuals**2, axis=1)
    if system.test_inputs.shape[0]:
        return measure_squares(model, train_square, jnp.mean((system.test_inputs @ error) ** 2, axis=1))
    test_loss = jnp.sum(error**2) / model.outputs
    test_accuracy = _population_accuracy(model, system, error, test_loss)
    train_accuracy = jnp.mean(train_square <= model.threshold, dtype=float)
    return Measured(jnp.mean(train_square), test_loss, train_accuracy, test_accuracy)


def measure_squares(
    model: "LinearEstimator", train_square: Float[Array, "sample"], test_square: Float[Array, "test"]
) -> Measured:
    """Losses and accuracies from the mean square error of every training and test sample."""
    return Measured(
        jnp.mean(train_square),
        jnp.mean(test_square),
        jnp.mean(train_square <= model.threshold),
        jnp.mean(test_square <= model.threshold),
    )


def _population_accuracy(model: "LinearEstimator", system: System, error: Array, test_loss: Array) -> Array:
    """Accuracy on infinitely many test inputs: closed for one output, from draws of the error for several."""
    if error.shape[1] == 1:
        return erf(jnp.sqrt(model.threshold / (2 * jnp.maximum(test_loss, 1e-300))))
    variances, directions = jnp.linalg.eigh(error.T @ error)
    errors = system.draws @ (jnp.sqrt(jnp.maximum(variances, 0.0))[:, None] * directions.T)
    return jnp.mean(jnp.mean(errors**2, axis=1) <= model.threshold)
