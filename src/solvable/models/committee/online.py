"""The online limit, samples per dimension to infinity: every step sees the population. And early growth and escape.

On fresh inputs the fields are ``h = U z`` with ``z`` independent normals, the first K of them the index fields, so that
``A = U[:, :K]`` and ``C = U U^T``. Gradient descent moves U by the population average of the signals,

    U(t + 1) = (1 - dt d) U(t) + dt F(U(t)),   F = <g z^T>,   flow: dU/dt = F(U) - d U        (d: weight decay)

which is dA/dt = <g h*>, dC/dt = <g h^T> + <h g^T> (delayed-features, eqs. 11, 12; corrected: see docs/errata) and at
every step keeps C a covariance. One-pass stochastic gradient descent, ``w <- (1 - eta d / D) w + eta g x`` with a fresh
input at every step, has the same drift in the flow time ``eta / D`` per step, and Saad and Solla's noise besides,

    dC/dt = <g h^T> + <h g^T> - 2 d C + eta <g g^T>.

Some numbers follow without integration. For the paper's activation ``h + eps h^2 / 2``, target ``h*^2 / 2`` and equal
readouts ``alpha / N``, zero loss needs ``sum_k w_k = 0`` and ``(alpha eps / N) sum_k w_k w_k^T = beta beta^T``. So
alignments grow to ``1 / sqrt(alpha eps)``. From a small A0, at the rate ``3 eps / 2`` of eq. 19, they arrive after

    t = 2 / (3 eps) ln( 1 / (sqrt(alpha eps) A0) )            (delayed-features, eq. 20, corrected: see docs/errata)

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
from solvable.coverage import Covers
from solvable.models.committee.gaussian import drift, test_loss_error
from solvable.models.committee.population import integration_error, measure_tests, sampled_averages
from solvable.models.committee.problem import Advance, OutputRequest, Problem, Solution
from solvable.numerics.cost import STEP, check_cost
from solvable.numerics.sobol import sobol_normals
from solvable.training import SGD, GradientDescent, GradientFlow

# Exact grids over all latents are used up to this many nodes, Sobol points beyond.
_MOST_NODES = 2**17
_SAMPLES = 2**16
# Accuracy of integration where averages are over points.
_SAMPLED_TOLERANCE = 1e-5
# Up to here in alpha eps C^(3/2) / A0 alignment is half its final value 0.3 to 0.8 doubling times before the formula.
_EARLY = 0.3
# Up to here in alpha / eps the common part of the alignments grows about as fast as their differences.
_COMMON = 0.1


class OnlinePath(NamedTuple):
    """Order parameters along training on the population; training and test loss are the same without label noise."""

    test_loss: Float[Array, "time"]
    alignment: Float[Array, "time neuron index"]
    overlap: Float[Array, "time neuron neuron"]
    test_error_rate: Float[Array, "time"] | None = None


@dataclasses.dataclass(frozen=True)
class Online:
    """Infinitely many samples (corrected eqs. 11-15): exact for polynomials, by quadrature otherwise.

    The default where ``samples_per_dimension`` is infinite. It covers gradient descent, gradient flow, and one-pass
    stochastic gradient descent, ``SGD(learning_rate, batch_size=1)``, in Saad and Solla's scaling.
    """

    covers_every_task: ClassVar[bool] = True
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
        values = {name: np.asarray(array)[None] for name, array in path._asdict().items() if array is not None}
        if problem.is_plain:
            values["train_loss"] = values["test_loss"]
            quadrature = np.asarray(_loss_errors(problem, path.alignment, path.overlap))
            bias = {"test_loss": quadrature, "train_loss": quadrature}
        else:
            bias = integration_error(problem, {name: array[0] for name, array in values.items()})
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
        force = _drift(problem, latents)
        following_velocity = training.momentum * velocity + force - training.weight_decay * latents
        carried = training.momentum * (following_velocity if training.nesterov else velocity)
        following = (1 - rate * training.weight_decay) * latents + rate * force + rate * carried
        return (following, following_velocity), following

    start = factor(problem.initial_alignment, problem.initial_overlap)
    return jnp.concatenate([start[None], jax.lax.scan(advance, (start, jnp.zeros_like(start)), rates)[1]])


def online_flow(problem: Problem, times: Float[np.ndarray, "time"], tolerance: float = 1e-8) -> OnlinePath:
    """Gradient flow on the population loss at ascending ``times``, from time zero."""
    start = factor(problem.initial_alignment, problem.initial_overlap)
    if not problem.is_plain:
        tolerance = max(tolerance, _SAMPLED_TOLERANCE)
    return _path(problem, _integrate(_flow_velocity, start, problem, times, tolerance))


def _flow_velocity(latents: Array, problem: Problem) -> Array:
    training: Any = problem.training
    return _drift(problem, latents) - training.weight_decay * latents


def one_pass(problem: Problem, times: Float[np.ndarray, "time"], tolerance: float = 1e-8) -> OnlinePath:
    """Stochastic gradient descent on one fresh input per step, as D grows (Saad and Solla); times count D steps."""
    start = (problem.initial_alignment, problem.initial_overlap)
    if not problem.is_plain:
        # Averages over points are smooth to their own accuracy only.
        tolerance = max(tolerance, _SAMPLED_TOLERANCE)
    alignments, overlaps = _integrate(_one_pass_velocity, start, problem, times, tolerance)
    return _measured(problem, alignments, overlaps)


def _one_pass_velocity(state: tuple[Array, Array], problem: Problem) -> tuple[Array, Array]:
    alignment, overlap = state
    training: Any = problem.training
    latents = factor(alignment, overlap)
    if problem.is_plain:
        force, correlation = drift(problem, latents), signal_correlation(problem, latents)
    else:
        force, correlation = sampled_averages(problem, latents)
    both = force @ latents.T
    noise = training.learning_rate * correlation
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
    return _measured(problem, alignment, overlap)


def _measured(problem: Problem, alignment: Array, overlap: Array) -> OnlinePath:
    test = measure_tests(problem, alignment, overlap)
    return OnlinePath(test.test_loss, alignment, overlap, test.test_error_rate)


def _drift(problem: Problem, latents: Float[Array, "neuron latent"]) -> Float[Array, "neuron latent"]:
    """``<g z^T>``: by quadrature for the plain task, otherwise over points."""
    return drift(problem, latents) if problem.is_plain else sampled_averages(problem, latents).drift


@jax.jit
def _loss_errors(problem: Problem, alignment: Array, overlap: Array) -> Array:
    return jax.vmap(lambda a, c: test_loss_error(problem, a, c))(alignment, overlap)


class Quadratic(NamedTuple):
    """The paper's setting: epsilon, output scale, and the factor ``b`` of the gradient."""

    epsilon: float
    output_scale: float
    speed: float


