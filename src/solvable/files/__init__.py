"""Datasets to files and back: whole or not at all, with checksums, and nothing foreign overwritten.

``.nc`` (netCDF 4), ``.zarr`` (a folder), ``.npz`` (needs NumPy only) and ``.csv`` (a table) hold any dataset. Files are
written under a temporary name and renamed, so that a crash or a full disk leaves the old file whole.
"""

from solvable.files.atomic import check_writable, write_atomically
from solvable.files.saving import DATA_ENDINGS, check_data_path, data_ending, load, save
from solvable.files.sealing import UncheckedFileWarning

__all__ = [
    "DATA_ENDINGS",
    "UncheckedFileWarning",
    "check_data_path",
    "check_writable",
    "data_ending",
    "load",
    "save",
    "write_atomically",
]
