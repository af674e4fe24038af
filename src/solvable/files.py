"""Datasets to files and back, whole or not at all.

``.nc`` (netCDF 4), ``.zarr`` (a folder), ``.npz`` (nothing but NumPy needed) hold any dataset; ``.csv`` holds plain
curves. Files are written under a temporary name and renamed, so that a crash leaves the old file whole.
"""

import contextlib
import csv
import importlib.util
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

_CSV_MARK = "# solvable "


def save(dataset: xr.Dataset, path: str | os.PathLike[str]) -> Path:
    """Write a dataset; the ending of the path chooses the format. Returns the path.

    >>> import os, tempfile, solvable
    >>> curve = solvable.ScalarNetwork.small(2, 0.1).predict([0, 1, 2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = solvable.save(curve, os.path.join(folder, "curve.npz"))
    ...     print(solvable.load(path).identical(curve))
    ...
    True
    """
    path = Path(path)
    writer = _format(path)[0]
    check_writable(path)
    _recover(path)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        draft = temporary / path.name
        writer(dataset, draft)
        _replace(draft, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return path


def load(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a dataset written by :func:`save`, whole and into memory.

    >>> import solvable
    >>> solvable.load("curve.txt")
    Traceback (most recent call last):
        ...
    ValueError: 'curve.txt' must end in one of .nc, .zarr, .npz, .csv
    """
    path = Path(path)
    reader = _format(path)[1]
    _recover(path)
    if not path.exists():
        raise ValueError(f"there is no file {path}")
    try:
        return reader(path)
    except ImportError:
        raise
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as {path.suffix}: it is damaged or was not written by solvable ({error})"
        ) from error


def check_writable(path: str | os.PathLike[str], bytes_needed: int = 0) -> None:
    """Raise a ValueError if nothing can be written at this path; writes nothing that stays."""
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if path.is_dir() and path.suffix != ".zarr":
        raise ValueError(f"cannot write {path}: it is a folder; name a file")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}; choose another folder") from error


def check_data_path(path: str | os.PathLike[str], bytes_needed: int = 0) -> Path:
    """Raise unless :func:`save` could write a dataset at this path now; meant to be called before the work.

    The format must be known and its package installed, the folder must exist, be writable and have room, and nothing
    that solvable did not write may have to make way. Leaves nothing behind.

    >>> from solvable.files import check_data_path
    >>> check_data_path("curve.txt")
    Traceback (most recent call last):
        ...
    ValueError: 'curve.txt' must end in one of .nc, .zarr, .npz, .csv
    """
    path = Path(path)
    _format(path)
    package = _PACKAGES.get(path.suffix.lower())
    if package:
        _need(package, path.suffix.lower())
    check_writable(path, bytes_needed)
    return path


def write_atomically(path: str | os.PathLike[str], data: bytes | str) -> Path:
    """Write bytes or text under a temporary name, then rename."""
    path = Path(path)
    check_writable(path)
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    return path


def _replace(draft: Path, path: Path) -> None:
    if not path.is_dir():
        os.replace(draft, path)
        return
    # A folder cannot be renamed over another one: the old one steps aside first. A crash in between is mended by
    # _recover the next time the path is used.
    aside = _aside(path)
    os.replace(path, aside)
    os.replace(draft, path)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _recover(path: Path) -> None:
    aside = _aside(path)
    if aside.exists():
        if path.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.replace(aside, path)


def _need(module: str, ending: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{ending} files need the package {module!r}, which is not installed: use .npz instead")


def _write_netcdf(dataset: xr.Dataset, path: Path) -> None:
    _need("h5netcdf", ".nc")
    dataset.to_netcdf(path, engine="h5netcdf")


def _read_netcdf(path: Path) -> xr.Dataset:
    _need("h5netcdf", ".nc")
    with xr.open_dataset(path, engine="h5netcdf") as dataset:
        return _plain(dataset.load())


def _write_zarr(dataset: xr.Dataset, path: Path) -> None:
    _need("zarr", ".zarr")
    dataset.to_zarr(path, mode="w", consolidated=False)


def _read_zarr(path: Path) -> xr.Dataset:
    _need("zarr", ".zarr")
    with xr.open_zarr(path, consolidated=False, chunks=None) as dataset:
        return _plain(dataset.load())


def _plain(dataset: xr.Dataset) -> xr.Dataset:
    """Attributes as plain Python numbers and text, as they were when saved."""

    def plain(attrs: dict[Any, Any]) -> dict[Any, Any]:
        return {key: value.item() if isinstance(value, np.generic) else value for key, value in attrs.items()}

    dataset.attrs = plain(dataset.attrs)
    for variable in dataset.variables.values():
        variable.attrs = plain(variable.attrs)
        variable.encoding = {}
    dataset.encoding = {}
    return dataset


def _header(dataset: xr.Dataset) -> dict[str, Any]:
    return {
        "attrs": dataset.attrs,
        "coords": list(map(str, dataset.coords)),
        "variables": {
            str(name): {"dims": list(variable.dims), "attrs": variable.attrs, "dtype": variable.dtype.str}
            for name, variable in dataset.variables.items()
        },
    }


def _rebuild(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> xr.Dataset:
    variables = {name: (about["dims"], arrays[name], about["attrs"]) for name, about in header["variables"].items()}
    coords = {name: variables.pop(name) for name in header["coords"]}
    return xr.Dataset(variables, coords=coords, attrs=header["attrs"])


def _write_npz(dataset: xr.Dataset, path: Path) -> None:
    arrays = {str(name): np.asarray(variable.values) for name, variable in dataset.variables.items()}
    for name, array in arrays.items():
        if array.dtype == object:
            arrays[name] = array.astype(str)
    with open(path, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays, **{"/header": np.array(json.dumps(_header(dataset)))})


def _read_npz(path: Path) -> xr.Dataset:
    if not zipfile.is_zipfile(path):
        raise ValueError("not an npz archive")
    with np.load(path, allow_pickle=False) as archive:
        header = json.loads(str(archive["/header"]))
        return _rebuild(header, {name: archive[name] for name in header["variables"]})


def _write_csv(dataset: xr.Dataset, path: Path) -> None:
    if len(dataset.dims) != 1 or any(variable.dims != tuple(dataset.dims) for variable in dataset.variables.values()):
        raise ValueError(
            f".csv holds plain curves over one dimension, not a dataset over {dict(dataset.sizes)}: "
            "take a mean or a selection, or save as .nc or .npz"
        )
    names = [*map(str, dataset.coords), *map(str, dataset.data_vars)]
    with open(path, "w", newline="") as file:
        file.write(_CSV_MARK + json.dumps(_header(dataset)) + "\n")
        writer = csv.writer(file)
        writer.writerow(names)
        # Python writes a float with just the digits that bring it back.
        writer.writerows(zip(*(dataset[name].values.tolist() for name in names), strict=True))


def _read_csv(path: Path) -> xr.Dataset:
    with open(path, newline="") as file:
        first = file.readline()
        if not first.startswith(_CSV_MARK):
            raise ValueError("the first line is not a solvable header")
        header = json.loads(first[len(_CSV_MARK) :])
        names, *rows = csv.reader(file)
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    types = {name: np.dtype(about["dtype"]) for name, about in header["variables"].items()}
    return _rebuild(header, {name: _parse_column(columns[name], kind) for name, kind in types.items()})


def _parse_column(texts: tuple[str, ...], kind: np.dtype) -> np.ndarray:
    if kind.kind == "b":
        return np.array([{"True": True, "False": False}[text] for text in texts])
    return np.array(texts, dtype=float).astype(kind) if kind.kind == "f" else np.array(texts).astype(kind)


Format = tuple[Callable[[xr.Dataset, Path], None], Callable[[Path], xr.Dataset]]

_FORMATS: dict[str, Format] = {
    ".nc": (_write_netcdf, _read_netcdf),
    ".zarr": (_write_zarr, _read_zarr),
    ".npz": (_write_npz, _read_npz),
    ".csv": (_write_csv, _read_csv),
}


DATA_ENDINGS = tuple(_FORMATS)
_PACKAGES = {".nc": "h5netcdf", ".zarr": "zarr"}


def _format(path: Path) -> Format:
    ending = path.suffix.lower()
    if ending not in _FORMATS:
        raise ValueError(f"{path.name!r} must end in one of {', '.join(_FORMATS)}")
    return _FORMATS[ending]


def data_ending() -> str:
    """The ending of the best format for any dataset on this machine."""
    return ".nc" if importlib.util.find_spec("h5netcdf") else ".npz"
