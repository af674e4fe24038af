"""Results of cells in a common form, and the schema that all cells of a sweep must match."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import xarray as xr

from solvable.sweeps.design import Design
from solvable.sweeps.schema import RESERVED, Output

# Strings, such as the name of a phase, are stored as this many bytes of UTF-8 along a dimension of their own.
_TEXT_BYTES, _TEXT_DIM = 64, "character"


@dataclass(frozen=True)
class Result:
    """The result of one cell: arrays with their dimensions and attributes, and the coordinates of those dimensions."""

    arrays: dict[str, tuple[tuple[str, ...], Any, dict[str, Any]]]
    coordinates: dict[str, tuple[Any, dict[str, Any]]]


def as_result(value: Any, name: str) -> Result:
    """Convert numbers, strings, arrays, mappings of these, DataArrays and Datasets to a common form."""
    if isinstance(value, xr.Dataset):
        return _from_dataset(value)
    if isinstance(value, xr.DataArray):
        return _from_dataset(value.to_dataset(name=name if value.name is None else value.name))
    entries = value if isinstance(value, Mapping) else {name: value}
    if not entries:
        raise ValueError(f"{name} returned nothing: a quantity must return at least one number")
    arrays: dict[str, tuple[tuple[str, ...], Any, dict[str, Any]]] = {}
    for key, entry in entries.items():
        array = _as_array(entry, key)
        arrays[str(key)] = (tuple(f"{key}_{position}" for position in range(array.ndim)), array, {})
    return Result(arrays, {})


def _as_array(value: Any, name: Any) -> Any:
    if isinstance(value, jax.core.Tracer):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biufcU":
        kinds = "a number, a string, an array, a mapping of these, a DataArray or a Dataset"
        raise ValueError(f"{name} returned {type(value).__name__}; a quantity must return {kinds}")
    return array


def _from_dataset(data: xr.Dataset) -> Result:
    # Variable.data does not convert to NumPy, which is impossible for a traced array.
    arrays = {
        str(key): (tuple(map(str, values.dims)), values.variable.data, dict(values.attrs))
        for key, values in data.data_vars.items()
    }
    if not arrays:
        raise ValueError("the dataset has no variables: a quantity must return at least one")
    if "numerical_error" in data.attrs and "numerical_error" not in arrays:
        about = {"long_name": "estimated numerical error of the cell (NaN: not estimated)", "units": "1"}
        arrays["numerical_error"] = ((), np.float64(data.attrs["numerical_error"]), about)
    coordinates = {
        str(dim): (data[dim].variable.data, dict(data[dim].attrs)) for dim in data.dims if dim in data.coords
    }
    return Result(arrays, coordinates)


@dataclass(frozen=True)
class Naming:
    """Names of outputs and their dimensions in the sweep. One with the name of a swept parameter is prefixed by the
    quantity: if ``basis`` is swept with the quantity ``losses``, its dimension ``basis`` becomes ``losses_basis``."""

    prefix: str
    taken: tuple[str, ...]

    @classmethod
    def of(cls, quantity: str, design: Design) -> "Naming":
        return cls(quantity, tuple(dict.fromkeys((*design.names, *design.dims))))

    def in_sweep(self, name: str) -> str:
        return f"{self.prefix}_{name}" if name in (*self.taken, *RESERVED) else name

    def source(self, name: str) -> str:
        rest = name.removeprefix(f"{self.prefix}_")
        return rest if rest in (*self.taken, *RESERVED) else name


@dataclass(frozen=True)
class Schema:
    """The outputs that every cell of a sweep must have, taken from the first cell."""

    outputs: tuple[Output, ...]
    coordinates: Mapping[str, tuple[np.ndarray, Mapping[str, Any]]]
    naming: Naming

    def match(self, result: Result) -> dict[str, np.ndarray]:
        """The arrays of a cell in the order of the schema, or a ValueError that says how the cell differs."""
        self.check_coordinates(result)
        matched = {}
        for output in self.outputs:
            source = self.naming.source(output.name)
            if source in result.arrays:
                matched[output.name] = _as_output(output, np.asarray(result.arrays[source][1]), source)
            elif source == "numerical_error":
                matched[output.name] = np.array(np.nan)
            else:
                raise ValueError(f"the cell has no {source!r}, which the first one has")
        return matched

    def check_coordinates(self, result: Result) -> None:
        """Raise a ValueError unless the curves of the cell are at the same times, modes and so on."""
        for dim, (values, _) in self.coordinates.items():
            source = self.naming.source(dim)
            if source in result.coordinates and not _same(result.coordinates[source][0], values):
                raise ValueError(
                    f"the cell has other values along {source!r} than the first one ({_brief(values)}): "
                    "cells of a sweep must have the same shape"
                )

    def empty(self, count: int) -> dict[str, np.ndarray]:
        """Arrays for ``count`` cells without results."""
        return {output.name: output.empty([count]) for output in self.outputs}

    @property
    def bytes_per_cell(self) -> int:
        return sum(int(np.prod(output.shape)) * np.dtype(output.dtype).itemsize for output in self.outputs)


def find_schema(result: Result, naming: Naming) -> Schema:
    """The schema that the first result defines for all others."""
    outputs = []
    for name, (dims, array, attrs) in result.arrays.items():
        kind = np.dtype(array.dtype).kind
        shape, dims, about = np.shape(array), tuple(map(naming.in_sweep, dims)), plain_attributes(attrs)
        if kind == "U":
            shape, dims, about = (*shape, _TEXT_BYTES), (*dims, _TEXT_DIM), {**about, "text": "utf-8"}
        # Integers become floats, so that a cell without a result can be NaN.
        dtype = {"b": "bool", "c": "complex128", "U": "uint8"}.get(kind, "float64")
        outputs.append(Output(naming.in_sweep(name), dims, shape, dtype, about))
    coordinates = {
        naming.in_sweep(dim): (np.asarray(values), plain_attributes(attrs))
        for dim, (values, attrs) in result.coordinates.items()
    }
    return Schema(tuple(outputs), coordinates, naming)


def plain_attributes(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes that JSON can represent; others are left out."""
    plain = {str(key): value.item() if isinstance(value, np.generic) else value for key, value in attrs.items()}
    return {key: value for key, value in plain.items() if isinstance(value, str | bool | int | float)}


