"""The dataset of a prediction: curves, quadrature nodes, two-time functions and warnings of instabilities."""

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import xarray as xr

from solvable.checks import is_traced
from solvable.dataset import Stopwatch, make_dataset, provenance
from solvable.models.feature_scaling.meanings import MEANINGS
from solvable.models.feature_scaling.theory import Curves, batch_size, curves, largest_rate
from solvable.numerics.descent import check_stable
from solvable.training import SGD, GradientDescent, Training

if TYPE_CHECKING:
    from solvable.models.feature_scaling.model import FeatureScaling

# Fractions of the edge of stability, and of the noise that feeds itself, from which there is a warning.
_NEAR_EDGE, _QUIET = 0.95, 0.9


def predicted(
    model: "FeatureScaling", times: np.ndarray, training: Training, options: Mapping[str, Any], watch: Stopwatch
) -> xr.Dataset:
    """Solve, warn of instabilities, and label what was found."""
    traced = is_traced(model, training)
    if not traced:
        strongest = 1.0 if model.spectrum is None else float(np.max(model.spectrum))
        check_stable(training, 2 / strongest, times[-1])
    found = curves(model, times, training, options)
    system = {"modes": None if model.mode_count == math.inf else int(model.mode_count), "network": "projected"}
    attributes = provenance(model, "theory", found.solver, watch, found.error, training=training, system=system)
    if not traced:
        attributes |= _guards(model, found, training, times)
    coordinates = {"time": times, "node": np.arange(1, found.modes.ranks.shape[0] + 1)}
    if found.two_time is not None:
        coordinates["earlier_time"] = times
    return make_dataset(_variables(found, times, traced), coordinates, attributes, MEANINGS, training=training)


def _guards(model: "FeatureScaling", found: Curves, training: Training, times: np.ndarray) -> dict[str, float]:
    """How near training is to its instabilities, with a warning where it is too near for theory to be trusted."""
    if not isinstance(training, GradientDescent):
        return {}
    growth, rate = float(np.max(found.growth)), largest_rate(training, times)
    strongest, trace = float(np.max(found.modes.eigenvalues)), float(found.modes.trace)
    momentum = float(training.momentum)
    # Up to which product of learning rate and curvature steps are stable, as in numerics.descent.check_stable.
    edge = 2 * (1 + momentum) / (1 + 2 * momentum if training.nesterov else 1)
    guards = {}
    if found.solver["solver"] in ("recursion", "march"):
        guards["edge_of_stability"] = rate * growth * strongest / edge
        if guards["edge_of_stability"] > _NEAR_EDGE:
            warnings.warn(
                f"the kernel grew by {growth:.3g}, so that learning_rate * growth * lambda_1 = "
                f"{rate * growth * strongest:.3g} is near {edge:.3g}, the edge of stability: losses stop falling "
                "as a power law; lower learning_rate, or use GradientFlow",
                stacklevel=6,
            )
    if isinstance(training, SGD):
        guards["noise_gain"] = rate / (1 - momentum) * growth * trace / (2 * batch_size(model, training))
        if guards["noise_gain"] > _QUIET:
            warnings.warn(
                f"learning_rate * growth * Tr Lambda / (2 batch_size) = {guards['noise_gain']:.3g} is near 1, "
                "where the noise of the batches feeds itself: lower learning_rate or raise batch_size",
                stacklevel=6,
            )
    return guards


def _variables(found: Curves, times: np.ndarray, traced: bool) -> dict[str, Any]:
    """What goes into the dataset of a prediction."""
    counts = found.modes.counts if traced else np.asarray(found.modes.counts)
    # Tail nodes stand for no number of modes: theirs is what all together add.
    weight = jax.numpy.where(counts > 0, counts, 1.0)
    variables: dict[str, Any] = {
        "test_loss": (("time",), found.test_loss),
        "kernel_growth": (("time",), found.growth),
        "mode_loss": (("time", "node"), found.node_loss / weight),
        "mode_weight": (("node",), weight),
        "mode_rank": (("node",), found.modes.ranks),
        "mode_eigenvalue": (("node",), found.modes.eigenvalues),
    }
    if found.train_loss is not None:
        variables["train_loss"] = (("time",), found.train_loss)
    solution = found.two_time
    if solution is None:
        return variables
    places = np.ix_(times.astype(int), times.astype(int))
    matrices = {
        "C_2": solution.correlation_2,
        "C_3": solution.correlation_3,
        "C_w": solution.weight_correlation,
        "R_3": solution.response_3,
        "R_24": solution.response_24,
    }
    if found.train_loss is not None:
        # With new samples only its diagonal, the loss, is needed and computed.
        matrices["C_0"] = solution.correlation_0
    return variables | {name: (("time", "earlier_time"), values[places]) for name, values in matrices.items()}
