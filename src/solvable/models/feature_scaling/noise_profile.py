"""Noise of batches as a function of flow time: ``epsilon = eta / ((1 - mu) B)`` where ``tau = sum eta / (1 - mu)``.

In the limit of small steps learning rate, momentum and batch size enter in no other way: a learning rate that falls and
a batch that grows with the same ``epsilon`` over the number of samples are the same training.

>>> import numpy as np
>>> from solvable.models.feature_scaling.noise_profile import NoiseProfile
>>> falling = NoiseProfile.of_steps(np.linspace(0.1, 0.02, 5), np.zeros(5), np.full(5, 8.0))
>>> round(falling.last, 6), round(falling.before(falling.last), 6)
(0.3, 0.0025)
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# A change by this factor between two steps, much more than around it, is a jump.
_JUMP = 0.3
_ISOLATED = 10.0
# A kink is a change of slope that would change the noise by this fraction of its largest value over the whole run.
_KINK = 0.05
_MOST_BREAKS = 32
# Limits from the left and from the right are values at this fraction of the last time before and after.
_NEAR = 1e-9


class NoiseProfile(NamedTuple):
    """Noise at increasing flow times, linear between them; jumps are two values at one time."""

    times: Float[np.ndarray, "knot"]
    values: Float[np.ndarray, "knot"]
    # Times at which the noise jumps or has a kink, in between.
    breaks: Float[np.ndarray, "break"]

    @classmethod
    def constant(cls, noise: float) -> "NoiseProfile":
        """The same noise at all times."""
        return cls(np.zeros(1), np.full(1, float(noise)), np.zeros(0))

    @classmethod
    def of_steps(
        cls, rates: Float[np.ndarray, "step"], momenta: Float[np.ndarray, "step"], batches: Float[np.ndarray, "step"]
    ) -> "NoiseProfile":
        """The noise of steps, each at its middle; between neighbours that differ much it jumps at the end of a step."""
        speeds = rates / (1 - momenta)
        moving = speeds > 0
        speeds, noises = speeds[moving], (speeds / batches)[moving]
        if np.all(noises == noises[:1]):
            return cls.constant(float(noises[0]) if noises.size else 0.0)
        edges = np.append(0.0, np.cumsum(speeds))
        middles = (edges[1:] + edges[:-1]) / 2
        jumps = _jumps(noises)
        kinks = _kinks(noises, jumps)
        at = edges[jumps]
        times = np.concatenate([[0.0], middles, at, at, edges[-1:]])
        values = np.concatenate([noises[:1], noises, noises[jumps - 1], noises[jumps], noises[-1:]])
        order = np.argsort(times, kind="stable")
        return cls(times[order], values[order], np.sort(np.concatenate([at, middles[kinks]])))

    @property
    def largest(self) -> float:
        return float(self.values.max())

    @property
    def last(self) -> float:
        """The flow time at which the steps end; 0 if noise is the same at all times."""
        return float(self.times[-1])

    @property
    def is_constant(self) -> bool:
        return self.times.size == 1

    def before(self, time: float) -> float:
        """The limit from the left."""
        return float(np.interp(time - _NEAR * self.last, self.times, self.values))

    def after(self, time: float) -> float:
        """The limit from the right."""
        return float(np.interp(time + _NEAR * self.last, self.times, self.values))

    def next_break(self, time: float, last: float) -> float:
        """The next break after a time, or the last time."""
        later = self.breaks[self.breaks > time + 10 * _NEAR * self.last]
        return min(float(later[0]), last) if later.size else last


def _jumps(noises: Float[np.ndarray, "step"]) -> np.ndarray:
    """The steps before which the noise jumps."""
    floor = 1e-12 * noises.max()
    changes = np.abs(np.diff(np.log(np.maximum(noises, floor))))
    around = np.maximum(_shifted(changes, 1), _shifted(changes, -1))
    lasting = np.minimum(noises[1:], noises[:-1]) > floor
    found = np.flatnonzero((changes > _JUMP) & (changes > _ISOLATED * around) & lasting)
    return found[np.argsort(-changes[found])][:_MOST_BREAKS] + 1


def _kinks(noises: Float[np.ndarray, "step"], jumps: np.ndarray) -> np.ndarray:
    """The steps at which the slope of the noise changes much more than around."""
    bends = np.abs(np.diff(noises, 2))
    around = np.maximum.reduce([_shifted(bends, shift) for shift in (-3, -2, 2, 3)])
    strong = (bends * noises.size > _KINK * noises.max()) & (bends > _ISOLATED * around)
    found = np.flatnonzero(strong & (bends >= _shifted(bends, 1)) & (bends > _shifted(bends, -1))) + 1
    found = found[[np.all(np.abs(one - jumps) > 3) for one in found]] if found.size else found
    return found[np.argsort(-bends[found - 1])][:_MOST_BREAKS]


def _shifted(values: np.ndarray, shift: int) -> np.ndarray:
    """The values some places away, and zero beyond the ends."""
    result = np.zeros_like(values)
    if shift > 0:
        result[shift:] = values[:-shift]
    else:
        result[:shift] = values[-shift:]
    return result
