"""What is done before a store is used: interrupted replacements are finished or undone, and lost writes are found."""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from solvable.files.zarr_folder import ROOT
from solvable.sweeps import layout as disk
from solvable.sweeps.schema import FAILED, DamagedStoreError

if TYPE_CHECKING:
    from solvable.sweeps.store import Store


def draft_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _aside_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def replace_store(draft: Path, path: Path) -> None:
    """Put a new store in place; an old one is renamed first. :func:`finish_replacement` repairs a kill in between."""
    aside = _aside_path(path)
    if path.exists():
        _check_free(aside)
        os.replace(path, aside)
    os.replace(draft, path)
    disk.flush(path.parent)
    with contextlib.suppress(OSError):
        remove_store(aside)


def finish_replacement(path: Path) -> None:
    """Undo or finish a replacement that was killed. Only the holder of the lock may call this."""
    aside = _aside_path(path)
    if path.exists():
        remove_store(aside)
    elif disk.is_sweep(aside) and _may_be_removed(aside):
        os.replace(aside, path)
    remove_store(draft_path(path))
    _check_free(draft_path(path))


def _check_free(path: Path) -> None:
    """Raise an error if something that no sweep wrote has a temporary name that is needed."""
    if os.path.lexists(path):
        raise ValueError(f"{path} was not written by a sweep, but its name is needed; move it away")


def check_replaceable(path: Path) -> None:
    """Raise an error unless the path is free, or has an empty folder or a folder with files of a sweep only."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file, not a sweep store; choose another path")
    if path.is_dir() and not _may_be_removed(path):
        what = "contains files that no sweep wrote" if disk.is_sweep(path) else "is a folder, but not a sweep store"
        raise ValueError(f"{path} {what}; it is not overwritten: choose another path")


def _may_be_removed(folder: Path) -> bool:
    """Whether a folder is a sweep store, or empty, and has no file that a sweep did not write."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    found = [Path(base, name).relative_to(folder) for base, _, names in os.walk(folder) for name in names]
    if not all(_is_store_file(file) for file in found):
        return False
    # A sweep that was killed at its very beginning has left no more than its first temporary file.
    return disk.is_sweep(folder) or all(file.suffix == ".partial" for file in found)


def _is_store_file(file: Path) -> bool:
    if file.suffix == ".partial" or file.as_posix() == "status/boot.json":
        return True
    if file.name == ROOT:
        return len(file.parts) <= 2
    return len(file.parts) >= 2 and file.parts[1] == "c"


def remove_store(folder: Path) -> None:
    """Remove a store, its root last: after a kill in between, the rest can still be identified as a store."""
    if not _may_be_removed(folder):
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != ROOT:
            entry.unlink(missing_ok=True)
    (folder / ROOT).unlink(missing_ok=True)
    folder.rmdir()


def boot_identity() -> str | None:
    """Changes when the machine restarts; None where the system does not provide it."""
    if sys.platform != "linux":
        return None
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _boot_file(path: Path) -> Path:
    return path / "status" / "boot.json"


def record_boot(path: Path) -> None:
    # Not flushed: if it is lost, the next coordinator verifies once more.
    disk.replace_file(_boot_file(path), json.dumps({"boot": boot_identity()}), durable=False)


def _restarted(path: Path) -> bool:
    try:
        before = json.loads(_boot_file(path).read_text())["boot"]
    except (OSError, ValueError, KeyError, TypeError):
        return True
    return before is None or before != boot_identity()


def recover(store: "Store", crashed: bool, verify: bool) -> list[str]:
    """Bring the files into the state that the root describes. Returns messages about what was repaired.

    The writes of a tile are ordered by renames alone, and after a power cut a disk may have kept a later write and lost
    an earlier one. After a restart of the machine, every finished tile is therefore read and checked before it is
    trusted.
    """
    verify = verify or _restarted(store.path)
    repairs = disk.check_metadata(store.path, store.layout, restore=False)
    if repairs and not verify:
        raise DamagedStoreError(
            f"{'; '.join(repairs)}; open the sweep with verify=True to restore it from the copy in the root"
        )
    disk.check_metadata(store.path, store.layout, restore=True)
    if crashed or verify:
        for leftover in store.path.rglob("*.partial"):
            leftover.unlink(missing_ok=True)
    if verify:
        repairs += _reset_damaged_tiles(store)
        record_boot(store.path)
    return repairs


def _reset_damaged_tiles(store: "Store") -> list[str]:
    repairs = []
    for index, region in store.tiles():
        try:
            status = store.read_status(index, region)
            store.check_files(index, status)
            if status.any():
                for output in store.outputs:
                    store.read_block(output.name, index, region)
            if (status == FAILED).any():
                store.read_errors(index, region)
        except DamagedStoreError as damage:
            repairs.append(str(damage))
            store.arrays["status"][region] = np.zeros([span.stop - span.start for span in region], "uint8")
    return repairs
