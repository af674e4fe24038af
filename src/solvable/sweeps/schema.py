"""What a sweep stores: axes, outputs, and the errors that a store can raise. Independent of files and models."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PENDING, DONE, FAILED = 0, 1, 2
STATUS_NAMES = ("pending", "done", "failed")
STATUS_ATTRS = {"long_name": "state of the cell", "flag_values": [0, 1, 2], "flag_meanings": "pending done failed"}
RESERVED = ("status", "error")

CallCoordinates = Mapping[str, tuple[Any, Mapping[str, Any]]]


class DamagedStoreError(ValueError):
    """A file of the store is missing, truncated or altered; the message says which one and what to do."""


class ChangedSettingsError(ValueError):
    """The store was filled with other settings; the message names each with its old and new value."""


class StoreVersionError(ValueError):
    """The store was written by another version of solvable; the message says what to do."""


class LockedStoreError(ValueError):
    """Another coordinator has locked the store; the message says who and since when."""


@dataclass(frozen=True)
class Axis:
    """One dimension of the sweep, with the values of its parameters and their attributes.

    Zipped parameters are several coordinates along the same axis. No combination of values may appear twice.
    """

    dim: str
    coordinates: Mapping[str, np.ndarray]
    attrs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.coordinates:
            raise ValueError(f"axis {self.dim!r} has no coordinates; give at least one list of values")
        arrays = {name: plain_column(name, values) for name, values in self.coordinates.items()}
        if len({values.size for values in arrays.values()}) > 1:
            lengths = ", ".join(f"{name} has {values.size}" for name, values in arrays.items())
            raise ValueError(f"lists that are zipped along {self.dim!r} must be equally long: {lengths}")
        object.__setattr__(self, "coordinates", arrays)
        if self.size == 0:
            raise ValueError(f"axis {self.dim!r} has no values; give at least one")
        if any(values.dtype.kind == "f" and np.isnan(values).any() for values in arrays.values()):
            raise ValueError(f"axis {self.dim!r} contains NaN, which is not a parameter that a cell can have")
        order = np.lexsort(list(arrays.values()))
        repeats = np.logical_and.reduce([values[order[1:]] == values[order[:-1]] for values in arrays.values()])
        if repeats.any():
            position = order[np.argmax(repeats)]
            point = ", ".join(f"{name} = {values[position].item()!r}" for name, values in arrays.items())
            raise ValueError(f"{point} appears twice along {self.dim!r}: give every cell once")

    @property
    def size(self) -> int:
        return len(next(iter(self.coordinates.values())))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The values along the axis, one tuple per position."""
        return zip(*(values.tolist() for values in self.coordinates.values()), strict=True)

    def order(self) -> np.ndarray:
        """Positions in the order of ascending values. Zipped parameters and strings keep the order that they have."""
        values = self.coordinates.get(self.dim)
        if values is None or values.dtype.kind not in "iuf":
            return np.arange(self.size)
        return np.argsort(values, kind="stable")

    def extended_by(self, other: "Axis") -> "Axis":
        """This axis with the missing rows of another one appended."""
        columns = {name: _as_stored(name, values, other.coordinates[name]) for name, values in self.coordinates.items()}
        common = min(self.size, other.size)
        if all((columns[name][:common] == values[:common]).all() for name, values in self.coordinates.items()):
            new: Any = slice(common, None)
        else:
            known = set(self.rows())
            rows = zip(*(values.tolist() for values in columns.values()), strict=True)
            new = [position for position, row in enumerate(rows) if row not in known]
        joined = {name: np.concatenate([values, columns[name][new]]) for name, values in self.coordinates.items()}
        return Axis(self.dim, joined, self.attrs)

    def describe(self) -> dict[str, Any]:
        """JSON description. Its hash of names and values reveals coordinate files that were exchanged or altered."""
        return {
            "dim": self.dim,
            "size": self.size,
            "digest": digest([[name, column_digest(values)] for name, values in self.coordinates.items()]),
            "coordinates": {name: values.dtype.kind for name, values in self.coordinates.items()},
        }


def plain_column(name: str, values: Any) -> np.ndarray:
    """A coordinate as a one-dimensional array of numbers, booleans or strings."""
    column = np.asarray(values)
    if column.dtype.kind in "OT":
        column = np.array(column.tolist(), dtype=str)
    if column.ndim != 1:
        raise ValueError(f"coordinate {name!r} has shape {column.shape}; give a flat list")
    if column.dtype.kind not in "biufU":
        raise ValueError(f"coordinate {name!r} holds {column.dtype}; give numbers, booleans or strings")
    return column


