"""A forecast that learns from the run: the kernel's lazy curve before training, and the loss during the first steps.

Four continuations of a run are fitted to its records over the last two decades of time: the *lazy* one (the initial
kernel, with a time unit and a floor), the *steady* one (a kernel that has grown and keeps its speed), the *growing* one
(a kernel that goes on growing until the targets are learned), and an empirical *power law* with a floor. Each is tested
on the run itself: it is fitted to the records up to a tenth, a fifth, ... of the time known, and held against the rest,
which gives its error per decade of extrapolation. The forecast is the geometric mean of the four, weighted by the
inverse squares of these errors; its width combines their disagreement, these errors and a least error per decade. The
ends of an interval are multiples of it, below and above, that were found once on a development set of trained networks.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from solvable.checks import check_choice
from solvable.diagnostics.tangent import shown
from solvable.inference.backtest import fit_part, later
from solvable.inference.discrepancy import Backtest, Origin
from solvable.inference.empirical_laws import PowerLaw
from solvable.inference.fitting import Fit
from solvable.inference.law import Law
from solvable.inference.runs import Run, check_runs
from solvable.inference.theory_laws import Curve
from solvable.inference.thinning import SHORT, thin
from solvable.networks.forecast_report import ForecastReport
from solvable.networks.run_laws import GrowingLaw, LazyLaw, SteadyLaw, lazy_losses, tabulated
from solvable.training import GradientDescent, Training

RunLoss = Literal["half-mse", "mse", "squared"]
# Fractions of the time known up to which continuations are fitted, to be held against the rest.
CUTS = (0.1, 0.2, 0.35, 0.55)
# Records of the last this many times are fitted: earlier ones say little about later ones.
WINDOW = 100.0
FEWEST_RECORDS = 12
_FEWEST_EARLY, _FEWEST_LATE = 6, 3
_NOISE = "gaussian"
# The error per decade of a continuation that could not be tested.
_UNTESTED = 1.0
# Errors per decade below this one are not told apart in the weights.
WEIGHT_ERROR = 0.1
# The relative difference of the losses at step 0 above which the run is not the one that was forecast.
_ANOTHER_NETWORK = 0.2
# Kernel time in units of the inverse largest eigenvalue up to which nothing has been learned.
_NOTHING_LEARNED = 0.01


class Continuation(NamedTuple):
    """A law that was fitted to the records, and how it predicted later records of the same run from earlier ones."""

    fit: Fit
    past: Backtest

    @property
    def error_per_decade(self) -> float:
        """Relative error per decade of extrapolation."""
        slope = self.past.slope
        return slope if math.isfinite(slope) else _UNTESTED

    def losses(self, run: Run) -> np.ndarray:
        """The loss of the law at the times of a run."""
        return np.exp(later(self.fit, [run])[0])


class Clock(NamedTuple):
    """How steps of a run become times of the kernel, and its loss the squared error."""

    training: Training
    # Kernel time per flow time, and the squared error per loss.
    factor: float
    scale: float

    @property
    def learning_rate(self) -> float | None:
        """Kernel time of a step of plain gradient descent at a constant rate; None for other trainings."""
        rate = getattr(self.training, "learning_rate", None)
        plain = isinstance(self.training, GradientDescent) and not self.training.momentum
        return self.factor * float(rate) if plain and isinstance(rate, int | float) else None

    def times(self, steps: np.ndarray) -> np.ndarray:
        """Kernel times of steps."""
        return self.factor * np.asarray(self.training.flow_time(steps), float)


def updated(report: ForecastReport, steps: Any, losses: Any, training: Any, loss: str) -> Any:
    """As :meth:`ForecastReport.update`, whose arguments these are."""
    from solvable.networks.run_forecast_report import RunForecast

    clock = _clock(training, check_choice("loss", loss, get_args(RunLoss)), report.outputs)
    run, start, notes = _records(steps, losses, clock)
    _check_start(report, start, loss)
    rate = clock.learning_rate
    curve = tabulated(report, run.flow_time, rate)
    # Beyond rounding, so that a record at the very edge is out on any clock.
    recent = run.part(run.flow_time > (1 + 1e-9) * run.flow_time[-1] / WINDOW)
    if recent.size < FEWEST_RECORDS:
        raise ValueError(
            f"the run has {recent.size} records between steps {run.steps[-1] / WINDOW:.3g} and {run.steps[-1]:g}; the "
            f"forecast needs {FEWEST_RECORDS}: record more often, about evenly in the logarithm of the step"
        )
    candidates: dict[str, tuple[Law, dict[str, float]]] = {
        "lazy": (LazyLaw(curve), {"kernel": 1.0}),
        "steady": (SteadyLaw(curve), {"kernel": 1.0}),
        "growing": (GrowingLaw(curve), {"kernel": 1.0}),
        "power law": (PowerLaw(), {}),
    }
    found = {name: _continuation(law, fixed, recent) for name, (law, fixed) in candidates.items()}
    if not any(one.past.origins for one in found.values()):
        notes.append("too few early records to test the continuations on the run itself: the interval is a guess")
    return RunForecast(
        forecast=report,
        run=run,
        lazy=lazy_losses(report, run.flow_time, rate),
        continuations=found,
        speed=_speed(curve, run),
        loss=loss,
        clock=clock,
        notes=(*notes, *_notes(training)),
    )


def weights_of(continuations: Mapping[str, Continuation]) -> dict[str, float]:
    """Weights that add up to one: inverse squares of errors per decade, each joined with :data:`WEIGHT_ERROR`.

    Parameters
    ----------
    continuations
        The fitted and tested laws.
    """
    inverse = {name: 1 / (one.error_per_decade**2 + WEIGHT_ERROR**2) for name, one in continuations.items()}
    return {name: value / sum(inverse.values()) for name, value in inverse.items()}


def _continuation(law: Law, fixed: dict[str, float], run: Run) -> Continuation:
    origins = []
    for cut in CUTS:
        early = run.flow_time <= cut * run.flow_time[-1]
        if early.sum() < _FEWEST_EARLY or (~early).sum() < _FEWEST_LATE:
            continue
        first, rest = run.part(early), run.part(~early)
        fitted = fit_part((law, fixed), [first], _NOISE)
        logs, spread = later(fitted, [rest])
        distances = np.log10(rest.flow_time / first.flow_time[-1])
        origins.append(Origin(cut, np.log(rest.loss) - logs, distances, fitted.problem.noise.deviation, spread))
    return Continuation(fit_part((law, fixed), [run], _NOISE), Backtest(origins))


def _clock(training: Any, loss: str, outputs: int) -> Clock:
    if isinstance(training, bool) or not isinstance(training, Training | int | float | np.floating | np.integer):
        raise ValueError(
            f"training must say how the run is trained, a learning rate or such as GradientDescent(0.1, momentum=0.9), "
            f"not {shown(training)}: the forecast is of "
            "gradient descent and SGD, not of Adam"
        )
    if not isinstance(training, Training):
        training = GradientDescent(float(training))
    momentum: Any = getattr(training, "momentum", 0.0)
    if not isinstance(momentum, int | float):
        raise ValueError("the momentum follows a schedule, for which the kernel has no clock: give a constant one")
    # Half of the squared error is the loss on whose descent the kernel's time counts.
    factor, scale = {"half-mse": (1.0, 2.0), "mse": (2.0 / outputs, float(outputs)), "squared": (2.0, 1.0)}[loss]
    return Clock(training, factor / (1 - float(momentum)), scale)


def _notes(training: Any) -> list[str]:
    decay = getattr(training, "weight_decay", 0.0)
    if isinstance(decay, int | float) and not decay:
        return []
    return ["the lazy curve is without weight decay, and the run has one"]


def _records(steps: Any, losses: Any, clock: Clock) -> tuple[Run, tuple[float, float], list[str]]:
    """The run in kernel time and squared error, its first record, and warnings."""
    flat = [np.atleast_1d(np.asarray(value, float)) for value in (steps, losses)]
    if flat[0].ndim != 1 or flat[0].shape != flat[1].shape:
        raise ValueError(
            f"steps and losses must be two lists of equal length, not of shapes {flat[0].shape} and {flat[1].shape}"
        )
    if not np.isfinite(flat[1]).all():
        place = int(np.argmin(np.isfinite(flat[1])))
        raise ValueError(
            f"the loss is {flat[1][place]:g} at step {flat[0][place]:g}: a forecast needs finite losses, so end the "
            "run before it, or leave this record out"
        )
    (run,), notes = check_runs(Run("run", flat[0], clock.scale * flat[1]))
    if clock.training.counts_steps and (run.steps != np.round(run.steps)).any():
        raise ValueError(f"steps must be whole numbers, not {run.steps[run.steps != np.round(run.steps)][0]:g}")
    timed = Run("run", run.steps, run.loss, flow_time=clock.times(run.steps))
    start = (float(timed.flow_time[0]), float(timed.loss[0]))
    timed = timed.part(timed.flow_time > 0)
    if timed.size > SHORT:
        notes.append(f"{timed.size} records are joined to means over bins of the logarithm of the step")
        timed = thin(timed)
    return timed, start, notes


def _check_start(report: ForecastReport, start: tuple[float, float], loss: str) -> None:
    """Refuse a run whose loss before training is not that of the forecast."""
    time, measured = start
    if time * report.eigenvalues.max() > _NOTHING_LEARNED:
        return
    expected = float(lazy_losses(report, np.zeros(1), None)[0])
    if abs(math.log(measured / expected)) <= _ANOTHER_NETWORK:
        return
    conventions = {"half-mse": 2.0, "mse": float(report.outputs), "squared": 1.0}
    raw = measured / conventions[loss]
    fitting = [name for name, scale in conventions.items() if abs(math.log(raw * scale / expected)) < 0.02]
    remedy = (
        f"it would be with loss={fitting[0]!r}"
        if fitting
        else "measure initial_outputs='network', or give the run of the network, data and loss that were forecast"
    )
    raise ValueError(
        f"the run starts at a loss of {raw:.4g}, and the forecast network at {expected / conventions[loss]:.4g} (as "
        f"{loss!r}): this is not the run that was forecast; {remedy}"
    )


def _speed(curve: Curve, run: Run) -> float:
    """The time in which the initial kernel would reach the last losses, over the time that the run took."""
    last = run.flow_time > run.flow_time[-1] / 1.25
    times, losses = run.flow_time[last], run.loss[last]
    if not np.exp(curve.logs.min()) < losses.min() or not losses.max() < np.exp(curve.logs.max()):
        return math.nan if losses.max() >= np.exp(curve.logs.max()) else math.inf
    # Both run downwards, and interpolation needs increasing positions.
    falling = np.minimum.accumulate(curve.logs)[::-1]
    found = np.interp(np.log(losses), falling, curve.grid.knots[::-1])
    return float(np.exp(np.mean(found - np.log(times))))
