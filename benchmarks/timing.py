"""Timing of functions, and the results of benchmarks."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax


def seconds(function: Callable[[], Any], repeats: int = 3, warm: bool = True) -> float:
    """Shortest wall time of a few calls, without compilation if ``warm``."""
    if warm:
        jax.block_until_ready(function())
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(function())
        best = min(best, time.perf_counter() - begin)
    return best


@dataclasses.dataclass(frozen=True)
class Result:
    """A measured number and the bound that it must satisfy, if one was promised."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    def __str__(self) -> str:
        promise = ""
        if self.at_least is not None:
            promise = f"   (promised: at least {self.at_least:g})"
        if self.at_most is not None:
            promise = f"   (promised: at most {self.at_most:g})"
        return f"{self.name:<62} {self.value:>10.4g} {self.unit}{promise}{'' if self.met else '   MISSED'}"
