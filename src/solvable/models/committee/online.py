"""The online limit, samples per dimension to infinity: every step sees the population.

On fresh inputs the fields are ``h = U z`` with ``z`` independent normals, the first K of them the index fields, so that
``A = U[:, :K]`` and ``C = U U^T``. Gradient descent moves U by the population average of the signals,

    U(t + 1) = (1 - dt d) U(t) + dt F(U(t)),   F = <g z^T>,   flow: dU/dt = F(U) - d U        (d: weight decay)

which is dA/dt = <g h*>, dC/dt = <g h^T> + <h g^T> (delayed-features, eqs. 11, 12; corrected: see docs/errata) and at
every step keeps C a covariance. One-pass stochastic gradient descent, ``w <- (1 - eta d / D) w + eta g x`` with a fresh
input at every step, has the same drift in the flow time ``eta / D`` per step, and Saad and Solla's noise besides,

    dC/dt = <g h^T> + <h g^T> - 2 d C + eta <g g^T>.

=========  =====================  =================
symbol     name                   shape
=========  =====================  =================
``U``      latents                (neuron, latent); latent = index, then neuron
``z``      nodes, normals         (latent, node)
``F``      drift                  (neuron, latent)
``eta``    training.learning_rate
=========  =====================  =================
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.activations import Polynomial
from solvable.models.committee.gaussian import (
    FINE,
    Order,
    conditional_scale,
    derivative,
    over_neurons,
    pair_nodes,
    polynomial_average,
    sobol_normals,
    teacher_nodes,
    test_loss,
    test_loss_error,
)
from solvable.models.committee.outputs import Advance, OutputRequest, Solution
from solvable.models.committee.problem import Problem, elementwise
from solvable.numerics.cost import STEP, check_cost
from solvable.training import SGD, Covers, GradientDescent, GradientFlow

# Exact grids over all latents are used up to this many nodes, Sobol points beyond.
_MOST_NODES = 2**17
_SAMPLES = 2**16


class OnlinePath(NamedTuple):
    """Order parameters along training on the population; training and test loss are the same."""

    test_loss: Float[Array, "time"]
    alignment: Float[Array, "time neuron index"]
    overlap: Float[Array, "time neuron neuron"]


@dataclasses.dataclass(frozen=True)
class Online:
    """Infinitely many samples (corrected eqs. 11-15): exact for polynomials, by quadrature otherwise.

    The default where ``samples_per_dimension`` is infinite. It covers gradient descent, gradient flow, and one-pass
    stochastic gradient descent, ``SGD(learning_rate, batch_size=1)``, in Saad and Solla's scaling.
    """

    covers: ClassVar[tuple[Covers, ...]] = (
        Covers(GradientDescent, options=("momentum", "nesterov", "weight_decay"), schedules=("learning_rate",)),
        Covers(GradientFlow, options=("weight_decay",)),
        Covers(SGD, options=("weight_decay",), sampling=("online",)),
    )

    def check_cost(self, problem: Problem, times: np.ndarray) -> None:
        if type(problem.training) is not GradientDescent:
            return
        steps = float(times[-1])
        check_cost(
            f"Online() for {steps:.3g} steps",
            operations=steps * STEP * problem.neurons**2,
            memory=16.0 * steps * (problem.neurons + 2) ** 2,
            remedy="ask for earlier times, or for gradient flow: GradientFlow(...)",
        )

    def solve(
        self, problem: Problem, times: np.ndarray, request: OutputRequest, key: int, advance: Advance
    ) -> Solution:
        if request != OutputRequest():
            raise ValueError("Online gives losses, alignment and overlap only: use Latent or Response for the rest")
        if type(problem.training) is GradientDescent:
            steps = times.astype(int)
            path = jax.tree.map(lambda values: values[steps], online_descent(problem, int(steps[-1])))
        else:
            path = one_pass(problem, times) if isinstance(problem.training, SGD) else online_flow(problem, times)
        advance(1.0)
        values = {name: np.asarray(array)[None] for name, array in path._asdict().items()}
        values["train_loss"] = values["test_loss"]
        quadrature = np.asarray(_loss_errors(problem, path.alignment, path.overlap))
        bias = {"test_loss": quadrature, "train_loss": quadrature}
        finite = np.isfinite(values["test_loss"][0])
        return Solution(values, bias, diverged_at=None if finite.all() else float(times[np.argmin(finite)]))


def online_descent(problem: Problem, steps: int) -> OnlinePath:
    """Full-batch gradient descent on infinitely many samples, at steps 0 to ``steps``."""
    return _path(problem, descent_latents(problem, steps))


def descent_latents(problem: Problem, steps: int) -> Float[Array, "time neuron latent"]:
    """``U`` at steps 0 to ``steps``; the overlaps of two times are ``U(t) U(s)^T``."""
    return _descent(problem, problem.training.learning_rates(0, steps))


@jax.jit
def _descent(problem: Problem, rates: Float[Array, "step"]) -> Array:
    training: Any = problem.training

    def advance(state: tuple[Array, Array], rate: Array) -> tuple[tuple[Array, Array], Array]:
        latents, velocity = state
        force = drift(problem, latents)
        following_velocity = training.momentum * velocity + force - training.weight_decay * latents
        carried = training.momentum * (following_velocity if training.nesterov else velocity)
        following = (1 - rate * training.weight_decay) * latents + rate * force + rate * carried
        return (following, following_velocity), following

    start = factor(problem.initial_alignment, problem.initial_overlap)
    return jnp.concatenate([start[None], jax.lax.scan(advance, (start, jnp.zeros_like(start)), rates)[1]])


def online_flow(problem: Problem, times: Float[np.ndarray, "time"], tolerance: float = 1e-8) -> OnlinePath:
    """Gradient flow on the population loss at ascending ``times``, from time zero."""
    start = factor(problem.initial_alignment, problem.initial_overlap)
    return _path(problem, _integrate(_flow_velocity, start, problem, times, tolerance))


def _flow_velocity(latents: Array, problem: Problem) -> Array:
    training: Any = problem.training
    return drift(problem, latents) - training.weight_decay * latents


def one_pass(problem: Problem, times: Float[np.ndarray, "time"], tolerance: float = 1e-8) -> OnlinePath:
    """Stochastic gradient descent on one fresh input per step, as D grows (Saad and Solla); times count D steps."""
    start = (problem.initial_alignment, problem.initial_overlap)
    alignments, overlaps = _integrate(_one_pass_velocity, start, problem, times, tolerance)
    return OnlinePath(_losses(problem, alignments, overlaps), alignments, overlaps)


def _one_pass_velocity(state: tuple[Array, Array], problem: Problem) -> tuple[Array, Array]:
    alignment, overlap = state
    training: Any = problem.training
    latents = factor(alignment, overlap)
    force = drift(problem, latents)
    both = force @ latents.T
    noise = training.learning_rate * signal_correlation(problem, latents)
    return (
        force[:, : alignment.shape[1]] - training.weight_decay * alignment,
        both + both.T - 2 * training.weight_decay * overlap + noise,
    )


def factor(
    alignment: Float[Array, "neuron index"], overlap: Float[Array, "neuron neuron"]
) -> Float[Array, "neuron latent"]:
    """``U = (A, L)`` with ``U U^T = C``; weights inside the span of the index vectors are allowed."""
    rest = overlap - alignment @ alignment.T
    # A zero pivot would end in NaN; a variance of 1e-14 more ends in the right digits.
    rest = rest + 1e-14 * jnp.diag(jnp.diagonal(overlap) + 1e-16)
    return jnp.concatenate([alignment, jnp.linalg.cholesky(rest)], axis=1)


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


def signal_correlation(problem: Problem, latents: Float[Array, "neuron latent"]) -> Float[Array, "neuron neuron"]:
    """``<g g^T>``: exact for polynomials of few latents, otherwise by Sobol points to a few parts in a thousand."""
    nodes, weights = latent_nodes(problem, latents.shape[1], latents.shape[1] - latents.shape[0])
    signals, _ = problem.signals(latents @ nodes, jnp.asarray(nodes[: latents.shape[1] - latents.shape[0]]))
    return (signals * weights) @ signals.T


def latent_nodes(problem: Problem, dimension: int, indices: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (latent, node) and weights for averages over every latent at once: a grid where it is exact, else Sobol."""
    if isinstance(problem.activation, Polynomial) and isinstance(problem.teacher, Polynomial) and indices == 1:
        student, teacher = (len(function.coefficients) - 1 for function in (problem.activation, problem.teacher))
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