def _as_output(output: Output, array: np.ndarray, name: str) -> np.ndarray:
    is_text = "text" in output.attrs
    if is_text != (array.dtype.kind == "U"):
        raise ValueError(f"{name} is {'not a string' if is_text else 'a string'}, unlike in the first cell")
    shape = output.shape[:-1] if is_text else output.shape
    if array.shape != shape:
        raise ValueError(
            f"{name} has the shape {array.shape}, in the first cell {shape}: cells of a sweep must have the same shape"
        )
    if not is_text:
        return array.astype(output.dtype)
    encoded = [text.encode() for text in array.ravel().tolist()]
    if max(map(len, encoded)) > _TEXT_BYTES:
        raise ValueError(f"{name} is a string of more than {_TEXT_BYTES} bytes")
    rows = [np.frombuffer(text.ljust(_TEXT_BYTES, b"\0"), np.uint8) for text in encoded]
    return np.array(rows).reshape(output.shape)


def decode_strings(data: xr.Dataset) -> xr.Dataset:
    """The dataset of a sweep with stored bytes decoded to strings."""
    changes = {}
    for name, values in data.data_vars.items():
        if values.attrs.get("text") == "utf-8" and values.dims[-1:] == (_TEXT_DIM,):
            raw = np.ascontiguousarray(values.values).view(f"S{_TEXT_BYTES}")[..., 0]
            attrs = {key: value for key, value in values.attrs.items() if key != "text"}
            changes[name] = (values.dims[:-1], np.char.decode(raw, "utf-8"), attrs)
    return data.assign(changes)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, jax.core.Tracer):
        return False
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        return False
    numeric = one.dtype.kind in "fc" and other.dtype.kind in "fc"
    return bool(np.array_equal(one, other, equal_nan=numeric))


def _brief(values: np.ndarray) -> str:
    return f"{values.size} values, {np.array2string(values, threshold=6, edgeitems=2)}"
