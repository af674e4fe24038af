"""Which neurons may be exchanged, and the rotation that makes those of quadratic networks exchangeable.

Neurons that begin alike, with equal alignments, readouts and overlaps, may be exchanged where training treats all
neurons alike. Quadratic networks have this symmetry from every start, because they may be rotated.

With ``phi(h) = a + b h + c h^2`` and equal readouts, the sum over neurons of ``phi(h_i)`` depends on ``sum_i h_i`` and
``sum_i h_i^2``, which stay the same under every rotation of the neurons among each other that fixes the vector
(1, ..., 1). Such a rotation of the weights therefore commutes with every training whose step is the same for all
neurons: the rotated network has the same losses at all times, in finite systems and in the limit of theory, and its
order parameters are those of the network asked for, rotated. Alignments that all differ can so be carried by a few
neurons, one for each index vector, with all others alike: then :mod:`solvable.models.committee.exchangeable` applies,
exactly.
"""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from solvable.activations import Polynomial
from solvable.models.committee.problem import Problem
from solvable.training import GradientDescent, GradientFlow

# Starts are compared with this relative accuracy.
_EQUAL = 1e-12
# Alignments are independent if what is new in them is longer than this, relative to the longest.
_INDEPENDENT = 1e-12


class Symmetry(NamedTuple):
    """A problem with exchangeable neurons, their groups, and the rotation that leads to its neurons; None for none."""

    problem: Problem
    groups: list[Int[np.ndarray, "_"]]
    rotation: Float[np.ndarray, "neuron neuron"] | None


def symmetry_of(problem: Problem) -> Symmetry | None:
    """The form of a problem with the fewest sectors of exchangeable neurons; None where single neurons are as good.

    Parameters
    ----------
    problem
        Network, target, start and training.
    """
    found = []
    groups = exchangeable_groups(problem)
    if groups is not None:
        found.append(Symmetry(problem, groups, None))
    if _is_quadratic(problem):
        rotation = _towards_few(problem)
        rotated = _rotated(problem, rotation)
        groups = exchangeable_groups(rotated)
        if groups is not None:
            found.append(Symmetry(rotated, groups, rotation))
    return min(found, key=lambda symmetry: count_sectors(symmetry.groups), default=None)


def exchangeable_groups(problem: Problem) -> list[Int[np.ndarray, "_"]] | None:
    """Groups of neurons that may be exchanged, in the order of their first members; None where that is not worth it.

    Parameters
    ----------
    problem
        Network, target, start and training. Trained readouts, noise on the weights and algorithms of the user's own
        treat neurons one by one.
    """
    training: Any = problem.training
    one_by_one = getattr(training, "readout_learning_rate", None) is not None or bool(
        getattr(training, "temperature", False)
    )
    alike = isinstance(training, GradientFlow | GradientDescent) and not one_by_one
    if not alike or np.ndim(problem.readout) != 1:
        return None
    groups = _groups(problem)
    return groups if count_sectors(groups) < problem.neurons else None


def count_sectors(groups: list[Int[np.ndarray, "_"]]) -> int:
    """Collective fields, and deviations of the groups that have any.

    Parameters
    ----------
    groups
        Neurons that may be exchanged.
    """
    return len(groups) + sum(len(group) > 1 for group in groups)


def _groups(problem: Problem) -> list[Int[np.ndarray, "_"]]:
    overlap = np.asarray(problem.initial_overlap)
    properties = np.column_stack(
        [problem.initial_alignment, problem.readout, problem.gradient_readout, np.diagonal(overlap)]
    )
    scale = max(float(np.abs(overlap).max()), 1e-300)
    groups: list[list[int]] = []
    for neuron in range(problem.neurons):
        for group in groups:
            first = group[0]
            equal = np.allclose(properties[neuron], properties[first], rtol=_EQUAL, atol=_EQUAL)
            # Exchanging the two leaves the overlaps with all others as they are.
            others = np.delete(overlap[neuron] - overlap[first], [neuron, first])
            if equal and np.abs(others).max(initial=0.0) <= _EQUAL * scale:
                group.append(neuron)
                break
        else:
            groups.append([neuron])
    return [np.array(group) for group in groups]


def _is_quadratic(problem: Problem) -> bool:
    function = problem.activation
    return isinstance(function, Polynomial) and not any(function.coefficients[3:]) and np.ndim(problem.readout) == 1


def _rotated(problem: Problem, rotation: Float[np.ndarray, "neuron neuron"]) -> Problem:
    overlap, alignment = np.asarray(problem.initial_overlap, float), np.asarray(problem.initial_alignment, float)
    return dataclasses.replace(
        problem,
        initial_overlap=jnp.asarray(rotation @ overlap @ rotation.T),
        initial_alignment=jnp.asarray(rotation @ alignment),
    )


def _towards_few(problem: Problem) -> Float[np.ndarray, "neuron neuron"]:
    """Rotate the neurons of each readout so that as few of them as possible differ in their alignments."""
    alignment = np.asarray(problem.initial_alignment, float)
    readouts = np.column_stack([np.asarray(problem.readout), np.asarray(problem.gradient_readout)])
    kinds = np.ravel(np.unique(readouts, axis=0, return_inverse=True)[1])
    rotation = np.eye(len(alignment))
    for kind in range(kinds.max() + 1):
        members = np.flatnonzero(kinds == kind)
        rotation[np.ix_(members, members)] = _onto_first(alignment[members])
    return rotation


def _onto_first(alignment: Float[np.ndarray, "neuron index"]) -> Float[np.ndarray, "neuron neuron"]:
    """A rotation that fixes (1, ..., 1), after which all but the first few neurons have the same alignment."""
    size = len(alignment)
    sizes, left = np.linalg.svd(alignment - alignment.mean(axis=0))[1::-1]
    rank = int((sizes > _INDEPENDENT * max(np.abs(alignment).max(), 1e-300)).sum())
    if size <= rank + 1:
        return np.eye(size)
    ones = np.ones((size, 1))
    return _frame(np.hstack([ones, np.eye(size)[:, :rank]])) @ _frame(np.hstack([ones, left[:, :rank]])).T


def _frame(columns: Float[np.ndarray, "neuron column"]) -> Float[np.ndarray, "neuron neuron"]:
    """An orthonormal basis that begins with the columns made orthonormal, each along what is new in it."""
    basis, triangle = np.linalg.qr(columns, mode="complete")
    count = columns.shape[1]
    basis[:, :count] *= np.where(np.diagonal(triangle) < 0, -1.0, 1.0)
    return basis
