"""Averages over Gaussian fields, by closed forms and quadrature: the exact test loss, and the drift on the population.

Fields of fresh inputs are Gaussian with covariances given by overlap and alignment, so that the test loss is

    L_test = <(sigma(h*) - sum_i c_i phi(u_i))^2>
           = <sigma^2> - 2 sum_i c_i <phi(u_i) sigma> + sum_ij c_i c_j <phi(u_i) phi(u_j)>

with ``<u_i u_j> = C_ij``, ``<u_i h*_q> = A_iq`` (delayed-features, eq. 16). Every average is over two student fields,
or over one student field and the K index fields, however many neurons there are. Polynomials are averaged exactly
(Wick's theorem). Anything else is integrated: Gauss-Legendre on the two sides of zero of a field, so that a
non-differentiable point at zero costs no accuracy, and the trapezoid rule (Sobol points beyond K = 3) over several
index fields: for functions with poles near the real line, such as tanh, it converges faster than Gauss-Hermite.

The same averages give the drift of the weights on the population: :func:`drift`.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.activations import Polynomial
from solvable.models.committee.problem import Problem, elementwise
from solvable.numerics.sobol import sobol_normals

# A normal beyond this many standard deviations has weight 2e-17.
_REACH = 8.5
# Added to conditional variances, in units of the variance, so that derivatives exist where fields are collinear.
_FLOOR = 1e-14
# Added to variances, so that a neuron with zero weights causes no division by zero.
_TINY = 1e-30


class Grid(NamedTuple):
    """An equidistant rule for one normal: how many nodes, out to how many standard deviations."""

    nodes: int
    reach: float


class Order(NamedTuple):
    """How finely to integrate: nodes each side of zero, the grid per index field for K = 2 and 3, samples for more."""

    side: int
    of_two: Grid
    of_three: Grid
    samples: int
    key: int


FINE = Order(side=40, of_two=Grid(40, 7.5), of_three=Grid(28, 7.0), samples=2**13, key=0)
# For the error: of the same kind, with fewer nodes or another randomisation.
COARSE = Order(side=30, of_two=Grid(30, 7.4), of_three=Grid(22, 6.8), samples=2**13, key=1)


class Pair(NamedTuple):
    """Nodes of two fields: ``field = s first``, ``other = (cov / s) first + r second`` with independent normals."""

    field: Float[Array, "node"]
    other: Float[Array, "node"]
    first: Float[Array, "node"]
    second: Float[Array, "node"]
    weights: Float[Array, "node"]


class WithTeacher(NamedTuple):
    """Nodes of a student field and the index fields: ``field = A . index + r perpendicular``."""

    field: Float[Array, "node"]
    index_fields: Float[Array, "index node"]
    perpendicular: Float[Array, "node"]
    weights: Float[Array, "node"]


def pair_nodes(
    order: Order, variance: Float[Array, ""], other_variance: Float[Array, ""], covariance: Float[Array, ""]
) -> Pair:
    """Nodes for averages over two jointly Gaussian fields, in panels that end where either field is zero."""
    scale = jnp.sqrt(variance + _TINY)
    spread = conditional_scale(other_variance, covariance / scale)
    first, weights = split_normal(order, jnp.zeros(()))
    mean = covariance / scale * first
    second, inner = split_normal(order, -mean / spread)
    first, weights = (jnp.broadcast_to(each[:, None], second.shape) for each in (first, weights))
    other = mean[:, None] + spread * second
    flat = (values.reshape(-1) for values in (scale * first, other, first, second, weights * inner))
    return Pair(*flat)


def teacher_nodes(order: Order, variance: Float[Array, ""], alignment: Float[Array, "index"]) -> WithTeacher:
    """Nodes for averages over one student field and the K index fields."""
    scale = jnp.sqrt(variance + _TINY)
    if alignment.size == 1:
        nodes = pair_nodes(order, variance, jnp.ones(()), alignment[0])
        left = conditional_scale(jnp.ones(()), alignment[0] / scale)
        perpendicular = left * nodes.first - alignment[0] / scale * nodes.second
        return WithTeacher(nodes.field, nodes.other[None], perpendicular, nodes.weights)
    left = conditional_scale(jnp.ones(()), jnp.linalg.norm(_safe(alignment)) / scale)
    first, weights = split_normal(order, jnp.zeros(()))
    normals, inner = index_normals(order, alignment.size)
    # The symmetric root of the covariance of the index fields given the student's.
    along = alignment @ normals / scale
    given = normals - alignment[:, None] / scale * along / (1 + left)
    index = alignment[:, None, None] / scale * first[:, None] + given[:, None, :]
    perpendicular = left * first[:, None] - along
    field = jnp.broadcast_to(scale * first[:, None], perpendicular.shape)
    weights = weights[:, None] * inner
    return WithTeacher(
        field.reshape(-1), index.reshape(alignment.size, -1), perpendicular.reshape(-1), weights.reshape(-1)
    )


def conditional_scale(variance: Float[Array, ""], regression: Float[Array, ""]) -> Float[Array, ""]:
    """Standard deviation of a field that is left when its part ``regression * normal`` is known."""
    return jnp.sqrt(jnp.maximum(variance - regression**2 + _FLOOR * variance, _TINY))


def split_normal(
    order: Order, split: Float[Array, "*rows"]
) -> tuple[Float[Array, "*rows node"], Float[Array, "*rows node"]]:
    """Nodes and weights of a standard normal, with one panel on each side of ``split``."""
    unit, lengths = _legendre(order.side)
    split = jnp.clip(split, -_REACH, _REACH)[..., None]
    nodes = jnp.concatenate([-_REACH + (split + _REACH) * unit, split + (_REACH - split) * unit], axis=-1)
    weights = jnp.concatenate([(split + _REACH) * lengths, (_REACH - split) * lengths], axis=-1)
    return nodes, weights * jnp.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi)


@functools.cache
def _legendre(side: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(side)
    return (nodes + 1) / 2, weights / 2


@functools.cache
def index_normals(order: Order, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (index, node) and weights of ``count > 1`` independent normals."""
    if count > 3:
        return _even_normals(order, count).T, np.full(order.samples, 1 / order.samples)
    grid = order.of_two if count == 2 else order.of_three
    nodes = np.linspace(-grid.reach, grid.reach, grid.nodes)
    weights = np.exp(-(nodes**2) / 2)
    weights /= weights.sum()
    points = np.stack([axis.reshape(-1) for axis in np.meshgrid(*[nodes] * count, indexing="ij")])
    return points, functools.reduce(np.multiply.outer, [weights] * count).reshape(-1)


