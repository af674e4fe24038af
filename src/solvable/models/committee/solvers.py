"""The solvers of the committee, by name; one interface."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from solvable.models.committee.latent import Flow, Latent
from solvable.models.committee.problem import Advance, Problem, Runs, Wanted


class Solver(Protocol):
    """What solves the theory: settings, and :meth:`solve`."""

    whole_steps: bool

    def work(self, problem: Problem, times: np.ndarray) -> float:
        """How much :meth:`solve` will report as done."""
        ...

    def solve(
        self, problem: Problem, times: np.ndarray, wanted: Wanted, key: int, advance: Advance, keep_diverged: bool
    ) -> Runs:
        """Order parameters at the times."""
        ...


class Online: ...


SOLVERS: dict[str, Callable[[], Any]] = {
    "latent": Latent,
    "flow": Flow,
}
