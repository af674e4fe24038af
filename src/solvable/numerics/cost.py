"""Estimates of time and memory: work that would take days or all memory is refused before it begins.

There are two limits: six hours of work (:data:`LONGEST`), at an assumed 2e9 operations per second on one core of a CPU
and 1e12 on an accelerator, and half of the memory that is free now. Estimates are good to a factor of a few, enough to
distinguish seconds from years. Inside :func:`unlimited` nothing is refused.

>>> from solvable.numerics.cost import check_cost
>>> check_cost("a plane", seconds=60.0)
>>> check_cost("a plane", memory=1e3, seconds=1e9, remedy="ask for fewer cells")
Traceback (most recent call last):
    ...
ValueError: a plane would take about 1 kB of memory and 31.7 years, longer than 6 hours: ask for fewer cells
"""

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

DAY = 86400.0
LONGEST = DAY / 4
# Operations per second of one core of an ordinary CPU on small arrays, and of an accelerator.
_SPEEDS = {"cpu": 2e9, "gpu": 1e12, "tpu": 1e12}
# However small its arrays, a step of a compiled loop costs about as much as this many operations.
STEP = 2e3
# Fraction of the free memory that results may take: computing them needs the rest.
_SHARE = 0.5

_unlimited: ContextVar[bool] = ContextVar("unlimited", default=False)


@contextlib.contextmanager
def unlimited() -> Iterator[None]:
    """Work inside this context is started however long it will take and however much memory it needs."""
    token = _unlimited.set(True)
    try:
        yield
    finally:
        _unlimited.reset(token)


def check_cost(
    what: str,
    *,
    operations: float = 0.0,
    seconds: float = 0.0,
    memory: float = 0.0,
    remedy: str = "lower its size or its times",
    longest: float = LONGEST,
) -> None:
    """Refuse work beyond the limits with a ValueError that names the estimate, the limit and the remedy.

    ``seconds`` and ``memory`` (in bytes) are estimates for this machine; ``operations`` are converted to seconds at the
    speed of the default device. ``longest`` is the limit in seconds.
    """
    if _unlimited.get():
        return
    if operations:
        import jax

        seconds = max(seconds, operations / _SPEEDS.get(jax.default_backend(), _SPEEDS["gpu"]))
        remedy = f"{remedy}, or run it inside solvable.numerics.cost.unlimited()"
    estimates = [f"{in_bytes(memory)} of memory"] if memory else []
    estimates += [in_time(seconds)] if seconds else []
    cost = f"{what} would take about {' and '.join(estimates)}"
    if seconds > longest:
        raise ValueError(f"{cost}, longer than {in_time(longest)}: {remedy}")
    if memory > _SHARE * (free := free_memory()):
        raise ValueError(f"{cost}, and {in_bytes(free)} are free: {remedy}")


def in_bytes(count: float) -> str:
    """A number of bytes in readable units.

    >>> from solvable.numerics.cost import in_bytes
    >>> in_bytes(26e12)
    '26 TB'
    """
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


def in_time(seconds: float) -> str:
    """A time in readable units.

    >>> from solvable.numerics.cost import in_time
    >>> in_time(7200)
    '2 hours'
    """
    for length, unit, most in ((1.0, "s", 100.0), (60.0, "minutes", 6000.0), (3600.0, "hours", 2 * DAY)):
        if seconds < most:
            return f"{seconds / length:.2g} {unit}" if unit != "hours" else f"{seconds / length:.3g} {unit}"
    days = seconds / DAY
    return f"{days:.3g} days" if days < 1000 else f"{days / 365.25:.3g} years"


def free_memory() -> float:
    """Bytes that this process may still take; infinity where the system does not say."""
    found = [_available(), _left_in_group()]
    return min((value for value in found if value is not None), default=float("inf"))


def _available() -> float | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return None


def _left_in_group() -> float | None:
    """What a container still allows (control groups, version 2)."""
    try:
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
        return None if limit == "max" else float(max(int(limit) - int(used), 0))
    except (OSError, ValueError):
        return None