def _even_normals(order: Order, count: int) -> np.ndarray:
    """Sobol normals made exact in mean and covariance, so that quadratic functions are averaged exactly."""
    normals = sobol_normals(order.samples, count, order.key)
    normals = normals - normals.mean(axis=0)
    return normals @ np.linalg.inv(np.linalg.cholesky(normals.T @ normals / order.samples)).T


def polynomial_average(
    left: tuple[float, ...], right: tuple[float, ...], variance: Array, other_variance: Array, covariance: Array
) -> Array:
    """``E[p(x) q(y)]`` of polynomials of two Gaussian fields: ``sum_n n! p_n q_n cov^n`` over Wick coefficients."""
    pairs = zip(_wick(left, variance), _wick(right, other_variance), strict=False)
    total = jnp.zeros(jnp.broadcast_shapes(jnp.shape(variance), jnp.shape(other_variance), jnp.shape(covariance)))
    power = jnp.ones_like(total)
    for n, (p, q) in enumerate(pairs):
        total = total + math.factorial(n) * p * q * power
        power = power * covariance
    return total


def _wick(coefficients: tuple[float, ...], variance: Array) -> list[Array]:
    """``p_n`` of ``p(x) = sum_n p_n :x^n:``: each pair of factors taken out leaves a variance."""
    result = []
    for n in range(len(coefficients)):
        total = jnp.zeros_like(variance)
        for m in range((len(coefficients) - 1 - n) // 2 + 1):
            pairings = math.factorial(n + 2 * m) / (math.factorial(m) * math.factorial(n) * 2**m)
            total = total + coefficients[n + 2 * m] * pairings * variance**m
        result.append(total)
    return result


def derivative(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """Coefficients of the derivative of a polynomial."""
    return tuple(n * value for n, value in enumerate(coefficients))[1:] or (0.0,)


def over_neurons(function: Callable[..., Array], *rows: Array) -> Array:
    """``function`` of each neuron's rows, one neuron after the other: the nodes of one are many already."""
    return jax.lax.map(lambda row: function(*row), rows)


def _safe(vector: Array) -> Array:
    """The vector, moved off zero by a negligible amount, so that its norm has a derivative."""
    return vector + _TINY


def test_loss(
    problem: Problem, alignment: Float[Array, "neuron index"], overlap: Float[Array, "neuron neuron"]
) -> Float[Array, ""]:
    """``<(sigma - f)^2>`` over fresh inputs: exact for polynomials, else as good as :func:`test_loss_error`."""
    # Rounding alone can make a sum of squares negative.
    return jnp.maximum(_test_loss(problem, alignment, overlap, FINE), 0.0)


def test_loss_error(
    problem: Problem, alignment: Float[Array, "neuron index"], overlap: Float[Array, "neuron neuron"]
) -> Float[Array, ""]:
    """How far :func:`test_loss` may be off: the change from a coarser rule, or from another randomisation for K > 3."""
    fine, coarse = (_test_loss(problem, alignment, overlap, order) for order in (FINE, COARSE))
    rounding = 1e-15 * teacher_power(problem, FINE)
    return jnp.abs(fine - coarse) + rounding


@jax.jit
def test_losses(
    problem: Problem, alignment: Float[Array, "time neuron index"], overlap: Float[Array, "time neuron neuron"]
) -> Float[Array, "time"]:
    """The test loss at each time."""
    return jax.lax.map(lambda state: test_loss(problem, *state), (alignment, overlap))


# pytest collects functions by these names wherever they are imported.
test_loss.__test__ = test_loss_error.__test__ = test_losses.__test__ = False  # type: ignore[attr-defined]


def _test_loss(problem: Problem, alignment: Array, overlap: Array, order: Order) -> Array:
    readout = problem.readout
    students = readout @ student_products(problem, overlap, order) @ readout
    both = readout @ student_teacher_products(problem, alignment, jnp.diagonal(overlap), order)
    return teacher_power(problem, order) - 2 * both + students


def student_products(problem: Problem, overlap: Array, order: Order) -> Float[Array, "neuron neuron"]:
    """``<phi(u_i) phi(u_j)>``."""
    activation, variance = problem.activation, jnp.diagonal(overlap)
    if isinstance(activation, Polynomial):
        return polynomial_average(
            activation.coefficients, activation.coefficients, variance[:, None], variance, overlap
        )
    phi = elementwise(activation)

    def one(variance: Array, other_variance: Array, covariance: Array) -> Array:
        nodes = pair_nodes(order, variance, other_variance, covariance)
        return jnp.sum(nodes.weights * phi(nodes.field) * phi(nodes.other))

    rows = over_neurons(lambda v, c: jax.vmap(one, (None, 0, 0))(v, variance, c), variance, overlap)
    return (rows + rows.T) / 2


def student_teacher_products(
    problem: Problem, alignment: Array, variance: Array, order: Order
) -> Float[Array, "neuron"]:
    """``<phi(u_i) sigma(h*)>``."""
    if problem.is_polynomial:
        return polynomial_average(
            problem.activation.coefficients,  # type: ignore[attr-defined]
            problem.teacher.coefficients,  # type: ignore[attr-defined]
            variance,
            jnp.ones(()),
            alignment[:, 0],
        )

    def one(variance: Array, alignment: Array) -> Array:
        nodes = teacher_nodes(order, variance, alignment)
        return jnp.sum(
            nodes.weights * elementwise(problem.activation)(nodes.field) * problem.target(nodes.index_fields)
        )

    return over_neurons(one, variance, alignment)


def teacher_power(problem: Problem, order: Order) -> Float[Array, ""]:
    """``<sigma^2>``: the loss of a network whose output is zero."""
    if isinstance(problem.teacher, Polynomial) and problem.indices == 1:
        coefficients = problem.teacher.coefficients
        return polynomial_average(coefficients, coefficients, jnp.ones(()), jnp.ones(()), jnp.ones(()))
    if problem.indices == 1:
        nodes, weights = split_normal(order, jnp.zeros(()))
        return jnp.sum(weights * problem.target(nodes[None]) ** 2)
    grid, mass = index_normals(order, problem.indices)
    return jnp.sum(mass * problem.target(jnp.asarray(grid)) ** 2)


def drift(
    problem: Problem, latents: Float[Array, "neuron latent"], order: Order = FINE
) -> Float[Array, "neuron latent"]:
    """``F = <g z^T>``: exact for polynomials (Stein's identity), by quadrature over pairs of fields otherwise."""
    by_students = _polynomial_students if isinstance(problem.activation, Polynomial) else _quadrature_students
    by_teacher = _polynomial_teacher if problem.is_polynomial else _quadrature_teacher
    return problem.gradient_readout[:, None] * (
        by_teacher(problem, latents, order) - by_students(problem, latents, order)
    )


def _polynomial_students(problem: Problem, latents: Array, order: Order) -> Array:
    """``sum_k c_k <phi'(h_i) phi(h_k) z>``; Stein: ``<phi''_i phi_k> u_i + <phi'_i phi'_k> u_k``."""
    value = problem.activation.coefficients  # type: ignore[attr-defined]
    slope = derivative(value)
    overlap = latents @ latents.T
    variance = jnp.diagonal(overlap)
    average = functools.partial(
        polynomial_average, variance=variance[:, None], other_variance=variance, covariance=overlap
    )
    own = average(derivative(slope), value) @ problem.readout
    return own[:, None] * latents + (average(slope, slope) * problem.readout) @ latents


def _polynomial_teacher(problem: Problem, latents: Array, order: Order) -> Array:
    """``<phi'(h_i) sigma(h*) z>``; Stein: ``<phi''_i sigma> u_i + <phi'_i sigma'> e_*``."""
    slope = derivative(problem.activation.coefficients)  # type: ignore[attr-defined]
    target = problem.teacher.coefficients  # type: ignore[attr-defined]
    average = functools.partial(
        polynomial_average,
        variance=jnp.sum(latents**2, axis=1),
        other_variance=jnp.ones(()),
        covariance=latents[:, 0],
    )
    own = average(derivative(slope), target)
    return (own[:, None] * latents).at[:, 0].add(average(slope, derivative(target)))


def _quadrature_students(problem: Problem, latents: Array, order: Order) -> Array:
    phi, slope = elementwise(problem.activation), elementwise(jax.grad(problem.activation))
    overlap = latents @ latents.T
    variance = jnp.diagonal(overlap)

    def with_one(row: Array, own: Array, other: Array, other_variance: Array, covariance: Array) -> Array:
        nodes = pair_nodes(order, own, other_variance, covariance)
        values = nodes.weights * slope(nodes.field) * phi(nodes.other)
        scale = jnp.sqrt(own + 1e-30)
        spread = conditional_scale(other_variance, covariance / scale)
        along, across = row / scale, (other - covariance / scale**2 * row) / spread
        return jnp.sum(values * nodes.first) * along + jnp.sum(values * nodes.second) * across

    def with_all(row: Array, own: Array, covariances: Array) -> Array:
        return problem.readout @ jax.vmap(with_one, (None, None, 0, 0, 0))(row, own, latents, variance, covariances)

    return over_neurons(with_all, latents, variance, overlap)


def _quadrature_teacher(problem: Problem, latents: Array, order: Order) -> Array:
    slope = elementwise(jax.grad(problem.activation))
    indices = latents.shape[1] - latents.shape[0]

    def one(row: Array) -> Array:
        variance, alignment = jnp.sum(row**2), row[:indices]
        nodes = teacher_nodes(order, variance, alignment)
        values = nodes.weights * slope(nodes.field) * problem.target(nodes.index_fields)
        across = row[indices:] / conditional_scale(variance, jnp.sqrt(jnp.sum(alignment**2) + 1e-60))
        return jnp.concatenate([nodes.index_fields @ values, jnp.sum(values * nodes.perpendicular) * across])

    return over_neurons(one, latents)
