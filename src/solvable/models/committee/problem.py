"""What every solver is handed, and what it hands back."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from solvable.models.committee.task import Task


class Problem(NamedTuple):
    """The task, the start, and the descent ``w <- (1 - dt decay) w + (dt/gamma) sum_mu g^mu x^mu``."""

    task: Task
    samples_per_dimension: float
    alignment: Float[np.ndarray, "neuron index"]
    overlap: Float[np.ndarray, "neuron neuron"]
    step: float
    weight_decay: float


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What is asked beside losses, alignment and overlap."""

    correlations: bool = False
    responses: bool = False
    loss_gap: bool = False
    kernel_alignment: bool = False


class Runs(NamedTuple):
    """Order parameters of independent runs, and what is known of their errors.

    ``values`` maps names to arrays (run, time, ...). ``bias`` holds for some names half the distance between two
    conventions that err to opposite sides, ``time_error`` an estimate of the error of the time steps; both without the
    run axis.
    """

    values: Mapping[str, np.ndarray]
    bias: Mapping[str, np.ndarray]
    time_error: Mapping[str, np.ndarray]
    notes: Mapping[str, float]
    diverged_at: float | None = None


Advance = Callable[[float], None]


class DivergedError(ValueError):
    """Descent left the finite numbers."""


def diverged(time: float, step: float, stable: float) -> DivergedError:
    """The error that says when, and which step would do."""
    return DivergedError(
        f"descent diverged at time {time:g} with step = {step:g}: a step below {stable:.2g} is stable there "
        "(or pass keep_diverged=True for the results up to it)"
    )
