"""A dataset as plain columns and a JSON header, from which it is restored identically.

Columns hold booleans, integers, floats or strings, which every format can store; the header says what they represent.
Attributes, names and types are thus preserved in formats that have no native way to store them. Columns also have
attributes in a form that other programs can read, which :func:`unpack` ignores.
"""

import base64
import datetime
import json
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

FORMAT = 2
_TAG = "~"
_SAFE_NAME = re.compile(r"[A-Za-z_](?:[\w .+@-]*[\w.+@-])?")
# Attributes with a meaning in netCDF, HDF5 or xarray: written natively, they would change the data.
_RESERVED_ATTRIBUTES = {
    *("_FillValue", "missing_value", "scale_factor", "add_offset", "coordinates", "calendar", "dtype", "_Unsigned"),
    *("CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties"),
    *("_nc3_strict", "_ARRAY_DIMENSIONS", "solvable_format", "solvable_dataset"),
}
# HDF5 refuses attributes of 64 KiB and more.
_LONGEST_NATIVE_TEXT = 32_000
# Extended precision, whose layout depends on the machine.
_LONG_TYPES = [kind for kind in map(np.dtype, ("longdouble", "clongdouble")) if kind not in ("float64", "complex128")]
_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


class Column(NamedTuple):
    """An array of a type that every format can store, and attributes for other programs."""

    dims: tuple[str, ...]
    values: np.ndarray
    attrs: dict[str, Any]


@dataclass(frozen=True)
class Content:
    """Content of a file: the header, the columns, the names of those that are coordinates, and native attributes."""

    header: dict[str, Any]
    columns: dict[str, Column]
    coordinates: list[str]
    attrs: dict[str, Any]


def pack(dataset: xr.Dataset) -> Content:
    """Split a dataset into header and columns, or raise a ValueError that names what cannot be stored."""
    if not isinstance(dataset, xr.Dataset):
        raise ValueError(f"only an xarray.Dataset can be saved, not {type(dataset).__name__}; wrap it in one first")
    names = _plain_names(dataset)
    header: dict[str, Any] = {"format": FORMAT, "attrs": _encode(dataset.attrs, "the dataset"), "variables": []}
    columns: dict[str, Column] = {}
    coordinates = []
    for name, variable in dataset.variables.items():
        where = f"variable {name!r}"
        values = _array(variable, where)
        dims = tuple(names[dim] for dim in variable.dims)
        parts = _parts(names[name], values, set(columns) | set(names.values()), where)
        encoded = _encode(variable.attrs, where)
        attrs = {**native_attributes(variable.attrs), **_native_units(values.dtype)}
        columns |= {part: Column(dims, array, attrs) for part, array in parts.items()}
        coordinates += list(parts) if name in dataset.coords else []
        header["variables"].append(
            {
                "name": _encode(name, f"the name {name!r}"),
                "dims": [_encode(dim, f"the dimension {dim!r}") for dim in variable.dims],
                "dtype": values.dtype.str if values.dtype.kind != "T" else "|O",
                "coordinate": name in dataset.coords,
                "columns": list(parts),
                "attrs": encoded,
            }
        )
    return Content(header, columns, coordinates, native_attributes(dataset.attrs))


