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
    # Of the readout's part, of the two parts, and of the features' part.
    exact: Float[np.ndarray, "3 mode"]
    on_grid: Float[np.ndarray, "3 mode"]


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
        self._exact, self._on_grid = np.zeros((3, rates.size)), np.zeros((3, rates.size))
        self._growth, self._loss, self._richness = 1.0, loss, richness

    def kick(self, area: float, step: float) -> None:
        """An impulse of ``area`` (epsilon L times the time it stands for) at the beginning of a step."""
        share = impulse_share(self._rates * self._growth * step)
        self._on_grid = self._on_grid + self._rates * area * share * _both(self._growth)

    def at_stage(
        self, stage: int, step: float, noises: tuple[float, float], growth: float, grid_loss: float
    ) -> Correction:
        """The correction at a stage, where the grid's loss is given; the loss enters its own noise linearly.

        ``noises`` are epsilon at the beginning of the step and at the stage.
        """
        drift = self._richness * noises[0] / 2 * self._loss * float(self._weights.sum())
        length = step * (STAGE if stage == 0 else 1.0)
        own = OwnMotions(self._rates, (self._growth + growth) / 2 - 1, drift)
        decay = own.pair_speeds() * length
        first = _average_decay(decay)
        second = _average_ramp(decay)
        before, there = own.split(self._rates * _both(self._growth)), own.split(self._rates * _both(growth))
        begun = np.exp(-decay) * own.split(self._exact)
        begun = own.joined(begun + noises[0] * self._loss * length * (first - second) * before)
        gained = own.joined(noises[1] * length * second * there)
        own = OwnMotions(self._rates, growth - 1, drift)
        fast, slow = stage_response(own.fast * step, stage), stage_response(own.slow * step, stage)
        on_grid = own.joined(_three(fast * fast, fast * slow, slow * slow) * own.split(self._on_grid))
        known, gain = self._weights @ _whole(begun - on_grid), self._weights @ _whole(gained)
        loss = (grid_loss + known) / (1 - gain)
        return Correction(float(known + gain * loss), float(loss), begun + gained * loss, on_grid)

    def shares(self) -> Float[np.ndarray, "mode"]:
        """How much of a mode's fluctuation the kernel of the noise feels: of modes that relax before it does."""
        return np.array([self._weights @ (self._rates / (self._rates + rate)) for rate in self._rates]) / max(
            float(self._weights.sum()), 1e-300
        )

    def fluctuation(self, correction: Correction, shares: Float[np.ndarray, "mode"] | float) -> float:
        """What modes in equilibrium with the noise add to ``|w|^2 / N``, beyond what the grid has."""
        return float((shares * self._counts) @ (correction.exact[0] - correction.on_grid[0]))

    def accept(self, correction: Correction, growth: float) -> None:
        """Go on from the end of the step."""
        self._exact, self._on_grid = correction.exact, correction.on_grid
        self._growth, self._loss = growth, correction.loss


def _both(growth: float) -> Float[np.ndarray, "3 1"]:
    """The covariance that unit noise gives the two parts: the readout moves by 1, the features by ``M - 1``."""
    return np.array([[1.0], [growth - 1], [(growth - 1) ** 2]])


def _whole(covariance: Float[np.ndarray, "3 mode"]) -> Float[np.ndarray, "mode"]:
    """The variance of the sum of the two parts."""
    return covariance[0] + 2 * covariance[1] + covariance[2]


class OwnMotions:
    """The eigenvectors of ``[[drift + mu, mu], [g mu, g mu]]``, which moves the two parts of a mode's error.

    Both eigenvalues are real and none is negative. Covariances are kept as three numbers for each mode.
    """

    def __init__(self, rates: Float[np.ndarray, "mode"], learned: float, drift: float) -> None:
        top, low = drift + rates, max(learned, 0.0) * rates
        self.fast = (top + low + np.sqrt((top - low) ** 2 + 4 * rates * low)) / 2
        self.slow = drift * low / self.fast
        # The vectors of the fast motion and of the slow one.
        self._vectors = ((self.fast - low) / top, low / top), (rates / top, (self.slow - top) / top)

    def pair_speeds(self) -> Float[np.ndarray, "3 mode"]:
        return _three(2 * self.fast, self.fast + self.slow, 2 * self.slow)

    def split(self, covariance: Float[np.ndarray, "3 _"]) -> Float[np.ndarray, "3 mode"]:
        """A covariance of the two parts as one of the two motions."""
        (p, q), (r, s) = self._vectors
        aa, ab, bb = covariance
        found = _three(
            s * s * aa - 2 * r * s * ab + r * r * bb,
            (p * s + q * r) * ab - q * s * aa - p * r * bb,
            q * q * aa - 2 * p * q * ab + p * p * bb,
        )
        found /= (p * s - q * r) ** 2
        return found

    def joined(self, covariance: Float[np.ndarray, "3 mode"]) -> Float[np.ndarray, "3 mode"]:
        """The inverse of :meth:`split`."""
        (p, q), (r, s) = self._vectors
        ff, fs, ss = covariance
        return _three(
            p * p * ff + 2 * p * r * fs + r * r * ss,
            p * q * ff + (p * s + q * r) * fs + r * s * ss,
            q * q * ff + 2 * q * s * fs + s * s * ss,
        )


def _three(first: np.ndarray, second: np.ndarray, third: np.ndarray) -> Float[np.ndarray, "3 mode"]:
    """``np.stack``, which takes longer than the arithmetic of so short arrays."""
    found = np.empty((3, first.size))
    found[0], found[1], found[2] = first, second, third
    return found


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
