"""``.npz`` and ``.nc``: binary files that are composed in memory and end in a checksum.

HDF5 crashes if the disk becomes full while it writes, which cannot happen in memory.
"""

import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from solvable.files import checksums
from solvable.files.checksums import Loaded, require_package
from solvable.files.content import FORMAT, Content, parse_header, unpack

_HEADER = "/header"
_TRAILER = b"\nsolvable header "
_FORMAT_ATTRIBUTE = "solvable_format"


def npz_bytes(content: Content) -> bytes:
    """A NumPy archive; the checksum is its comment."""
    buffer = io.BytesIO()
    arrays = {name: column.values for name, column in content.columns.items()}
    # Not numpy.savez, which takes arrays named "file" and "allow_pickle" for its own arguments.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in {_HEADER: np.array(json.dumps(content.header)), **arrays}.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    # A zip file ends in its comment, after two bytes for the length of the comment, which are 0 so far.
    return checksums.append(buffer.getvalue()[:-2] + struct.pack("<H", checksums.LENGTH))


def read_npz(path: Path) -> Loaded:
    data = path.read_bytes()
    if checksums.is_present(data):
        checksums.verify(data)
    if not zipfile.is_zipfile(io.BytesIO(data)):
        raise ValueError("it is not an npz archive")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        header = parse_header(str(_member(archive, _HEADER)))
        if "format" not in header:
            return Loaded(old_dataset(header, {name: _member(archive, name) for name in header["variables"]}), False)
        checksums.verify(data)
        names = [name for about in header["variables"] for name in about["columns"]]
        return Loaded(unpack(header, {name: _member(archive, name) for name in names}), True)


def _member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Read one array. Arrays of objects, which would be unpickled, are refused."""
    with archive.open(f"{name}.npy") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def is_saved_npz(path: Path) -> bool:
    if checksums.is_in_file(path):
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{_HEADER}.npy" in archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return False


def old_dataset(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> xr.Dataset:
    """Dataset from the header of format 1, which had no checksum and no encoded attributes."""
    variables = {name: (about["dims"], arrays[name], about["attrs"]) for name, about in header["variables"].items()}
    coords = {name: variables.pop(name) for name in header["coords"]}
    return xr.Dataset(variables, coords=coords, attrs=header["attrs"])


def netcdf_bytes(content: Content) -> bytes:
    """An HDF5 file that any netCDF 4 reader opens. Header and checksum follow after its end, where readers stop."""
    require_package("h5netcdf", ".nc")
    variables = {name: xr.Variable(*column) for name, column in content.columns.items()}
    coordinates = {name: variables.pop(name) for name in content.coordinates}
    dataset = xr.Dataset(variables, coords=xr.Coordinates(coordinates, indexes={}), attrs=content.attrs)
    dataset.attrs[_FORMAT_ATTRIBUTE] = FORMAT
    body = bytes(dataset.to_netcdf(None, engine="h5netcdf"))
    header = json.dumps(content.header).encode()
    return checksums.append(body + _TRAILER + header + struct.pack("<Q", len(header)))


def read_netcdf(path: Path) -> Loaded:
    require_package("h5netcdf", ".nc")
    data = path.read_bytes()
    if checksums.is_present(data):
        checksums.verify(data)
        end = len(data) - checksums.LENGTH - 8
        (length,) = struct.unpack("<Q", data[end : end + 8])
        start = end - length - len(_TRAILER)
        if start < 0 or data[start : start + len(_TRAILER)] != _TRAILER:
            raise ValueError("its header is missing")
        header = parse_header(data[end - length : end].decode())
        with xr.open_dataset(io.BytesIO(data[:start]), engine="h5netcdf", decode_cf=False) as stored:
            columns = {str(name): variable.values for name, variable in stored.variables.items()}
            return Loaded(unpack(header, columns), True)
    _check_hdf5(data)
    with xr.open_dataset(io.BytesIO(data), engine="h5netcdf") as dataset:
        if _FORMAT_ATTRIBUTE in dataset.attrs:
            raise ValueError("its checksum is missing: it was cut short, or another program rewrote it")
        return Loaded(without_encodings(dataset.load()), False)


def _check_hdf5(data: bytes) -> None:
    """Raise an OSError unless this is an HDF5 file. (h5netcdf would also print a traceback of its own.)"""
    import h5py  # type: ignore[import-untyped]

    with h5py.File(io.BytesIO(data), "r"):
        pass


def without_encodings(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with plain Python numbers and strings as attributes, and without encodings."""

    def plain_attrs(attrs: dict[Any, Any]) -> dict[Any, Any]:
        return {key: value.item() if isinstance(value, np.generic) else value for key, value in attrs.items()}

    dataset.attrs = plain_attrs(dataset.attrs)
    for variable in dataset.variables.values():
        variable.attrs = plain_attrs(variable.attrs)
        variable.encoding = {}
    dataset.encoding = {}
    return dataset
