"""Closed forms of feature-scaling, corrected: exponents of the scaling laws, beside the printed ones (eqs. 8 to 12, 62,
Table 1), and losses after infinite time (eqs. 70 to 78)."""

from typing import Any, NamedTuple

import numpy as np

from solvable.models.feature_scaling.mode_quadrature import Modes
from solvable.numerics.kappa import kappa

QUANTITIES = ("time", "features", "samples", "features-transient", "batch-transient", "compute")
REGIMES = ("lazy", "rich")
PHASES = ("hard", "easy", "super-easy")


def phase_number(capacity: np.ndarray, source: np.ndarray) -> np.ndarray:
    """0 for a target outside the kernel's space (hard), 1 inside (easy), 2 if batch noise outlives it (super-easy)."""
    return np.where(source < 1, 0, np.where(source < 2 - 1 / capacity, 1, 2))


def speed_up(source: np.ndarray, rich: bool) -> np.ndarray:
    """``chi / beta = max(1, 2 / (1 + beta))`` where features learn, 1 where not."""
    return np.maximum(1.0, 2 / (1 + source)) if rich else np.ones_like(source)


def self_consistency(source: float, rounds: int) -> list[float]:
    """The time exponent after 0 ... ``rounds`` rounds of the self-consistency ``chi = beta (2 - chi)`` (eq. 62)."""
    found = [source]
    for _ in range(rounds):
        found.append(source * max(1.0, 2 - found[-1]))
    return found


def table(capacity: np.ndarray, source: np.ndarray, rich: bool) -> dict[str, np.ndarray]:
    """Exponents of the decaying terms of the loss; a negative one grows.

    ``features-transient`` and ``batch-transient`` are of the corrections of first order in 1/N and 1/B, in time.
    """
    faster = speed_up(source, rich)
    hard = source < 1
    time = source * faster
    return {
        "time": time,
        "features": capacity * np.minimum(1.0, source),
        "samples": capacity * np.minimum(2.0, source),
        "features-transient": np.where(hard, (source - 1 / capacity) * faster, 1 - 1 / capacity),
        # A share (eta / 2 B) M Tr Lambda of the loss itself, where M ~ t^(1 - chi) if features learn a hard task.
        "batch-transient": np.where(hard, (2 * time - 1) if rich else time, np.minimum(source, 2 - 1 / capacity)),
        "compute": _compute(capacity, source, time),
    }


def printed(capacity: np.ndarray, source: np.ndarray, rich: bool) -> dict[str, np.ndarray]:
    """The same as printed in eqs. 8, 9, 78 and Table 1."""
    faster = speed_up(source, rich)
    return {
        "time": source * faster,
        "features": capacity * np.minimum(2.0, source),
        "samples": capacity * np.minimum(2.0, source),
        "features-transient": (1 - 1 / capacity) * faster,
        "batch-transient": (2 - 1 / capacity) * faster,
        "compute": _compute(capacity, source, source * faster),
    }


def _compute(capacity: np.ndarray, source: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Table 1, which holds: the terms that balance at ``C = N t`` change with the phase."""
    hard = capacity * source * time / (capacity * source + time)
    easy = capacity * source / (capacity * source + 1)
    return np.choose(phase_number(capacity, source), [hard, easy, 1 - 1 / (2 * capacity)])


def features_share(capacity: float, source: float, rich: bool) -> float:
    """The exponent of the compute-optimal number of features, ``N* ~ C^x``: from the balance of the same terms."""
    time = float(source * speed_up(np.asarray(source), rich))
    number = int(phase_number(np.asarray(capacity), np.asarray(source)))
    if number == 0:
        return time / (capacity * source + time)
    # easy: t^-beta = t^(-1 + 1/alpha) / N; super-easy: N = t.
    power = source - 1 + 1 / capacity if number == 1 else 1.0
    return power / (1 + power)


def as_variables(capacity: np.ndarray, source: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables and coordinates of a dataset with the exponents of one task, corrected and printed."""
    variables = {}
    for name, make in (("exponent", table), ("printed", printed)):
        columns = [make(capacity, source, regime == "rich") for regime in REGIMES]
        rows = [[column[quantity] for column in columns] for quantity in QUANTITIES]
        variables[name] = (("quantity", "regime"), rows)
    return variables, {"quantity": list(QUANTITIES), "regime": list(REGIMES)}


def over_plane(capacities: np.ndarray, sources: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same over a grid of capacities and sources, with the phase of each task."""
    across, along = np.meshgrid(capacities, sources, indexing="ij")
    tables = [table(across, along, regime == "rich") for regime in REGIMES]
    values = np.array([[column[quantity] for column in tables] for quantity in QUANTITIES])
    dims = ("capacity", "source")
    variables = {
        "phase": (dims, phase_number(across, along)),
        "exponent": (("quantity", "regime", *dims), values),
    }
    names = {"quantity": np.array(QUANTITIES), "regime": np.array(REGIMES)}
    return variables, {"capacity": capacities, "source": sources, **names}


class Limit(NamedTuple):
    test_loss: float
    train_loss: float


def resolution(modes: Modes, count: float) -> float:
    """r of ``sum_k lambda_k r / (1 + lambda_k r) = count``: modes down to ``1 / r`` are learned (eqs. 74, 77)."""
    present = np.asarray(modes.counts) > 0
    if count >= np.asarray(modes.counts)[present].sum():
        return np.inf
    return 1 / float(kappa(modes.eigenvalues[present], count, multiplicities=modes.counts[present]))


def limit(modes: Modes, features: float, samples: float, label_noise: float = 0.0) -> Limit:
    """Test and training loss as time goes to infinity without batch noise; the same whether features learn or not.

    With ``h = 1 / (1 + lambda r)``, ``d1 = sum lambda r h = min(N, P)`` and ``d2 = sum (lambda r h)^2`` the loss L and
    the variance x that the random features add are, for labels with noise of variance s

        (1 - d2/P) L = sum lambda w^2 h^2 + x (d1 - d2) / r + s d2 / P
        (1 - d2/N) x = (sum (lambda r h)^2 w^2 + (L + s) r (d1 - d2) / P) / N

    For ``P = inf`` it is ``L = sum lambda w^2 h``, for ``N = inf`` ``(sum lambda w^2 h^2 + s d2/P) / (1 - d2/P)``. If
    all M modes can be learned only the label noise is left, ``L = s M / (P - M)``.
    """
    fewest = min(features, samples)
    r = resolution(modes, fewest) if fewest < np.inf else np.inf
    if r == np.inf:
        fitted = float(np.sum(modes.counts)) / samples if label_noise else 0.0
        return Limit(label_noise * fitted / (1 - fitted), label_noise * (1 - fitted) if samples < np.inf else 0.0)
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
    fitted = label_noise / samples
    right = [of_target + fitted * second, (of_features + fitted * r * gap) / features]
    test = float(np.linalg.solve(matrix, right)[0])
    return Limit(test, max(0.0, 1 - features / samples) ** 2 * (test + label_noise))
