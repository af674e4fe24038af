"""Finite input dimension: the first correction to the mean loss, and the spread of the loss over datasets.

Given its eigenvalues, a dataset has the loss ``L = sum_i f(nu_i) c_i / d_in``, where ``c_i`` is the mean of ``outputs``
squares of independent standard normal numbers: the overlaps of student, teacher and noise with eigenvector ``i``. So

    E[L]   = int f rho + mu(f) / d_in
    Var[L] = (2 / outputs) (int f^2 rho + mu(f^2) / d_in) / d_in + v(f) / d_in^2

up to higher orders, where ``mu`` and ``v`` are mean and variance of a linear statistic ``sum_i f(nu_i)`` of the
eigenvalues of real Gaussian data about its limit (Bai and Silverstein, 2004). In the angle
``nu = 1 + lambda + 2 sqrt(lambda) cos(theta)``, with ``f = a_0 / 2 + sum_k a_k cos(k theta)``, they are

    mu(f) = (f(nu_-) + f(nu_+)) / 4 - (1 / 2 pi) int_0^pi f dtheta,     v(f) = (1 / 2) sum_k k a_k^2.

Both corrections are the beginning of a series in ``1 / d_in``, which needs many eigenvalues that matter. At late times
and an aspect ratio near 1 only those at the lower edge do; ``relative_correction`` says how large the correction is.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.fft import dct

from solvable.models.linear_estimator.theory import AnyTraining, rate
from solvable.training import GradientFlow

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator

# Angles of the quadrature: some, and more where only modes within an angle of 1 / sqrt(time) of the edge are left.
_ANGLES, _ANGLES_PER_ROOT, _MOST_ANGLES = 256, 16, 2**18


class Correction(NamedTuple):
    """What a finite dimension does to a loss: ``mean`` is added to it, ``variance`` is that over datasets."""

    mean: Float[np.ndarray, "time"]
    variance: Float[np.ndarray, "time"]


def corrections(
    model: "LinearEstimator", training: AnyTraining, times: Float[np.ndarray, "time"], dimension: int
) -> tuple[Correction, Correction]:
    """Corrections of training and test loss. The aspect ratio of the model is that of the finite system."""
    found = np.array([_at(model, training, float(time), dimension) for time in times])
    return Correction(found[:, 0], found[:, 1]), Correction(found[:, 2], found[:, 3])


def _at(
    model: "LinearEstimator", training: AnyTraining, time: float, dimension: int
) -> tuple[float, float, float, float]:
    ratio = model.aspect_ratio
    count = _ANGLES + int(_ANGLES_PER_ROOT * np.sqrt(rate(model, training) * time * np.sqrt(ratio)))
    count = min(count, _MOST_ANGLES)
    angles = np.pi * (np.arange(count) + 0.5) / count
    inner = (1 - np.sqrt(ratio)) ** 2 + 4 * np.sqrt(ratio) * np.cos(angles / 2) ** 2
    edges = np.array([(1 - np.sqrt(ratio)) ** 2, (1 + np.sqrt(ratio)) ** 2])
    train, test = mode_losses(model, training, inner, time)
    train_edges, test_edges = mode_losses(model, training, edges, time)
    # The Marchenko-Pastur density in the angle; modes without data, of eigenvalue zero, have the rest of the weight.
    density = 2 * np.sin(angles) ** 2 / (count * inner)
    empty = max(0.0, 1 - 1 / ratio)
    # The training loss does not know them.
    test_null = float(mode_losses(model, training, np.zeros(1), time)[1][0])
    # Noise outside of the span of the data: N - d_in squares, which training cannot reach.
    outside = model.label_noise**4 * ratio**2 * max(0.0, 1 / ratio - 1)
    values = []
    for inside, at_edges, null, constant in (
        (train, train_edges, 0.0, outside),
        (test, test_edges, test_null, 0.0),
    ):
        squares = float(np.sum(density * inside**2)) + empty * null**2 + constant
        drawn = 2 / model.outputs * (squares + mean_shift(inside**2, at_edges**2) / dimension) / dimension
        values += [mean_shift(inside, at_edges) / dimension, max(drawn, 0.0) + variance(inside) / dimension**2]
    return values[0], values[1], values[2], values[3]


def mode_losses(
    model: "LinearEstimator", training: AnyTraining, eigenvalues: Float[np.ndarray, "node"], time: float
) -> tuple[Float[np.ndarray, "node"], Float[np.ndarray, "node"]]:
    """What each mode adds to training and test loss, ``f(nu)`` in the formulas of :mod:`.theory`."""
    kappa, shift = rate(model, training), training.weight_decay / 2
    shifted = eigenvalues + shift
    moves = kappa * shifted
    if isinstance(training, GradientFlow):
        left, learned = np.exp(-moves * time), -np.expm1(-moves * time)
    else:
        left = (1 - moves) ** time
        # One minus what is left, without cancellation where that is nearly one.
        learned = np.where(moves < 0.5, -np.expm1(time * np.log1p(-np.minimum(moves, 0.5))), 1 - left)
    with np.errstate(divide="ignore", invalid="ignore"):
        fitted = np.where(shifted > 0, learned / shifted, kappa * time)
    teacher_left = left + shift * fitted
    signal = (model.initial_scale**2 * left**2 + teacher_left**2) / (2 * model.outputs)
    noise = model.label_noise**2 * model.aspect_ratio
    return eigenvalues * signal + noise * teacher_left**2, signal + noise * eigenvalues * fitted**2


def mean_shift(inside: Float[np.ndarray, "node"], edges: Float[np.ndarray, "2"]) -> float:
    """``mu(f)`` from the values of ``f`` at the middles of equal intervals of the angle and at both edges."""
    return float(edges.sum() / 4 - inside.mean() / 2)


def variance(inside: Float[np.ndarray, "node"]) -> float:
    """``v(f)`` from the values of ``f`` at the middles of equal intervals of the angle."""
    harmonics = dct(inside, type=2) / inside.size
    return float(np.sum(np.arange(inside.size) * harmonics**2) / 2)
