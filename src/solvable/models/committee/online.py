"""The online limit, samples per dimension to infinity: every step sees the population.

On fresh inputs the fields are ``h = U z`` with ``z`` independent normals, the first K of them the index fields, so that
``A = U[:, :K]`` and ``C = U U^T``. Descent moves U by the population average of the signals,

    U(t + dt) = (1 - dt d) U(t) + dt F(U(t)),   F = <g z^T>,   flow: dU/dt = F(U) - d U        (d: weight decay)

which is dA/dt = <g h*>, dC/dt = <g h^T> + <h g^T> (delayed-features, eqs. 11, 12; corrected: see docs/errata) and at
every step keeps C a covariance. One-pass stochastic descent, ``w <- (1 - step d / D) w + step g x`` with a fresh input
each time and time counted as ``step / D`` a sample, has the same drift and Saad and Solla's noise besides,

    dC/dt = <g h^T> + <h g^T> - 2 d C + step <g g^T>.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.activations import Polynomial
from solvable.models.committee.averages import (
    FINE,
    Order,
    conditional_scale,
    derivative,
    over_neurons,
    pair_nodes,
    polynomial_average,
    teacher_nodes,
)
from solvable.models.committee.gaussian_samples import sobol_normals
from solvable.models.committee.population import exact, test_loss
from solvable.models.committee.task import Task, each

# Exact grids over all latents are used up to this many nodes, Sobol points beyond.
_MOST_NODES = 2**17
_SAMPLES = 2**16


class OnlinePath(NamedTuple):
    """Order parameters along training on the population; train and test loss are one."""

    test_loss: Float[Array, "time"]
    alignment: Float[Array, "time neuron index"]
    overlap: Float[Array, "time neuron neuron"]


def online_descent(
    task: Task,
    alignment: Float[Array, "neuron index"],
    overlap: Float[Array, "neuron neuron"],
    *,
    step: float,
    steps: int,
    weight_decay: float = 0.0,
) -> OnlinePath:
    """Full-batch descent on infinitely many samples, at steps 0 to ``steps``; a step too large ends in infinities."""
    latents = descent_latents(task, alignment, overlap, step=step, steps=steps, weight_decay=weight_decay)
    return _path(task, alignment.shape[1], latents)


def descent_latents(
    task: Task,
    alignment: Float[Array, "neuron index"],
    overlap: Float[Array, "neuron neuron"],
    *,
    step: float,
    steps: int,
    weight_decay: float = 0.0,
) -> Float[Array, "time neuron latent"]:
    """``U`` at steps 0 to ``steps``; the overlaps of two times are ``U(t) U(s)^T``."""
    return _descent(task, factor(alignment, overlap), jnp.asarray(step, float), steps, jnp.asarray(weight_decay, float))


@eqx.filter_jit
def _descent(task: Task, start: Array, step: Array, steps: int, weight_decay: Array) -> Array:
    def advance(latents: Array, _: None) -> tuple[Array, Array]:
        following = (1 - step * weight_decay) * latents + step * drift(task, latents)
        return following, following

    return jnp.concatenate([start[None], jax.lax.scan(advance, start, None, length=steps)[1]])


def online_flow(
    task: Task,
    alignment: Float[Array, "neuron index"],
    overlap: Float[Array, "neuron neuron"],
    times: Float[Array, "time"],
    *,
    weight_decay: float = 0.0,
    tolerance: float = 1e-8,
) -> OnlinePath:
    """Gradient flow on the population loss at ascending ``times``, from time zero."""
    start = factor(alignment, overlap)
    latents = _integrate(
        _flow_velocity, start, times, jnp.asarray(tolerance, float), (task, jnp.asarray(weight_decay, float))
    )
    return _path(task, alignment.shape[1], latents)


def _flow_velocity(latents: Array, parameters: tuple[Task, Array]) -> Array:
    task, weight_decay = parameters
    return drift(task, latents) - weight_decay * latents


def one_pass(
    task: Task,
    alignment: Float[Array, "neuron index"],
    overlap: Float[Array, "neuron neuron"],
    times: Float[Array, "time"],
    *,
    step: float,
    weight_decay: float = 0.0,
    tolerance: float = 1e-8,
) -> OnlinePath:
    """Stochastic descent on one fresh input at a time, as D grows (Saad and Solla), at ascending ``times``."""
    parameters = (task, jnp.asarray(step, float), jnp.asarray(weight_decay, float))
    alignments, overlaps = _integrate(
        _one_pass_velocity, (alignment, overlap), times, jnp.asarray(tolerance, float), parameters
    )
    return OnlinePath(_losses(task, alignments, overlaps), alignments, overlaps)


def _one_pass_velocity(state: tuple[Array, Array], parameters: tuple[Task, Array, Array]) -> tuple[Array, Array]:
    alignment, overlap = state
    task, step, weight_decay = parameters
    latents = factor(alignment, overlap)
    force = drift(task, latents)
    both = force @ latents.T
    noise = step * signal_correlation(task, latents)
    return (
        force[:, : alignment.shape[1]] - weight_decay * alignment,
        both + both.T - 2 * weight_decay * overlap + noise,
    )


def factor(
    alignment: Float[Array, "neuron index"], overlap: Float[Array, "neuron neuron"]
) -> Float[Array, "neuron latent"]:
    """``U = (A, L)`` with ``U U^T = C``; weights inside the span of the index vectors are allowed."""
    rest = overlap - alignment @ alignment.T
    # A zero pivot would end in NaN; a variance of 1e-14 more ends in the right digits.
    rest = rest + 1e-14 * jnp.diag(jnp.diagonal(overlap) + 1e-16)
    return jnp.concatenate([alignment, jnp.linalg.cholesky(rest)], axis=1)


def drift(task: Task, latents: Float[Array, "neuron latent"], order: Order = FINE) -> Float[Array, "neuron latent"]:
    """``F = <g z^T>``: exact for polynomials (Stein's identity), by quadrature over pairs of fields otherwise."""
    by_students = _polynomial_students if isinstance(task.activation, Polynomial) else _quadrature_students
    indices = latents.shape[1] - latents.shape[0]
    by_teacher = _polynomial_teacher if exact(task, indices) else _quadrature_teacher
    return task.gradient_readout[:, None] * (by_teacher(task, latents, order) - by_students(task, latents, order))


def _polynomial_students(task: Task, latents: Array, order: Order) -> Array:
    """``sum_k c_k <phi'(h_i) phi(h_k) z>``; Stein: ``<phi''_i phi_k> u_i + <phi'_i phi'_k> u_k``."""
    value = task.activation.coefficients  # type: ignore[attr-defined]
    slope = derivative(value)
    overlap = latents @ latents.T
    variance = jnp.diagonal(overlap)
    average = functools.partial(
        polynomial_average, variance=variance[:, None], other_variance=variance, covariance=overlap
    )
    own = average(derivative(slope), value) @ task.readout
    return own[:, None] * latents + (average(slope, slope) * task.readout) @ latents


def _polynomial_teacher(task: Task, latents: Array, order: Order) -> Array:
    """``<phi'(h_i) sigma(h*) z>``; Stein: ``<phi''_i sigma> u_i + <phi'_i sigma'> e_*``."""
    slope = derivative(task.activation.coefficients)  # type: ignore[attr-defined]
    target = task.teacher.coefficients  # type: ignore[attr-defined]
    average = functools.partial(
        polynomial_average,
        variance=jnp.sum(latents**2, axis=1),
        other_variance=jnp.ones(()),
        covariance=latents[:, 0],
    )
    own = average(derivative(slope), target)
    return (own[:, None] * latents).at[:, 0].add(average(slope, derivative(target)))


def _quadrature_students(task: Task, latents: Array, order: Order) -> Array:
    phi, slope = each(task.activation), each(jax.grad(task.activation))
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
        return task.readout @ jax.vmap(with_one, (None, None, 0, 0, 0))(row, own, latents, variance, covariances)

    return over_neurons(with_all, latents, variance, overlap)


def _quadrature_teacher(task: Task, latents: Array, order: Order) -> Array:
    slope = each(jax.grad(task.activation))
    indices = latents.shape[1] - latents.shape[0]

    def one(row: Array) -> Array:
        variance, alignment = jnp.sum(row**2), row[:indices]
        nodes = teacher_nodes(order, variance, alignment)
        values = nodes.weights * slope(nodes.field) * task.target(nodes.index_fields)
        across = row[indices:] / conditional_scale(variance, jnp.sqrt(jnp.sum(alignment**2) + 1e-60))
        return jnp.concatenate([nodes.index_fields @ values, jnp.sum(values * nodes.perpendicular) * across])

    return over_neurons(one, latents)


def signal_correlation(task: Task, latents: Float[Array, "neuron latent"]) -> Float[Array, "neuron neuron"]:
    """``<g g^T>``: exact for polynomials of few latents, otherwise by Sobol points to a few parts in a thousand."""
    nodes, weights = latent_nodes(task, latents.shape[1], latents.shape[1] - latents.shape[0])
    signals, _ = task.signals(latents @ nodes, jnp.asarray(nodes[: latents.shape[1] - latents.shape[0]]))
    return (signals * weights) @ signals.T


def latent_nodes(task: Task, dimension: int, indices: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (latent, node) and weights for averages over every latent at once: a grid where it is exact, else Sobol."""
    if isinstance(task.activation, Polynomial) and isinstance(task.teacher, Polynomial) and indices == 1:
        student, teacher = (len(function.coefficients) - 1 for function in (task.activation, task.teacher))
        # A signal has degree (p - 1) + max(p, q); n nodes integrate degree 2 n - 1.
        count = student + max(student, teacher)
        if count**dimension <= _MOST_NODES:
            return _hermite_grid(max(count, 1), dimension)
    return sobol_normals(_SAMPLES, dimension, 0).T, np.full(_SAMPLES, 1 / _SAMPLES)


@functools.cache
def _hermite_grid(count: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    grid = np.stack([axis.reshape(-1) for axis in np.meshgrid(*[nodes] * dimension, indexing="ij")])
    return grid, functools.reduce(np.multiply.outer, [weights / math.sqrt(2 * math.pi)] * dimension).reshape(-1)


@eqx.filter_jit
def _integrate(velocity: Callable, start: Any, times: Array, tolerance: Array, parameters: tuple) -> Any:
    """The states at ``times`` of ``d state / dt = velocity(state, parameters)``, from time zero."""
    import diffrax

    times = jnp.asarray(times, float)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda time, state, parameters: velocity(state, parameters)),
        diffrax.Tsit5(),
        t0=0.0,
        t1=times[-1],
        dt0=None,
        y0=start,
        args=parameters,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=1e-3 * tolerance),
        max_steps=200_000,
    )
    return solution.ys


def _path(task: Task, indices: int, latents: Float[Array, "time neuron latent"]) -> OnlinePath:
    alignment, overlap = latents[:, :, :indices], latents @ jnp.swapaxes(latents, 1, 2)
    return OnlinePath(_losses(task, alignment, overlap), alignment, overlap)


@eqx.filter_jit
def _losses(task: Task, alignment: Array, overlap: Array) -> Array:
    return jax.lax.map(lambda state: test_loss(task, *state), (alignment, overlap))
