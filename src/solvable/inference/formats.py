"""Files of training logs as tables of columns: CSV, JSON lines, Parquet, TensorBoard. No file is unpickled."""

import csv
import gzip
import io
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

# A cell that is empty was not recorded. A NaN that was written down is a number, and is refused or masked by name.
Columns = dict[str, np.ndarray]
_REFUSED = (".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".joblib", ".bin")
_EVENTS = "tfevents"
_LIGHTNING = "metrics.csv"
_MOST_BYTES = 2e9


class Missing:
    """Marks a cell in which nothing was recorded."""

    def __repr__(self) -> str:
        return "not recorded"


MISSING = Missing()


def numbers(column: np.ndarray, key: str, name: str) -> np.ndarray:
    """A column of numbers, NaN where nothing was recorded.

    Parameters
    ----------
    column
        The cells.
    key
        Name of the column, for messages.
    name
        Name of the run, for messages.
    """
    try:
        return np.array([np.nan if value is MISSING else value for value in column], float)
    except (TypeError, ValueError):
        bad = next(value for value in column if not is_number(value))
        raise ValueError(f"run {name!r}: column {key!r} must hold numbers, but there is {bad!r}") from None


def is_number(value: Any) -> bool:
    """Whether a cell holds a number, or nothing.

    Parameters
    ----------
    value
        The cell.
    """
    try:
        float(value)
    except (TypeError, ValueError):
        return value is MISSING
    return True


def read_files(path: Path) -> dict[str, Columns]:
    """The tables of a file or of a folder of event files, by name.

    Parameters
    ----------
    path
        A file, or a folder with TensorBoard event files or the ``metrics.csv`` of Lightning.
    """
    if not path.exists():
        raise ValueError(f"there is no file {path}")
    if path.is_dir():
        return _read_folder(path)
    if _EVENTS in path.name:
        return {path.parent.name or path.name: _read_events(path)}
    return {_stem(path): _reader(path)(path)}


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]


def _reader(path: Path) -> Callable[[Path], Columns]:
    kinds: Mapping[str, Callable[[Path], Columns]] = {
        ".csv": _read_csv,
        ".tsv": _read_csv,
        ".txt": _read_csv,
        ".log": _read_csv,
        ".jsonl": _read_json_lines,
        ".ndjson": _read_json_lines,
        ".json": _read_json,
        ".parquet": _read_parquet,
        ".pq": _read_parquet,
        ".nc": _read_dataset,
        ".npz": _read_dataset,
        ".zarr": _read_dataset,
    }
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix in _REFUSED:
        raise ValueError(
            f"{path} is refused: reading {suffix} files can run code in them; write the log as CSV or JSON lines"
        )
    if suffix not in kinds:
        known = ", ".join(kinds)
        raise ValueError(
            f"{path.name!r} is no known log: it must end in one of {known}, or be a TensorBoard event file"
        )
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size / 1e9:.1f} GB: write out only the steps and the loss")
    return kinds[suffix]


def _read_folder(folder: Path) -> dict[str, Columns]:
    events = sorted(place for place in folder.rglob(f"*{_EVENTS}*") if place.is_file())
    if events:
        runs: dict[str, Columns] = {}
        for place, files in itertools.groupby(events, key=lambda event: event.parent):
            name = str(place.relative_to(folder)) if place != folder else folder.name
            # Several event files of one folder are one run that was started again.
            runs[name] = _stack([_read_events(event) for event in files])
        return runs
    logs = sorted(folder.rglob(_LIGHTNING))
    if logs:
        return {
            str(log.parent.relative_to(folder)) if log.parent != folder else folder.name: _read_csv(log) for log in logs
        }
    if folder.suffix == ".zarr":
        return {_stem(folder): _read_dataset(folder)}
    raise ValueError(f"{folder} holds neither TensorBoard event files nor the metrics.csv of Lightning")