def quadratic_setting(problem: Problem) -> Quadratic:
    """The parameters of the paper's task, or a ValueError that says what differs."""
    student, teacher = problem.activation, problem.teacher
    if not isinstance(student, Polynomial) or len(student.coefficients) != 3 or student.coefficients[:2] != (0.0, 1.0):
        raise ValueError(f"known for the activation quadratic(epsilon) only, not {student}: integrate the online limit")
    if not isinstance(teacher, Polynomial) or teacher.coefficients != (0.0, 0.0, 0.5):
        raise ValueError(f"known for the teacher square() only, not {teacher}: integrate the online limit")
    readout, gradient = np.asarray(problem.readout), np.asarray(problem.gradient_readout)
    if np.ptp(readout) > 1e-12 * np.max(np.abs(readout)) or np.ptp(gradient) > 1e-12 * np.max(np.abs(gradient)):
        raise ValueError(f"known for equal readouts only, not {readout.tolist()}: integrate the online limit")
    setting = Quadratic(2 * student.coefficients[2], float(readout.sum()), float(gradient[0]))
    if setting.epsilon <= 0 or setting.output_scale <= 0 or setting.speed <= 0:
        raise ValueError(f"needs positive epsilon, output_scale and gradient_readout, not {tuple(setting)}")
    return setting


