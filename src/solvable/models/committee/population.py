"""The test loss from alignment and overlap alone: fields of fresh inputs are Gaussian.

    L_test = <(sigma(h*) - sum_i c_i phi(u_i))^2>
           = <sigma^2> - 2 sum_i c_i <phi(u_i) sigma> + sum_ij c_i c_j <phi(u_i) phi(u_j)>

with ``<u_i u_j> = C_ij``, ``<u_i h*_q> = A_iq`` (delayed-features, eq. 16): averages over two fields, or over one and
the K index fields, whatever the number of neurons.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from solvable.activations import Polynomial
from solvable.models.committee.averages import (
    COARSE,
    FINE,
    Order,
    index_normals,
    over_neurons,
    pair_nodes,
    polynomial_average,
    split_normal,
    teacher_nodes,
)
from solvable.models.committee.task import Task, each


def test_loss(
    task: Task, alignment: Float[Array, "neuron index"], overlap: Float[Array, "neuron neuron"]
) -> Float[Array, ""]:
    """``<(sigma - f)^2>`` over fresh inputs: exact for polynomials, else as good as :func:`test_loss_error`."""
    # Rounding alone can make a sum of squares negative.
    return jnp.maximum(_test_loss(task, alignment, overlap, FINE), 0.0)


def test_loss_error(
    task: Task, alignment: Float[Array, "neuron index"], overlap: Float[Array, "neuron neuron"]
) -> Float[Array, ""]:
    """How far :func:`test_loss` may be off: the change from a coarser rule, or from another scramble for K > 3."""
    fine, coarse = (_test_loss(task, alignment, overlap, order) for order in (FINE, COARSE))
    rounding = 1e-15 * teacher_power(task, alignment.shape[1], FINE)
    return jnp.abs(fine - coarse) + rounding


# pytest collects functions by this name wherever they are imported.
test_loss.__test__ = test_loss_error.__test__ = False  # type: ignore[attr-defined]


def exact(task: Task, indices: int) -> bool:
    """Whether the averages are closed forms: both functions polynomials, of one index field."""
    return isinstance(task.activation, Polynomial) and isinstance(task.teacher, Polynomial) and indices == 1


def _test_loss(task: Task, alignment: Array, overlap: Array, order: Order) -> Array:
    readout = task.readout
    students = readout @ student_products(task, overlap, order) @ readout
    both = readout @ student_teacher_products(task, alignment, jnp.diagonal(overlap), order)
    return teacher_power(task, alignment.shape[1], order) - 2 * both + students


def student_products(task: Task, overlap: Array, order: Order) -> Float[Array, "neuron neuron"]:
    """``<phi(u_i) phi(u_j)>``."""
    activation, variance = task.activation, jnp.diagonal(overlap)
    if isinstance(activation, Polynomial):
        return polynomial_average(
            activation.coefficients, activation.coefficients, variance[:, None], variance, overlap
        )
    phi = each(activation)

    def one(variance: Array, other_variance: Array, covariance: Array) -> Array:
        nodes = pair_nodes(order, variance, other_variance, covariance)
        return jnp.sum(nodes.weights * phi(nodes.field) * phi(nodes.other))

    rows = over_neurons(lambda v, c: jax.vmap(one, (None, 0, 0))(v, variance, c), variance, overlap)
    return (rows + rows.T) / 2


def student_teacher_products(task: Task, alignment: Array, variance: Array, order: Order) -> Float[Array, "neuron"]:
    """``<phi(u_i) sigma(h*)>``."""
    if exact(task, alignment.shape[1]):
        return polynomial_average(
            task.activation.coefficients,  # type: ignore[attr-defined]
            task.teacher.coefficients,  # type: ignore[attr-defined]
            variance,
            jnp.ones(()),
            alignment[:, 0],
        )

    def one(variance: Array, alignment: Array) -> Array:
        nodes = teacher_nodes(order, variance, alignment)
        return jnp.sum(nodes.weights * each(task.activation)(nodes.field) * task.target(nodes.index_fields))

    return over_neurons(one, variance, alignment)


def teacher_power(task: Task, indices: int, order: Order) -> Float[Array, ""]:
    """``<sigma^2>``: the loss of a network that says nothing."""
    if isinstance(task.teacher, Polynomial) and indices == 1:
        coefficients = task.teacher.coefficients
        return polynomial_average(coefficients, coefficients, jnp.ones(()), jnp.ones(()), jnp.ones(()))
    if indices == 1:
        nodes, weights = split_normal(order, jnp.zeros(()))
        return jnp.sum(weights * task.target(nodes[None]) ** 2)
    grid, mass = index_normals(order, indices)
    return jnp.sum(mass * task.target(jnp.asarray(grid)) ** 2)
