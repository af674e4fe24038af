"""Learning rates that lie ahead of an unfinished run: read from a table, and joined to those that its log has."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from solvable.inference import formats
from solvable.inference.columns import choose_columns, rows_of_runs, split_exports
from solvable.inference.formats import Columns, numbers
from solvable.inference.runs import Run


@dataclasses.dataclass(frozen=True, eq=False)
class KnownRates:
    """A schedule that is known at some steps: a function of the step that interpolates, and ends where they end.

    Parameters
    ----------
    steps
        Increasing numbers of steps.
    rates
        The learning rate at each, in the units of the log.
    """

    steps: np.ndarray
    rates: np.ndarray

    @property
    def last(self) -> float:
        """The step up to which rates are known; beyond it the last one goes on."""
        return float(self.steps[-1])

    def __call__(self, steps: Any) -> np.ndarray:
        return np.interp(np.asarray(steps, float), self.steps, self.rates)


def read_rates(
    source: Any,
    *,
    step: str | None = None,
    run: str | None = None,
    learning_rate: str | None = None,
    name: str | None = None,
) -> KnownRates:
    """Read the learning rates of a run from a table of steps and rates, such as the log of a finished run.

    Parameters
    ----------
    source
        A path of any format that :func:`solvable.read_curves` reads. It needs no loss.
    step
        Column of the time; guessed by its name if left out.
    run
        Column that tells runs apart; guessed by its name if left out.
    learning_rate
        Column of the learning rate; guessed by its name if left out.
    name
        Name of the run to take where there are several.
    """
    chosen = {"step": step, "run": run, "learning_rate": learning_rate}
    tables: dict[str, tuple[Columns, np.ndarray, dict[str, Any]]] = {}
    for table, columns in formats.read_files(Path(source)).items():
        for part, own in split_exports(table, columns):
            names, _ = choose_columns(part, own, chosen)
            tables |= {label: (own, rows, names) for label, rows in rows_of_runs(part, own, names["run"]).items()}
    label = str(name) if len(tables) > 1 else next(iter(tables))
    if label not in tables:
        asked = "one of them must be named" if name is None else f"none of them is {name!r}"
        raise ValueError(
            f"{Path(source).name} has {len(tables)} runs ({', '.join(list(tables)[:5])}), and {asked}: give a table of "
            "one run"
        )
    columns, rows, names = tables[label]
    if names["learning_rate"] is None:
        raise ValueError(
            f"{label!r} has no column of learning rates; it has {', '.join(list(columns)[:10])}: call it learning_rate"
        )
    steps, rates = (numbers(columns[names[key]][rows], names[key], label) for key in ("step", "learning_rate"))
    known = np.isfinite(steps) & np.isfinite(rates)
    steps, places = np.unique(steps[known], return_index=True)
    rates = rates[known][places]
    if steps.size < 2 or (rates < 0).any() or rates.max() <= 0:
        raise ValueError(
            f"{label!r}: column {names['learning_rate']!r} must hold learning rates, zero or more, at two steps or more"
        )
    return KnownRates(steps, rates)


def with_rates_ahead(run: Run, ahead: KnownRates) -> Run:
    """A run whose schedule is known beyond its records, so that forecasts go through what lies ahead.

    Up to the last record the rates are those of the log. Where the table covers it, too, the rates of the table are
    scaled to meet the log there: a run of another size may have another peak.

    Parameters
    ----------
    run
        An unfinished run, with learning rates.
    ahead
        Learning rates of the steps to come.

    >>> import numpy as np
    >>> from solvable.inference import KnownRates, Run, with_rates_ahead
    >>> run = Run("early", steps=[10, 20, 30], loss=[3.0, 2.5, 2.2], learning_rate=[1.0, 1.0, 1.0])
    >>> known = with_rates_ahead(run, KnownRates(np.array([0.0, 30, 50]), np.array([2e-3, 2e-3, 0.0])))
    >>> known.rates([30, 40, 50]).tolist()
    [1.0, 0.5, 0.0]
    """
    last = float(run.steps[-1])
    if run.learning_rate is None:
        raise ValueError(
            f"run {run.name!r} has no learning rates, to which those ahead could be joined: log them, in a column "
            "learning_rate"
        )
    if ahead.last <= last:
        raise ValueError(
            f"run {run.name!r} is known up to step {last:g}, and the learning rates ahead end at step {ahead.last:g}: "
            "give those of later steps"
        )
    own, scale = float(run.learning_rate[-1]), 1.0 / run.peak
    if ahead.steps[0] <= last:
        there = float(ahead(last))
        if there <= 0 or own <= 0:
            raise ValueError(
                f"run {run.name!r}: the learning rate is zero at step {last:g}, where those ahead begin: end the curve "
                "before"
            )
        scale = own / there
    schedule = _Joined(run, ahead, last, scale)
    return dataclasses.replace(run, schedule=schedule, flow_time=None)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, eq=False)
class _Joined:
    """The schedule of a run up to its last record, and rates that lie ahead from there on."""

    run: Run
    ahead: KnownRates
    end: float
    scale: float

    @property
    def last(self) -> float:
        return self.ahead.last

    def __call__(self, steps: Any) -> np.ndarray:
        steps = np.asarray(steps, float)
        return np.where(steps <= self.end, self.run.rates(steps), self.scale * self.ahead(steps))
