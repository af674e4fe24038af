"""At which steps of a training something is done."""

from collections.abc import Sequence
from typing import Any

import numpy as np

# A training is cut into about this many stretches, so that its bar moves and it can be interrupted.
_SEGMENTS = 100
# Accelerators go this many steps without a question to the host: stretches are whole multiples where they are long.
BLOCK = 50


class Schedule:
    """At which steps something is to be done, checked; ``stops`` are all of them, and others for the bar to move."""

    def __init__(self, steps: int, at: Any, inspect_at: Sequence[int] | None, snapshots_at: Sequence[int]) -> None:
        self.steps = steps
        self.at = log_steps(steps) if at is None else _steps("at", at, steps)
        self.inspect_at = [0, steps] if inspect_at is None else _steps("inspect_at", inspect_at, steps)
        self.snapshots_at = _steps("snapshots_at", snapshots_at, steps)
        segment = max(1, steps // _SEGMENTS)
        if segment > BLOCK // 4:
            segment = -(-segment // BLOCK) * BLOCK
        bars = range(0, steps, segment)
        self.stops = sorted({*self.at, *self.inspect_at, *self.snapshots_at, *bars, 0, steps})
        self.whole_blocks = all(stop % BLOCK == 0 for stop in self.stops)


def _steps(name: str, values: Any, most: int) -> list[int]:
    numbers = np.asarray(values, float).ravel()
    if not ((numbers >= 0) & (numbers <= most) & (numbers % 1 == 0)).all():
        wrong = numbers[~((numbers >= 0) & (numbers <= most) & (numbers % 1 == 0))][0]
        raise ValueError(f"{name} must hold whole numbers of steps from 0 to {most}, not {wrong:g}")
    return sorted({int(number) for number in numbers})


def log_steps(steps: int, per_decade: int = 20, first: int = 1) -> list[int]:
    """Zero, and steps that are evenly spaced in the logarithm up to the last: where curves are measured by default."""
    count = max(2, int(per_decade * np.log10(max(steps / first, 10))) + 1)
    between = np.round(np.geomspace(first, steps, count)).astype(int)
    return sorted({0, *(int(step) for step in between if step <= steps), steps})
