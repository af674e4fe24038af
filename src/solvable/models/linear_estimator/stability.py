"""Up to which learning rate training is stable, and where the theory ends."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.checks import check_count, is_traced
from solvable.models.linear_estimator.spectra import MarchenkoPastur, upper_edge
from solvable.models.linear_estimator.theory import AnyTraining
from solvable.training import SGD, GradientFlow

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator


def batch_ratio_of(model: "LinearEstimator", training: AnyTraining, dimension: int | None) -> Any:
    """Input dimension over batch size; 0 for full batches."""
    if dimension is not None:
        check_count("dimension", dimension)
    if not isinstance(training, SGD):
        return 0.0
    if model.width is not None:
        raise ValueError("there is no theory for mini-batches with a hidden layer: simulate it")
    if dimension is not None:
        return dimension / training.samples_per_batch(max(1, round(dimension / model.aspect_ratio)))
    if training.batch_fraction is None:
        raise ValueError(
            "SGD with a batch_size needs dimension, because the batch noise depends on dimension / batch_size: "
            "give dimension, or a batch_fraction in place of the batch_size"
        )
    return model.aspect_ratio / training.batch_fraction


def stable_rate(model: "LinearEstimator", training: AnyTraining, batch_ratio: float = 0.0) -> Any:
    """The learning rate from which training diverges; infinite for gradient flow.

    With a hidden layer the curvature is that of the start, with the largest singular values of both layers.
    """
    if isinstance(training, GradientFlow):
        return math.inf
    if model.width is None:
        return _one_layer_rate(model, training, batch_ratio)
    strength = (1 + (model.outputs / model.width) ** 0.5) ** 2 / (2 * model.outputs)
    curvature = strength * upper_edge(model.aspect_ratio) + training.weight_decay / 2
    return model.outputs / curvature


def _one_layer_rate(model: "LinearEstimator", training: AnyTraining, batch_ratio: float) -> Any:
    """The learning rate at which gradient descent stops converging.

    Full batches are stable while ``kappa (nu_max + g) < 2``. On small batches the noise feeds itself: the excess that
    ``theory.minibatch_losses`` follows grows when
    ``kappa^2 (d_in / batch_size) E[nu^2 / (1 - (1 - kappa (nu+g))^2)] = 1``.
    """
    shift = training.weight_decay / 2
    largest = 2 / (upper_edge(model.aspect_ratio) + shift)
    if batch_ratio > 0:
        from scipy.optimize import brentq

        spectrum = MarchenkoPastur(model.aspect_ratio, xp=np)

        def excess(kappa: float) -> float:
            lost = kappa * (spectrum.nodes + shift)
            return float(kappa**2 * batch_ratio * spectrum.weighted_average(spectrum.nodes / (lost * (2 - lost)))) - 1

        low, high = largest * 1e-12, largest * (1 - 1e-9)
        if excess(high) > 0:
            largest = brentq(excess, low, high) if excess(low) < 0 else 0.0
    return largest * model.outputs / 2


def check_width(model: "LinearEstimator") -> None:
    """Refuse hidden layers that are narrower than the theory allows."""
    if model.width is not None and model.width < model.outputs:
        raise ValueError(
            f"theory needs width >= outputs, not width = {model.width}, outputs = {model.outputs}: simulate it"
        )


def check_smooth(model: "LinearEstimator", training: AnyTraining) -> None:
    """Refuse learning rates at which a mode overshoots and changes sign at each step.

    There is then no smooth curve between the steps, so that times of crossings and late-time forms have no meaning.
    """
    if isinstance(training, GradientFlow) or is_traced(model, training):
        return
    limit = stable_rate(model, training) / 2
    if training.learning_rate >= limit:
        raise ValueError(
            f"learning_rate = {training.learning_rate:g} is not below {limit:.6g}, from which on modes overshoot and "
            "the losses are not smooth curves: lower it, or use predict"
        )