def early_alignment_rate(problem: Problem) -> float:
    """The rate at which a small alignment grows online: the largest of ``d <g h*> / d A`` at A = 0, less the decay.

    For the paper's task the top eigenvalue of ``[3 eps / 2 - (alpha eps^2 / 2 N) tr C] 1 - (alpha / N) [1 + eps^2 C]``,
    which is the ``3 eps / 2`` of eq. 19 as alpha goes to 0. A target that has a gradient already at A = 0 has no rate.
    """
    training: Any = problem.training
    start = jnp.zeros_like(problem.initial_alignment)
    if float(jnp.max(jnp.abs(_alignment_drift(start, problem)))) > 1e-9:
        raise ValueError(
            "alignment grows linearly here, not exponentially: this target has a gradient already where weights have "
            "no alignment; read the early slope off the online limit"
        )
    matrix = np.asarray(_alignment_drift_slopes(start, problem)).reshape(start.size, start.size)
    return float(np.max(np.linalg.eigvals(matrix).real)) - training.weight_decay


def _alignment_drift(alignment: Array, problem: Problem) -> Array:
    """``<g h*>`` at the initial overlap."""
    return drift(problem, factor(alignment, problem.initial_overlap))[:, : alignment.shape[1]]


_alignment_drift_slopes = jax.jit(jax.jacfwd(_alignment_drift))
_alignment_drift = jax.jit(_alignment_drift)


def escape_time(problem: Problem) -> float:
    """When alignment reaches the scale of zero loss, ``2 / (3 eps) ln(1 / (sqrt(alpha eps) A0))`` (eq. 20, corrected).

    It is when the early exponential arrives; the alignment is half its final value somewhat before, by 0.3 to 0.8 times
    ``2 ln 2 / (3 eps)`` (measured). A0 is the root mean square of the initial alignments; for ``alpha > eps / 10`` of
    their deviations from the mean, since the network's linear part holds the mean back. Valid while ``alpha eps
    C^(3/2) < 0.3 A0`` (C the mean of C_kk): from a smaller A0 the isotropic part of the weights saturates first, and
    the time hardly depends on alpha.
    """
    epsilon, output_scale, speed = quadratic_setting(problem)
    values = np.asarray(problem.initial_alignment)[:, 0]
    if output_scale > _COMMON * epsilon:
        values = values - values.mean()
    start, final = float(np.sqrt(np.mean(values**2))), 1 / np.sqrt(output_scale * epsilon)
    variance = float(np.mean(np.diagonal(np.asarray(problem.initial_overlap))))
    if not start > 0 or output_scale * epsilon * variance**1.5 > _EARLY * start:
        raise ValueError(
            f"eq. 20 holds for initial alignments above {output_scale * epsilon * variance**1.5 / _EARLY:.3g} here, "
            f"not {start:.3g}: from there the isotropic part of the weights saturates first; integrate the online limit"
        )
    if start >= final:
        raise ValueError(f"the initial alignment {start:.3g} is not below that of zero loss, {final:.3g}")
    return float(np.log(final / start) / (1.5 * epsilon * speed))


def recovery(problem: Problem) -> Float[np.ndarray, "neuron 1"]:
    """Alignments a_k of weights ``w_k = a_k beta`` of zero loss: alternating signs, sizes near 1/sqrt(alpha eps).

    ``sum_k a_k = 0`` and ``sum_k a_k^2 = N / (alpha eps)``; with N = 2 its mirror image is the only other solution.
    With an odd number one neuron stays at zero.
    """
    epsilon, output_scale, _ = quadratic_setting(problem)
    neurons = problem.neurons
    if neurons < 2:
        raise ValueError("one neuron cannot reach zero loss: its linear part has nothing to cancel it; use two or more")
    pairs = neurons // 2
    signs = np.concatenate([np.tile([1.0, -1.0], pairs), np.zeros(neurons - 2 * pairs)])
    return signs[:, None] * np.sqrt(neurons / (2 * pairs * output_scale * epsilon))
