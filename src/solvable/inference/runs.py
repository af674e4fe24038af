"""Training curves after reading: runs with their steps, losses, learning rates and sizes, and the checks of them."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from solvable.training import Schedule, Training

# A schedule is summed over at most this many points, and interpolated between them.
_MOST_POINTS = 1_000_000
_FEWEST_RECORDS = 5
_CONSTANT = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One training curve.

    Parameters
    ----------
    name
        Name of the run, for messages and figures.
    steps
        Increasing numbers of steps (or any other time) at which the loss was recorded.
    loss
        The loss at each of them.
    flow_time
        The intrinsic time, the sum of the learning rates over their peak. By default it is computed from ``schedule``,
        else from ``learning_rate``, and else it equals ``steps``.
    learning_rate
        The learning rate at each record, relative to its peak.
    schedule
        The learning rate at every step: a function of an array of steps, for laws that need the full history. Only its
        ratio to its peak matters.
    errors
        The standard error of each loss.
    sizes
        Numbers that differ from run to run: ``width``, ``batch_size``, ``samples``, ``parameters``, ``tokens``.
    group
        Runs of the same group share what is not shared by all: ``"loss of 25M"``. By default each run is its own.
    peak
        The largest learning rate, where it is known; 1 otherwise.

    >>> from solvable.inference import Run
    >>> run = Run("decay", steps=[1, 2, 3, 4], loss=[4.0, 3.0, 2.5, 2.4], schedule=lambda step: 1.0 / (1 + step))
    >>> run.flow_time.round(3).tolist()
    [1.0, 1.5, 1.833, 2.083]
    >>> run.at([8]).flow_time.round(3).tolist()
    [2.718]
    """

    name: str
    steps: np.ndarray
    loss: np.ndarray
    flow_time: np.ndarray = None  # type: ignore[assignment]
    learning_rate: np.ndarray | None = None
    schedule: Callable[[np.ndarray], np.ndarray] | None = None
    errors: np.ndarray | None = None
    sizes: Mapping[str, float] = dataclasses.field(default_factory=dict)
    group: str = ""
    peak: float = 1.0

    def __post_init__(self) -> None:
        for name in ("steps", "loss", "flow_time", "learning_rate", "errors"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, np.array(value, dtype=float).reshape(-1))
        for name in ("loss", "flow_time", "learning_rate", "errors"):
            value = getattr(self, name)
            if value is not None and value.size != self.steps.size:
                raise ValueError(
                    f"run {self.name!r}: {name} has {value.size} entries and steps has {self.steps.size}; give one each"
                )
        object.__setattr__(self, "sizes", {str(key): float(value) for key, value in dict(self.sizes).items()})
        object.__setattr__(self, "group", self.group or self.name)
        if self.flow_time is None:
            object.__setattr__(self, "flow_time", self._passed(self.steps))

    @property
    def size(self) -> int:
        """Number of records."""
        return int(self.steps.size)

    @property
    def is_constant(self) -> bool | None:
        """Whether the learning rate is constant after its warm-up; None where no rate is known."""
        rates = self.rates(np.linspace(0, self.steps[-1], 257)) if self.schedule is not None else self.learning_rate
        if rates is None:
            return None
        after = rates[int(np.argmax(rates)) :]
        return bool(np.ptp(after) <= 1e-3 * np.max(rates))

    def rates(self, steps: Any) -> np.ndarray:
        """The learning rate relative to its peak at any steps; beyond the records, and without a schedule, the last.

        Parameters
        ----------
        steps
            Numbers of steps.
        """
        steps = np.asarray(steps, float)
        if self.schedule is not None:
            return np.broadcast_to(np.asarray(self.schedule(steps), float), steps.shape) / self._schedule_peak
        if self.learning_rate is not None:
            return np.interp(steps, self.steps, self.learning_rate / np.max(self.learning_rate))
        return np.ones(steps.shape)

    @property
    def _schedule_peak(self) -> float:
        found = getattr(self, "_peak_of_schedule", None)
        if found is None:
            assert self.schedule is not None
            last = max(1.0, float(self.steps[-1]))
            grid = np.unique(np.floor(np.linspace(0, last, int(min(last, 100_000)) + 1)))
            found = float(np.max(np.asarray(self.schedule(grid), float)))
            object.__setattr__(self, "_peak_of_schedule", found)
        return found

    def _passed(self, steps: np.ndarray) -> np.ndarray:
        """The sum of the relative rates up to each of these steps."""
        if steps.size == 0 or (self.schedule is None and self.learning_rate is None):
            return np.array(steps, float)
        last = max(1.0, float(np.max(steps)))
        if self.schedule is not None:
            # The step s leads from time s to time s + 1, at the rate of s.
            edges = np.linspace(0, np.ceil(last), int(min(np.ceil(last), _MOST_POINTS)) + 1)
            width = edges[1] - edges[0]
            rates = self.rates(edges[:-1] if width == 1 else (edges[:-1] + edges[1:]) / 2)
            return np.interp(steps, edges, np.append(0.0, np.cumsum(rates) * width))
        edges = np.unique(np.concatenate([[0.0], self.steps, steps]))
        rates = self.rates(edges)
        return np.interp(steps, edges, np.append(0.0, np.cumsum((rates[1:] + rates[:-1]) / 2 * np.diff(edges))))

    def at(self, steps: Any) -> "Run":
        """The same run at other steps, with NaN for its losses.

        Where the flow time was given and no rates are known, it is interpolated, and continued at its last speed.

        Parameters
        ----------
        steps
            Increasing numbers of steps.
        """
        steps = np.atleast_1d(np.asarray(steps, float))
        rates = None if self.learning_rate is None and self.schedule is None else self.rates(steps)
        if self.schedule is not None or (self.learning_rate is None and np.array_equal(self.flow_time, self.steps)):
            passed = self._passed(steps)
        else:
            passed = np.interp(steps, np.append(0.0, self.steps), np.append(0.0, self.flow_time))
            beyond = steps > self.steps[-1]
            if beyond.any():
                back = max(0, self.size - 2)
                speed = np.diff(self.flow_time[back:]) / np.diff(self.steps[back:]) if self.size > 1 else [1.0]
                passed[beyond] = self.flow_time[-1] + speed[-1] * (steps[beyond] - self.steps[-1])
        return dataclasses.replace(
            self, steps=steps, loss=np.full(steps.size, np.nan), flow_time=passed, learning_rate=rates, errors=None
        )

    def part(self, chosen: Any) -> "Run":
        """The run with some of its records only.

        Parameters
        ----------
        chosen
            A mask, a slice or the places of the records.
        """
        fields = ("steps", "loss", "flow_time", "learning_rate", "errors")
        values = {name: getattr(self, name) for name in fields}
        parts: dict[str, Any] = {name: None if value is None else value[chosen] for name, value in values.items()}
        return dataclasses.replace(self, **parts)

    def trained_by(self, training: Training) -> Self:
        """The run with the schedule, the peak rate and the batch size of a training.

        Parameters
        ----------
        training
            How the run was trained; its learning rate may be a schedule.
        """
        rate: Any = training.learning_rate  # type: ignore[attr-defined]
        sizes = dict(self.sizes)
        batch = getattr(training, "batch_size", None)
        if batch is not None and not isinstance(batch, Schedule):
            sizes.setdefault("batch_size", float(batch))
        # The flow time is computed again.
        again: dict[str, Any] = {"sizes": sizes, "flow_time": None, "learning_rate": None}
        if not isinstance(rate, Schedule):
            return dataclasses.replace(self, peak=float(rate), **again)

        def schedule(steps: np.ndarray) -> np.ndarray:
            import jax

            with jax.enable_x64(True):
                found = np.asarray(jax.vmap(rate)(np.atleast_1d(np.asarray(steps, float))))
            return found.reshape(np.shape(steps))

        made = dataclasses.replace(self, schedule=schedule, **again)
        return dataclasses.replace(made, peak=made._schedule_peak, learning_rate=made.rates(made.steps))


