"""``.csv``: a tidy table that ``pandas.read_csv(path, comment="#")`` reads, and that loads back identically.

The first line is a comment with the header and the checksum, the second has the names of the columns. Variables over
the same dimensions share rows, one per point, together with the coordinates of the point. Variables over other
dimensions follow in rows of their own; a cell is empty if its column has other dimensions. Scalars are repeated in
every row.
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from solvable.files.binary import old_dataset
from solvable.files.checksums import Loaded
from solvable.files.content import Column, Content, parse_header, unpack

_MARK = "# solvable "


def csv_bytes(content: Content) -> bytes:
    columns = content.columns
    groups = _groups(columns)
    names = sorted(columns, key=lambda name: (columns[name].dims != (name,), name not in content.coordinates))
    # Dimensions without a coordinate have a column of indices, to distinguish their points.
    numbered = {dim: np.arange(size) for dim, size in _sizes(columns).items() if dim not in columns}
    shown = {**{dim: Column((dim,), indices, {}) for dim, indices in numbered.items()}, **columns}
    body = io.StringIO()
    body.write(",".join(map(_cell, [*numbered, *names])) + "\n")
    for dims, shape, _ in groups:
        for row in zip(*(_cells(shown, name, dims, shape) for name in (*numbered, *names)), strict=True):
            body.write(",".join(row) + "\n")
    table = body.getvalue().encode()
    header = {
        **content.header,
        "columns": {
            name: {"dims": list(column.dims), "kind": column.values.dtype.kind} for name, column in columns.items()
        },
        "groups": [[list(dims), list(shape), members] for dims, shape, members in groups],
    }
    header["sha256"] = _digest(header, table)
    return (_MARK + json.dumps(header) + "\n").encode() + table


def read_csv(path: Path) -> Loaded:
    first, _, table = path.read_bytes().partition(b"\n")
    if not first.startswith(_MARK.encode()):
        raise ValueError("the first line is not a solvable header")
    header = parse_header(first.decode()[len(_MARK) :])
    if "format" not in header:
        return Loaded(_read_old(header, table.decode()), False)
    if header.pop("sha256") != _digest(header, table):
        raise ValueError("its contents do not match its checksum")
    names, *rows = csv.reader(io.StringIO(table.decode(), newline=""))
    lines: list[tuple[str, ...]] = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    cells = dict(zip(names, lines, strict=True))
    return Loaded(unpack(header, _parse(header, cells)), True)


def is_saved_csv(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_MARK)) == _MARK.encode()


def _digest(header: dict[str, Any], table: bytes) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode() + b"\n" + table).hexdigest()


Group = tuple[tuple[str, ...], tuple[int, ...], list[str]]


def _groups(columns: dict[str, Column]) -> list[Group]:
    """Columns over the same dimensions, which share their rows.

    The coordinate of a dimension needs no rows of its own if other columns have the dimension, nor does a scalar.
    """
    sizes = _sizes(columns)
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, column in columns.items():
        if column.dims and column.dims != (name,):
            groups.setdefault(column.dims, []).append(name)
    for name, column in columns.items():
        covered = any(name in dims and all(sizes[dim] for dim in dims) for dims in groups)
        if column.dims == (name,) and not covered:
            groups.setdefault(column.dims, []).append(name)
    found: list[Group] = [(dims, tuple(sizes[dim] for dim in dims), members) for dims, members in groups.items()]
    if any(not column.dims for column in columns.values()) and not any(math.prod(shape) for _, shape, _ in found):
        found.append(((), (), []))
    return found


def _sizes(columns: dict[str, Column]) -> dict[str, int]:
    return {
        dim: size for column in columns.values() for dim, size in zip(column.dims, column.values.shape, strict=True)
    }


def _cells(columns: dict[str, Column], name: str, dims: tuple[str, ...], shape: tuple[int, ...]) -> Iterator[str]:
    """The cells of one column in the rows of a group."""
    column = columns[name]
    rows = math.prod(shape)
    if column.dims == dims:
        return map(_cell, column.values.ravel().tolist())
    if not column.dims:
        return iter([_cell(column.values.item())] * rows)
    if column.dims == (name,) and name in dims:
        along = [1] * len(dims)
        along[dims.index(name)] = -1
        return map(_cell, np.broadcast_to(column.values.reshape(along), shape).ravel().tolist())
    return iter([""] * rows)


def _cell(value: Any) -> str:
    # Text is always quoted, because pandas does not start a comment at a '#' inside quotes. repr writes a float with
    # just the digits that restore it.
    return '"' + value.replace('"', '""') + '"' if isinstance(value, str) else repr(value)


def _parse(header: dict[str, Any], cells: dict[str, tuple[str, ...]]) -> dict[str, np.ndarray]:
    """The columns, each from the rows of its group."""
    found: dict[str, np.ndarray] = {}
    start = 0
    about = header["columns"]
    for dims, shape, members in header["groups"]:
        rows = slice(start, start + math.prod(shape))
        start = rows.stop
        for name in members:
            found[name] = _parse_texts(cells[name][rows], about[name]["kind"]).reshape(shape)
        for axis, dim in enumerate(dims):
            if dim in about and dim not in found and about[dim]["dims"] == [dim] and 0 not in shape:
                block = np.array(cells[dim][rows], dtype=object).reshape(shape)
                line = np.moveaxis(block, axis, 0).reshape(shape[axis], -1)[:, 0]
                found[dim] = _parse_texts(tuple(line), about[dim]["kind"])
    for name, column in about.items():
        if not column["dims"]:
            found[name] = _parse_texts(cells[name][:1], column["kind"]).reshape(())
    return found


def _parse_texts(texts: tuple[str, ...], kind: str) -> np.ndarray:
    if kind == "b":
        return np.array([{"True": True, "False": False}[text] for text in texts], dtype=bool)
    if kind in "iu":
        return np.array([int(text) for text in texts], dtype="uint64" if kind == "u" else "int64")
    return np.array([float(text) for text in texts]) if kind == "f" else np.array(texts, dtype=str)


def _read_old(header: dict[str, Any], table: str) -> xr.Dataset:
    """Format 1: curves over one dimension."""
    names, *rows = csv.reader(io.StringIO(table, newline=""))
    cells = dict(zip(names, zip(*rows, strict=True), strict=True))
    types = {name: np.dtype(about["dtype"]) for name, about in header["variables"].items()}
    arrays = {name: _parse_texts(cells[name], kind.kind).astype(kind) for name, kind in types.items()}
    return old_dataset(header, arrays)
