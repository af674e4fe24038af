"""Leaving the saddle: how fast alignment grows at first, when the loss falls, and the weights at which it is zero.

For the paper's activation ``h + eps h^2 / 2``, target ``h*^2 / 2`` and equal readouts ``alpha / N``: zero loss needs
``sum_k w_k = 0`` and ``(alpha eps / N) sum_k w_k w_k^T = beta beta^T``, so that alignments grow to the scale
``1 / sqrt(alpha eps)`` and, from a small A0 and at the rate ``3 eps / 2`` of eq. 19, arrive after

    t = 2 / (3 eps) ln( 1 / (sqrt(alpha eps) A0) )            (delayed-features, eq. 20, corrected: see docs/errata)
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.activations import Polynomial
from solvable.models.committee.online import drift, factor
from solvable.models.committee.task import Task

# Up to here in alpha eps C^(3/2) / A0 alignment is half its final value 0.3 to 0.8 doubling times before the formula.
_EARLY = 0.3
# Up to here in alpha / eps the common part of the alignments grows about as fast as their differences.
_COMMON = 0.1


class Quadratic(NamedTuple):
    """The paper's setting: share of quadratic functions, output scale, and time units (``b``) of the gradient."""

    epsilon: float
    output_scale: float
    speed: float


def quadratic_setting(task: Task) -> Quadratic:
    """The parameters of the paper's task, or a ValueError that says what differs."""
    student, teacher = task.activation, task.teacher
    if not isinstance(student, Polynomial) or len(student.coefficients) != 3 or student.coefficients[:2] != (0.0, 1.0):
        raise ValueError(f"known for the activation quadratic(epsilon) only, not {student}: integrate the online limit")
    if not isinstance(teacher, Polynomial) or teacher.coefficients != (0.0, 0.0, 0.5):
        raise ValueError(f"known for the teacher square() only, not {teacher}: integrate the online limit")
    readout, gradient = np.asarray(task.readout), np.asarray(task.gradient_readout)
    if np.ptp(readout) > 1e-12 * np.max(np.abs(readout)) or np.ptp(gradient) > 1e-12 * np.max(np.abs(gradient)):
        raise ValueError(f"known for equal readouts only, not {readout.tolist()}: integrate the online limit")
    setting = Quadratic(2 * student.coefficients[2], float(readout.sum()), float(gradient[0]))
    if setting.epsilon <= 0 or setting.output_scale <= 0 or setting.speed <= 0:
        raise ValueError(f"needs positive epsilon, output_scale and gradient_readout, not {tuple(setting)}")
    return setting


def early_alignment_rate(
    task: Task, overlap: Float[Array, "neuron neuron"], *, indices: int = 1, weight_decay: float = 0.0
) -> float:
    """The rate at which a small alignment grows online: the largest of ``d <g h*> / d A`` at A = 0, less the decay.

    For the paper's task the top eigenvalue of ``[3 eps / 2 - (alpha eps^2 / 2 N) tr C] 1 - (alpha / N) [1 + eps^2 C]``,
    which is the ``3 eps / 2`` of eq. 19 as alpha goes to 0. Any task will do, of ``indices`` index fields; one that
    pulls already at A = 0 has no rate.
    """
    neurons = overlap.shape[0]

    start = jnp.zeros((neurons, indices))
    if float(jnp.max(jnp.abs(_pull(start, task, overlap)))) > 1e-9:
        raise ValueError(
            "alignment grows linearly here, not exponentially: this target pulls on weights that have none; read the "
            "early slope off the online limit"
        )
    matrix = _pull_slopes(start, task, overlap).reshape(neurons * indices, neurons * indices)
    return float(np.max(np.linalg.eigvals(np.asarray(matrix)).real)) - weight_decay


@eqx.filter_jit
def _pull(alignment: Array, task: Task, overlap: Array) -> Array:
    """``<g h*>``."""
    return drift(task, factor(alignment, overlap))[:, : alignment.shape[1]]


_pull_slopes = eqx.filter_jit(jax.jacfwd(_pull))


def escape_time(task: Task, alignment: Float[Array, "neuron 1"], overlap: Float[Array, "neuron neuron"]) -> float:
    """When alignment reaches the scale of zero loss, ``2 / (3 eps) ln(1 / (sqrt(alpha eps) A0))`` (eq. 20, corrected).

    It is when the early exponential arrives; the alignment is half its final value somewhat before, by 0.3 to 0.8 times
    ``2 ln 2 / (3 eps)`` (measured). A0 is the root mean square of the initial alignments; for ``alpha > eps / 10`` of
    their deviations from the mean, since the network's linear part holds the mean back. Valid while ``alpha eps
    C^(3/2) < 0.3 A0`` (C the mean of C_kk): from a smaller A0 the isotropic part of the weights saturates first, and
    the time hardly depends on alpha.
    """
    epsilon, output_scale, speed = quadratic_setting(task)
    values = np.asarray(alignment)[:, 0]
    if output_scale > _COMMON * epsilon:
        values = values - values.mean()
    start, final = float(np.sqrt(np.mean(values**2))), 1 / np.sqrt(output_scale * epsilon)
    variance = float(np.mean(np.diagonal(np.asarray(overlap))))
    if not start > 0 or output_scale * epsilon * variance**1.5 > _EARLY * start:
        raise ValueError(
            f"eq. 20 holds for initial alignments above {output_scale * epsilon * variance**1.5 / _EARLY:.3g} here, "
            f"not {start:.3g}: from there the isotropic part of the weights saturates first; integrate the online limit"
        )
    if start >= final:
        raise ValueError(f"the initial alignment {start:.3g} is not below that of zero loss, {final:.3g}")
    return float(np.log(final / start) / (1.5 * epsilon * speed))


def recovery(task: Task) -> Float[np.ndarray, "neuron 1"]:
    """Alignments a_k of weights ``w_k = a_k beta`` of zero loss: signs in turn, sizes near 1/sqrt(alpha eps).

    ``sum_k a_k = 0`` and ``sum_k a_k^2 = N / (alpha eps)``; with N = 2 there is no other but its mirror image. With an
    odd number one neuron stays at zero.
    """
    epsilon, output_scale, _ = quadratic_setting(task)
    neurons = task.readout.size
    if neurons < 2:
        raise ValueError("one neuron cannot reach zero loss: its linear part has nothing to cancel it; use two or more")
    pairs = neurons // 2
    signs = np.concatenate([np.tile([1.0, -1.0], pairs), np.zeros(neurons - 2 * pairs)])
    return signs[:, None] * np.sqrt(neurons / (2 * pairs * output_scale * epsilon))
