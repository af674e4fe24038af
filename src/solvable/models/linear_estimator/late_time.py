"""Asymptotic forms at late times, each with the range in which it is good to five percent.

Without weight decay and label noise, per output and with ``s = 4 eta t / d_out``, ``a = (1 - sqrt(lambda))^2``, the
losses of gradient flow are

    L_tr  ~ exp(-a s) / (2 sqrt(pi) lambda^(3/4) s^(3/2))                                    (eq. 22)
    L_gen ~ (1 - 1/lambda)^+ + exp(-a s) [1/sqrt(pi s) - sqrt(a) erfcx(sqrt(a s))] / lambda^(3/4)   (eq. 23)
    L_gen ~ (1 - 1/lambda)^+ + L_tr / a                                                      (eq. 11)

The first two have relative error 3 / (8 x), x = 2 s sqrt(lambda); the last one needs also ``a s >> 3/2``.

After gradient-descent steps what is left of a mode near the edge is ``(1 - kappa nu)^t = (1 - kappa a)^t exp(-kappa
(nu - a) t / (1 - kappa a))`` to leading order, with ``kappa = 2 eta / d_out``. The same forms hold, with ``(1 - kappa
a)^(2t)`` for ``exp(-a s)`` and ``s / (1 - kappa a)`` for every other ``s``. The next order adds ``15 / (16 t)`` to the
relative error.

With weight decay the losses saturate, those of flow and descent at the same values. For ``gamma / 2 << a`` (eq. 16,
corrected by a factor 2):

    L_tr -> gamma^2 / (8 (1 - lambda)),     L_gen -> gamma^2 / (8 (1 - lambda)^3)              (lambda < 1)
    L_tr -> gamma^2 / (8 lambda (lambda - 1)),  L_gen -> (1 - 1/lambda) / 2                   (lambda > 1)
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.special import erfcx

from solvable.models.linear_estimator.theory import AnyTraining, rate
from solvable.training import GradientFlow

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator

Curve = Float[np.ndarray, "time"]
_TOLERANCE = 0.05


def decaying_forms(model: "LinearEstimator", training: AnyTraining, times: Curve) -> dict[str, Curve]:
    """Eqs. 22, 23 and 11, and where each holds. The range of L_tr is that of eq. 22."""
    ratio, scale = model.aspect_ratio, (1 + model.initial_scale**2) / (2 * model.outputs)
    root = np.sqrt(ratio)
    edge = ((1 - ratio) / (1 + root)) ** 2
    kappa = rate(model, training)
    times = np.where(times > 0, times, np.nan)
    s = 2 * kappa * times
    if isinstance(training, GradientFlow):
        edge_left, step_error = np.exp(-edge * s), np.zeros_like(s)
    else:
        edge_left, step_error = np.exp(2 * times * np.log1p(-kappa * edge)), 15 / (16 * times)
        s = s / (1 - kappa * edge)
    envelope = edge_left / ratio**0.75
    train = envelope / (2 * np.sqrt(np.pi) * s**1.5)
    decaying = envelope * _tail(edge, s)
    plateau = max(0.0, 1 - 1 / ratio)
    early_error = 3 / (8 * 2 * s * root) + step_error
    holds = early_error < _TOLERANCE
    leading = np.where(edge > 0, train / (edge if edge > 0 else 1.0), np.nan)
    return {
        "train_loss": scale * train,
        "test_loss": scale * (plateau + decaying),
        "test_loss_leading": scale * (plateau + leading),
        "train_loss_holds": holds,
        "test_loss_holds": holds,
        "test_loss_leading_holds": holds & (1.5 / (edge * s + 1e-300) + early_error < _TOLERANCE),
    }


def _tail(edge: float, s: Curve) -> Curve:
    """``1/sqrt(pi s) - sqrt(edge) erfcx(sqrt(edge s))`` without cancellation at large ``edge * s``."""
    z = edge * s
    series = (1 - 1.5 / np.maximum(z, 1.0) + 3.75 / np.maximum(z, 1.0) ** 2) / (2 * np.maximum(z, 1.0))
    direct = 1 - np.sqrt(np.pi * z) * erfcx(np.sqrt(z))
    return np.where(z > 1e4, series, direct) / np.sqrt(np.pi * s)


def saturated_forms(model: "LinearEstimator", training: AnyTraining, times: Curve) -> dict[str, Curve]:
    """The corrected eq. 16: where the losses end at small weight decay, and from when on.

    Modes settle in gradient descent no later than in gradient flow, whose range is given for both.
    """
    ratio, decay = model.aspect_ratio, training.weight_decay
    edge = ((1 - ratio) / (1 + np.sqrt(ratio))) ** 2
    if ratio < 1:
        train, test = decay**2 / (8 * (1 - ratio)), decay**2 / (8 * (1 - ratio) ** 3)
    elif ratio > 1:
        train, test = decay**2 / (8 * ratio * (ratio - 1)), (1 - 1 / ratio) / 2
    else:
        train = test = np.nan
    s = 2 * rate(model, training) * times
    # The next order is 3 gamma E[nu^-3] / E[nu^-2] / 2 < 3 gamma / (2 edge).
    small_decay = edge > 0 and 1.5 * decay / edge < _TOLERANCE
    # A mode has settled when e nu << gamma / 2.
    settled = small_decay & (2 * np.exp(-s / 2 * edge) * (1 + np.sqrt(ratio)) ** 2 / (decay / 2) < _TOLERANCE)
    null_settled = settled & (model.initial_scale**2 * np.exp(-s * decay / 2) < _TOLERANCE)
    fill = np.ones_like(times) / model.outputs
    return {
        "train_loss": train * fill,
        "test_loss": test * fill,
        "train_loss_holds": settled,
        "test_loss_holds": null_settled if ratio > 1 else settled,
    }
