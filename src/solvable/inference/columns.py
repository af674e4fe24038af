"""Which column of a log is what: by its name, with one line for every guess and every doubt."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from solvable.inference.formats import MISSING, Columns

_STEPS = ("step", "steps", "_step", "global_step", "trainer/global_step", "train/global_step", "iteration", "iter")
_LATER_STEPS = ("time", "tokens", "train/tokens", "n_tokens", "samples_seen", "epoch", "epochs")
_RUNS = ("run", "run_id", "run_name", "runname", "experiment", "trial")
_RATES = ("learning_rate", "lr", "train/lr", "train/learning_rate", "trainer/lr", "opt/lr", "optim/lr")
_EXPORT = re.compile(r"^(?P<run>.+?) - (?P<metric>.+)$")
_EXTREMES = ("__MIN", "__MAX")
# A column is a loss if one of these is a word of its name.
_LOSS_WORDS = {"loss", "nll", "mse", "bpb", "bpc", "crossentropy"}
_NOT_LOSSES = {"accuracy", "acc", "ppl", "perplexity", "scale", "scaler", "grad", "norm", "weight", "error", "spread"}
_BITS = {"bpb", "bpc", "bits"}


def split_exports(name: str, columns: Columns) -> list[tuple[str, Columns]]:
    """The runs of a W&B export, whose columns are called "run - metric"; any other table as it is.

    Parameters
    ----------
    name
        Name of the table.
    columns
        Its columns.
    """
    found: dict[str, dict[str, str]] = {}
    for column in columns:
        match = _EXPORT.match(column)
        if match and not column.endswith(_EXTREMES):
            found.setdefault(match["run"], {})[match["metric"]] = column
    time = [column for column in columns if not _EXPORT.match(column)]
    if not found or not time:
        return [(name, columns)]
    parts = []
    for run, metrics in found.items():
        own = {column: columns[column] for column in time}
        own |= {metric: columns[column] for metric, column in metrics.items() if metric not in own}
        # Exports of several runs have a row for every step of any run; those that a run lacks are empty.
        parts.append((run, {key: _empty_is_missing(values, key in metrics) for key, values in own.items()}))
    return parts


def _empty_is_missing(values: np.ndarray, metric: bool) -> np.ndarray:
    if not metric or values.dtype.kind != "f" or not np.isnan(values).any():
        return values
    found = values.astype(object)
    found[np.isnan(values)] = MISSING
    return found


def choose_columns(name: str, columns: Columns, chosen: Mapping[str, str | None]) -> tuple[dict[str, Any], list[str]]:
    """Choose the columns of loss, step, run and learning rate, and say what was guessed.

    Parameters
    ----------
    name
        Name of the table, for messages.
    columns
        Its columns.
    chosen
        The columns that the user named; None for the others. Without the loss, a table needs none.
    """
    for option, column in chosen.items():
        if column is not None and column not in columns:
            raise ValueError(f"{name!r} has no column {column!r} for {option}=; it has {_some(columns)}")
    found: dict[str, Any] = dict(chosen)
    guesses = []
    plain = {_plain(column): column for column in columns}
    if "loss" in found and found["loss"] is None:
        found["loss"] = _loss(name, columns)
        if found["loss"] != "loss":
            guesses.append(f"the loss is {found['loss']!r}")
    elif _words(found.get("loss", "")) & {"ppl", "perplexity"}:
        raise ValueError(f"{name!r}: {found['loss']!r} is a perplexity; a law is of the loss: take its logarithm first")
    if found["step"] is None:
        matches = [plain[alias] for alias in (*_STEPS, *_LATER_STEPS) if alias in plain]
        if not matches:
            raise ValueError(f"{name!r} has no column of steps; it has {_some(columns)}: name one with step=")
        found["step"] = matches[0]
        _refuse_tables(name, columns, plain, matches[0], found["run"])
        if found["step"] != "step":
            guesses.append(f"time is {found['step']!r}")
    if found["run"] is None:
        found["run"] = next((plain[alias] for alias in _RUNS if alias in plain), None)
        if found["run"] not in (None, "run"):
            guesses.append(f"runs are told apart by {found['run']!r}")
    if found["learning_rate"] is None:
        found["learning_rate"] = _rate(columns, plain)
        if found["learning_rate"] not in (None, "learning_rate"):
            guesses.append(f"the learning rate is {found['learning_rate']!r}")
    notes = [f"{name!r}: {', '.join(guesses)} (guessed; name columns to change it)"] if guesses else []
    if _words(found.get("loss", "")) & _BITS:
        notes.append(f"{name!r}: {found['loss']!r} is in bits, and so are the floor and amplitude of its law")
    return found, notes


def rows_of_runs(name: str, columns: Columns, label: str | None) -> dict[str, np.ndarray]:
    """Which rows of a table belong to each run, by the names of the runs.

    Parameters
    ----------
    name
        Name of the table, and of its only run where none are told apart.
    columns
        Its columns.
    label
        The column that tells runs apart, or None.
    """
    if label is None:
        return {name: np.ones(len(next(iter(columns.values()))), bool)}
    texts = np.array([f"{value:g}" if isinstance(value, float) else str(value) for value in columns[label]], object)
    return {text: texts == text for text in dict.fromkeys(texts)}


def _refuse_tables(name: str, columns: Columns, plain: Mapping[str, str], step: str, run: str | None) -> None:
    """A table of finished runs has sizes that vary from row to row, and no run has two rows."""
    sizes = plain.get("parameters") or plain.get("params") or plain.get("n_params")
    told_apart = run is not None or any(alias in plain for alias in _RUNS)
    if sizes is None or told_apart or _plain(step) in _STEPS:
        return
    if len({str(value) for value in columns[sizes]}) > 3:
        raise ValueError(
            f"{name!r} looks like a table of finished runs ({sizes}, {step}), not like a curve over time: fit it with "
            "solvable.fits.scaling_law (--model scaling-law), or name the columns with run= and step="
        )


def _loss(name: str, columns: Columns) -> str:
    """The only column that looks like a loss; several must be told apart by the user."""
    candidates = [column for column in columns if _looks_like_loss(column) and _has_numbers(columns[column])]
    if not candidates:
        for column in filter(_looks_like_loss, columns):
            if (text := next((value for value in columns[column] if isinstance(value, str)), None)) is not None:
                raise ValueError(
                    f"{name!r}: {column!r} has no numbers but {text!r}: write numbers with decimal points, or name "
                    "another column with loss="
                )
        raise ValueError(f"{name!r} has no column that looks like a loss; it has {_some(columns)}: name one with loss=")
    if len(candidates) > 1:
        listed = ", ".join(map(repr, candidates[:6]))
        raise ValueError(
            f"{name!r} has {len(candidates)} columns that could be the loss ({listed}): choose one, such as "
            f"loss={candidates[0]!r}"
        )
    return candidates[0]


def _looks_like_loss(column: str) -> bool:
    words = _words(column)
    return bool(words & _LOSS_WORDS) and not words & _NOT_LOSSES and not column.endswith(_EXTREMES)


def _words(column: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", column.lower()))


def _has_numbers(column: np.ndarray) -> bool:
    return any(value is not MISSING and not isinstance(value, str) for value in column)


def _rate(columns: Columns, plain: Mapping[str, str]) -> str | None:
    for alias in _RATES:
        if alias in plain:
            return plain[alias]
    # Lightning's monitor writes lr-AdamW, or lr-AdamW/pg1 and so on for each group of parameters.
    return next((column for column in columns if re.match(r"^lr-\w+(/pg1)?$", column)), None)


def _plain(column: str) -> str:
    return column.strip().lower().replace(" ", "_")


def _some(columns: Columns) -> str:
    names = list(columns)
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
