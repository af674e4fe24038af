"""Empirical laws of training curves: power laws with an offset, a broken power law, and a law of schedules.

The law of schedules is the functional scaling law: with the intrinsic time ``tau`` (the sum of the learning rates over
their peak) and the relative rate ``h``,

    L = floor + amplitude (tau / tau_ref)^-exponent
        + noise * integral_0^tau h(u) (1 + (tau - u) / noise_time)^-noise_exponent du / noise_time.

The integral is the memory of the gradient noise: at a constant rate it tends to ``1 / (noise_exponent - 1)``, and what
it has accumulated is lost again when the rate decays.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from solvable.checks import check_choice
from solvable.inference.law import Law, LawParameter
from solvable.inference.runs import Run

CLOCKS = ("flow", "steps")
# The rate changes by at most this between neighbouring edges of the noise integral, as a fraction of its peak.
_RATE_RESOLUTION = 0.01
_GRID = 4096
# How far beyond the records a known schedule is searched for a decay.
_LOOK_AHEAD = 10.0
_DECAYED = 0.9
# Records before twice the intrinsic time of the warm-up feel it.
_WARM_UP_REACH = 2.0
_BEND_WIDTH = 0.3
# What the law of schedules knows of noise, and what one run can borrow from others.
KERNEL = ("noise", "noise_time", "noise_exponent")


class _ClockLaw(Law):
    """A law in the intrinsic time or in steps, in units of the geometric mean of the recorded times."""

    def __init__(self, clock: str = "flow", unit: float = 1.0) -> None:
        self.clock, self.unit = check_choice("clock", clock, CLOCKS), float(unit)

    def _times(self, run: Run) -> np.ndarray:
        times = run.flow_time if self.clock == "flow" else run.steps
        return np.maximum(times, 1e-9 * self.unit) / self.unit

    def prepare(self, runs: Sequence[Run]) -> "Law":
        """The law in units of the geometric mean of the times, so that amplitude and exponent are nearly independent.

        Parameters
        ----------
        runs
            The runs that will be fitted.
        """
        times = np.concatenate([run.flow_time if self.clock == "flow" else run.steps for run in runs])
        return self._with_unit(float(np.exp(np.log(times[times > 0]).mean())))

    def _with_unit(self, unit: float) -> "Law":
        return type(self)(self.clock, unit)

    def _scaled(self, parameters: Sequence[LawParameter], *times: str) -> tuple[LawParameter, ...]:
        """The parameters, those of ``times`` in units of time."""
        return tuple(
            dataclasses.replace(p, low=p.low * self.unit, high=p.high * self.unit, start=p.start * self.unit)
            if p.name in times
            else p
            for p in parameters
        )

    def check(self, runs: Sequence[Run]) -> list[str]:
        """Warn of schedules that this law cannot follow, and of records that feel the warm-up.

        Parameters
        ----------
        runs
            The runs that will be fitted.
        """
        return [*schedule_warnings(self.name, runs), *warm_up_warnings(runs)]

    def settings(self) -> dict[str, object]:
        """Clock and unit of time."""
        return {"law": self.name, "clock": self.clock, "unit": self.unit}


class PowerLaw(_ClockLaw):
    """A power law with an offset, ``L = floor + amplitude (t / unit)^-exponent``.

    Parameters
    ----------
    clock
        ``"flow"`` for the intrinsic time, the sum of the learning rates over their peak; or ``"steps"``.
    unit
        The time at which the amplitude is stated; set to the geometric mean of the times by :meth:`prepare`.

    >>> from solvable.inference import PowerLaw, Run
    >>> run = Run("one", [1.0, 4.0], [3.0, 2.0])
    >>> PowerLaw().basis({"exponent": 0.5}, run).tolist()
    [[1.0, 1.0], [1.0, 0.5]]
    """

    terms = ("floor", "amplitude")
    parameters: tuple[LawParameter, ...] = (
        LawParameter(
            "exponent", 0.02, 3.0, 0.4, log=True, natural_step=0.1, help="exponent of the decay of the loss",
            remedy="a longer run, or a known floor", open_low=True, open_high=False,
        ),
    )  # fmt: skip
    term_help: Mapping[str, str] = {"floor": "loss after infinite time", "amplitude": "excess at the unit of time"}

    def __init__(self, clock: str = "flow", unit: float = 1.0) -> None:
        super().__init__(clock, unit)
        self.name = "power-law" if clock == "flow" else "power-law-steps"

    def basis(self, theta: Mapping[str, float], run: Run) -> np.ndarray:
        """A constant and a power.

        Parameters
        ----------
        theta
            The exponent.
        run
            The run.
        """
        times = self._times(run)
        return np.column_stack([np.ones(run.size), times ** -theta["exponent"]])


class BrokenPowerLaw(_ClockLaw):
    """A power law whose exponent changes at some time, with an offset.

    ``L = floor + amplitude (t/b)^-early ((1 + (t/b)^(1/w)) / 2)^(-(late - early) w)`` with the break at b and the width
    w = 0.3 of the bend in the logarithm of time.

    Parameters
    ----------
    clock
        ``"flow"`` for the intrinsic time, or ``"steps"``.
    unit
        Unit of the break time; set by :meth:`prepare`.
    """

    name = "broken-power-law"
    terms = ("floor", "amplitude")
    parameters: tuple[LawParameter, ...] = (
        LawParameter("early_exponent", 0.02, 3.0, 0.3, log=True, natural_step=0.2, help="exponent before the break",
                     remedy="records from earlier times", open_high=False),
        LawParameter("late_exponent", 0.02, 3.0, 0.5, log=True, natural_step=0.2, help="exponent after the break",
                     remedy="a longer run, or a known floor", open_high=False),
        LawParameter("break_time", 0.03, 30.0, 1.0, log=True, natural_step=0.5,
                     help="time of the break", unit="steps",
                     remedy="records on both sides of the break"),
    )  # fmt: skip
    term_help: Mapping[str, str] = {"floor": "loss after infinite time", "amplitude": "excess at the break"}

    def __init__(self, clock: str = "flow", unit: float = 1.0) -> None:
        super().__init__(clock, unit)
        self.parameters = self._scaled(type(self).parameters, "break_time")

    def basis(self, theta: Mapping[str, float], run: Run) -> np.ndarray:
        """A constant and a broken power.

        Parameters
        ----------
        theta
            Exponents and the time of the break.
        run
            The run.
        """
        x = np.log(self._times(run) * self.unit / theta["break_time"])
        bend = _BEND_WIDTH * (np.logaddexp(0.0, x / _BEND_WIDTH) - np.log(2.0))
        change = theta["late_exponent"] - theta["early_exponent"]
        return np.column_stack([np.ones(run.size), np.exp(-theta["early_exponent"] * x - change * bend)])


class ScheduleLaw(_ClockLaw):
    """The functional scaling law: a power of the intrinsic time, and noise that the schedule builds up and takes away.

    Parameters
    ----------
    clock
        ``"flow"``; the law knows no other.
    unit
        The time at which the amplitude is stated; set by :meth:`prepare`.
    """

    name = "schedule"
    terms = ("floor", "amplitude", "noise")
    parameters: tuple[LawParameter, ...] = (
        LawParameter("exponent", 0.02, 3.0, 0.4, log=True, natural_step=0.1, help="exponent of the decay of the loss",
                     remedy="a longer run, or a known floor", open_high=False),
        LawParameter("noise_time", 3e-4, 0.3, 0.02, log=True, natural_step=0.5,
                     help="memory of the noise, in intrinsic time", unit="steps",
                     remedy="a run whose learning rate decays, or the kernel of finished runs"),
        LawParameter("noise_exponent", 1.05, 3.0, 1.5, natural_step=0.3, help="exponent of the memory of the noise",
                     remedy="runs with several schedules, or the kernel of finished runs", open_low=False,
                     open_high=False),
    )  # fmt: skip
    term_help: Mapping[str, str] = {
        "floor": "loss after infinite time at a vanishing learning rate",
        "amplitude": "excess at the unit of time",
        "noise": "loss per unit of accumulated noise",
    }
    term_remedies: Mapping[str, str] = {
        "noise": "a run whose learning rate decays, or the kernel of finished runs",
        "floor": "a run whose learning rate decays, or the kernel of finished runs",
    }

    def __init__(self, clock: str = "flow", unit: float = 1.0) -> None:
        if clock != "flow":
            raise ValueError(f"the law of schedules is one of the intrinsic time, clock='flow', not {clock!r}")
        super().__init__(clock, unit)
        self.parameters = self._scaled(type(self).parameters, "noise_time")

    def basis(self, theta: Mapping[str, float], run: Run) -> np.ndarray:
        """A constant, a power, and the accumulated noise.

        Parameters
        ----------
        theta
            Exponent, and time and exponent of the memory of the noise.
        run
            The run, with its schedule.
        """
        times = self._times(run)
        noise = accumulated_noise(run, theta["noise_time"], theta["noise_exponent"])
        return np.column_stack([np.ones(run.size), times ** -theta["exponent"], noise])

    def check(self, runs: Sequence[Run]) -> list[str]:
        """Warn where the schedule is unknown, or constant, so that noise and floor cannot be told apart.

        Parameters
        ----------
        runs
            The runs that will be fitted.
        """
        notes = warm_up_warnings(runs)
        known = [run.is_constant for run in runs]
        if all(one is None for one in known):
            notes.append("no learning rate is known: the law of schedules takes it to be constant; give a column of it")
        elif all(one is not False for one in known):
            notes.append(
                "all learning rates are constant: noise cannot be told from the floor, and a forecast for another "
                "schedule needs finished runs with a decay (fixed=borrowed_kernel(report), siblings=report.runs)"
            )
        return notes


def rate_edges(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Intrinsic times at which the rate of a run changes, and by how much, as steps of a staircase.

    Parameters
    ----------
    run
        The run.
    """
    found = getattr(run, "_rate_edges", None)
    if found is not None:
        return found
    last = float(run.steps[-1])
    grid = np.unique(np.concatenate([np.linspace(0, last, _GRID), run.steps]))
    heights = run.rates(grid)
    flow = np.interp(grid, np.append(0.0, run.steps), np.append(0.0, run.flow_time))
    if run.schedule is not None:
        flow = run.at(grid).flow_time
    # Edges where the rate has moved by one level; the staircase passes through the middle of each tread.
    level = np.round(heights / _RATE_RESOLUTION)
    changes = np.flatnonzero(np.diff(level)) + 1
    edges = np.append(0.0, flow[changes])
    steps = np.append(level[0], np.diff(level)[changes - 1]) * _RATE_RESOLUTION
    object.__setattr__(run, "_rate_edges", (edges, steps))
    return edges, steps


