"""The one error of a training that leaves the finite numbers."""

from typing import Any


class DivergedError(ValueError):
    """Training left the finite numbers.

    Parameters
    ----------
    message
        What happened, and what to do.
    step
        The step at which it was seen; None for gradient flow.
    time
        The time at which it was seen, in the units of the training.
    stable_learning_rate
        An estimate of the learning rate below which training is stable there, where there is one.
    partial
        What there was until then, where it is known: curves, or the trained networks with theirs.
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
