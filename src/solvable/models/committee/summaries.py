"""Numbers that need no solver: early growth, escape from the saddle, weights of zero loss, and the tangent kernel.

For the paper's activation ``h + eps h^2 / 2``, target ``h*^2 / 2`` and equal readouts ``alpha / N``: zero loss needs
``sum_k w_k = 0`` and ``(alpha eps / N) sum_k w_k w_k^T = beta beta^T``, so that alignments grow to the scale
``1 / sqrt(alpha eps)`` and, from a small A0 and at the rate ``3 eps / 2`` of eq. 19, arrive after

    t = 2 / (3 eps) ln( 1 / (sqrt(alpha eps) A0) )            (delayed-features, eq. 20, corrected: see docs/errata)

The tangent kernel of the network is

    K(x, x') = sum_i c_i^2 phi'(h_i) phi'(h'_i) x . x'

(delayed-features prints ``(N / alpha^2) K``: see docs/errata). Training sees ``b_i c_i`` in place of ``c_i^2``. The
alignment of that kernel with the targets ``y`` of P samples is

    sqrt(P) y^T K y / (|K|_F |y|^2),

its Rayleigh quotient at the target over the root mean square of its eigenvalues. The factor sqrt(P) makes it
converge as the dimension grows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.activations import Polynomial
from solvable.models.committee.closure import LatentClosure
from solvable.models.committee.online import drift, factor
from solvable.models.committee.problem import Problem

# Up to here in alpha eps C^(3/2) / A0 alignment is half its final value 0.3 to 0.8 doubling times before the formula.
_EARLY = 0.3
# Up to here in alpha / eps the common part of the alignments grows about as fast as their differences.
_COMMON = 0.1
# The size of the tangent kernel is exact up to so many samples, and from this many random probes beyond.
EXACT_SAMPLES, PROBES = 256, 16


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

    ``sum_k a_k = 0`` and ``sum_k a_k^2 = N / (alpha eps)``; with N = 2 there is no other but its mirror image. With an
    odd number one neuron stays at zero.
    """
    epsilon, output_scale, _ = quadratic_setting(problem)
    neurons = problem.neurons
    if neurons < 2:
        raise ValueError("one neuron cannot reach zero loss: its linear part has nothing to cancel it; use two or more")
    pairs = neurons // 2
    signs = np.concatenate([np.tile([1.0, -1.0], pairs), np.zeros(neurons - 2 * pairs)])
    return signs[:, None] * np.sqrt(neurons / (2 * pairs * output_scale * epsilon))


def tangent_kernel(
    problem: Problem,
    fields: Float[Array, "neuron sample"],
    other_fields: Float[Array, "neuron sample2"],
    products: Float[Array, "sample sample2"],
) -> Float[Array, "sample sample2"]:
    """``K`` between two sets of samples, from their fields and the products ``x . x'`` of their inputs."""
    weighted = problem.readout[:, None] ** 2 * problem.slopes(fields)
    return weighted.T @ problem.slopes(other_fields) * products


def sample_alignment(closure: LatentClosure, problem: Problem, weights: Array) -> Float[Array, ""]:
    """The alignment in the limit of many dimensions.

    There ``x . x`` is one and ``(x . x')^2`` is 1/D, so that ``|K|_F^2 / P = <K(x,x)^2> + gamma <K(x,x')^2>``, and
    ``y^T K y / P = gamma sum_i c_i^2 |(1/gamma) sum_mu y phi'_i x|^2 / D``.
    """
    fields, index = closure.fields(weights)
    target, slopes = _target_and_slopes(problem, fields, index)
    pulls = closure.squared_pull(slopes * target)
    return _assemble(problem.readout * problem.gradient_readout, pulls, slopes, target, problem.samples_per_dimension)


@jax.jit
def _target_and_slopes(problem: Problem, fields: Array, index: Array) -> tuple[Array, Array]:
    return problem.target(index), problem.slopes(fields)


@jax.jit
def _assemble(power: Array, pulls: Array, slopes: Array, target: Array, ratio: float) -> Array:
    own = jnp.mean((power @ slopes**2) ** 2)
    pairs = jnp.sum(power[:, None] * power * (slopes @ slopes.T / target.size) ** 2)
    quotient = ratio * (power @ pulls) / jnp.mean(target**2)
    return quotient / jnp.sqrt(own + ratio * pairs)


def kernel_alignment(
    problem: Problem,
    fields: Float[Array, "neuron sample"],
    target: Float[Array, "sample"],
    inner: Callable[[Array], Array],
    key: Array,
) -> Float[Array, ""]:
    """``sqrt(P) y^T K y / (|K|_F |y|^2)`` on the training set, not centred; 0 where there is no kernel.

    ``K(x, x') = sum_i b_i c_i phi'(h_i) phi'(h'_i) x.x'`` is the kernel of ``df/dt = (1/gamma) sum_mu K(x, x_mu)
    Delta_mu``, the tangent kernel of the network where b and c are proportional (delayed-features, sec. 3; its
    prefactor, see docs/errata, drops out). ``y`` is the target, ``inner(rows) = rows X X^T``. The kernel itself is
    never formed: ``|K|_F^2`` is the mean of ``|K z|^2`` over random signs z, or exact for few samples.
    """
    slopes, couplings = problem.slopes(fields), problem.readout * problem.gradient_readout
    samples = target.shape[0]

    def times_kernel(rows: Array) -> Array:
        pushed = inner((slopes[:, None] * rows).reshape(-1, samples)).reshape(len(slopes), -1, samples)
        return jnp.tensordot(couplings, slopes[:, None] * pushed, axes=1)

    if samples <= EXACT_SAMPLES:
        square = jnp.sum(times_kernel(jnp.eye(samples, dtype=target.dtype)) ** 2)
    else:
        probes = jax.random.rademacher(key, (PROBES, samples), target.dtype)
        square = jnp.sum(times_kernel(probes) ** 2) / PROBES
    size = jnp.sqrt(square) * jnp.sum(target**2)
    along = jnp.sqrt(float(samples)) * (times_kernel(target[None])[0] @ target)
    return jnp.where(size == 0, 0.0, along / jnp.where(size == 0, 1.0, size)).astype(target.dtype)