def _stack(parts: list[Columns]) -> Columns:
    names = dict.fromkeys(name for part in parts for name in part)
    sizes = [len(next(iter(part.values()))) if part else 0 for part in parts]
    return {
        name: np.concatenate(
            [
                part[name].astype(object) if name in part else np.full(size, MISSING, object)
                for part, size in zip(parts, sizes, strict=True)
            ]
        )
        for name in names
    }


def _text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        if b"\0" in raw[:4096]:
            raise UnicodeDecodeError("utf-8", raw[:1], 0, 1, "binary")
        return raw.decode("utf-8-sig")
    except (UnicodeDecodeError, OSError, EOFError) as error:
        raise ValueError(f"{path} is not a text file, so that it cannot be a log of this kind") from error


def _read_csv(path: Path) -> Columns:
    """A table with a header. Separators may be commas, semicolons, tabs or blanks; lines with # are comments."""
    lines = [line for line in _text(path).splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise ValueError(f"{path} is empty: it has no records")
    if lines[0].lstrip().startswith("<"):
        raise ValueError(f"{path} is a page of markup (HTML or XML), not a table: export the log as CSV")
    separator = max(",;\t", key=lambda mark: lines[0].count(mark))
    if separator not in lines[0]:
        separator = " "
        lines = [" ".join(line.split()) for line in lines]
    rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=separator))
    names = [name.strip() for name in rows[0]]
    if all(_is_number(name) for name in names):
        raise ValueError(f"{path} has no line of column names: write one, such as step,loss")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{path} has two columns called {twice!r}: rename one")
    if len(rows) == 1:
        raise ValueError(f"{path} has column names but no records")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise ValueError(f"{path}: record {number - 1} has {len(row)} cells and the header {len(names)}; repair it")
    return {name: _parse([row[place] for row in rows[1:]]) for place, name in enumerate(names)}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse(cells: list[str]) -> np.ndarray:
    """Numbers if all cells are numbers or empty, otherwise texts."""
    stripped = [cell.strip() for cell in cells]
    try:
        numbers = [float(cell) if cell else math.nan for cell in stripped]
    except ValueError:
        return np.array(stripped, dtype=object)
    if all(stripped):
        return np.array(numbers)
    return _with_missing(numbers, [not cell for cell in stripped])


def _with_missing(numbers: Iterable[Any], missing: Iterable[bool]) -> np.ndarray:
    found = np.array(list(numbers), dtype=object)
    found[np.array(list(missing), bool)] = MISSING
    return found


def _read_json_lines(path: Path) -> Columns:
    records = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: line {number} is not a JSON record ({error.msg})") from error
    return _records(records, path)


def _read_json(path: Path) -> Columns:
    """A list of records, or the state of a Hugging Face trainer with its ``log_history``."""
    text = _text(path)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if "\n{" in text.strip():
            return _read_json_lines(path)
        raise ValueError(f"{path} is not JSON ({error.msg} in line {error.lineno})") from error
    if isinstance(content, dict) and "log_history" in content:
        content = content["log_history"]
    if isinstance(content, dict) and all(isinstance(value, list) for value in content.values()) and content:
        lengths = {len(value) for value in content.values()}
        if len(lengths) == 1:
            return {str(name): np.array(values, dtype=object) for name, values in content.items()}
    return _records(content, path)


def _records(records: Any, path: Path) -> Columns:
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ValueError(f"{path} must hold records such as {{'step': 1, 'loss': 4.2}}, one per line or in a list")
    if not records:
        raise ValueError(f"{path} is empty: it has no records")
    names = dict.fromkeys(str(name) for record in records for name in record)
    columns = {}
    for name in names:
        values = [record.get(name) for record in records]
        if any(isinstance(value, dict | list) for value in values):
            continue
        missing = [value is None for value in values]
        columns[name] = _with_missing(values, missing) if any(missing) else np.array(values)
    return columns


def _read_parquet(path: Path) -> Columns:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise ImportError(f"reading {path.name} needs pyarrow: pip install 'solvable[logs]'") from error
    except Exception as error:
        raise ValueError(f"{path} cannot be read as Parquet: {' '.join(str(error).split())[:200]}") from error
    return from_frame(frame)


