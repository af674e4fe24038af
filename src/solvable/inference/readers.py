"""Read training curves from logs of many programs: columns are named or guessed, and what was guessed is said."""

import dataclasses
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from solvable.checks import check_count
from solvable.inference import formats
from solvable.inference.columns import choose_columns, rows_of_runs, split_exports
from solvable.inference.formats import MISSING, Columns, is_number, numbers
from solvable.inference.runs import Run
from solvable.inference.thinning import thin
from solvable.inference.tidying import check_values, equal_prefixes, keep_latest, recorded, with_warm_up

_FEWEST_RECORDS = 5
_LONGEST = 2000
_PER_DECADE = 40
_SIZES = ("width", "batch_size", "samples", "parameters", "seed", "depth")
_PLAIN_ARRAY = (
    "a curve is a path, a data frame, a mapping of columns, a dataset, an array of losses or a pair (steps, losses)"
)


class CurveWarning(UserWarning):
    """Something about a log that a reader guessed, corrected or noticed."""


class Curves(list[Run]):
    """A list of runs, with notes on how they were read.

    Parameters
    ----------
    runs
        The runs.
    notes
        What was guessed, corrected or noticed, one sentence each.
    """

    def __init__(self, runs: Iterable[Run] = (), notes: Sequence[str] = ()) -> None:
        super().__init__(runs)
        self.notes = tuple(notes)


def read_curves(
    source: Any,
    *,
    loss: str | None = None,
    step: str | None = None,
    run: str | None = None,
    learning_rate: str | None = None,
    sizes: Mapping[str, float] | None = None,
    warm_up: float = 0,
    mask_spikes: bool = False,
    per_decade: int | str | None = "auto",
    announce: bool = True,
) -> Curves:
    """Read training curves from a file, a folder, a table or arrays.

    Files are CSV (also compressed, also the exports of Weights & Biases and the ``metrics.csv`` of Lightning), JSON
    lines, Parquet, TensorBoard event files and datasets of this package. No file is unpickled.

    Parameters
    ----------
    source
        A path, a folder of event files, a data frame, a mapping of columns, a dataset (such as ``tracker.history`` or
        ``training.curves``), an array of losses, a pair ``(steps, losses)``, or a list of any of these.
    loss
        Column of the loss. By default the only column that looks like one; with several, this must be said.
    step
        Column of the time; by default ``step``, ``global_step``, ``iteration`` and the like, then tokens, then epochs.
    run
        Column that tells runs apart; by default ``run``, ``run_id`` and the like, if there is one.
    learning_rate
        Column of the learning rate; by default ``lr``, ``learning_rate`` and the like, if there is one.
    sizes
        Numbers that belong to all of these runs, such as ``{"parameters": 25e6}``. Columns ``width``, ``batch_size``,
        ``parameters`` and the like that are constant in each run are found by themselves.
    warm_up
        Number of steps before the first record in which the learning rate rose linearly.
    mask_spikes
        Whether records that are not finite are left out, and counted, instead of refused.
    per_decade
        Average long logs in bins that are uniform in the logarithm of the step, this many per decade; ``"auto"`` does
        so with 40 for runs of more than 2000 records, None never does.
    announce
        Whether what was guessed or corrected is also given as a warning.

    Returns
    -------
    Curves
        A list of :class:`solvable.inference.Run`, with ``notes``.

    >>> import numpy as np, solvable
    >>> steps = np.arange(1, 101)
    >>> curves = solvable.read_curves({"step": steps, "loss": 2 + steps**-0.5})
    >>> curves[0].size
    100
    """
    if warm_up < 0:
        raise ValueError(f"warm_up must be a number of steps, zero or more, not {warm_up!r}")
    if isinstance(per_decade, str) and per_decade != "auto":
        raise ValueError(f"per_decade must be a whole number, 'auto' or None, not {per_decade!r}")
    chosen = {"loss": loss, "step": step, "run": run, "learning_rate": learning_rate}
    notes: list[str] = []
    runs: list[Run] = []
    units: dict[str, str] = {}
    for name, table in _tables(source):
        if isinstance(table, Run):
            runs.append(table)
            continue
        for part, columns in split_exports(name, table):
            names, guessed = choose_columns(part, columns, chosen)
            notes += guessed
            units[part] = names["step"]
            runs += _runs(part, columns, names, mask_spikes, notes)
    _check_units(units)
    runs = _named_apart(runs)
    runs = [with_warm_up(one, warm_up) if warm_up else one for one in runs]
    if sizes:
        runs = [dataclasses.replace(one, sizes={**one.sizes, **sizes}) for one in runs]
    runs = [_thinned(one, per_decade, notes) for one in runs]
    notes += equal_prefixes(runs)
    if announce:
        for note in notes:
            warnings.warn(note, CurveWarning, stacklevel=2)
    return Curves(runs, notes)


