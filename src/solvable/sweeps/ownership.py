"""Which folders are sweep stores: only those are ever replaced or removed."""

import json
import os
import shutil
from pathlib import Path

from solvable.files.zarr_folder import is_sweep_root
from solvable.sweeps.grid import STATUS_ATTRS

_ROOT = "zarr.json"


def is_sweep(folder: Path) -> bool:
    """Whether a folder is a sweep store, finished or not, or was one before it was damaged."""
    try:
        if is_sweep_root((folder / _ROOT).read_bytes()):
            return True
    except OSError:
        pass
    try:
        return json.loads((folder / "status" / _ROOT).read_text())["attributes"] == STATUS_ATTRS
    except (OSError, ValueError, KeyError, TypeError):
        return False


def may_be_removed(folder: Path) -> bool:
    """Whether a folder is a sweep store, or empty, and holds no file that a sweep did not write."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    found = [Path(base, name).relative_to(folder) for base, _, names in os.walk(folder) for name in names]
    if not all(_is_store_file(file) for file in found):
        return False
    # A sweep that was killed as it began has not come further than its first temporary file.
    return is_sweep(folder) or all(file.suffix == ".partial" for file in found)


def _is_store_file(file: Path) -> bool:
    if file.suffix == ".partial" or file.as_posix() == "status/boot.json":
        return True
    if file.name == _ROOT:
        return len(file.parts) <= 2
    return len(file.parts) >= 2 and file.parts[1] == "c"


def remove(folder: Path) -> None:
    """Remove a store, its root last: should this be cut short, the rest is still known as a store."""
    if not may_be_removed(folder):
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != _ROOT:
            entry.unlink(missing_ok=True)
    (folder / _ROOT).unlink(missing_ok=True)
    folder.rmdir()
