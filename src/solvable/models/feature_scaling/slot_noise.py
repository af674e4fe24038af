"""Noise of batches on a logarithmic time grid: what impulses at the grid times cannot carry, added mode by mode.

Between two grid times many modes relax fully. Such a mode holds the variance ``(epsilon / 2) M L`` (``epsilon =
eta / B``, M the kernel's growth, L the loss), which impulses at the ends of a step do not give it, and pulls the
weights back by ``-gamma (epsilon / 2) L lambda``. Both are missing in the same proportion. So each mode is carried
twice, as the grid has it and exactly, by the linear equation ``V' = -2 mu M V + epsilon mu M^2 L``; the difference
corrects the loss and the drift (a control variate).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

STAGE = 1 - np.sqrt(0.5)
_CUT = 3.0


def impulse_share(rate: Float[np.ndarray, "mode"]) -> Float[np.ndarray, "mode"]:
    """How much of its noise a mode gets as impulses: little where it relaxes within the step and forgets them."""
    return 1 / (1 + (rate / _CUT) ** 2) ** 2


def stage_response(rate: Float[np.ndarray, "mode"], stage: int) -> Float[np.ndarray, "mode"]:
    """What the two-stage scheme leaves of a mode that decays at ``rate`` a step."""
    first = 1 / (1 + STAGE * rate)
    return first if stage == 0 else (1 - (1 - STAGE) * rate * first) * first


class Correction(NamedTuple):
    """What is missing of the loss, and the loss completed by it."""

    missing: float
    loss: float
    exact: Float[np.ndarray, "mode"]
    on_grid: Float[np.ndarray, "mode"]


class FastModes:
    """The modes' variances, by the grid and exactly, from one grid time to the next."""

    def __init__(self, rates: Float[np.ndarray, "mode"], counts: Float[np.ndarray, "mode"], loss: float) -> None:
        self._rates, self._counts, self._weights = rates, counts, counts * rates
        self._exact, self._on_grid = np.zeros_like(rates), np.zeros_like(rates)
        self._growth, self._loss = 1.0, loss

    def kick(self, area: float, step: float) -> None:
        """An impulse of ``area`` (epsilon L times the time it stands for) at the beginning of a step."""
        share = impulse_share(self._rates * self._growth * step)
        self._on_grid = self._on_grid + self._rates * self._growth**2 * area * share

    def at_stage(
        self, stage: int, step: float, noises: tuple[float, float], growth: float, grid_loss: float
    ) -> Correction:
        """The correction at a stage, where the grid's loss is given; the loss enters its own noise linearly.

        ``noises`` are epsilon at the beginning of the step and at the stage.
        """
        on_grid = stage_response(self._rates * growth * step, stage) ** 2 * self._on_grid
        decay = self._rates * (self._growth + growth) * step * (STAGE if stage == 0 else 1.0)
        first = _average_decay(decay)
        second = _average_ramp(decay)
        begun = np.exp(-decay) * self._exact
        begun = begun + noises[0] / 2 * decay * (first - second) * self._growth * self._loss
        own = noises[1] / 2 * decay * second * growth
        loss = (grid_loss + self._weights @ (begun - on_grid)) / (1 - self._weights @ own)
        exact = begun + own * loss
        return Correction(float(self._weights @ (exact - on_grid)), float(loss), exact, on_grid)

    def shares(self) -> Float[np.ndarray, "mode"]:
        """How much of a mode's fluctuation the kernel of the noise feels: of modes that relax before it does."""
        return np.array([self._weights @ (self._rates / (self._rates + rate)) for rate in self._rates]) / max(
            float(self._weights.sum()), 1e-300
        )

    def fluctuation(self, correction: Correction, growth: float, shares: Float[np.ndarray, "mode"] | float) -> float:
        """What modes in equilibrium with the noise add to ``|w|^2 / N``, beyond what the grid has."""
        return float((shares * self._counts) @ (correction.exact - correction.on_grid)) / growth**2

    def accept(self, correction: Correction, growth: float) -> None:
        """Go on from the end of the step."""
        self._exact, self._on_grid = correction.exact, correction.on_grid
        self._growth, self._loss = growth, correction.loss


def _average_decay(x: np.ndarray) -> np.ndarray:
    """``(1 - exp(-x)) / x``."""
    return np.where(x < 1e-8, 1 - x / 2, -np.expm1(-x) / np.maximum(x, 1e-8))


def _average_ramp(x: np.ndarray) -> np.ndarray:
    """``(1 - (1 - exp(-x)) / x) / x``, by its series where that cancels."""
    series = 0.5 - x / 6 + x**2 / 24 - x**3 / 120
    return np.where(x < 1e-3, series, (1 - _average_decay(x)) / np.maximum(x, 1e-3))


def random_feature_spectrum(
    eigenvalues: Float[np.ndarray, "mode"], features: int, draws: int = 8, key: int = 0
) -> Float[np.ndarray, "eigenvalue"]:
    """Eigenvalues of ``A Lambda A^T / N`` for a few Gaussian A, all together, their trace made that of ``Lambda``."""
    generator = np.random.default_rng(key)
    kept = eigenvalues[: 20 * features]
    rest = eigenvalues[20 * features :].sum() / features
    found = []
    for _ in range(draws):
        mixed = generator.standard_normal((features, kept.size)) * np.sqrt(kept / features)
        values = np.linalg.eigvalsh(mixed @ mixed.T) + rest
        found.append(np.maximum(values, 0.0) * (eigenvalues.sum() / values.sum()))
    return np.sort(np.concatenate(found))[::-1]
