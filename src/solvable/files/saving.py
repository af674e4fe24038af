"""Save and load, by the ending of the path."""

import importlib.util
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from solvable.files import archives, folders, swapping, tables
from solvable.files.atomic import check_folder, check_name, check_writable, real_path, write_atomically
from solvable.files.content import Content, pack
from solvable.files.sealing import Found, UncheckedFileWarning, need

_LONGEST_REASON = 300


@dataclass(frozen=True)
class Format:
    """How datasets are written and read; ``is_ours`` tells whether a file is one that :func:`save` wrote."""

    encode: Callable[[Content], Any]
    read: Callable[[Path], Found]
    is_ours: Callable[[Path], bool]
    package: str | None = None
    others: str = ""


_FORMATS = {
    ".nc": Format(
        archives.netcdf_bytes, archives.read_netcdf, archives.netcdf_is_ours, "h5netcdf", "xarray.open_dataset"
    ),
    ".zarr": Format(folders.zarr_files, swapping.read_folder, folders.is_ours, "zarr", "xarray.open_zarr"),
    ".npz": Format(archives.npz_bytes, archives.read_npz, archives.npz_is_ours, None, "numpy.load"),
    ".csv": Format(tables.csv_bytes, tables.read_csv, tables.csv_is_ours, None, 'pandas.read_csv(comment="#")'),
}
DATA_ENDINGS = tuple(_FORMATS)


def save(dataset: xr.Dataset, path: str | os.PathLike[str]) -> Path:
    """Write a dataset, whole or not at all; the ending of the path chooses the format. Returns the path.

    ``.nc`` (netCDF 4), ``.zarr`` (a folder), ``.npz`` (needs NumPy only) and ``.csv`` (a table) hold any dataset of
    numbers, booleans, dates and texts, with its attributes. A dataset that an earlier call wrote is replaced; nothing
    else is (see :func:`solvable.files.check_data_path`).

    >>> import os, tempfile, solvable
    >>> curve = solvable.ScalarNetwork.small(2, 0.1).predict([0, 1, 2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = solvable.save(curve, os.path.join(folder, "curve.npz"))
    ...     print(solvable.load(path).identical(curve))
    ...
    True
    """
    path = check_data_path(path)
    encoded = _format(path).encode(pack(dataset))
    if isinstance(encoded, dict):
        swapping.write_folder(real_path(path), encoded)
    else:
        write_atomically(path, encoded)
    return path


def load(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a dataset written by :func:`save`, whole and into memory, and check it against its checksum.

    A file that is damaged or was changed by another program raises a ValueError. One without a checksum, from an older
    version or another program, is read with a warning (``solvable.files.UncheckedFileWarning``).

    >>> import solvable
    >>> solvable.load("curve.txt")
    Traceback (most recent call last):
        ...
    ValueError: 'curve.txt' must end in one of .nc, .zarr, .npz, .csv
    """
    path = Path(path)
    chosen = _format(path)
    folder = path.suffix.lower() == ".zarr"
    if not folder and not path.exists():
        raise ValueError(f"there is no file {path}")
    if path.is_file() if folder else path.is_dir():
        raise ValueError(f"{path} is a {'file' if folder else 'folder'}, not a {path.suffix} dataset")
    try:
        found = chosen.read(path)
    except ImportError:
        raise
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__
        raise ValueError(
            f"{path} cannot be read as {path.suffix}: it is damaged, or solvable did not write it ({reason}); restore "
            f"it from a copy, or read what is left with {chosen.others}"
        ) from error
    if not found.checked:
        warnings.warn(
            f"{path} carries no checksum (an older version or another program wrote it), so that damage to it would "
            "go unnoticed; save it again to add one",
            UncheckedFileWarning,
            stacklevel=2,
        )
    return found.dataset


def check_data_path(path: str | os.PathLike[str], bytes_needed: int = 0) -> Path:
    """Raise unless :func:`save` could write a dataset at this path now; meant to be called before the work.

    The format must be known and its package installed, the folder must exist, be writable and have room, and nothing
    that solvable did not write may have to make way: a folder or file that is not a dataset of ours is refused, and
    so is a sweep store. Leaves nothing behind.

    >>> from solvable.files import check_data_path
    >>> check_data_path("curve.txt")
    Traceback (most recent call last):
        ...
    ValueError: 'curve.txt' must end in one of .nc, .zarr, .npz, .csv
    """
    path = Path(path)
    chosen = _format(path)
    if chosen.package:
        need(chosen.package, path.suffix.lower())
    check_name(path)
    target = real_path(path)
    if path.suffix.lower() == ".zarr":
        check_folder(target, bytes_needed)
        folders.refuse_foreign(target)
        return path
    check_writable(path, bytes_needed)
    if target.exists() and target.stat().st_size and not chosen.is_ours(target):
        raise ValueError(
            f"cannot write {path}: the file there is not a dataset that this version of solvable wrote, and is not "
            "overwritten; move it away or choose another name"
        )
    return path


def data_ending() -> str:
    """The ending of the best format for any dataset on this machine."""
    return ".nc" if importlib.util.find_spec("h5netcdf") else ".npz"


def _format(path: Path) -> Format:
    ending = path.suffix.lower()
    if ending not in _FORMATS:
        raise ValueError(f"{path.name!r} must end in one of {', '.join(_FORMATS)}")
    return _FORMATS[ending]
