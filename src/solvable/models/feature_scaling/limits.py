"""Losses after infinite time, from self-consistent equations (feature-scaling, eqs. 70 to 78, corrected)."""

from typing import NamedTuple

import numpy as np

from solvable.models.feature_scaling.mode_quadrature import Modes
from solvable.numerics.kappa import kappa


class Limit(NamedTuple):
    test_loss: float
    train_loss: float


def resolution(modes: Modes, count: float) -> float:
    """r of ``sum_k lambda_k r / (1 + lambda_k r) = count``: modes down to ``1 / r`` are learned (eqs. 74, 77)."""
    present = np.asarray(modes.counts) > 0
    if count >= np.asarray(modes.counts)[present].sum():
        return np.inf
    return 1 / float(kappa(modes.eigenvalues[present], count, multiplicities=modes.counts[present]))


def limit(modes: Modes, features: float, samples: float) -> Limit:
    """Test and training loss as time goes to infinity without batch noise; features learning or not is all the same.

    With ``h = 1 / (1 + lambda r)``, ``d1 = sum lambda r h = min(N, P)`` and ``d2 = sum (lambda r h)^2`` the loss L and
    the variance x that the random features add are

        (1 - d2/P) L = sum lambda w^2 h^2 + x (d1 - d2) / r
        (1 - d2/N) x = (sum (lambda r h)^2 w^2 + L r (d1 - d2) / P) / N

    For ``P = inf`` it is ``L = sum lambda w^2 h``, for ``N = inf`` ``sum lambda w^2 h^2 / (1 - d2/P)``.
    """
    fewest = min(features, samples)
    r = resolution(modes, fewest) if fewest < np.inf else np.inf
    if r == np.inf:
        return Limit(0.0, 0.0)
    if features == samples:
        raise ValueError(
            f"with as many samples as features ({features:g}) the test loss grows without bound: change one of them"
        )
    eigenvalues, counts, targets = (np.asarray(value, float) for value in modes[1:])
    left = 1 / (1 + eigenvalues * r)
    learned = eigenvalues * r * left
    second = float((counts * learned**2).sum())
    gap = fewest - second
    of_target = float((eigenvalues * targets * left**2).sum())
    of_features = float((targets * learned**2).sum())
    matrix = np.array([[1 - second / samples, -gap / r], [-r * gap / (features * samples), 1 - second / features]])
    test = float(np.linalg.solve(matrix, [of_target, of_features / features])[0])
    return Limit(test, max(0.0, 1 - features / samples) ** 2 * test)
