"""What a sweep stores: loop axes, outputs, and the errors a store can raise. Knows no file and no model."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PENDING, DONE, FAILED = 0, 1, 2
STATUS_NAMES = ("pending", "done", "failed")
RESERVED = ("status", "error")

CallCoordinates = Mapping[str, tuple[Any, Mapping[str, Any]]]


class DamagedStoreError(ValueError):
    """A file of the store is missing, cut short or altered; the message says which and what to do."""


class ChangedSettingsError(ValueError):
    """The store was filled with other settings; the message names each with its old and new value."""


class LockedStoreError(ValueError):
    """Another coordinator has the store; the message says who and since when."""


@dataclass(frozen=True)
class Axis:
    """One loop dimension. Several coordinates share it when they are zipped; its rows must differ."""

    dim: str
    coordinates: Mapping[str, np.ndarray]
    attrs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.coordinates:
            raise ValueError(f"axis {self.dim!r} has no coordinates; give at least one list of values")
        arrays = {name: plain_column(name, values) for name, values in self.coordinates.items()}
        lengths = {name: len(values) for name, values in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"axis {self.dim!r} zips lists of unequal lengths {lengths}; make them equally long")
        object.__setattr__(self, "coordinates", arrays)
        if self.size == 0:
            raise ValueError(f"axis {self.dim!r} has no values; give at least one")
        if any(values.dtype.kind == "f" and np.isnan(values).any() for values in arrays.values()):
            raise ValueError(f"axis {self.dim!r} holds NaN; a cell needs a value to be found again")
        order = np.lexsort(list(arrays.values()))
        repeats = [values[order[1:]] == values[order[:-1]] for values in arrays.values()]
        if np.logical_and.reduce(repeats).any():
            raise ValueError(f"axis {self.dim!r} holds a value twice; every value may appear once")

    @property
    def size(self) -> int:
        return len(next(iter(self.coordinates.values())))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The values along the axis, one tuple per position."""
        return zip(*(values.tolist() for values in self.coordinates.values()), strict=True)

    def take(self, positions: Any) -> "Axis":
        return Axis(self.dim, {name: values[positions] for name, values in self.coordinates.items()}, self.attrs)

    @property
    def sortable(self) -> bool:
        """Whether the dimension has numbers of its own to be ordered by; zipped designs and texts keep their order."""
        own = self.coordinates.get(self.dim)
        return own is not None and own.dtype.kind in "iuf"

    def extended_by(self, asked: "Axis") -> "Axis":
        """This axis with the rows of another appended that it lacks."""
        columns = {name: _as_stored(name, values, asked.coordinates[name]) for name, values in self.coordinates.items()}
        common = min(self.size, asked.size)
        if all((columns[name][:common] == values[:common]).all() for name, values in self.coordinates.items()):
            new: Any = slice(common, None)
        else:
            known = set(self.rows())
            rows = zip(*(values.tolist() for values in columns.values()), strict=True)
            new = [position for position, row in enumerate(rows) if row not in known]
        joined = {name: np.concatenate([values, columns[name][new]]) for name, values in self.coordinates.items()}
        return Axis(self.dim, joined, self.attrs)

    def digest(self) -> str:
        """A hash of names and values, so that a swapped or altered coordinate file is noticed."""
        return digest([[name, column_digest(values)] for name, values in self.coordinates.items()])


def plain_column(name: str, values: Any) -> np.ndarray:
    """A coordinate as a flat array of numbers, booleans or texts."""
    column = np.asarray(values)
    if column.dtype.kind in "OT":
        column = np.array(column.tolist(), dtype=str)
    if column.ndim != 1:
        raise ValueError(f"coordinate {name!r} has shape {column.shape}; give a flat list")
    if column.dtype.kind not in "biufU":
        raise ValueError(f"coordinate {name!r} holds {column.dtype}; give numbers, booleans or texts")
    return column


def column_digest(values: np.ndarray) -> str:
    data = "\0".join(values.tolist()).encode() if values.dtype.kind == "U" else values.tobytes()
    return hashlib.sha256(f"{values.dtype.kind}:{len(values)}:".encode() + data).hexdigest()


