"""The quantity that a sweep computes in each cell, and the form of its results.

A quantity is a method or property of the model, or any function of it. All cells of a sweep must match one schema.
"""

import hashlib
import inspect
import json
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import xarray as xr

from solvable.model import Model
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


@dataclass(frozen=True)
class Quantity:
    """A quantity of a model. ``target`` is the name of a method or property, or a function of the model."""

    target: str | Callable[[Model], Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the quantity, and of outputs without a name of their own."""
        if isinstance(self.target, str):
            return self.target
        name = getattr(self.target, "__name__", type(self.target).__name__)
        return name if name.isidentifier() else "value"

    def evaluate(self, model: Model, options: Mapping[str, Any]) -> Result:
        """The result of one cell, whose options are added to the fixed ones."""
        chosen = {**self.options, **options}
        if not isinstance(self.target, str):
            return as_result(self.target(model, **chosen), self.name)
        found = getattr(model, self.target)
        return as_result(found(**chosen) if callable(found) else found, self.name)

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers, so that each cell needs a random seed."""
        return isinstance(self.target, str) and self.target.startswith("simulate")

    def identity(self) -> dict[str, Any]:
        """JSON that identifies the quantity: a name and, for a function, a hash of its source code."""
        if isinstance(self.target, str):
            return {"quantity": self.target}
        try:
            source = inspect.getsource(self.target)
        except (OSError, TypeError):
            code = getattr(self.target, "__code__", None)
            source = repr((code.co_code, code.co_consts)) if code else repr(type(self.target))
        digest = hashlib.sha256(source.encode()).hexdigest()[:16]
        return {"quantity": f"{getattr(self.target, '__module__', '')}.{self.name}", "source": digest}


def check_quantity(kind: type[Model], target: Any) -> None:
    """Raise a ValueError unless the model has such a quantity."""
    if not isinstance(target, str):
        if not callable(target):
            raise ValueError(f"quantity must be the name of a method or property, or a function, not {target!r}")
        return
    name = target.replace("-", "_")
    found = inspect.getattr_static(kind, name, None)
    if name.startswith("_") or not (callable(found) or isinstance(found, property)):
        raise ValueError(f"the model {kind.name} has no quantity {name!r}; it has {', '.join(quantities(kind))}")


def make_quantity(
    kind: type[Model], target: Any, options: Mapping[str, Any] | None, swept: tuple[str, ...]
) -> Quantity:
    """The quantity of a name or function, with its options checked; ``swept`` are the options that are swept."""
    options = dict(options or {})
    if not isinstance(target, str):
        return Quantity(target, options)
    name = target.replace("-", "_")
    if not isinstance(inspect.getattr_static(kind, name), property):
        _check_options(kind, name, options, swept)
    elif options:
        raise ValueError(f"{name} is a property and takes no options: leave out {', '.join(options)}")
    return Quantity(name, options)


def quantities(kind: type[Model]) -> list[str]:
    """Names of the methods and properties of a model that can be swept."""
    inherited = set(dir(Model)) - {"predict", "simulate"}
    return [
        name
        for name in dir(kind)
        if not name.startswith("_")
        and name not in inherited
        and name not in getattr(kind, "__dataclass_fields__", {})
        and (isinstance(found := inspect.getattr_static(kind, name), property) or inspect.isfunction(found))
    ]


def option_names(kind: type[Model], target: Any) -> list[str]:
    """Names of the options of a quantity."""
    if not isinstance(target, str):
        try:
            return list(inspect.signature(target).parameters)[1:]
        except (TypeError, ValueError):
            return []
    found = getattr(kind, target.replace("-", "_"), None)
    return list(inspect.signature(found).parameters)[1:] if inspect.isfunction(found) else []


def _check_options(kind: type[Model], name: str, options: Mapping[str, Any], swept: tuple[str, ...]) -> None:
    parameters = dict(list(inspect.signature(getattr(kind, name)).parameters.items())[1:])
    open_ended = any(option.kind is option.VAR_KEYWORD for option in parameters.values())
    for given in options:
        if given not in parameters and not open_ended:
            raise ValueError(
                f"{name} of {kind.name} has no option {given!r}; it takes {', '.join(parameters) or 'no options'}"
            )
    for option in parameters.values():
        needed = option.default is option.empty and option.kind in (option.POSITIONAL_OR_KEYWORD, option.KEYWORD_ONLY)
        if needed and option.name not in options and option.name not in swept:
            raise ValueError(f"{name} of {kind.name} needs {option.name}: give options={{{option.name!r}: ...}}")


def json_value(value: Any) -> Any:
    """A value as JSON, in full or by its hash, for cache keys and random seeds."""
    if isinstance(value, Mapping):
        return {str(key): json_value(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list | tuple):
        value = np.asarray(value) if value and all(isinstance(item, numbers.Real) for item in value) else value
        if not isinstance(value, np.ndarray):
            return [json_value(item) for item in value]
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)
        if array.size <= 50:
            return [json_value(item) for item in array.tolist()] if array.ndim else json_value(array.item())
        digest = hashlib.sha256(json.dumps(array.tolist()).encode()).hexdigest()[:16]
        return f"array of shape {array.shape}, sha256 {digest}"
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, numbers.Real):
        # 1 and 1.0 are the same setting; JSON has no infinities.
        number = float(value)
        return number if np.isfinite(number) else repr(number)
    if callable(value) and not hasattr(value, "__dataclass_fields__"):
        return Quantity(value).identity()
    return repr(value)
