"""Ways to take the same descent step, which differ in what they read of the data.

With ``x ~ N(0, I/D)`` the data are kept as ``sqrt(D) x`` and the weights as ``w / sqrt(D)``. No factor of D is then
left: ``h = W X^T``, ``A = W[:, :K]`` (the index vectors are the first K axes, which rotations of Gaussian inputs make
as good as any), ``C = W W^T``, and the step ``w += (dt/gamma) sum_mu g x`` (delayed-features, eq. 6) is
``W += (dt/P) g X`` with ``gamma = P/D``.

* ``Primal`` keeps the weights and reads X twice a step.
* ``Dual`` keeps the fields and reads the P x P matrix ``X X^T`` once a step: less wherever P < 2 D.
* ``Fused`` keeps the weights and reads X once a step, by a kernel for GPUs.
"""

from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.committee.fused import fused_velocity, padded_shape
from solvable.models.committee.task import Task

# The size of the tangent kernel is exact up to so many samples, and from this many random probes beyond.
EXACT_SAMPLES, PROBES = 256, 16
# About how many operations a machine does in the time it reads one number: 30 (CPU) to 120 (H200, float64).
_OPERATIONS_PER_READ = 30


class Data(NamedTuple):
    """A training set. ``matrix`` is what a step reads: the inputs, or their inner products."""

    matrix: Float[Array, "sample column"]
    index_fields: Float[Array, "index sample"]
    target: Float[Array, "sample"]


