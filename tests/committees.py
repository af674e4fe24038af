"""Problems of the committee for tests that call its solvers directly."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from solvable import Committee, GradientDescent, activations, teachers
from solvable.models.committee.problem import Problem

ALIGNMENT = np.array([[0.3], [-0.1]])
OVERLAP = np.array([[1.0, 0.2], [0.2, 1.0]])
SIGNS = np.array([0.7, -0.7])


def problem(
    activation: Any,
    teacher: Any,
    readout: Any,
    gradient_readout: Any = None,
    *,
    alignment: Any = None,
    overlap: Any = None,
    indices: int = 1,
    ratio: float = np.inf,
    training: Any = None,
) -> Problem:
    """A problem; without a start, orthonormal weights that know nothing of the target."""
    readout = jnp.asarray(readout, float)
    neurons = readout.size
    return Problem(
        activation,
        teacher,
        readout,
        jnp.ones(neurons) if gradient_readout is None else jnp.asarray(gradient_readout, float),
        ratio,
        jnp.asarray(np.eye(neurons) if overlap is None else overlap, float),
        jnp.asarray(np.zeros((neurons, indices)) if alignment is None else alignment, float),
        GradientDescent(0.1) if training is None else training,
    )


def paper_problem(scale: float = 1.0, epsilon: float = 0.5, neurons: int = 2, **options: Any) -> Problem:
    """The paper's activation and target with ``c = alpha / N``, ``b = 1``; two neurons begin as in its figures."""
    start = {"alignment": ALIGNMENT, "overlap": OVERLAP} if neurons == 2 else {}
    readout = np.full(neurons, scale / neurons)
    return problem(activations.quadratic(epsilon), teachers.square(), readout, **{**start, **options})


def classifier(**changes: Any) -> Committee:
    """Two erf neurons that learn the sign of a field with the logistic loss, by plain gradient descent (b = c)."""
    settings: dict[str, Any] = {
        "samples_per_dimension": 2.0,
        "activation": activations.erf,
        "teacher": teachers.linear(),
        "labels": "sign",
        "loss": "logistic",
        "initial_overlap": OVERLAP,
        "initial_alignment": ALIGNMENT,
        "readout": 2 * SIGNS,
        "gradient_readout": 2 * SIGNS,
    }
    return Committee(**{**settings, **changes})
