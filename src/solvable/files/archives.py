"""``.npz`` and ``.nc``: one binary file each, made in memory, sealed with a checksum and written by one rename.

HDF5 crashes when the disk fills up under it; in memory it cannot.
"""

import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from solvable.files.content import FORMAT, Content, parse_header, unpack
from solvable.files.sealing import SEAL_LENGTH, Found, check_seal, ends_in_seal, is_sealed, need, seal

_HEADER = "/header"
_TRAILER = b"\nsolvable header "
_FORMAT_ATTRIBUTE = "solvable_format"


def npz_bytes(content: Content) -> bytes:
    """A NumPy archive; the checksum is its comment."""
    buffer = io.BytesIO()
    arrays = {name: column.values for name, column in content.columns.items()}
    # Not by numpy.savez, which takes the names "file" and "allow_pickle" for arguments of its own.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in {_HEADER: np.array(json.dumps(content.header)), **arrays}.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    # A zip file ends in the length of its comment, here 0, and the comment.
    return seal(buffer.getvalue()[:-2] + struct.pack("<H", SEAL_LENGTH))


def read_npz(path: Path) -> Found:
    data = path.read_bytes()
    if is_sealed(data):
        check_seal(data)
    if not zipfile.is_zipfile(io.BytesIO(data)):
        raise ValueError("it is not an npz archive")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        header = parse_header(str(_member(archive, _HEADER)))
        if "format" not in header:
            return Found(old_dataset(header, {name: _member(archive, name) for name in header["variables"]}), False)
        check_seal(data)
        names = [name for about in header["variables"] for name in about["columns"]]
        return Found(unpack(header, {name: _member(archive, name) for name in names}), True)


def _member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """One array; arrays of objects, which would be unpickled, are refused."""
    with archive.open(f"{name}.npy") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def npz_is_ours(path: Path) -> bool:
    if ends_in_seal(path):
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{_HEADER}.npy" in archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return False


def old_dataset(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> xr.Dataset:
    """From the header of format 1, which had neither checksum nor encoded attributes."""
    variables = {name: (about["dims"], arrays[name], about["attrs"]) for name, about in header["variables"].items()}
    coords = {name: variables.pop(name) for name in header["coords"]}
    return xr.Dataset(variables, coords=coords, attrs=header["attrs"])


def netcdf_bytes(content: Content) -> bytes:
    """An HDF5 file that any netCDF 4 reader opens; header and checksum follow after its end, where readers stop."""
    need("h5netcdf", ".nc")
    variables = {name: xr.Variable(*column) for name, column in content.columns.items()}
    coordinates = {name: variables.pop(name) for name in content.coordinates}
    dataset = xr.Dataset(variables, coords=xr.Coordinates(coordinates, indexes={}), attrs=content.attrs)
    dataset.attrs[_FORMAT_ATTRIBUTE] = FORMAT
    body = bytes(dataset.to_netcdf(None, engine="h5netcdf"))
    header = json.dumps(content.header).encode()
    return seal(body + _TRAILER + header + struct.pack("<Q", len(header)))


def read_netcdf(path: Path) -> Found:
    need("h5netcdf", ".nc")
    data = path.read_bytes()
    if is_sealed(data):
        check_seal(data)
        end = len(data) - SEAL_LENGTH - 8
        (length,) = struct.unpack("<Q", data[end : end + 8])
        start = end - length - len(_TRAILER)
        if start < 0 or data[start : start + len(_TRAILER)] != _TRAILER:
            raise ValueError("its header is missing")
        header = parse_header(data[end - length : end].decode())
        with xr.open_dataset(io.BytesIO(data[:start]), engine="h5netcdf", decode_cf=False) as stored:
            columns = {str(name): variable.values for name, variable in stored.variables.items()}
            return Found(unpack(header, columns), True)
    _check_hdf5(data)
    with xr.open_dataset(io.BytesIO(data), engine="h5netcdf") as dataset:
        if _FORMAT_ATTRIBUTE in dataset.attrs:
            raise ValueError("its checksum is missing: it was cut short, or another program rewrote it")
        return Found(plain(dataset.load()), False)


def _check_hdf5(data: bytes) -> None:
    """Raise an OSError unless this is an HDF5 file; h5netcdf would print a traceback of its own besides."""
    import h5py  # type: ignore[import-untyped]

    with h5py.File(io.BytesIO(data), "r"):
        pass


def netcdf_is_ours(path: Path) -> bool:
    return ends_in_seal(path)


def plain(dataset: xr.Dataset) -> xr.Dataset:
    """A dataset of format 1 as it was: attributes as plain Python numbers and texts, no encodings."""

    def plain_attrs(attrs: dict[Any, Any]) -> dict[Any, Any]:
        return {key: value.item() if isinstance(value, np.generic) else value for key, value in attrs.items()}

    dataset.attrs = plain_attrs(dataset.attrs)
    for variable in dataset.variables.values():
        variable.attrs = plain_attrs(variable.attrs)
        variable.encoding = {}
    dataset.encoding = {}
    return dataset
