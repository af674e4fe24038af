"""Laws for a run whose tangent kernel was measured before training: the kernel's lazy curve on several clocks."""

from collections.abc import Mapping, Sequence

import numpy as np

from solvable.inference.law import Law, LawParameter
from solvable.inference.runs import Run
from solvable.inference.splines import Grid
from solvable.inference.theory_laws import Curve
from solvable.networks.forecast_report import ForecastReport

# The lazy curve is tabulated up to this many times the last step, with this many knots per decade.
_REACH = 1e4
_KNOTS_PER_DECADE = 48


def lazy_losses(report: ForecastReport, times: np.ndarray, learning_rate: float | None) -> np.ndarray:
    """The loss of a lazy network at kernel times, by finite steps where they are stable, else by gradient flow.

    Parameters
    ----------
    report
        The forecast before training.
    times
        Kernel times: learning rate times steps on half of the squared error.
    learning_rate
        The constant learning rate of plain gradient descent, in kernel time per step; None for gradient flow.
    """
    stable = learning_rate is not None and learning_rate * report.eigenvalues.max() < 2
    return np.asarray(report.lazy_curve(times, learning_rate=learning_rate if stable else None).train_loss)


def tabulated(report: ForecastReport, times: np.ndarray, learning_rate: float | None) -> Curve:
    """The lazy curve as a spline that reaches far beyond the records.

    Parameters
    ----------
    report
        The forecast before training.
    times
        Kernel times of the records.
    learning_rate
        As in :func:`lazy_losses`.
    """
    begin, end = times[times > 0][0] / 100, times[-1] * _REACH
    knots = np.linspace(np.log(begin), np.log(end), int(_KNOTS_PER_DECADE * np.log10(end / begin)))
    losses = np.maximum(lazy_losses(report, np.exp(knots), learning_rate), 1e-280)
    return Curve(Grid(knots), np.log(losses), float(lazy_losses(report, np.zeros(1), None)[0]))


class LazyLaw(Law):
    """The loss of the initial kernel in a time unit of its own, plus a floor.

    The kernel fixes the height of the curve; a rate of 1 and a floor of 0 are the forecast before training.

    Parameters
    ----------
    curve
        The lazy curve.
    """

    name = "lazy-kernel"
    terms = ("floor", "kernel")
    parameters: tuple[LawParameter, ...] = (
        LawParameter("rate", 0.05, 20.0, 1.0, log=True, natural_step=0.1, help="kernel time per time of the run"),
    )
    term_help: Mapping[str, str] = {"floor": "loss after infinite time", "kernel": "share of the kernel's curve"}

    def __init__(self, curve: Curve) -> None:
        self.curve = curve

    def basis(self, theta: Mapping[str, float], run: Run) -> np.ndarray:
        """A constant and the lazy curve.

        Parameters
        ----------
        theta
            The rate.
        run
            The run, whose flow time is the kernel time.
        """
        return np.column_stack([np.ones(run.size), self.curve(theta["rate"] * run.flow_time)])


class ClockLaw(Law):
    """Base class: the initial kernel's loss on a clock of its own, whose unit is the time of the last record.

    Parameters
    ----------
    curve
        The lazy curve.
    unit
        The time of the last record; set by :meth:`prepare`.
    """

    terms = ("kernel",)
    term_help: Mapping[str, str] = {"kernel": "share of the kernel's curve"}

    def __init__(self, curve: Curve, unit: float = 1.0) -> None:
        self.curve, self.unit = curve, unit

    def prepare(self, runs: Sequence[Run]) -> Law:
        """The law with the time of the last record.

        Parameters
        ----------
        runs
            The runs that will be fitted.
        """
        return type(self)(self.curve, max(float(run.flow_time[-1]) for run in runs))

    def kernel_time(self, theta: Mapping[str, float], times: np.ndarray) -> np.ndarray:
        """What the clock shows.

        Parameters
        ----------
        theta
            The parameters of the clock.
        times
            Times of the run.
        """
        raise NotImplementedError

    def basis(self, theta: Mapping[str, float], run: Run) -> np.ndarray:
        """The lazy curve on this clock.

        Parameters
        ----------
        theta
            The parameters of the clock.
        run
            The run, whose flow time is the time.
        """
        return self.curve(self.kernel_time(theta, run.flow_time))[:, None]