def product(left: Array, right: Array) -> Array:
    """A matrix product in the precision of its arguments: GPUs would take float32 as less."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def draw_inputs(key: Array, samples: int, dimension: int, dtype: Any) -> Float[Array, "sample dimension"]:
    """Standard normal inputs ``sqrt(D) x``; drawn in float64, so that a seed means the same data in either dtype."""
    return jax.random.normal(key, (samples, dimension)).astype(dtype)


def velocity(task: Task, data: Data, weights: Float[Array, "neuron dimension"]) -> tuple[Array, Array]:
    """``dW/dt = (1/P) sum_mu g^mu x^mu`` without decay, and the errors ``Delta^mu``.

    A step of descent adds ``dt`` times it; any other scheme (Runge-Kutta, stabilised) can be run on it too. With
    readouts b and c it is ``-(b_i / 2 c_i)`` times the gradient of the training loss ``mean Delta^2``.
    """
    signals, error = task.signals(product(weights, data.matrix.T), data.index_fields)
    return product(signals, data.matrix) / data.index_fields.shape[1], error


class Primal(eqx.Module):
    """The weights, over ``sqrt(D)``."""

    weights: Float[Array, "neuron column"]
    name: ClassVar[str] = "primal"

    @classmethod
    def start(cls, task: Task, inputs: Array, weights: Array, index_fields: Array) -> tuple[Self, Data]:
        return cls(weights), _data(task, inputs, index_fields)

    def fields(self, data: Data) -> Float[Array, "neuron sample"]:
        return product(self.weights, data.matrix.T)

    def inner(self, data: Data, rows: Float[Array, "row sample"]) -> Float[Array, "row sample"]:
        """``rows X X^T``."""
        inputs = data.matrix[: rows.shape[1]]
        return product(product(rows, inputs), inputs.T)

    def order_parameters(self, indices: int) -> tuple[Array, Array]:
        """Alignment ``A`` and overlap ``C``."""
        return self.weights[:, :indices], product(self.weights, self.weights.T)

    def moved(self, task: Task, data: Data, step: float, decay: float) -> tuple[Self, Array]:
        """One step on, and the errors before it."""
        speed, error = velocity(task, data, self.weights)
        weights = (1 - step * decay) * self.weights + step * speed
        return type(self)(weights.astype(self.weights.dtype)), error


class Fused(Primal):
    """The weights, with the data padded to the blocks of a kernel that reads them once."""

    name: ClassVar[str] = "fused"

    @classmethod
    def start(cls, task: Task, inputs: Array, weights: Array, index_fields: Array) -> tuple[Self, Data]:
        rows, columns = padded_shape(*inputs.shape)
        extra_rows, extra_columns = rows - inputs.shape[0], columns - inputs.shape[1]
        padded = jnp.pad(inputs, ((0, extra_rows), (0, extra_columns)))
        weights = jnp.pad(weights, ((0, 0), (0, extra_columns)))
        return cls(weights), _data(task, padded, index_fields)

    def fields(self, data: Data) -> Float[Array, "neuron sample"]:
        return super().fields(data)[:, : data.index_fields.shape[1]]

    def moved(self, task: Task, data: Data, step: float, decay: float) -> tuple[Self, Array]:
        speed, error = fused_velocity(task, data.matrix, data.target, self.weights)
        weights = (1 - step * decay) * self.weights + step * speed
        return type(self)(weights.astype(self.weights.dtype)), error


class Dual(eqx.Module):
    """Fields, alignment and overlap, which follow each other without the weights.

    With ``r = 1 - dt decay`` and ``F = (dt/P) g X X^T``, which moves the fields: ``h' = r h + F``,
    ``A' = r A + (dt/P) g h*^T`` and ``C' = r^2 C + (dt/P) [r (g h^T + h g^T) + F g^T]``.
    """

    field_values: Float[Array, "neuron sample"]
    alignment: Float[Array, "neuron index"]
    overlap: Float[Array, "neuron neuron"]
    name: ClassVar[str] = "dual"

    @classmethod
    def start(cls, task: Task, inputs: Array, weights: Array, index_fields: Array) -> tuple[Self, Data]:
        everything = product(inputs, inputs.T)
        indices = index_fields.shape[0]
        begin = cls(product(weights, inputs.T), weights[:, :indices], product(weights, weights.T))
        return begin, _data(task, everything, index_fields)

    def fields(self, data: Data) -> Float[Array, "neuron sample"]:
        return self.field_values

    def inner(self, data: Data, rows: Float[Array, "row sample"]) -> Float[Array, "row sample"]:
        return product(rows, data.matrix)

    def order_parameters(self, indices: int) -> tuple[Array, Array]:
        return self.alignment, self.overlap

    def moved(self, task: Task, data: Data, step: float, decay: float) -> tuple[Self, Array]:
        signals, error = task.signals(self.field_values, data.index_fields)
        kept = 1 - step * decay
        pull = (step / error.shape[0]) * signals
        push = product(pull, data.matrix)
        cross = kept * product(pull, self.field_values.T)
        state = (
            kept * self.field_values + push,
            kept * self.alignment + product(pull, data.index_fields.T),
            kept**2 * self.overlap + cross + cross.T + product(push, pull.T),
        )
        return type(self)(*(value.astype(self.overlap.dtype) for value in state)), error


Form = Primal | Dual
FORMS: dict[str, type[Form]] = {form.name: form for form in (Primal, Dual, Fused)}


def choose_form(samples: int, dimension: int, neurons: int, steps: int) -> str:
    """``primal`` or ``dual``, whichever is done first: by what is read, or for wide networks by what is computed.

    A primal step reads ``2 P D`` numbers for ``4 P D N`` operations and a dual one ``P^2`` for ``2 P^2 N``; but the
    dual form first needs the inner products, ``2 P^2 D`` operations. ``fused`` must be asked for.
    """
    operations = max(1.0, 2 * neurons / _OPERATIONS_PER_READ)
    primal = steps * 2 * samples * dimension * operations
    dual = steps * samples**2 * operations + 2 * samples**2 * dimension / _OPERATIONS_PER_READ
    return "dual" if dual < primal else "primal"


def bytes_per_run(form: str, samples: int, dimension: int, neurons: int, dtype: Any) -> float:
    """Peak memory of one run: while the inputs are drawn, or with the inner products beside them."""
    rows, columns = padded_shape(samples, dimension) if form == "fused" else (samples, dimension)
    size = np.dtype(dtype).itemsize
    drawn = 2 * 8.0 * samples * dimension + size * rows * columns
    kept = size * (samples**2 + samples * dimension if form == "dual" else rows * columns)
    # The measurement of the kernel's alignment pushes its probes through every neuron.
    measured = 3.0 * size * neurons * (samples + columns) * (samples if samples <= EXACT_SAMPLES else PROBES)
    return max(drawn, kept) + measured + size * (6.0 * neurons * (rows + columns))


def _data(task: Task, matrix: Array, index_fields: Array) -> Data:
    return Data(matrix, index_fields, task.target(index_fields).astype(matrix.dtype))