def column_digest(values: np.ndarray) -> str:
    data = "\0".join(values.tolist()).encode() if values.dtype.kind == "U" else values.tobytes()
    return hashlib.sha256(f"{values.dtype.kind}:{len(values)}:".encode() + data).hexdigest()


def _as_stored(name: str, stored: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Convert new values to the stored type, or raise an error if that would change one of them."""
    if asked.dtype.kind == stored.dtype.kind == "U":
        return asked
    cast = asked.astype(stored.dtype) if "U" not in (asked.dtype.kind, stored.dtype.kind) else None
    if cast is None or not (cast == asked).all():
        raise ChangedSettingsError(
            f"{name}: the store holds {stored.dtype} values and cannot take {asked.dtype} ones such as "
            f"{asked[0]!r}; use the same type, or start again with overwrite=True"
        )
    return cast


@dataclass(frozen=True)
class Output:
    """A number, or an array with dimensions of its own such as ``("time",)``, that every cell returns."""

    name: str
    dims: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = "float64"
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name in RESERVED:
            raise ValueError(f"an output may not be called {self.name!r}, which the store uses itself")
        if len(self.dims) != len(self.shape):
            raise ValueError(f"output {self.name!r} has dimensions {self.dims} but shape {self.shape}")
        if np.dtype(self.dtype).kind not in "biufc":
            raise ValueError(f"output {self.name!r} holds {self.dtype}; only numbers and booleans can be stored")

    @property
    def fill(self) -> Any:
        """Value of cells without a result."""
        return np.nan if np.dtype(self.dtype).kind in "fc" else np.zeros((), self.dtype).item()

    def empty(self, sizes: Sequence[int]) -> np.ndarray:
        """An array for a grid of cells without results."""
        return np.full((*sizes, *self.shape), self.fill, self.dtype)

    def describe(self) -> dict[str, Any]:
        """JSON description, from which :meth:`from_description` restores the output."""
        described = {"name": self.name, "dims": self.dims, "shape": self.shape, "attrs": dict(self.attrs)}
        return plain_json({**described, "dtype": np.dtype(self.dtype).name}, f"attributes of {self.name}")

    @classmethod
    def from_description(cls, about: Mapping[str, Any]) -> "Output":
        return cls(**{**about, "dims": tuple(about["dims"]), "shape": tuple(about["shape"])})


def check_names(axes: Sequence[Axis], outputs: Sequence[Output], call_coordinates: CallCoordinates) -> None:
    """Raise an error if a name is used twice, a dimension has two lengths, or there is no axis or output."""
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
        raise ValueError(f"the dimensions {dims} repeat; every axis needs its own")
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

    The tile may be longer than the first axis, so that a store that starts small does not keep tiny tiles when it is
    extended.
    """
    if not isinstance(tile, int):
        shape = tuple(int(length) for length in tile)
        if len(shape) != len(sizes) or min(shape) < 1:
            raise ValueError(f"tile {shape} must give a positive number for each of the {len(sizes)} axes")
        return shape
    if tile < 1:
        raise ValueError(f"tile {tile} must be at least one cell")
    shape, remaining = (), tile
    for size in reversed(sizes[1:]):
        shape = (min(size, remaining), *shape)
        remaining = max(1, remaining // shape[0])
    return (min(remaining, max(sizes[0], 64)), *shape)


def plain_json(value: Any, name: str) -> Any:
    """A value as it comes back from JSON, or an error that says that it cannot be stored."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be plain JSON (numbers, strings, lists, dictionaries): {error}") from error


def canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def differences(old: Any, new: Any, name: str = "") -> list[str]:
    """Where two JSON documents differ, one line each, with the dotted name first."""
    if isinstance(old, dict) and isinstance(new, dict):
        missing = "(not set)"
        return [
            line
            for key in dict.fromkeys((*old, *new))
            for line in differences(old.get(key, missing), new.get(key, missing), f"{name}.{key}" if name else key)
        ]
    if canonical_json(old) == canonical_json(new):
        return []
    return [f"{name}: stored {_short(old)}, now {_short(new)}"]


def _short(value: Any) -> str:
    text = value if value == "(not set)" else json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def error_text(error: BaseException) -> str:
    """One line that says what went wrong in a cell."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def cell_text(cell: Mapping[str, Any]) -> str:
    """The parameters of a cell for messages."""
    return ", ".join(f"{name} = {value!r}" for name, value in cell.items())