class SteadyLaw(ClockLaw):
    """The initial kernel's loss on a clock that is a power of time up to the last record, and keeps its last speed.

    ``L(t) = L_lazy(rate unit (t / unit)^power)`` up to the unit: so a network learns whose kernel grows. Beyond it the
    kernel stops growing, and time passes at the speed ``rate power``.

    Parameters
    ----------
    curve, unit
        As in :class:`ClockLaw`.
    """

    name = "steady-kernel"
    parameters: tuple[LawParameter, ...] = (
        LawParameter("rate", 0.02, 200.0, 1.0, log=True, natural_step=0.1, help="kernel time per time of the run"),
        LawParameter("power", 0.1, 5.0, 1.0, log=True, natural_step=0.1, help="power of time that the clock follows"),
    )

    def kernel_time(self, theta: Mapping[str, float], times: np.ndarray) -> np.ndarray:
        """A power of time up to the unit, and a line beyond.

        Parameters
        ----------
        theta
            Rate and power.
        times
            Times of the run.
        """
        share = np.minimum(times / self.unit, 1.0) ** theta["power"]
        beyond = theta["power"] * np.maximum(times / self.unit - 1.0, 0.0)
        return theta["rate"] * self.unit * (share + beyond)


class GrowingLaw(ClockLaw):
    """The initial kernel's loss on a clock that a growing kernel speeds up, for as long as there is an error to learn.

    In a network of two layers the gradient of each layer is proportional to the other layer and to the error, so the
    kernel grows at a rate proportional to itself and to the error: with the kernel time ``tau`` and the speed
    ``s = d tau / dt``, ``ds/dt = growth s sqrt(L(tau)/L(0)) / unit``. Hence ``s = 1 + growth I(tau) / unit``, where
    ``I`` is the integral of ``sqrt(L/L(0))``. While the loss is near its first value, the speed grows exponentially, as
    in the escape from a saddle; it stops growing when the targets have been learned. A clock that reaches the end of
    the tabulated curve stays there.

    Parameters
    ----------
    curve, unit
        As in :class:`ClockLaw`.
    """

    name = "growing-kernel"
    parameters: tuple[LawParameter, ...] = (
        LawParameter("rate", 0.05, 20.0, 1.0, log=True, natural_step=0.1, help="kernel time per time, before growth"),
        LawParameter("growth", 1e-3, 1e3, 0.1, log=True, natural_step=0.3, help="growth of the speed until the end"),
    )

    def __init__(self, curve: Curve, unit: float = 1.0) -> None:
        super().__init__(curve, unit)
        self._knots = np.exp(curve.grid.knots)
        self._errors = self._integral(np.sqrt(np.exp(curve.logs) / curve.start))

    def kernel_time(self, theta: Mapping[str, float], times: np.ndarray) -> np.ndarray:
        """The inverse of the time that passes until the clock shows a kernel time, the integral of ``1 / s``.

        Parameters
        ----------
        theta
            Rate and growth.
        times
            Times of the run.
        """
        speeds = 1 + theta["growth"] * self._errors / self.unit
        passed = np.log(self._integral(1 / speeds))
        wanted = np.log(theta["rate"] * np.maximum(times, 1e-300))
        return np.exp(np.interp(wanted, passed, self.curve.grid.knots))

    def _integral(self, values: np.ndarray) -> np.ndarray:
        """The integral over kernel time from zero to each knot; before the first knot the integrand is constant."""
        slices = np.diff(self._knots) * (values[1:] + values[:-1]) / 2
        return values[0] * self._knots[0] + np.concatenate([[0.0], np.cumsum(slices)])
