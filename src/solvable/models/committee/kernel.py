"""The tangent kernel of the committee, and how well it is aligned with the target: how much a lazy network would see.

    K(x, x') = sum_i c_i^2 phi'(h_i) phi'(h'_i) x . x'

is the kernel of ``f`` (delayed-features prints ``(N / alpha^2) K``: see docs/errata). Training sees ``b_i c_i`` in
place of ``c_i^2``. The alignment of that kernel with the targets ``y`` of P samples is

    sqrt(P) y^T K y / (|K|_F |y|^2),

its Rayleigh quotient at the target over the root mean square of its eigenvalues. The factor sqrt(P) makes it
converge as the dimension grows.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from solvable.models.committee.closure import LatentClosure
from solvable.models.committee.problem import Problem
from solvable.models.committee.task import Task


def tangent_kernel(
    task: Task,
    fields: Float[Array, "neuron sample"],
    other_fields: Float[Array, "neuron sample2"],
    products: Float[Array, "sample sample2"],
) -> Float[Array, "sample sample2"]:
    """``K`` between two sets of samples, from their fields and the products ``x . x'`` of their inputs."""
    weighted = task.readout[:, None] ** 2 * task.slopes(fields)
    return weighted.T @ task.slopes(other_fields) * products


def sample_alignment(closure: LatentClosure, problem: Problem, weights: Array) -> Float[Array, ""]:
    """The alignment in the limit of many dimensions.

    There ``x . x`` is one and ``(x . x')^2`` is 1/D, so that ``|K|_F^2 / P = <K(x,x)^2> + gamma <K(x,x')^2>``, and
    ``y^T K y / P = gamma sum_i c_i^2 |(1/gamma) sum_mu y phi'_i x|^2 / D``.
    """
    fields, index = closure.fields(weights)
    target, slopes = _target_and_slopes(problem.task, fields, index)
    pulls = closure.squared_pull(slopes * target)
    return _assemble(
        problem.task.readout * problem.task.gradient_readout, pulls, slopes, target, problem.samples_per_dimension
    )


@jax.jit
def _target_and_slopes(task: Task, fields: Array, index: Array) -> tuple[Array, Array]:
    return task.target(index), task.slopes(fields)


@jax.jit
def _assemble(power: Array, pulls: Array, slopes: Array, target: Array, ratio: float) -> Array:
    own = jnp.mean((power @ slopes**2) ** 2)
    pairs = jnp.sum(power[:, None] * power * (slopes @ slopes.T / target.size) ** 2)
    quotient = ratio * (power @ pulls) / jnp.mean(target**2)
    return quotient / jnp.sqrt(own + ratio * pairs)