def unpack(header: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> xr.Dataset:
    """Restore the dataset from its header and columns."""
    variables: dict[Hashable, xr.Variable] = {}
    coordinates: dict[Hashable, xr.Variable] = {}
    for about in header["variables"]:
        dtype = np.dtype(about["dtype"])
        parts = [np.asarray(columns[column]) for column in about["columns"]]
        values = _restore(parts, dtype)
        target = coordinates if about["coordinate"] else variables
        dims = [_decode(dim) for dim in about["dims"]]
        target[_decode(about["name"])] = xr.Variable(dims, values, _decode(about["attrs"]))
    return xr.Dataset(variables, coords=coordinates, attrs=_decode(header["attrs"]))


def parse_header(text: str) -> dict[str, Any]:
    """Parse a header, or raise a ValueError if it is not a JSON object."""
    header = json.loads(text)
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    return header


def _plain_names(dataset: xr.Dataset) -> dict[Hashable, str]:
    """For each variable and dimension a name that every format accepts, which is nearly always its own."""
    names: dict[Hashable, str] = {}
    everything: list[Hashable] = [*dataset.variables, *dataset.dims]
    safe = {name for name in everything if isinstance(name, str) and _SAFE_NAME.fullmatch(name)}
    taken = set(safe)
    for index, name in enumerate(dict.fromkeys(everything)):
        names[name] = str(name) if name in safe else _free_name(f"variable_{index}", taken)
        taken.add(names[name])
    return names


def _free_name(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    return wanted


def _array(variable: xr.Variable, where: str) -> np.ndarray:
    if isinstance(variable.to_base_variable().data, np.ma.MaskedArray):
        raise ValueError(f"{where} is a masked array, and masks cannot be saved: fill it with NaN first")
    values = np.asarray(variable.values)
    if values.dtype.kind == "O" and not all(isinstance(item, str) for item in values.flat):
        odd = next(item for item in values.flat if not isinstance(item, str))
        if isinstance(odd, tuple):
            raise ValueError(f"{where} is a multi-index; call dataset.reset_index() before saving")
        raise ValueError(
            f"{where} holds a Python {type(odd).__name__}; only numbers, booleans, dates and strings can be saved"
        )
    if values.dtype.kind not in "biufcMmUSTO" or values.dtype in _LONG_TYPES:
        raise ValueError(f"{where} holds {values.dtype}; convert it to float64 or another common type first")
    return values


def _parts(name: str, values: np.ndarray, taken: set[str], where: str) -> dict[str, np.ndarray]:
    """The columns that represent an array."""
    kind = values.dtype.kind
    if kind == "c":
        real, imaginary = (_free_name(f"{name}_{part}", taken) for part in ("real", "imag"))
        return {real: _native_order(values.real), imaginary: _native_order(values.imag)}
    if kind in "Mm":
        return {name: values.astype(values.dtype.newbyteorder("=")).view("int64")}
    if kind in "USTO":
        return {name: _texts(values, where)}
    # netCDF has no half precision; single precision represents it exactly.
    return {name: values.astype("float32") if values.dtype.itemsize == 2 and kind == "f" else _native_order(values)}


def _native_order(values: np.ndarray) -> np.ndarray:
    return np.array(values, dtype=values.dtype.newbyteorder("="), order="C")


def _texts(values: np.ndarray, where: str) -> np.ndarray:
    if values.dtype.kind == "S":
        return np.char.decode(values, "latin-1").astype(str) if values.size else values.astype(str)
    for item in values.flat:
        if "\0" in item or not _is_unicode(item):
            raise ValueError(
                f"{where} holds the string {item!r}, which is not valid Unicode or contains a null character; change it"
            )
    return np.array(values.tolist(), dtype=str).reshape(values.shape)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _restore(parts: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "c":
        real, imaginary = parts
        values = np.empty(real.shape, dtype)
        values.real, values.imag = real, imaginary
        return values
    (values,) = parts
    if values.dtype.kind == "T":
        values = np.array(values.tolist(), dtype=str).reshape(values.shape)
    if dtype.kind in "Mm":
        return values.astype("int64").view(dtype.newbyteorder("=")).astype(dtype)
    if dtype.kind == "S":
        return np.char.encode(values.astype(str), "latin-1").astype(dtype) if values.size else values.astype(dtype)
    if dtype.kind == "O":
        return np.array(values.tolist(), dtype=object).reshape(values.shape)
    return values.astype(dtype)


# Attributes


def _encode(value: Any, where: str) -> Any:
    """Convert a value to JSON. Types that JSON does not have become dictionaries with a tag."""
    if isinstance(value, np.generic) and value.dtype.kind in "biufcUS":
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_encode(item, where) for item in value]
    if isinstance(value, tuple):
        return {_TAG: "tuple", "items": [_encode(item, where) for item in value]}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and key != _TAG for key in value):
            return {key: _encode(item, f"{key!r} of {where}") for key, item in value.items()}
        return {_TAG: "dict", "items": [[_encode(key, where), _encode(item, where)] for key, item in value.items()]}
    for kind, encode in _ENCODERS.items():
        if isinstance(value, kind):
            return {_TAG: kind.__name__, "items": encode(value)}
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        return _encode_array(np.asarray(value), isinstance(value, np.generic), where)
    raise ValueError(
        f"the attribute {where} is a {type(value).__name__}, which cannot be saved; "
        "make it a number, a string, a list or a dictionary"
    )


def _encode_array(array: np.ndarray, scalar: bool, where: str) -> dict[str, Any]:
    if array.dtype.kind not in "biufcMmUS" or array.dtype in _LONG_TYPES:
        raise ValueError(
            f"the attribute {where} is an array of {array.dtype}, which cannot be saved; make it numbers or strings"
        )
    plain = array.astype("int64") if array.dtype.kind in "Mm" else array
    items = [_encode(item, where) for item in plain.ravel().tolist()]
    return {_TAG: "array", "dtype": array.dtype.str, "shape": list(array.shape), "items": items, "scalar": scalar}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: _decode(item) for key, item in value.items()}
    return _DECODERS[value[_TAG]](value)


