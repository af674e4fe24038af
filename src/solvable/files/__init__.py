"""Save and load datasets, with atomic writes and checksums, and without overwriting files of other programs.

``.nc`` (netCDF 4), ``.zarr`` (a folder), ``.npz`` (needs only NumPy) and ``.csv`` (a table) can hold any dataset. Files
are written under a temporary name and renamed, so that a crash or a full disk leaves the old file intact.
"""

from solvable.files.atomic import check_writable, write_atomically
from solvable.files.checksums import UncheckedFileWarning
from solvable.files.saving import DATA_EXTENSIONS, check_data_path, default_extension, load, save

__all__ = [
    "DATA_EXTENSIONS",
    "UncheckedFileWarning",
    "check_data_path",
    "check_writable",
    "default_extension",
    "load",
    "save",
    "write_atomically",
]