def accumulated_noise(run: Run, time: float, exponent: float) -> np.ndarray:
    """The integral of the noise of a run at its records, exact for a rate that is constant between its edges.

    Parameters
    ----------
    run
        The run.
    time
        Memory of the noise, in units of the intrinsic time.
    exponent
        Exponent of the memory, above 1.
    """
    edges, jumps = rate_edges(run)
    since = np.maximum(run.flow_time[:, None] - edges[None, :], 0.0) / time
    # A rate that rises by one at an edge has accumulated (1 - (1 + x)^(1-q)) / (q - 1) by now.
    return -np.expm1((1 - exponent) * np.log1p(since)) @ jumps / (exponent - 1)


def borrowed_kernel(report: Any) -> dict[str, float]:
    """Noise and its memory from a finished fit of the law of schedules, to be fixed in the fit of an unfinished run.

    A constant rate cannot tell noise from the floor; runs of another size that have finished can:
    ``infer(run, "schedule", fixed=borrowed_kernel(report), siblings=report.runs)``.

    Parameters
    ----------
    report
        A report of ``infer(..., model="schedule")``, its fit, or a mapping of its parameters.

    Returns
    -------
    dict
        ``noise``, ``noise_time`` in units of the intrinsic time, and ``noise_exponent``.
    """
    if isinstance(report, Mapping):
        return {name: float(report[name]) for name in KERNEL}
    fit = getattr(report, "fit", report)
    problem = fit.problem
    found = problem.theta(fit.best.coordinates, problem.runs[0].group)
    found |= {column.term: value for column, value in zip(problem.columns, fit.best.coefficients, strict=True)}
    if not set(KERNEL) <= set(found):
        raise ValueError(f"a kernel is borrowed from a fit of the law 'schedule', not of {problem.law.name!r}")
    return {name: float(found[name]) for name in KERNEL}


