"""Estimates of work, made before it is begun: what would take hours or all memory is refused in words at once.

There are two limits: six hours of work, which a CPU is taken to do at 2e9 operations a second and an accelerator at
1e12, and :data:`MOST_BYTES` of memory. Estimates are rough, to a factor of a few; they tell seconds from days. Work
that is wanted although it is long is begun inside :func:`unlimited`.

>>> from solvable.engines.cost import check_cost
>>> check_cost("this march", operations=1e9)
>>> check_cost("this march", operations=1e18, remedy="ask for earlier times")
Traceback (most recent call last):
    ...
ValueError: this march needs about 1e+18 operations, some 16 years on this machine, more than the limit of 4.3e+13 \
(6 hours): ask for earlier times (or run it inside solvable.engines.cost.unlimited())
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import jax

# What one core of an ordinary CPU does with small arrays, and what an accelerator does, in operations a second.
_SPEEDS = {"cpu": 2e9, "gpu": 1e12, "tpu": 1e12}
_LONGEST = 6 * 3600.0
MOST_BYTES = 64 * 2**30
# However small the arrays, a step of a compiled loop costs about as much as so many operations.
STEP = 2e3

_unlimited: ContextVar[bool] = ContextVar("unlimited", default=False)


@contextlib.contextmanager
def unlimited() -> Iterator[None]:
    """Work inside is begun however long it will take."""
    token = _unlimited.set(True)
    try:
        yield
    finally:
        _unlimited.reset(token)


def check_cost(
    what: str, *, operations: float = 0.0, memory: float = 0.0, remedy: str = "lower its size or its times"
) -> None:
    """Refuse work beyond the limits with a ValueError that names the estimate, the limit and the remedy."""
    if _unlimited.get():
        return
    speed = _SPEEDS.get(jax.default_backend(), _SPEEDS["gpu"])
    if operations > speed * _LONGEST:
        raise ValueError(
            f"{what} needs about {operations:.2g} operations, some {duration(operations / speed)} on this machine, "
            f"more than the limit of {speed * _LONGEST:.2g} ({duration(_LONGEST)}): {remedy} "
            "(or run it inside solvable.engines.cost.unlimited())"
        )
    if memory > MOST_BYTES:
        raise ValueError(
            f"{what} needs about {memory / 2**30:.3g} GiB of memory, more than the limit of {MOST_BYTES / 2**30:g}: "
            f"{remedy} (or run it inside solvable.engines.cost.unlimited())"
        )


def check_descent_cost(name: str, steps: float, seeds: int, operations: float, method: str) -> None:
    """Refuse too many steps of so many operations a run; a step of the flow is of fourth order, hence four."""
    check_cost(
        f"simulating {name} for {steps:.3g} steps and {seeds:.3g} seeds",
        operations=steps * (STEP + seeds * operations) * (4 if method == "flow" else 1),
        remedy="ask for earlier times, fewer seeds or a larger learning_rate",
    )


def duration(seconds: float) -> str:
    """Seconds in a unit that people can imagine."""
    for unit, length in (("years", 3.156e7), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.2g} {unit}"
    return f"{seconds:.2g} seconds"
