"""Noise of batches on a logarithmic time grid: what impulses at the grid times cannot carry, added mode by mode.

Between two grid times many modes relax fully. Such a mode holds the variance ``(epsilon / 2) M L`` (``epsilon =
eta / B``, M the kernel's growth, L the loss), which impulses at the ends of a step do not give it, and pulls the
weights back by ``-gamma (epsilon / 2) L lambda``. Both are missing in the same proportion. So each mode is carried
twice, as the grid has it and exactly, and the difference corrects the loss and the drift (a control variate). What is
carried is the covariance of the two parts of its error, ``v = -(a + b)``: that of the readout, which the drift Gamma of
all modes together pulls back, and that of the features that have been learned, ``g = M - 1``,

    a' = -Gamma a - mu (a + b) + noise        b' = -g mu (a + b) + g noise        noise of variance epsilon mu L

so that modes that are slower than the drift hold less than their share. Without drift it is one equation for the
variance, ``V' = -2 mu M V + epsilon mu M^2 L``. The readout's own fluctuation is that of ``a``.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

STAGE = 1 - np.sqrt(0.5)
_CUT = 3.0


def impulse_share(rate: Float[np.ndarray, "mode"]) -> Float[np.ndarray, "mode"]:
    """How much of its noise a mode gets as impulses: little where it relaxes within the step and forgets them."""
    return 1 / (1 + (rate / _CUT) ** 2) ** 2


def stage_response(rate: Float[np.ndarray, "*mode"], stage: int) -> Float[np.ndarray, "*mode"]:
    """What the two-stage scheme leaves of a mode that decays at ``rate`` a step."""
    first = 1 / (1 + STAGE * rate)
    return first if stage == 0 else (1 - (1 - STAGE) * rate * first) * first


class Correction(NamedTuple):
    """What is missing of the loss, and the loss completed by it; covariances of the two parts of each mode."""

    missing: float
    loss: float
    exact: Float[np.ndarray, "mode 2 2"]
    on_grid: Float[np.ndarray, "mode 2 2"]


class FastModes:
    """The modes' covariances, by the grid and exactly, from one grid time to the next.

    Parameters
    ----------
    rates, counts
        Eigenvalues of the kernel that carries the noise, and how many modes each stands for.
    loss
        The training loss at the start.
    richness
        How fast the features learn, gamma.
    """

    def __init__(
        self,
        rates: Float[np.ndarray, "mode"],
        counts: Float[np.ndarray, "mode"],
        loss: float,
        richness: float = 0.0,
    ) -> None:
        self._rates, self._counts, self._weights = rates, counts, counts * rates
        self._exact, self._on_grid = np.zeros((rates.size, 2, 2)), np.zeros((rates.size, 2, 2))
        self._growth, self._loss, self._richness = 1.0, loss, richness

    def kick(self, area: float, step: float) -> None:
        """An impulse of ``area`` (epsilon L times the time it stands for) at the beginning of a step."""
        share = impulse_share(self._rates * self._growth * step)
        self._on_grid = self._on_grid + (self._rates * area * share)[:, None, None] * _both(self._growth)

    def at_stage(
        self, stage: int, step: float, noises: tuple[float, float], growth: float, grid_loss: float
    ) -> Correction:
        """The correction at a stage, where the grid's loss is given; the loss enters its own noise linearly.

        ``noises`` are epsilon at the beginning of the step and at the stage.
        """
        drift = self._richness * noises[0] / 2 * self._loss * float(self._weights.sum())
        speeds, to_own, from_own = _own_motions(self._rates, (self._growth + growth) / 2 - 1, drift)
        length = step * (STAGE if stage == 0 else 1.0)
        decay = (speeds[:, :, None] + speeds[:, None, :]) * length
        first = _average_decay(decay)
        second = _average_ramp(decay)
        begun = np.exp(-decay) * _moved(to_own, self._exact)
        begun += noises[0] * self._loss * length * (first - second) * self._in_own(to_own, self._growth)
        own = noises[1] * length * second * self._in_own(to_own, growth)
        begun, own = _moved(from_own, begun), _moved(from_own, own)
        speeds, to_own, from_own = _own_motions(self._rates, growth - 1, drift)
        left = stage_response(speeds * step, stage)
        on_grid = _moved(from_own, left[:, :, None] * left[:, None, :] * _moved(to_own, self._on_grid))
        known, gain = self._weights @ (begun - on_grid).sum((1, 2)), self._weights @ own.sum((1, 2))
        loss = (grid_loss + known) / (1 - gain)
        return Correction(float(known + gain * loss), float(loss), begun + own * loss, on_grid)

    def _in_own(self, to_own: np.ndarray, growth: float) -> np.ndarray:
        return _moved(to_own, self._rates[:, None, None] * _both(growth))

    def shares(self) -> Float[np.ndarray, "mode"]:
        """How much of a mode's fluctuation the kernel of the noise feels: of modes that relax before it does."""
        return np.array([self._weights @ (self._rates / (self._rates + rate)) for rate in self._rates]) / max(
            float(self._weights.sum()), 1e-300
        )

    def fluctuation(self, correction: Correction, shares: Float[np.ndarray, "mode"] | float) -> float:
        """What modes in equilibrium with the noise add to ``|w|^2 / N``, beyond what the grid has."""
        return float((shares * self._counts) @ (correction.exact - correction.on_grid)[:, 0, 0])

    def accept(self, correction: Correction, growth: float) -> None:
        """Go on from the end of the step."""
        self._exact, self._on_grid = correction.exact, correction.on_grid
        self._growth, self._loss = growth, correction.loss


def _both(growth: float) -> Float[np.ndarray, "2 2"]:
    """What noise of unit variance does to the two parts: the readout moves by 1, the features by ``M - 1``."""
    parts = np.array([1.0, growth - 1.0])
    return np.outer(parts, parts)


def _moved(matrix: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    return matrix @ covariance @ matrix.transpose(0, 2, 1)


def _own_motions(rates: np.ndarray, learned: float, drift: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rates and vectors of ``[[drift + mu, mu], [learned mu, learned mu]]``; into them, and from them.

    The matrix moves the two parts of a mode's error, that of the readout, which the drift pulls back, and that of the
    learned features. Its eigenvalues are real.
    """
    learned = max(learned, 0.0)
    top, low = drift + rates, learned * rates
    root = np.sqrt((top - low) ** 2 + 4 * rates * low)
    fast = (top + low + root) / 2
    slow = drift * low / fast
    from_own = np.empty((rates.size, 2, 2))
    from_own[:, 0, 0], from_own[:, 1, 0] = (fast - low) / top, low / top
    from_own[:, 0, 1], from_own[:, 1, 1] = rates / top, (slow - top) / top
    return np.stack([fast, slow], 1), np.linalg.inv(from_own), from_own


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