def _tables(source: Any) -> list[tuple[str, Any]]:
    """The tables of a source, each with a name."""
    if isinstance(source, Run):
        return [(source.name, source)]
    if isinstance(source, str | os.PathLike):
        return list(formats.read_files(Path(source)).items())
    if isinstance(source, xr.Dataset):
        return [("curve", formats.from_dataset(source))]
    if hasattr(source, "history") and isinstance(source.history, xr.Dataset):
        return [("curve", formats.from_dataset(source.history))]
    if isinstance(source, xr.DataArray):
        return [("curve", formats.from_dataset(source.to_dataset(name=source.name or "loss")))]
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return [("curve", formats.from_frame(source))]
    if isinstance(source, Mapping):
        return [("curve", _mapping(source))]
    if isinstance(source, np.ndarray):
        return [("curve", _array(source))]
    if isinstance(source, tuple) and len(source) == 2 and all(np.ndim(part) == 1 for part in source):
        return [("curve", _mapping({"step": source[0], "loss": source[1]}))]
    if isinstance(source, list | tuple):
        if not source:
            raise ValueError("there are no curves to read: the list is empty")
        if all(isinstance(part, int | float) for part in source):
            return [("curve", _array(np.asarray(source, float)))]
        tables = [table for part in source for table in _tables(part)]
        names = [name for name, _ in tables]
        return [(name if names.count(name) == 1 else f"{name} {place + 1}", table)
                for place, (name, table) in enumerate(tables)]  # fmt: skip
    raise ValueError(f"{_PLAIN_ARRAY}, not {type(source).__name__}")


