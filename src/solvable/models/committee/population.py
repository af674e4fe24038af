"""Test loss and misclassification rate on fresh inputs, for every loss and law of the labels.

Fresh inputs have index fields ``h*`` of their own law and student fields ``u = A h* + chol(C - A A^T) z``. The squared
error of a noiseless teacher splits into pairs of fields and is integrated by quadrature
(:mod:`solvable.models.committee.gaussian`). Anything else is an average over all N + K normals at once, by two
randomisations of a Sobol sequence whose difference is the error. Labels are those without noise and flips; where labels
are drawn with a probability, both are counted with their weights, and clusters likewise.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.committee.gaussian import test_loss
from solvable.models.committee.problem import Problem
from solvable.models.committee.protocol import AnyArray
from solvable.numerics.sobol import sobol_normals

_POINTS = 2**15
# Added to variances, in units of the overlap, so that weights inside the span of the index vectors have a root.
_FLOOR = 1e-14


class PopulationMeasures(NamedTuple):
    """Test loss and, where labels are classes, misclassification rate."""

    test_loss: Array
    test_error_rate: Array | None


def measure_test(
    problem: Problem,
    alignment: Float[Array, "neuron index"],
    overlap: Float[Array, "neuron neuron"],
    points: Float[Array, "normal point"] | None = None,
) -> PopulationMeasures:
    """Averages over fresh inputs, where they are not by quadrature over ``points``."""
    if problem.splits_into_pairs:
        return PopulationMeasures(test_loss(problem, alignment, overlap), None)
    points = jnp.asarray(_points(problem.indices + problem.neurons, 0)) if points is None else points
    rest = overlap - alignment @ alignment.T + _FLOOR * jnp.diag(jnp.diagonal(overlap) + 1e-16)
    root = _semidefinite_root(rest)
    along, across = points[: problem.indices], points[problem.indices :]

    def of_cluster(cluster: Array, mean: Array) -> PopulationMeasures:
        index_fields = along + mean[:, None]
        return _conditional(problem, alignment @ index_fields + root @ across, index_fields, cluster)

    if problem.clusters is None:
        return of_cluster(jnp.zeros((), int), jnp.zeros(problem.indices))
    clusters = problem.clusters
    found = jax.vmap(of_cluster)(jnp.arange(len(clusters.probabilities)), clusters.means)
    return jax.tree.map(lambda values: clusters.probabilities @ values, found)


def _conditional(problem: Problem, fields: Array, index_fields: Array, cluster: Array) -> PopulationMeasures:
    """Averages over the points, given the cluster."""
    labelling, samples = problem.labelling, fields.shape[1]
    classes = jnp.full(samples, cluster)

    def of_labels(uniform: Array | None) -> PopulationMeasures:
        labels = problem.clean_labels(index_fields, classes, uniform)
        losses, mistakes = problem.judge(fields, index_fields, labels)
        return PopulationMeasures(losses, mistakes)

    if labelling.kind != "sigmoid":
        return jax.tree.map(jnp.mean, of_labels(None))
    # Uniform numbers of 0 and 1 give the labels +1 and -1.
    positive = jax.nn.sigmoid(problem.target(index_fields))
    found = of_labels(jnp.zeros(samples)), of_labels(jnp.ones(samples))
    return jax.tree.map(lambda plus, minus: jnp.mean(positive * plus + (1 - positive) * minus), *found)


class Averages(NamedTuple):
    """Averages over fresh samples: ``<g z^T>`` and ``<g g^T>``."""

    drift: Float[Array, "neuron latent"]
    correlation: Float[Array, "neuron neuron"]


def sampled_averages(problem: Problem, latents: Float[Array, "neuron latent"]) -> Averages:
    """What moves weights ``U`` on fresh samples, for any task, with noise and flips in the labels.

    ``z`` are the index fields, shifted by their cluster, and a normal for each neuron.
    """
    draws = list(problem.labelling.draws) + (["noise"] if problem.labelling.fresh else [])
    dimension, indices = latents.shape[1], problem.indices
    points = jnp.asarray(_points(dimension + len(draws) + 1, 0))
    uniforms = dict(zip(draws, jax.scipy.special.ndtr(points[dimension:-1]), strict=True))
    normals, classes = points[:dimension], None
    if problem.clusters is not None:
        classes = problem.clusters.choose(jax.scipy.special.ndtr(points[-1]))
        normals = normals.at[:indices].add(problem.clusters.means[classes].T)
    clean = problem.clean_labels(normals[:indices], classes, uniforms.get("sigmoid"))
    labels = problem.corrupted(clean, uniforms.get("flips"), uniforms.get("noise"))
    signals = problem.respond(latents @ normals, normals[:indices], labels).signals
    count = points.shape[1]
    return Averages(signals @ normals.T / count, signals @ signals.T / count)


def _semidefinite_root(matrix: Float[Array, "neuron neuron"]) -> Float[Array, "neuron neuron"]:
    """A square root; rounding below zero counts as zero."""
    values, vectors = jnp.linalg.eigh(matrix)
    return vectors * jnp.sqrt(jnp.maximum(values, 0.0))


@functools.lru_cache(maxsize=16)
def _points(dimension: int, randomisation: int) -> Float[np.ndarray, "normal point"]:
    return sobol_normals(_POINTS, dimension, (randomisation, 7)).T


def measure_tests(
    problem: Problem,
    alignment: Float[AnyArray, "time neuron index"],
    overlap: Float[AnyArray, "time neuron neuron"],
    readout: AnyArray | None = None,
    randomisation: int = 0,
) -> PopulationMeasures:
    """:func:`measure_test` at each time; ``readout`` is that of each time where it is trained.

    ``randomisation`` chooses the points, which are not part of the program: the compiler would compute with them.
    """
    points = None if problem.splits_into_pairs else _points(problem.indices + problem.neurons, randomisation)
    return _measure_tests(problem, (alignment, overlap, readout), points)


@jax.jit
def _measure_tests(problem: Problem, states: Any, points: Array | None) -> PopulationMeasures:
    return jax.lax.map(lambda at: measure_test(problem.with_readout(at[2]), at[0], at[1], points), states)


def integration_error(problem: Problem, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Errors of test loss and misclassification rate from the finite number of points; none by quadrature."""
    if problem.splits_into_pairs:
        return {}
    state = values["alignment"], values["overlap"], values.get("readout")
    one, other = (measure_tests(problem, *state, randomisation=place) for place in (0, 1))
    # A negligible amount keeps the error from vanishing where both happen to agree.
    found = jax.tree.map(lambda a, b: np.abs(np.asarray(a - b)) + 1e-6, one, other)
    return {name: error for name, error in found._asdict().items() if error is not None}
