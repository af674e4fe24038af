"""Laws from solvable models: the curve at ``time_unit`` times the intrinsic time, in a free unit, plus a floor."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from solvable.inference.law import Law, LawParameter
from solvable.inference.runs import Run
from solvable.inference.splines import Grid

_TERMS = {"unit": "loss of the data per loss of the theory", "floor": "loss that training cannot remove"}
_TIME_UNIT = "flow time of the theory per intrinsic time of the data"
# How much of the theory's time the data may span, in the box of the time unit.
_LEAST_TIME = 10.0
# A run from which laws have boxes before they have seen any data.
UNIT_RUN = Run("unit", steps=np.array([1.0, 100.0]), loss=np.array([1.0, 0.5]))


class Curve:
    """The logarithm of a loss over the logarithm of time, by a cubic spline, with what lies before and after.

    Before the first time the loss is a straight line from its value at zero; after the last it continues as the power
    law that it has there.

    Parameters
    ----------
    grid
        Knots at the logarithms of increasing times.
    logs
        Logarithm of the loss at each of them.
    start
        The loss at time zero.
    """

    def __init__(self, grid: Grid, logs: np.ndarray, start: float) -> None:
        self.grid, self.logs, self.start = grid, logs, start
        self.begin, self.end = math.exp(grid.knots[0]), math.exp(grid.knots[-1])

    def __call__(self, times: np.ndarray) -> np.ndarray:
        """The loss at any times.

        Parameters
        ----------
        times
            Times, zero or more.
        """
        loss = np.exp(self.grid(self.logs, np.log(np.maximum(times, self.begin))))
        early, late = times < self.begin, times > self.end
        if early.any():
            loss[early] = self.start + (math.exp(self.logs[0]) - self.start) * times[early] / self.begin
        if late.any():
            slope = float(self.grid.slopes[-1] @ self.logs)
            loss[late] = np.exp(self.logs[-1] + slope * np.log(times[late] / self.end))
        return loss


class TheoryLaw(Law):
    """Base class of laws whose loss is ``unit * theory(time_unit * flow_time) + floor``."""

    terms = ("unit", "floor")
    term_help = _TERMS
    optional_terms = ("floor",)
    # The longest time at which the theory is known.
    _latest: float

    def _curve(self, theta: Mapping[str, float], run: Run) -> Curve:
        raise NotImplementedError

    def basis(self, theta: Mapping[str, float], run: Run) -> np.ndarray:
        """The theory's curve at the times of the run, and ones.

        Parameters
        ----------
        theta
            The nonlinear parameters by name.
        run
            The run.
        """
        return np.stack([self._curve(theta, run)(theta["time_unit"] * run.flow_time), np.ones(run.size)], axis=1)

    def _time_unit(self, runs: Sequence[Run]) -> LawParameter:
        longest = max(float(run.flow_time[-1]) for run in runs)
        low, high = _LEAST_TIME / longest, self._latest / longest
        return LawParameter(
            "time_unit", low, high, math.sqrt(low * high), log=True, natural_step=1.0, help=_TIME_UNIT,
            remedy="fix it to the learning rate where the theory's own system was trained",
        )  # fmt: skip

    def check(self, runs: Sequence[Run]) -> list[str]:
        """Warn where times are steps whose learning rates are not known.

        Parameters
        ----------
        runs
            The runs.
        """
        unknown = [run.name for run in runs if run.schedule is None and run.learning_rate is None and run.peak == 1.0]
        if not unknown:
            return []
        return [
            f"the learning rates of {', '.join(map(repr, unknown[:3]))}{' and others' * (len(unknown) > 3)} are not "
            "known: a constant rate is assumed, and forecasts assume that it goes on; pass training=... if it does not"
        ]
