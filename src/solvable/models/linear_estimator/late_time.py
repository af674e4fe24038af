"""Asymptotic forms at late times, each with the range in which it is good to five percent.

Without weight decay and label noise, per output and with ``s = 4 eta t / d_out``, ``a = (1 - sqrt(lambda))^2``:

    L_tr  ~ exp(-a s) / (2 sqrt(pi) lambda^(3/4) s^(3/2))                                    (eq. 22)
    L_gen ~ (1 - 1/lambda)^+ + exp(-a s) [1/sqrt(pi s) - sqrt(a) erfcx(sqrt(a s))] / lambda^(3/4)   (eq. 23)
    L_gen ~ (1 - 1/lambda)^+ + L_tr / a                                                      (eq. 11)

The first two have relative error 3 / (8 x), x = 2 s sqrt(lambda); the last one needs also ``a s >> 3/2``.

With weight decay the losses saturate. For ``gamma / 2 << a`` (eq. 16, corrected by a factor 2):

    L_tr -> gamma^2 / (8 (1 - lambda)),     L_gen -> gamma^2 / (8 (1 - lambda)^3)              (lambda < 1)
    L_tr -> gamma^2 / (8 lambda (lambda - 1)),  L_gen -> (1 - 1/lambda) / 2                   (lambda > 1)
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.special import erfcx

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator

Curve = Float[np.ndarray, "time"]
_TOLERANCE = 0.05


def decaying_forms(model: "LinearEstimator", times: Curve) -> dict[str, Curve]:
    """Eqs. 22, 23 and 11, and where each holds. The range of L_tr is that of eq. 22."""
    ratio, scale = model.aspect_ratio, (1 + model.student_scale**2) / (2 * model.outputs)
    root = np.sqrt(ratio)
    edge = ((1 - ratio) / (1 + root)) ** 2
    s = 4 * model.learning_rate * times / model.outputs
    s_safe = np.where(s > 0, s, np.nan)
    envelope = np.exp(-edge * s_safe) / ratio**0.75
    train = envelope / (2 * np.sqrt(np.pi) * s_safe**1.5)
    decaying = envelope * _tail(edge, s_safe)
    plateau = max(0.0, 1 - 1 / ratio)
    early_error = 3 / (8 * 2 * s_safe * root)
    holds = early_error < _TOLERANCE
    leading = np.where(edge > 0, train / (edge if edge > 0 else 1.0), np.nan)
    return {
        "train_loss": scale * train,
        "test_loss": scale * (plateau + decaying),
        "test_loss_leading": scale * (plateau + leading),
        "train_loss_holds": holds,
        "test_loss_holds": holds,
        "test_loss_leading_holds": holds & (1.5 / (edge * s_safe + 1e-300) + early_error < _TOLERANCE),
    }


def _tail(edge: float, s: Curve) -> Curve:
    """``1/sqrt(pi s) - sqrt(edge) erfcx(sqrt(edge s))`` without cancellation at large ``edge * s``."""
    z = edge * s
    series = (1 - 1.5 / np.maximum(z, 1.0) + 3.75 / np.maximum(z, 1.0) ** 2) / (2 * np.maximum(z, 1.0))
    direct = 1 - np.sqrt(np.pi * z) * erfcx(np.sqrt(z))
    return np.where(z > 1e4, series, direct) / np.sqrt(np.pi * s)


def saturated_forms(model: "LinearEstimator", times: Curve) -> dict[str, Curve]:
    """The corrected eq. 16: where the losses end at small weight decay, and from when on."""
    ratio, decay = model.aspect_ratio, model.weight_decay
    edge = ((1 - ratio) / (1 + np.sqrt(ratio))) ** 2
    if ratio < 1:
        train, test = decay**2 / (8 * (1 - ratio)), decay**2 / (8 * (1 - ratio) ** 3)
    elif ratio > 1:
        train, test = decay**2 / (8 * ratio * (ratio - 1)), (1 - 1 / ratio) / 2
    else:
        train = test = np.nan
    s = 4 * model.learning_rate * times / model.outputs
    # The next order is 3 gamma E[nu^-3] / E[nu^-2] / 2 < 3 gamma / (2 edge).
    small_decay = edge > 0 and 1.5 * decay / edge < _TOLERANCE
    # A mode has settled when e nu << gamma / 2.
    settled = small_decay & (2 * np.exp(-s / 2 * edge) * (1 + np.sqrt(ratio)) ** 2 / (decay / 2) < _TOLERANCE)
    null_settled = settled & (model.student_scale**2 * np.exp(-s * decay / 2) < _TOLERANCE)
    fill = np.ones_like(times) / model.outputs
    return {
        "train_loss": train * fill,
        "test_loss": test * fill,
        "train_loss_holds": settled,
        "test_loss_holds": null_settled if ratio > 1 else settled,
    }