def schedule_warnings(name: str, runs: Sequence[Run]) -> list[str]:
    """A warning for every run whose rate decays, within its records or later, as far as its schedule is known.

    Parameters
    ----------
    name
        Name of the law that cannot follow the decay.
    runs
        The runs.
    """
    notes, unknown = [], []
    for run in runs:
        if run.schedule is None and run.learning_rate is None:
            unknown.append(run.name)
            continue
        steps = np.linspace(0, _LOOK_AHEAD * run.steps[-1], _GRID)
        rates = run.rates(steps)
        peak = int(np.argmax(rates > 0.999 * rates.max()))
        below = np.flatnonzero(rates[peak:] < _DECAYED * rates.max())
        if below.size:
            when = steps[peak + below[0]]
            place = "within the records" if when <= run.steps[-1] else "beyond the records"
            notes.append(
                f"run {run.name!r}: the learning rate decays {place}, from step {when:.3g} on; the law {name!r} does "
                "not know of schedules and misses what the decay gains: use model='schedule'"
            )
    if unknown:
        notes.append(
            f"the learning rate of {', '.join(map(repr, unknown[:3]))} is not known: forecasts assume that its "
            "schedule goes on as it was"
        )
    return notes


def warm_up_warnings(runs: Sequence[Run]) -> list[str]:
    """A warning for every run whose first records lie in the warm-up or shortly after it.

    Parameters
    ----------
    runs
        The runs.
    """
    notes = []
    for run in runs:
        if run.schedule is None and run.learning_rate is None:
            continue
        steps = np.linspace(0, run.steps[-1], _GRID)
        rates = run.rates(steps)
        top = int(np.argmax(rates > 0.999 * rates.max()))
        if top == 0:
            continue
        reach = _WARM_UP_REACH * run.at([max(steps[top], 1.0)]).flow_time[0]
        early = int((run.flow_time < reach).sum())
        if early > 1:
            notes.append(
                f"run {run.name!r}: {early} records lie within twice the warm-up (to step {steps[top]:.3g}); the law "
                f"need not hold there: start at step {run.steps[min(early, run.size - 1)]:.4g}"
            )
    return notes


def without_warm_up(run: Run) -> Run:
    """The run without records that feel its warm-up: those before twice its intrinsic time, at least the first 5 %.

    Parameters
    ----------
    run
        The run.
    """
    steps = np.linspace(0, run.steps[-1], _GRID)
    rates = run.rates(steps)
    top = int(np.argmax(rates > 0.999 * rates.max()))
    reach = _WARM_UP_REACH * run.at([max(steps[top], 1.0)]).flow_time[0] if top else 0.0
    kept = (run.flow_time >= reach) & (np.arange(run.size) >= int(0.05 * run.size))
    return run.part(kept) if kept.sum() >= 5 else run


def steps_power_law() -> PowerLaw:
    """A power law with an offset in steps, a baseline that does not know of schedules."""
    return PowerLaw("steps")