def _integrate(
    velocity: Callable[..., Any], start: Any, problem: Problem, times: Float[np.ndarray, "time"], tolerance: float
) -> Any:
    """The states at ``times`` of ``d state / dt = velocity(state, problem)``, from time zero; t is flow time."""
    clock = problem.training.flow_time(times)
    # Integrators need an interval, which time zero alone is not.
    padded = clock if clock[-1] > 0 else np.array([0.0, 1e-12])
    states = _integrated(velocity, start, problem, padded, tolerance)
    return jax.tree.map(lambda values: values[: clock.size], states)


@functools.partial(jax.jit, static_argnames="velocity")
def _integrated(velocity: Callable[..., Any], start: Any, problem: Problem, clock: Array, tolerance: Array) -> Any:
    import diffrax

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda time, state, problem: velocity(state, problem)),
        diffrax.Tsit5(),
        t0=0.0,
        t1=clock[-1],
        dt0=None,
        y0=start,
        args=problem,
        saveat=diffrax.SaveAt(ts=clock),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=1e-3 * tolerance),
        max_steps=200_000,
    )
    return solution.ys


def _path(problem: Problem, latents: Float[Array, "time neuron latent"]) -> OnlinePath:
    alignment, overlap = latents[:, :, : problem.indices], latents @ jnp.swapaxes(latents, 1, 2)
    return OnlinePath(_losses(problem, alignment, overlap), alignment, overlap)


@jax.jit
def _losses(problem: Problem, alignment: Array, overlap: Array) -> Array:
    return jax.lax.map(lambda state: test_loss(problem, *state), (alignment, overlap))


@jax.jit
def _loss_errors(problem: Problem, alignment: Array, overlap: Array) -> Array:
    return jax.vmap(lambda a, c: test_loss_error(problem, a, c))(alignment, overlap)