def from_frame(frame: Any) -> Columns:
    """Columns of a data frame. What is NaN in it may be a missing cell or a number, which the caller decides.

    Parameters
    ----------
    frame
        A data frame of pandas.
    """
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the frame has two columns called {twice!r}: rename one")
    columns = {}
    for place, name in enumerate(names):
        column = frame.iloc[:, place]
        kind = getattr(column.dtype, "kind", "O")
        columns[name] = column.to_numpy(float) if kind in "fiub" else column.astype(object).to_numpy()
    if frame.index.name and str(frame.index.name) not in columns:
        columns[str(frame.index.name)] = frame.index.to_numpy()
    return columns


def _read_dataset(path: Path) -> Columns:
    from solvable.files import load

    return from_dataset(load(path))


def from_dataset(dataset: Any) -> Columns:
    """Columns of a dataset over one dimension, such as the history of a Tracker; over ``seed`` each is a run.

    Parameters
    ----------
    dataset
        A dataset of xarray.
    """
    along = [dim for dim in ("time", "step", "epoch") if dim in dataset.dims]
    if not along:
        raise ValueError(f"the dataset has no dimension time, step or epoch; it is over {', '.join(dataset.dims)}")
    curves = [name for name in dataset.data_vars if along[0] in dataset[name].dims]
    others = {dim for name in curves for dim in dataset[name].dims} - {along[0]}
    numeric = [name for name in curves if dataset[name].dtype.kind in "fiub"]
    plain = [name for name in numeric if dataset[name].dims == (along[0],)]
    split = "seed" if "seed" in others else None
    columns: Columns = {}
    if split is None:
        columns = {str(name): dataset[name].values.astype(float) for name in plain}
        columns |= {
            str(name): dataset[name].values.astype(float)
            for name in dataset.coords
            if dataset[name].dims == (along[0],) and dataset[name].dtype.kind in "fiu"
        }
        return columns
    size, count = dataset.sizes[along[0]], dataset.sizes[split]
    kept = [name for name in numeric if set(dataset[name].dims) <= {along[0], split}]
    for name in kept:
        values = dataset[name].broadcast_like(dataset[kept[0]]).transpose(split, along[0]).values
        columns[str(name)] = values.astype(float).ravel()
    columns[along[0]] = np.tile(dataset[along[0]].values.astype(float), count)
    columns["run"] = np.repeat([f"seed {value}" for value in dataset[split].values], size).astype(object)
    return columns


def _read_events(path: Path) -> Columns:
    """All scalars of a TensorBoard event file, without the sampling that its reader does by default."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError as error:
        raise ImportError("reading TensorBoard event files needs tensorboard: pip install 'solvable[logs]'") from error
    # Zero keeps every record; the default keeps 10000 scalars, sampled silently.
    events = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    series = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags["scalars"]}
    for tag in tags["tensors"]:
        values = [(event.step, make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)]
        if values and all(value.ndim == 0 and value.dtype.kind in "fiu" for _, value in values):
            series[tag] = [(step, float(value)) for step, value in values]
    if not series:
        raise ValueError(f"{path} holds no scalars: is it a TensorBoard event file of a training?")
    return _by_step(series)


def _by_step(series: Mapping[str, list[tuple[int, float]]]) -> Columns:
    """One row per step where each metric of that step was recorded once; repeated records have rows of their own."""
    keyed: dict[str, dict[tuple[int, int], float]] = {}
    for tag, records in series.items():
        seen: dict[int, int] = {}
        own = keyed.setdefault(tag, {})
        for step, value in records:
            own[step, seen.get(step, 0)] = float(value)
            seen[step] = seen.get(step, 0) + 1
    order = sorted({key for own in keyed.values() for key in own})
    places = {key: place for place, key in enumerate(order)}
    columns: Columns = {"step": np.array([step for step, _ in order], float)}
    for tag, own in keyed.items():
        column = np.full(len(order), MISSING, object)
        for key, value in own.items():
            column[places[key]] = value
        columns[tag] = column
    return columns
