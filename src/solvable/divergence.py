"""The error that is raised when training diverges."""

from typing import Any


class DivergedError(ValueError):
    """Training diverged: a loss or a weight became infinite or NaN.

    Parameters
    ----------
    message
        What happened and what to do.
    step
        The step at which it was detected; None for gradient flow.
    time
        The time at which it was detected, in the units of the training.
    stable_learning_rate
        Estimate of the learning rate below which training is stable, if there is one.
    partial
        Results until then, if they are known: curves, or trained networks with their curves.
    """

    def __init__(
        self,
        message: str,
        *,
        step: int | None,
        time: float,
        stable_learning_rate: float | None = None,
        partial: Any = None,
    ) -> None:
        super().__init__(message)
        self.step, self.time, self.partial = step, time, partial
        self.stable_learning_rate = stable_learning_rate
