"""Tables of training runs: columns by name or by alias, and checks that name row and column."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from solvable.fits.scaling_objective import FORMS, Form, Points

_ALIASES: Mapping[str, tuple[str, ...]] = {
    "loss": ("loss", "final_loss", "val_loss", "validation_loss", "test_loss", "eval_loss", "l"),
    "parameters": ("parameters", "params", "n_params", "num_params", "n_parameters", "model_size", "size", "n"),
    "tokens": ("tokens", "n_tokens", "num_tokens", "training_tokens", "train_tokens", "data", "samples", "d"),
    "compute": ("compute", "flops", "flop", "training_flop", "training_flops", "c"),
    "unique_tokens": ("unique_tokens", "unique", "u"),
    "epochs": ("epochs", "epoch", "n_epochs"),
}
FEWEST_RUNS = 8
_LEAST_DECADES = 1.0
# A ray in the plane of log N and log D: beyond this correlation the two exponents cannot be told apart.
_RAY = 0.999
# Largest relative difference of C from 6 N D before a note is written.
_COMPUTE_TOLERANCE = 0.05


@dataclasses.dataclass(frozen=True)
class Table:
    """Runs that a scaling law can be fitted to.

    Parameters
    ----------
    form
        The form of the law.
    values
        The quantities of the form, and ``compute``, one entry per run.
    loss
        Final losses.
    relative
        Relative errors of the losses; None if all are equal.
    groups
        For each run an integer: runs with the same one are resampled together.
    pivots
        Geometric mean of each quantity.
    flops
        Floating-point operations per parameter and token.
    notes
        What was guessed or computed.
    """

    form: Form
    values: Mapping[str, np.ndarray]
    loss: np.ndarray
    relative: np.ndarray | None
    groups: np.ndarray
    pivots: Mapping[str, float]
    flops: float
    notes: tuple[str, ...] = ()

    @property
    def points(self) -> Points:
        """The runs in centred logarithms."""
        return self.at(self.values)

    def at(self, values: Mapping[str, Any]) -> Points:
        """Other runs, in the centred logarithms of this table."""
        logs = {name: np.log(np.asarray(values[name], float) / self.pivots[name]) for name in self.form.quantities}
        if not self.form.reuse:
            return Points(logs)
        tokens, unique = (np.asarray(values[name], float) for name in ("tokens", "unique_tokens"))
        logs["tokens"] = np.log(unique / self.pivots["tokens"])
        return Points(logs, tokens / unique - 1)

    def take(self, rows: np.ndarray) -> "Table":
        """Some of the runs, with the same pivots."""
        return dataclasses.replace(
            self,
            values={name: values[rows] for name, values in self.values.items()},
            loss=self.loss[rows],
            relative=None if self.relative is None else self.relative[rows],
            groups=self.groups[rows],
        )

    def with_form(self, form: Form) -> "Table":
        """The same runs for another form."""
        pivots = {name: float(np.exp(np.log(values).mean())) for name, values in self.values.items()}
        return dataclasses.replace(self, form=form, pivots=pivots)


def read_table(
    table: Any,
    form: str,
    columns: Mapping[str, str],
    errors: str | None,
    group: str | None,
    drop_largest: int,
    flops: float,
) -> Table:
    """Read a table and check that the form can be fitted to it."""
    frame = as_columns(table)
    found, notes = _find(frame, columns)
    law = FORMS[form]
    values, more = _quantities(frame, found, law, flops)
    notes += more
    if "loss" not in found:
        raise ValueError(f"the table has no column of losses; it has {_names(frame)}: name it, columns={{'loss': ...}}")
    loss = _numbers(frame, found["loss"])
    if loss.size < FEWEST_RUNS:
        raise ValueError(f"{loss.size} runs are too few for exponents: a scaling law needs at least {FEWEST_RUNS}")
    relative = None
    if errors is not None:
        _require(frame, errors, "errors")
        relative = _numbers(frame, errors) / loss
        relative = relative / float(np.exp(np.log(relative).mean()))
    labels = np.arange(loss.size)
    if group is not None:
        _require(frame, group, "group")
        labels = np.unique(np.asarray(frame[group]).astype(str), return_inverse=True)[1]
    pivots = {name: float(np.exp(np.log(column).mean())) for name, column in values.items()}
    complete = Table(law, values, loss, relative, labels, pivots, flops, tuple(notes))
    if drop_largest:
        complete = _without_largest(complete, drop_largest)
    _check_range(complete)
    return complete


def as_columns(table: Any) -> dict[str, Any]:
    """The columns of a data frame, a dataset, a mapping, a structured array or a CSV file, by name."""
    if isinstance(table, str | os.PathLike):
        return _read_csv(Path(table))
    if isinstance(table, xr.Dataset):
        return {str(name): np.asarray(table[name].values) for name in (*table.coords, *table.data_vars)}
    if isinstance(table, np.ndarray) and table.dtype.names:
        return {name: table[name] for name in table.dtype.names}
    if hasattr(table, "columns") and hasattr(table, "iloc"):
        return {str(name): table[name].to_numpy() for name in table.columns}
    if isinstance(table, Mapping):
        columns = {str(name): np.atleast_1d(np.asarray(values)) for name, values in table.items()}
        lengths = {name: column.shape for name, column in columns.items()}
        if len(set(lengths.values())) > 1 or any(len(shape) != 1 for shape in lengths.values()):
            raise ValueError(f"columns of a table must be equally long, not of the shapes {lengths}")
        return columns
    raise ValueError(
        "a table is a data frame, a mapping of columns, a dataset or the path of a CSV file, not "
        f"{type(table).__name__}"
    )


def _read_csv(path: Path) -> dict[str, Any]:
    import pandas as pd

    if not path.exists():
        raise ValueError(f"there is no file {path}")
    try:
        frame = pd.read_csv(path, comment="#", skipinitialspace=True)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a table: {str(error).strip().splitlines()[0]}") from error
    return {str(name): frame[name].to_numpy() for name in frame.columns}


def _find(frame: Mapping[str, Any], columns: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Which column is what: as told, or by its name, which is noted if it is not the obvious one."""
    unknown = sorted(set(columns) - set(_ALIASES))
    if unknown:
        raise ValueError(f"columns must name {', '.join(_ALIASES)}, not {unknown[0]!r}")
    for column in columns.values():
        _require(frame, column, "columns")
    found, notes = dict(columns), []
    plain = {_plain(name): name for name in frame}
    for quantity, aliases in _ALIASES.items():
        if quantity in found:
            continue
        matches = [plain[alias] for alias in aliases if alias in plain and plain[alias] not in found.values()]
        if quantity not in plain and len(matches) > 1:
            raise ValueError(
                f"columns {' and '.join(map(repr, matches))} could both be the {quantity}: "
                f"choose one with columns={{{quantity!r}: {matches[0]!r}}}"
            )
        if matches:
            found[quantity] = plain.get(quantity, matches[0])
            if found[quantity] != quantity:
                notes.append(f"column {found[quantity]!r} is taken as the {quantity.replace('_', ' ')}")
    return found, notes


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _require(frame: Mapping[str, Any], column: str, option: str) -> None:
    if column not in frame:
        raise ValueError(f"{option} names the column {column!r}, which the table does not have; it has {_names(frame)}")


