"""What work will cost, said before it is begun: memory and time in words, and a refusal where they cannot be had.

>>> from solvable.engines.budget import in_bytes, in_time
>>> in_bytes(26e12), in_time(7200)
('26 TB', '2 hours')
"""

import os
from pathlib import Path

DAY = 86400.0
# Part of the memory that is free now which results may take: computing them needs the rest.
_SHARE = 0.5


def in_bytes(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


def in_time(seconds: float) -> str:
    """A time for people."""
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


def check_budget(what: str, remedy: str, *, memory: float, seconds: float | None = None, longest: float = DAY) -> None:
    """Raise a ValueError that tells the estimate, if the results do not fit into memory or the work takes too long.

    >>> from solvable.engines.budget import check_budget
    >>> check_budget("a plane", "ask for fewer cells", memory=1e3, seconds=1e9)
    Traceback (most recent call last):
        ...
    ValueError: a plane would take about 1 kB of memory and 31.7 years, longer than 24 hours: ask for fewer cells
    """
    cost = f"{what} would take about {in_bytes(memory)} of memory"
    if seconds is not None:
        cost += f" and {in_time(seconds)}"
    free = free_memory()
    if memory > _SHARE * free:
        raise ValueError(f"{cost}, and {in_bytes(free)} are free: {remedy}")
    if seconds is not None and seconds > longest:
        raise ValueError(f"{cost}, longer than {in_time(longest)}: {remedy}")