def _mapping(source: Mapping[Any, Any]) -> Columns:
    columns = {str(name): np.asarray(values) for name, values in source.items()}
    lengths = {name: column.shape for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or any(len(shape) != 1 for shape in lengths.values()):
        raise ValueError(f"columns of a log must be equally long, not of the shapes {lengths}")
    return columns


def _array(source: np.ndarray) -> Columns:
    """Losses alone, counted from one; or two columns, steps and losses."""
    if source.dtype.names:
        return {name: source[name] for name in source.dtype.names}
    if source.ndim == 2 and source.shape[1] == 2:
        return {"step": source[:, 0], "loss": source[:, 1]}
    if source.ndim != 1:
        raise ValueError(f"{_PLAIN_ARRAY}; an array of shape {source.shape} is neither losses nor two columns")
    return {"step": np.arange(1, source.size + 1.0), "loss": source}


def _runs(
    name: str, columns: Columns, names: Mapping[str, str | None], mask_spikes: bool, notes: list[str]
) -> list[Run]:
    """The runs of one table."""
    groups = rows_of_runs(name, columns, names["run"])
    return [_run(one, {key: column[rows] for key, column in columns.items()}, names, mask_spikes, notes)
            for one, rows in groups.items()]  # fmt: skip


def _run(name: str, columns: Columns, names: Mapping[str, str | None], mask_spikes: bool, notes: list[str]) -> Run:
    """One run: its records in order, each step once, with learning rates and sizes."""
    loss, step = names["loss"], names["step"]
    assert loss is not None
    assert step is not None
    there = recorded(columns, loss, set(filter(None, names.values())))
    if not there.any():
        raise ValueError(f"run {name!r} has no records of {loss!r}: choose another column with loss=")
    everything = columns
    columns = {key: column[there] for key, column in columns.items()}
    steps, losses = (numbers(columns[key], key, name) for key in (step, loss))
    keep = check_values(name, loss, step, steps, losses, mask_spikes, notes)
    order = keep_latest(name, steps, losses, keep, notes)
    steps, losses = steps[order], losses[order]
    if steps.size < _FEWEST_RECORDS:
        raise ValueError(f"run {name!r} has {steps.size} records of {loss!r}; a curve needs at least {_FEWEST_RECORDS}")
    rate = None
    if names["learning_rate"] is not None:
        rate = _rates(everything, step, names["learning_rate"], steps, name, notes)
    if _unit(step) == "epochs" and np.array_equal(steps, np.arange(steps.size)):
        notes.append(
            f"run {name!r}: epochs are numbered from 0, and the first loss is taken as that before training; if it was "
            "recorded at the end of its epoch, as Keras does, add 1 to the column; else the exponent is far too small"
        )
    _notice_epochs(name, columns, order, loss, notes)
    peak = 1.0 if rate is None else float(rate.max())
    return Run(
        name,
        steps,
        losses,
        learning_rate=None if rate is None else rate / peak,
        sizes=_sizes(columns, set(filter(None, names.values()))),
        peak=peak,
    )


def _rates(columns: Columns, step: str, key: str, at: np.ndarray, name: str, notes: list[str]) -> np.ndarray | None:
    """Learning rates at some steps, interpolated from where they were logged; None if they are no rates."""
    rates, steps = numbers(columns[key], key, name), numbers(columns[step], step, name)
    known = np.isfinite(rates) & np.isfinite(steps)
    if not known.any() or (rates[known] < 0).any() or rates[known].max() <= 0:
        notes.append(f"run {name!r}: column {key!r} holds no positive learning rates, and is not used")
        return None
    # Of a restart the later rates count: np.unique keeps the first of each step, of the reversed records the last.
    times, places = np.unique(steps[known][::-1], return_index=True)
    return np.interp(at, times, rates[known][::-1][places])


def _sizes(columns: Columns, used: set[str]) -> dict[str, float]:
    found = {}
    for name in _SIZES:
        column = columns.get(name)
        if column is None or name in used or not all(is_number(value) for value in column):
            continue
        values = np.array([value for value in column if value is not MISSING], float)
        if values.size and np.ptp(values) == 0 and np.isfinite(values[0]):
            found[name] = float(values[0])
    return found


def _notice_epochs(name: str, columns: Columns, order: np.ndarray, loss: str, notes: list[str]) -> None:
    """Warn of a training loss over several passes, which is not the online setting of the laws."""
    plain = loss.lower()
    held_out = any(word in plain for word in ("val", "test", "eval"))
    if held_out or "epoch" not in columns or loss == "epoch":
        return
    epochs = np.array([value for value in columns["epoch"][order] if is_number(value) and value is not MISSING], float)
    if epochs.size and np.ptp(np.floor(epochs)) >= 1:
        notes.append(
            f"run {name!r}: {loss!r} covers {np.ptp(np.floor(epochs)) + 1:.0f} epochs; if it is the training loss, "
            "laws of fresh data do not apply to it: use a validation loss"
        )


def _check_units(units: Mapping[str, str]) -> None:
    """Refuse curves that count time in different units."""
    kinds = {part: _unit(step) for part, step in units.items()}
    if len(set(kinds.values())) > 1:
        (first, one), (second, other) = next(
            ((a, x), (b, y)) for a, x in kinds.items() for b, y in kinds.items() if x != y
        )
        raise ValueError(
            f"mixed units of time: {first!r} counts {one} and {second!r} counts {other}; name one column with step="
        )


def _unit(step: str) -> str:
    plain = step.lower()
    return next((unit for unit in ("epoch", "token", "second", "sample") if unit in plain), "step") + "s"


def _named_apart(runs: list[Run]) -> list[Run]:
    names = [run.name for run in runs]
    seen: dict[str, int] = {}
    found = []
    for run in runs:
        seen[run.name] = seen.get(run.name, 0) + 1
        own = run.name if names.count(run.name) == 1 else f"{run.name} ({seen[run.name]})"
        found.append(dataclasses.replace(run, name=own, group="" if run.group == run.name else run.group))
    return found


def _thinned(run: Run, per_decade: int | str | None, notes: list[str]) -> Run:
    if per_decade is None or (per_decade == "auto" and run.size <= _LONGEST):
        return run
    count = _PER_DECADE if isinstance(per_decade, str) else check_count("per_decade", per_decade, 4)
    short = thin(run, count)
    notes.append(
        f"run {run.name!r}: {run.size} records are averaged in {short.size} bins, {count} per decade of the step"
    )
    return short