def _as_stored(name: str, stored: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Asked values in the stored kind of number; refused if that would change one."""
    if asked.dtype.kind == stored.dtype.kind == "U":
        return asked
    cast = asked.astype(stored.dtype) if "U" not in (asked.dtype.kind, stored.dtype.kind) else None
    if cast is None or not (cast == asked).all():
        raise ChangedSettingsError(
            f"{name}: the store holds {stored.dtype} values and cannot take {asked.dtype} ones such as "
            f"{asked[0]!r}; use the same kind, or start again with overwrite=True"
        )
    return cast


@dataclass(frozen=True)
class Output:
    """One number, or one array over the call's own dimensions, that every cell gives."""

    name: str
    dims: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = "float64"
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name in RESERVED:
            raise ValueError(f"an output may not be called {self.name!r}; the store keeps that name for itself")
        if len(self.dims) != len(self.shape):
            raise ValueError(f"output {self.name!r} has dimensions {self.dims} but shape {self.shape}")
        if np.dtype(self.dtype).kind not in "biufc":
            raise ValueError(f"output {self.name!r} holds {self.dtype}; only numbers and booleans can be stored")

    @property
    def fill(self) -> Any:
        return np.nan if np.dtype(self.dtype).kind in "fc" else np.zeros((), self.dtype).item()


def check_names(axes: Sequence[Axis], outputs: Sequence[Output], call_coordinates: CallCoordinates) -> None:
    """Raise if two things share a name, a dimension has two lengths or nothing is swept or stored."""
    if not axes or not outputs:
        raise ValueError("a sweep needs at least one axis and one output")
    names = [*RESERVED, *(name for axis in axes for name in axis.coordinates), *(output.name for output in outputs)]
    names += list(call_coordinates)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"the name {twice[0]!r} is used twice among axes, outputs and coordinates; rename one")
    bad = [name for name in names if "/" in name or name.startswith((".", "__")) or not name]
    if bad:
        raise ValueError(f"{bad[0]!r} cannot name an array; use letters, digits, '_' and '-'")
    dims = [axis.dim for axis in axes]
    if len(set(dims)) < len(dims):
        raise ValueError(f"loop dimensions {dims} repeat; every axis needs its own")
    lengths: dict[str, int] = {name: len(np.asarray(values)) for name, (values, _) in call_coordinates.items()}
    for output in outputs:
        for dim, length in zip(output.dims, output.shape, strict=True):
            if dim in dims:
                raise ValueError(f"output {output.name!r} has the dimension {dim!r}, which is swept; rename one")
            if lengths.setdefault(dim, length) != length:
                raise ValueError(
                    f"dimension {dim!r} has length {length} in {output.name!r} but {lengths[dim]} elsewhere"
                )


def tile_shape(tile: int | Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """Cells per tile along each axis. An integer is the number of cells; the last axes are filled first.

    The first axis may get a tile longer than itself, so that a store that starts small does not stay in crumbs when
    it is extended.
    """
    if not isinstance(tile, int):
        shape = tuple(int(length) for length in tile)
        if len(shape) != len(sizes) or min(shape) < 1:
            raise ValueError(f"tile {shape} must give a positive number for each of the {len(sizes)} axes")
        return shape
    if tile < 1:
        raise ValueError(f"tile {tile} must be at least one cell")
    shape, room = (), tile
    for size in reversed(sizes[1:]):
        shape = (min(size, room), *shape)
        room = max(1, room // shape[0])
    return (min(room, max(sizes[0], 64)), *shape)


def canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def differences(old: Any, new: Any, name: str = "") -> list[str]:
    """Where two JSON documents differ, one line each, the dotted name first."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        missing = "(not set)"
        return [
            line
            for key in keys
            for line in differences(old.get(key, missing), new.get(key, missing), f"{name}.{key}" if name else key)
        ]
    if canonical_json(old) == canonical_json(new):
        return []
    return [f"{name}: stored {_short(old)}, now {_short(new)}"]


def _short(value: Any) -> str:
    text = value if value == "(not set)" else json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