def _decode_array(value: dict[str, Any]) -> Any:
    dtype = np.dtype(value["dtype"])
    items = [_decode(item) for item in value["items"]]
    array = np.array(items, "int64").astype(dtype) if dtype.kind in "Mm" else np.array(items, dtype)
    array = array.reshape(value["shape"])
    return array[()] if value["scalar"] else array


# A datetime is also a date, so that it must come first.
_ENCODERS: dict[type, Callable[[Any], Any]] = {
    complex: lambda value: [value.real, value.imag],
    bytes: lambda value: base64.b64encode(value).decode(),
    datetime.datetime: datetime.datetime.isoformat,
    datetime.date: datetime.date.isoformat,
    datetime.timedelta: lambda value: [value.days, value.seconds, value.microseconds],
}
_DECODERS = {
    "tuple": lambda value: tuple(_decode(value["items"])),
    "dict": lambda value: {_decode(key): _decode(item) for key, item in value["items"]},
    "complex": lambda value: complex(*value["items"]),
    "bytes": lambda value: base64.b64decode(value["items"], validate=True),
    "datetime": lambda value: datetime.datetime.fromisoformat(value["items"]),
    "date": lambda value: datetime.date.fromisoformat(value["items"]),
    "timedelta": lambda value: datetime.timedelta(*value["items"]),
    "array": _decode_array,
}


def native_attributes(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes in a form that other programs can read: numbers and strings as they are, the rest as JSON."""
    found: dict[str, Any] = {}
    for name, value in attrs.items():
        if not isinstance(name, str) or not _SAFE_NAME.fullmatch(name) or name in _RESERVED_ATTRIBUTES:
            continue
        plain = value.item() if isinstance(value, np.generic) else value
        if isinstance(plain, bool):
            plain = int(plain)
        if not isinstance(plain, float | str) and not (isinstance(plain, int) and abs(plain) < 2**63):
            plain = json.dumps(_encode(value, repr(name)))
        if not isinstance(plain, str) or _fits_natively(plain):
            found[name] = plain
    return found


def _fits_natively(text: str) -> bool:
    return "\0" not in text and _is_unicode(text) and len(text.encode()) < _LONGEST_NATIVE_TEXT


def _native_units(dtype: np.dtype) -> dict[str, str]:
    """The CF attribute that tells other programs that integers are dates."""
    if dtype.kind not in "Mm":
        return {}
    unit, count = np.datetime_data(dtype)
    if unit not in _UNITS or count != 1:
        return {}
    return {"units": f"{_UNITS[unit]} since 1970-01-01" if dtype.kind == "M" else _UNITS[unit]}
