"""The two-time equations by damped iteration of whole matrices, as in the paper: the baseline of time stepping.

The equations are those of :mod:`solvable.models.feature_scaling.two_time`, as they are derived, without the
rearrangements for time stepping, so that the two are independent routes to the same numbers. Every sweep inverts one
triangular matrix per mode.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from solvable.models.feature_scaling.mode_quadrature import Modes
from solvable.models.feature_scaling.optimiser import update_kernel
from solvable.models.feature_scaling.two_time import Descent

_MODES_AT_ONCE = 32


class FixedPoint(NamedTuple):
    """The losses, the number of sweeps, and the relative change of C3 in the last sweep."""

    test_loss: Float[np.ndarray, "time"]
    train_loss: Float[np.ndarray, "time"]
    correlation_3: Float[np.ndarray, "time time"]
    sweeps: int
    change: float


def fixed_point(
    modes: Modes, descent: Descent, steps: int, *, damping: float = 0.3, tolerance: float = 1e-12, sweeps: int = 1000
) -> FixedPoint:
    """Iterate from the lazy limit until C3 changes by less than ``tolerance``; ``damping`` is the weight of the old C3.

    Batches of reused samples are not covered. Undamped iteration overflows for hard tasks with feature learning.
    """
    richness = float(descent.richness)
    if np.isfinite(descent.samples) and np.isfinite(descent.batch):
        raise ValueError("the fixed point covers batches of new samples, or all of the reused ones: use time stepping")
    identity = np.eye(steps)
    theta = np.asarray(update_kernel(descent.learning_rate, steps, descent.momentum, descent.nesterov))
    c3, c1 = np.zeros((steps, steps)), np.zeros((steps, steps))
    r3, r1, change = identity, identity, np.inf
    for sweep in range(1, sweeps + 1):
        of_weights = np.linalg.solve(identity - richness * theta @ (theta * c3), theta)
        push = of_weights + richness * theta * (of_weights @ c3 @ of_weights.T)
        new = _sweep(modes, descent, push, c3, c1, r3, r1)
        change = float(np.max(np.abs(new[0] - c3)) / np.max(np.abs(new[0])))
        keep = damping if sweep > 1 else 0.0
        c3, c1, r3, r1 = (keep * old + (1 - keep) * fresh for old, fresh in zip((c3, c1, r3, r1), new[:4], strict=True))
        if not np.isfinite(change):
            raise ValueError(f"the iteration overflowed after {sweep} sweeps: raise damping, or use time stepping")
        if change < tolerance:
            break
    test = np.diagonal(new[4]).copy()
    train = np.diagonal(c1).copy() if np.isfinite(descent.samples) else test
    return FixedPoint(test, train, c3, sweep, change)


def _sweep(
    modes: Modes, descent: Descent, push: np.ndarray, c3: np.ndarray, c1: np.ndarray, r3: np.ndarray, r1: np.ndarray
) -> tuple[np.ndarray, ...]:
    """C3, C1, R3, R1 and C0 from the old ones."""
    size, offline = len(push), bool(np.isfinite(descent.samples))
    identity, ones = np.eye(size), np.ones((size, size))
    from_weights = push @ c3 @ push.T / descent.features
    through = push @ r3
    gains = [np.zeros((size, size)) for _ in range(4)]
    noise = np.zeros((size, size))
    if offline:
        noise = through @ c1 @ through.T / descent.samples
    for begin in range(0, len(modes.eigenvalues), _MODES_AT_ONCE):
        part = slice(begin, begin + _MODES_AT_ONCE)
        lam, count, target = (np.asarray(value[part])[:, None, None] for value in modes[1:])
        response = np.linalg.inv(identity + lam * (through @ r1))
        gains[0] += (lam * count * response).sum(0)
        gains[1] += (lam**2 * count * response).sum(0)
        transposed = response.transpose(0, 2, 1)
        error = response @ (target * ones + count * (from_weights + lam * noise)) @ transposed
        gains[2] += (lam * error).sum(0)
        gains[3] += (lam**2 * error).sum(0)
    c0 = gains[2]
    if not offline and np.isfinite(descent.batch):
        c0, second = _batch_noise(modes, descent, through @ r1, c0, gains[3])
    else:
        second = gains[3]
    if offline:
        r02 = -gains[0] @ through
        r1 = np.linalg.inv(identity - r02 / descent.samples)
        c1 = r1 @ c0 @ r1.T
        crossed = r1 @ gains[1] @ through @ c1 / descent.samples
        second = modes.trace / descent.samples * c1 - crossed - crossed.T + r1 @ second @ r1.T
    r24 = -r1 @ gains[0] @ push
    r3 = np.linalg.inv(identity - r24 / descent.features)
    return r3 @ second @ r3.T, c1, r3, r1, c0


def _batch_noise(
    modes: Modes, descent: Descent, drive: np.ndarray, c0: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Add the noise of batches, which is proportional to the loss: a linear equation for the loss is solved first."""
    size = len(drive)
    identity, kernel = np.eye(size), np.zeros((size, size))
    parts = range(0, len(modes.eigenvalues), _MODES_AT_ONCE)
    for begin in parts:
        part = slice(begin, begin + _MODES_AT_ONCE)
        lam, count = (np.asarray(value[part])[:, None, None] for value in modes[1:3])
        kernel += (count / descent.batch * (lam * np.linalg.inv(identity + lam * drive) @ drive) ** 2).sum(0)
    loss = np.linalg.solve(identity - kernel, np.diagonal(c0))
    for begin in parts:
        part = slice(begin, begin + _MODES_AT_ONCE)
        lam, count = (np.asarray(value[part])[:, None, None] for value in modes[1:3])
        response = np.linalg.inv(identity + lam * drive)
        transposed = response.transpose(0, 2, 1)
        c0 = c0 + (
            lam**2 * count / descent.batch * (response @ drive * loss) @ (response @ drive).transpose(0, 2, 1)
        ).sum(0)
        second = second + (lam * count / descent.batch * (response * loss) @ transposed).sum(0)
    return c0, second