def check_runs(runs: Run | Iterable[Run], *, mask_spikes: bool = False) -> tuple[list[Run], list[str]]:
    """Check runs before a fit, and return them with the warnings that belong to them.

    Losses that are not finite or not positive, steps that do not increase, runs that are empty, constant or that
    diverge are refused, in one line that names the run and the step.

    Parameters
    ----------
    runs
        The runs.
    mask_spikes
        Whether to leave out records that are not finite, and say so, instead of refusing them.
    """
    runs = [runs] if isinstance(runs, Run) else list(runs)
    if not runs:
        raise ValueError("there are no runs to fit: give at least one curve")
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two runs are called {twice!r}: give each run a name of its own")
    found, notes = [], []
    for run in runs:
        checked, own = _checked(run, mask_spikes)
        found.append(checked)
        notes += own
    return found, notes


def _checked(run: Run, mask_spikes: bool) -> tuple[Run, list[str]]:
    name, notes = f"run {run.name!r}", []
    if run.size == 0:
        raise ValueError(f"{name} is empty: it has no records to fit")
    if not np.isfinite(run.steps).all() or run.steps[0] < 0:
        raise ValueError(f"{name}: steps must be finite numbers, zero or more; leave out the others")
    order = np.diff(run.steps)
    if (order == 0).any():
        step = run.steps[int(np.argmax(order == 0))]
        raise ValueError(f"{name}: step {step:g} is there twice; keep one record of each step (read_curves does)")
    if (order < 0).any():
        step = run.steps[int(np.argmax(order < 0)) + 1]
        raise ValueError(f"{name}: steps must increase, but go back to {step:g}; keep the later part of a restart")
    bad = ~np.isfinite(run.loss)
    if bad.any():
        place = int(np.argmax(bad))
        if not mask_spikes:
            raise ValueError(
                f"{name}: the loss is {run.loss[place]:g} at step {run.steps[place]:g} ({int(bad.sum())} such "
                "records); remove them, or pass mask_spikes=True to leave them out"
            )
        notes.append(f"{name}: {int(bad.sum())} records that are not finite are left out, the first at step "
                     f"{run.steps[place]:g}")  # fmt: skip
        run = run.part(~bad)
    if run.size < _FEWEST_RECORDS:
        raise ValueError(f"{name} has {run.size} records; a law needs at least {_FEWEST_RECORDS}: record more often")
    if (run.loss <= 0).any():
        place = int(np.argmax(run.loss <= 0))
        raise ValueError(
            f"{name}: the loss is {run.loss[place]:g} at step {run.steps[place]:g}; laws are fitted to the logarithm "
            "of a positive loss: is this column a loss?"
        )
    if np.ptp(run.loss) <= _CONSTANT * np.max(run.loss):
        raise ValueError(f"{name}: the loss is {run.loss[0]:g} throughout; a constant curve determines no law")
    if run.errors is not None and not (np.isfinite(run.errors) & (run.errors > 0)).all():
        raise ValueError(f"{name}: errors must be positive finite numbers, one per record")
    _check_fall(run)
    return run, notes


def _check_fall(run: Run) -> None:
    """Refuse a loss that rises, judged by the medians of its tenths so that single spikes do not matter."""
    parts = [part for part in np.array_split(np.log(run.loss), min(10, run.size // 2)) if part.size]
    medians = np.array([np.median(part) for part in parts])
    scatter = np.median(np.abs(np.diff(np.log(run.loss)))) + 1e-12
    least = int(np.argmin(medians))
    rise = float(medians[least:].max() - medians[least])
    fall = float(medians[0] - medians[least])
    if rise > max(0.05, 3 * scatter) and rise > 0.2 * fall:
        where = run.steps[min(run.size - 1, int((least + 1) * run.size / len(parts)))]
        raise ValueError(
            f"run {run.name!r}: the loss rises by {100 * np.expm1(rise):.0f} % after step {where:.4g}; no law here "
            "describes a run that diverges or overfits: end the curve there"
        )


def sizes_of(runs: Sequence[Run], name: str) -> np.ndarray:
    """One size of each run, infinite where a run does not have it.

    Parameters
    ----------
    runs
        The runs.
    name
        Such as ``"width"``.
    """
    return np.array([run.sizes.get(name, np.inf) for run in runs])
