"""Save and load datasets in the format that the extension of the path chooses."""

import importlib.util
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from solvable.files import binary, checksums, csv_table, replacement, zarr_folder
from solvable.files.atomic import check_folder, check_name, check_writable, follow_link, write_atomically
from solvable.files.checksums import Loaded, UncheckedFileWarning, require_package
from solvable.files.content import Content, pack

_MAXIMUM_REASON_LENGTH = 300


@dataclass(frozen=True)
class _Format:
    """How datasets are written and read; ``is_dataset`` tells whether a file was written by :func:`save`."""

    encode: Callable[[Content], Any]
    read: Callable[[Path], Loaded]
    is_dataset: Callable[[Path], bool]
    package: str | None
    other_reader: str


_FORMATS = {
    ".nc": _Format(binary.netcdf_bytes, binary.read_netcdf, checksums.is_in_file, "h5netcdf", "xarray.open_dataset"),
    ".zarr": _Format(
        zarr_folder.zarr_files, replacement.read_folder, zarr_folder.is_dataset, "zarr", "xarray.open_zarr"
    ),
    ".npz": _Format(binary.npz_bytes, binary.read_npz, binary.is_saved_npz, None, "numpy.load"),
    ".csv": _Format(
        csv_table.csv_bytes, csv_table.read_csv, csv_table.is_saved_csv, None, 'pandas.read_csv(comment="#")'
    ),
}
DATA_EXTENSIONS = tuple(_FORMATS)


def save(dataset: xr.Dataset, path: str | os.PathLike[str]) -> Path:
    """Write a dataset atomically and return the path.

    Parameters
    ----------
    dataset
        A dataset of numbers, booleans, dates and strings, with any attributes.
    path
        Where to write. The extension chooses the format: ``.nc`` (netCDF 4), ``.zarr`` (a folder), ``.npz`` (needs only
        NumPy) or ``.csv`` (a table). A dataset that an earlier call wrote is replaced; other files and folders are not
        (see :func:`solvable.files.check_data_path`).

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
        replacement.write_folder(follow_link(path), encoded)
    else:
        write_atomically(path, encoded)
    return path


def load(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a dataset written by :func:`save` into memory, and verify its checksum.

    A file that is damaged or was changed by another program raises a ValueError. A file without a checksum, from an
    older version or another program, is read with a warning (``solvable.files.UncheckedFileWarning``).

    Parameters
    ----------
    path
        The file, or the folder of a ``.zarr`` dataset.

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
        loaded = chosen.read(path)
    except ImportError:
        raise
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:_MAXIMUM_REASON_LENGTH] or type(error).__name__
        raise ValueError(
            f"{path} cannot be read as {path.suffix}: it is damaged, or solvable did not write it ({reason}); restore "
            f"it from a copy, or read what is left with {chosen.other_reader}"
        ) from error
    if not loaded.verified:
        warnings.warn(
            f"{path} has no checksum (an older version or another program wrote it), so damage to it would not be "
            "noticed; save it again to add one",
            UncheckedFileWarning,
            stacklevel=2,
        )
    return loaded.dataset


def check_data_path(path: str | os.PathLike[str], bytes_needed: int = 0) -> Path:
    """Raise an error unless :func:`save` can write a dataset at this path; meant to be called before the work.

    The format must be known and its package installed; the folder must exist, be writable and have room. A file, a
    folder or a sweep store that :func:`save` did not write is not overwritten. Nothing is left behind.

    Parameters
    ----------
    path
        Where the dataset would be written.
    bytes_needed
        Expected size of the file, which the disk must have room for.

    >>> from solvable.files import check_data_path
    >>> check_data_path("curve.txt")
    Traceback (most recent call last):
        ...
    ValueError: 'curve.txt' must end in one of .nc, .zarr, .npz, .csv
    """
    path = Path(path)
    chosen = _format(path)
    if chosen.package:
        require_package(chosen.package, path.suffix.lower())
    check_name(path)
    target = follow_link(path)
    if path.suffix.lower() == ".zarr":
        check_folder(target, bytes_needed)
        zarr_folder.check_replaceable(target)
        return path
    check_writable(path, bytes_needed)
    if target.exists() and target.stat().st_size and not chosen.is_dataset(target):
        raise ValueError(
            f"cannot write {path}: the file there is not a dataset that this version of solvable wrote, and is not "
            "overwritten; move it away or choose another name"
        )
    return path


def default_extension() -> str:
    """The extension of the preferred format among those whose package is installed."""
    return ".nc" if importlib.util.find_spec("h5netcdf") else ".npz"


def _format(path: Path) -> _Format:
    extension = path.suffix.lower()
    if extension not in _FORMATS:
        raise ValueError(f"{path.name!r} must end in one of {', '.join(_FORMATS)}")
    return _FORMATS[extension]
