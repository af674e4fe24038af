"""Tidy records of one run: missing cells, spikes, restarts, duplicate steps, forks and warm-up."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from solvable.inference.formats import MISSING, Columns
from solvable.inference.runs import Run

# Fewest equal values at the beginning of two runs that are no coincidence.
_FORK = 5
# Records of one step that differ by more than this fraction of the loss's range are of two metrics or runs.
_DISTINCT = 0.2
_MANY_DUPLICATES = 0.25
# Time that counts in fewer steps than this fraction of its range has changed its unit on the way.
_JUMP = 100.0


def recorded(columns: Columns, loss: str, used: set[str]) -> np.ndarray:
    """Which rows have a record of the loss.

    Empty cells are not recorded. A NaN of a data frame is not recorded if that row has another metric that rows with a
    loss lack, as in logs that write training and validation in rows of their own. Any other NaN is a number.

    Parameters
    ----------
    columns
        The columns of one run.
    loss
        The column of the loss.
    used
        The columns that were chosen.
    """
    values = columns[loss]
    if values.dtype == object:
        there = np.array([value is not MISSING for value in values])
        lost = np.array([value is not MISSING and _is_nan(value) for value in values])
    else:
        there, lost = np.ones(values.size, bool), np.isnan(values.astype(float))
    if not lost.any() or lost.all():
        return there
    full = there & ~lost
    for name, column in columns.items():
        if name in used or not full.any():
            continue
        filled = np.array([value is not MISSING and value is not None and not _is_nan(value) for value in column])
        if filled[full].mean() < 0.5:
            there &= ~(lost & filled)
    return there


def _is_nan(value: object) -> bool:
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def check_values(
    name: str, loss: str, step: str, steps: np.ndarray, losses: np.ndarray, mask_spikes: bool, notes: list[str]
) -> np.ndarray:
    """Which records are finite; others are refused, or left out and counted with ``mask_spikes``.

    Parameters
    ----------
    name
        Name of the run.
    loss, step
        Names of the columns.
    steps, losses
        Their values.
    mask_spikes
        Whether to leave out records that are not finite.
    notes
        Where to say so.
    """
    wrong = ~np.isfinite(steps) | (steps < 0)
    if wrong.any():
        raise ValueError(
            f"run {name!r}: {step!r} is {steps[np.argmax(wrong)]:g} in record {int(np.argmax(wrong))}; "
            "steps are finite numbers, zero or more"
        )
    bad = ~np.isfinite(losses)
    if bad.any():
        first = int(np.argmax(bad))
        where = f"{loss!r} is {losses[first]:g} at {step} {steps[first]:g} ({int(bad.sum())} of {bad.size} records)"
        if not mask_spikes:
            raise ValueError(f"run {name!r}: {where}; remove these records, or pass mask_spikes=True to leave them out")
        notes.append(f"run {name!r}: {where}; these records are left out")
    if (losses[~bad] <= 0).any():
        first = int(np.flatnonzero(~bad)[np.argmax(losses[~bad] <= 0)])
        raise ValueError(
            f"run {name!r}: {loss!r} is {losses[first]:g} at {step} {steps[first]:g}; laws are of the logarithm of a "
            "positive loss: is this column a loss?"
        )
    return ~bad


def keep_latest(name: str, steps: np.ndarray, losses: np.ndarray, keep: np.ndarray, notes: list[str]) -> np.ndarray:
    """Places of the records in the order of their steps, each step once: of a restart, the later records.

    Parameters
    ----------
    name
        Name of the run.
    steps, losses
        The records.
    keep
        Which records may be used.
    notes
        Where to say what was left out.
    """
    places = np.flatnonzero(keep)
    if places.size == 0:
        return places
    _check_unit(name, steps[places])
    back = np.flatnonzero(np.diff(steps[places]) < 0)
    last = {float(steps[place]): int(place) for place in places}
    repeated = places.size - len(last)
    if repeated and not back.size:
        differing = _difference(steps[places], losses[places])
        if repeated > _MANY_DUPLICATES * len(last) and differing > _DISTINCT:
            raise ValueError(
                f"run {name!r}: {repeated} steps are there several times with different losses, as if several runs or "
                "metrics had one name: name the column that tells them apart with run="
            )
        notes.append(f"run {name!r}: {repeated} records repeat a step; the last of each is kept")
    if not back.size:
        return np.array(sorted(last.values(), key=lambda place: steps[place]))
    # A restart goes back to an earlier step: what was recorded beyond it before is another future.
    kept: list[int] = []
    for place in places:
        while kept and steps[kept[-1]] >= steps[place]:
            kept.pop()
        kept.append(int(place))
    first = steps[places[back[0] + 1]]
    notes.append(
        f"run {name!r}: steps go back {back.size} times, first to {first:g} (a restart from a checkpoint?); "
        f"the later records are kept, {places.size - len(kept)} are left out"
    )
    if len(kept) < 0.5 * len(last):
        raise ValueError(
            f"run {name!r}: steps go back so often that {places.size - len(kept)} of {places.size} records would be "
            "lost: name the column that tells runs apart with run="
        )
    return np.array(kept)


def _check_unit(name: str, steps: np.ndarray) -> None:
    """Refuse a time that changes its unit, such as steps that go on as tokens."""
    gaps = np.diff(steps)
    if gaps.size < 8 or (gaps <= 0).any():
        return
    for place in range(4, gaps.size - 3):
        before, after = gaps[max(0, place - 20) : place], gaps[place + 1 : place + 21]
        even = max(np.ptp(np.log(before)), np.ptp(np.log(after))) < 0.1
        ratio = np.median(after) / np.median(before)
        if even and max(ratio, 1 / ratio) > _JUMP:
            raise ValueError(
                f"run {name!r}: records are {np.median(before):g} apart before step {steps[place]:g} and "
                f"{np.median(after):g} after it, as if the unit of time had changed: give one unit"
            )


def _difference(steps: np.ndarray, losses: np.ndarray) -> float:
    """Median spread of losses of one step, over the range of all."""
    spreads = []
    for value in np.unique(steps):
        own = losses[steps == value]
        if own.size > 1:
            spreads.append(np.ptp(own))
    span = float(np.ptp(losses))
    return float(np.median(spreads)) / span if spreads and span else 0.0


def equal_prefixes(runs: Sequence[Run]) -> list[str]:
    """A note for each pair of runs that share their first records, because one was forked from the other.

    Parameters
    ----------
    runs
        The runs.
    """
    notes = []
    for one, other in itertools.combinations(runs, 2):
        shared = common_prefix(one, other)
        if shared >= _FORK:
            until = one.steps[shared - 1]
            notes.append(
                f"runs {one.name!r} and {other.name!r} share their first {shared} records, to step {until:g}: they are "
                "not independent, and the shared part should count once (solvable.inference.count_forks_once)"
            )
    if len(notes) > 3:
        return [*notes[:2], f"{len(notes) - 2} more pairs of runs share their first records"]
    return notes


def common_prefix(one: Run, other: Run) -> int:
    """How many records two runs share from their beginning.

    Parameters
    ----------
    one, other
        The runs.
    """
    size = min(one.size, other.size)
    equal = (one.steps[:size] == other.steps[:size]) & (one.loss[:size] == other.loss[:size])
    return int(size if equal.all() else np.argmin(equal))


def count_forks_once(runs: Sequence[Run]) -> list[Run]:
    """Leave out of each run the records that it shares with an earlier one, so that a common past counts once.

    Parameters
    ----------
    runs
        The runs; the first of each family keeps all of its records.

    >>> from solvable.inference import count_forks_once, example_curves
    >>> runs = example_curves()
    >>> sum(run.size for run in runs), sum(run.size for run in count_forks_once(runs))
    (2059, 1643)
    """
    kept: list[Run] = []
    for place, run in enumerate(runs):
        shared = max((common_prefix(run, earlier) for earlier in runs[:place]), default=0)
        if shared < _FORK:
            kept.append(run)
        elif shared < run.size:
            kept.append(run.part(slice(shared, None)))
    return kept


def with_warm_up(run: Run, steps: float) -> Run:
    """The run with a linear rise of the learning rate over its first steps, and the recorded rates after it.

    Parameters
    ----------
    run
        The run.
    steps
        Length of the warm-up.
    """
    recorded_rates = np.ones(run.size) if run.learning_rate is None else run.learning_rate
    times, rates = run.steps.copy(), recorded_rates.copy()

    def schedule(at: np.ndarray) -> np.ndarray:
        at = np.asarray(at, float)
        return np.interp(at, times, rates) * np.clip((at + 1) / steps, 0.0, 1.0)

    return dataclasses.replace(run, schedule=schedule, flow_time=None, learning_rate=recorded_rates)  # type: ignore[arg-type]
