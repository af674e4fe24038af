"""How long the two marches take and how much memory they need, said before they begin.

Estimates are those of one core of an ordinary CPU, and of an accelerator whose memory moves 2e12 bytes per second; they
are good to a factor of two or three. What would take hours is refused, with the size that takes about a minute; inside
:func:`solvable.numerics.cost.unlimited` only memory is checked.

>>> from solvable.models.feature_scaling.march_cost import march_seconds, steps_within
>>> march_seconds(1000, 50, compiled=False) < 10 < march_seconds(4000, 50, compiled=False)
True
>>> 2000 < steps_within(60.0, 50, compiled=False) < 4000
True
"""

import math
from collections.abc import Callable

import jax

from solvable.models.feature_scaling import blocked_march
from solvable.models.feature_scaling.two_time import memory
from solvable.numerics.cost import check_cost, free_memory, in_time
from solvable.numerics.memory import device_memory

MINUTE, _HOUR = 60.0, 3600.0
# Operations per second in products of matrices on one core, bytes per second of an accelerator's memory, and the time
# that a row takes however short it is.
_SPEED, _BANDWIDTH, _ROW = 1.5e10, 2e12, 5e-4
# On a CPU, where programs of JAX share the memory with others, they may take so much.
_COMPILED_MEMORY = 8 * 2.0**30
# Of the memory of an accelerator, and of what is free on a CPU, the march may take these fractions.
_OF_DEVICE, _OF_FREE = 0.9, 0.5
# Passes for each row of the slot march, and what one takes however short the rows are.
_PASSES, _PASS = 12.0, 1.5e-3


def march_seconds(steps: int, nodes: int, compiled: bool) -> float:
    """How long the march through whole steps takes."""
    if not compiled:
        return blocked_march.operations(steps, nodes) / _SPEED + _ROW * steps
    # All H_k are read twice for each row, and rows are a third longer than they need to be.
    moved = 2 * 8 * nodes * 1.35 * float(steps) ** 3 / 3
    return moved / (_BANDWIDTH if jax.default_backend() != "cpu" else 1e10) + _ROW * steps


def steps_within(seconds: float, nodes: int, compiled: bool) -> int:
    """How many steps take this long and fit into memory."""

    def possible(steps: int) -> bool:
        held = memory(steps, nodes, compiled) <= largest_memory(compiled)
        return held and march_seconds(steps, nodes, compiled) <= seconds

    return _largest(possible)


def largest_memory(compiled: bool) -> float:
    """Bytes that a march may take: of an accelerator most, on a CPU half of what is free."""
    if not compiled:
        return _OF_FREE * free_memory()
    device = device_memory(jax.devices()[0])
    return _COMPILED_MEMORY if device is None else _OF_DEVICE * device


def check_march(steps: int, nodes: int, compiled: bool) -> None:
    """Refuse a march that does not fit into memory or takes hours."""
    needed, most = memory(steps, nodes, compiled), largest_memory(compiled)
    seconds = march_seconds(steps, nodes, compiled)
    near = f"{_rounded(steps_within(MINUTE, nodes, compiled)):.7g} steps take about a minute"
    remedy = f'{near}; solver="slot-march", the limit of small steps, reaches late times'
    if needed > most:
        raise ValueError(
            f"the two-time functions of {steps - 1:.7g} steps need about {needed / 2**30:.3g} GiB, more than "
            f"{most / 2**30:.3g}, and {in_time(seconds)}: {remedy}"
        )
    check_cost(f"the march through {steps - 1:.7g} steps", seconds=seconds, longest=_HOUR, remedy=remedy)


def slot_seconds(slots: float, stages: float, nodes: int) -> float:
    """How long the slot march takes with so many slots, of which so many are stages."""
    return stages * _PASSES * (_PASS + 4 * nodes * slots**2 / 3 / _SPEED)


def check_slots(per_decade: int, decades: float, kinds: int, nodes: int) -> None:
    """Refuse grids that take hours; ``kinds`` is the number of slots in a step, of which two are stages."""

    def seconds(count: float) -> float:
        # The finer of the two grids, and the coarser one, which has half as many slots.
        return sum(slot_seconds(kinds * n * decades, 2 * n * decades, nodes) for n in (count, count / 2))

    near = max(4, _largest(lambda count: seconds(count) <= MINUTE))
    check_cost(
        f"the slot march with per_decade = {per_decade} over {decades:.2g} decades of time",
        seconds=seconds(per_decade),
        memory=8.0 * 14 * (kinds * per_decade * decades) ** 2,
        longest=_HOUR,
        remedy=f"per_decade = {near} takes {'about a minute' if seconds(near) > 20 else in_time(seconds(near))}",
    )


def _largest(possible: Callable[[int], bool]) -> int:
    """The largest whole number for which something is possible; at least 1."""
    high = 1
    while high < 2**40 and possible(2 * high):
        high *= 2
    low = high
    step = high // 2
    while step:
        if possible(low + step):
            low += step
        step //= 2
    return low


def _rounded(count: int) -> float:
    """Two digits, rounded down."""
    size = 10 ** max(0, int(math.log10(max(count, 1))) - 1)
    return float(count // size * size)