def _names(frame: Mapping[str, Any]) -> str:
    return ", ".join(list(frame)[:12]) or "no columns"


def _numbers(frame: Mapping[str, Any], name: str) -> np.ndarray:
    """Positive finite numbers of a column, or an error that names the row."""
    try:
        values = np.asarray(frame[name], float)
    except (TypeError, ValueError):
        raise ValueError(f"column {name!r} is not a column of numbers") from None
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"column {name!r} must be positive and finite in every row, but row {row} is {values[row]:g} "
            f"({int(bad.sum())} such rows): leave these runs out"
        )
    return values


def _quantities(
    frame: Mapping[str, Any], found: Mapping[str, str], form: Form, flops: float
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The quantities of the form and the compute, the missing one of C = 6 N D computed from the other two."""
    given = {name: _numbers(frame, found[name]) for name in found if name not in ("loss", "epochs")}
    if form.reuse and "epochs" in found and "unique_tokens" not in given and "tokens" in given:
        given["unique_tokens"] = given["tokens"] / _numbers(frame, found["epochs"])
    notes = []
    three = ("parameters", "tokens", "compute")
    known = [name for name in three if name in given]
    if len(known) == 2:
        (missing,) = set(three) - set(known)
        n, d, c = (given.get(name, np.ones(1)) for name in three)
        rule = {"compute": f"{flops:g} N D", "tokens": f"C / ({flops:g} N)", "parameters": f"C / ({flops:g} D)"}
        given[missing] = flops * n * d if missing == "compute" else c / (flops * n * d)
        notes.append(f"{missing} computed as {rule[missing]}")
    elif len(known) == 3:
        off = np.abs(np.log(given["compute"] / (flops * given["parameters"] * given["tokens"])))
        if off.max() > _COMPUTE_TOLERANCE:
            notes.append(
                f"compute differs from {flops:g} N D by up to a factor {np.exp(off.max()):.2g}: parameters may be "
                "counted with or without embedding, which changes exponents"
            )
    needed = (*form.quantities, *(["unique_tokens"] if form.reuse else []))
    missing_columns = [name for name in needed if name not in given]
    if missing_columns:
        raise ValueError(
            f"form {form.name!r} needs {' and '.join(needed)}, but the table has no {missing_columns[0]}; "
            f"it has {_names(frame)}: name the columns, columns={{{missing_columns[0]!r}: ...}}, or choose another form"
        )
    if form.reuse:
        # Rounded token counts may put the unique ones a little above all of them.
        given["unique_tokens"] = np.minimum(given["unique_tokens"], given["tokens"])
    kept = {*needed, "compute", *three} & set(given)
    return {name: given[name] for name in given if name in kept}, notes


def _without_largest(table: Table, count: int) -> Table:
    order = np.argsort(table.loss, kind="stable")
    kept = np.sort(order[: max(0, table.loss.size - count)])
    note = f"the {count} largest losses are left out ({table.loss.size} runs in the table)"
    table = dataclasses.replace(table, notes=(*table.notes, note))
    if kept.size < FEWEST_RUNS:
        raise ValueError(f"drop_largest={count} leaves {kept.size} runs, fewer than the {FEWEST_RUNS} that are needed")
    return table.take(kept).with_form(table.form)


def _check_range(table: Table) -> None:
    """Refuse tables from which the exponents cannot be told, each for its reason."""
    if np.ptp(table.loss) == 0:
        raise ValueError(f"all losses are {table.loss[0]:g}: there is nothing to fit")
    form = table.form
    decades = {name: float(np.ptp(np.log10(table.values[name]))) for name in ("compute",) if name in table.values}
    for name in form.quantities:
        decades[name] = float(np.ptp(np.log10(table.values[name])))
        if decades[name] < 1e-6:
            other = "tokens" if name == "parameters" else "parameters"
            raise ValueError(
                f"all runs have the same {name} ({table.values[name][0]:g}): its term cannot be told from the floor; "
                f"vary it, or fit loss against {other} with solvable.fits.power_law(..., offset=True)"
            )
    if len(form.quantities) == 2:
        logs = [np.log(table.values[name]) for name in form.quantities]
        if abs(np.corrcoef(*logs)[0, 1]) > _RAY:
            raise ValueError(
                "parameters and tokens lie on one ray (tokens a power of parameters): their exponents cannot be told "
                "apart; add runs with another ratio of tokens to parameters, or fit form='compute'"
            )
    name, widest = max(decades.items(), key=lambda one: one[1])
    if widest < _LEAST_DECADES:
        raise ValueError(
            f"{name} covers {widest:.2g} decades, less than {_LEAST_DECADES:g}: exponents cannot be told from a curve "
            "this short; add smaller or larger runs"
        )
