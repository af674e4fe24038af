"""Atomic replacement of a folder by another one, also while several processes save at the same time.

Where the system can exchange two names (Linux), the replacement is one step. Elsewhere the old folder is renamed first,
to a name under which :func:`find_dataset` finds it if the process is killed before the new folder is in place.
"""

import contextlib
import ctypes
import errno
import os
import shutil
import time
import uuid
from pathlib import Path

from solvable.files import atomic, zarr_folder
from solvable.files.checksums import Loaded

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_READING_ATTEMPTS = 50
_PATH_TAKEN = "something else was put there while it was written"


def write_folder(path: Path, files: zarr_folder.Files) -> None:
    """Write the folder of a dataset, or leave everything as it was."""
    try:
        with atomic.explain_os_errors(path), atomic.new_draft(path, folder=True) as draft:
            for name, data in files.items():
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                atomic.write_file(draft / name, data)
            _put_in_place(draft, path)
    finally:
        # Also after an interrupt (Ctrl-C) between two of the steps above.
        atomic.complete(lambda: _clean_up(path))


def _clean_up(path: Path) -> None:
    """Remove the old folders and drafts that this process, or one that was killed, left beside a path."""
    for folder in _renamed_folders(path):
        atomic.remove_unlocked(folder, _discard)
    atomic.remove_abandoned(path.parent)


def _put_in_place(draft: Path, path: Path) -> None:
    while not _rename_to_free(draft, path):
        zarr_folder.check_replaceable(path)
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.old")
        if _replace_in_one_step(draft, path, aside) or _replace_in_two_steps(draft, path, aside):
            _discard(aside)
            return


def _replace_in_one_step(draft: Path, path: Path, aside: Path) -> bool:
    """Exchange the new folder, renamed to ``aside``, with the old one. False if the system cannot exchange names."""
    os.rename(draft, aside)
    if not _exchange(aside, path):
        os.rename(aside, draft)
        return False
    # It may be gone already, if another process has removed it.
    if not zarr_folder.is_dataset(aside) and os.path.lexists(aside):
        if _exchange(aside, path):
            os.rename(aside, draft)
        raise FileExistsError(errno.EEXIST, _PATH_TAKEN)
    return True


def _replace_in_two_steps(draft: Path, path: Path, aside: Path) -> bool:
    """Rename the old folder, then the new one. False if another process came first."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # Locked, so that no process takes it for abandoned while it may have to be put back.
        atomic.lock(handle, wait=True)
        if not atomic.is_same(handle, path):
            return False
        os.rename(path, aside)
        try:
            if not zarr_folder.is_dataset(aside):
                raise FileExistsError(errno.EEXIST, _PATH_TAKEN)
            placed = _rename_to_free(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.rename(aside, path)
            raise
        if not placed:
            _discard(aside)
        return placed
    finally:
        os.close(handle)


def _rename_to_free(draft: Path, path: Path) -> bool:
    """Rename if nothing (or an empty folder) is at the path."""
    try:
        os.rename(draft, path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step. False if the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0


def _discard(folder: Path) -> None:
    """Remove a folder that is a dataset of solvable; anything else stays."""
    # Renamed first: a folder that is half removed must not be taken for one that can be put back.
    doomed = atomic.draft_path(folder)
    with contextlib.suppress(OSError):
        if zarr_folder.is_dataset(folder):
            os.rename(folder, doomed)
            atomic.complete(lambda: shutil.rmtree(doomed, ignore_errors=True))


def read_folder(path: Path) -> Loaded:
    """Read the folder of a dataset. If it is being replaced meanwhile, this is the old or the new one."""
    for _ in range(_READING_ATTEMPTS):
        place = find_dataset(path)
        try:
            folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            time.sleep(0.001)
            continue
        try:
            return zarr_folder.read_zarr(place, folder)
        except (OSError, zarr_folder.DamagedDatasetError):
            if atomic.is_same(folder, place):
                raise
        finally:
            os.close(folder)
    raise FileNotFoundError(errno.ENOENT, f"there is no dataset {path}")


def find_dataset(path: Path) -> Path:
    """The path, or the name to which its dataset was renamed by a process that was killed during a replacement."""
    path = atomic.follow_link(path)
    if path.exists():
        return path
    return max(filter(zarr_folder.is_dataset, _renamed_folders(path)), key=_modification_time, default=path)


def _modification_time(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _renamed_folders(path: Path) -> list[Path]:
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if entry.name.startswith(f".{path.name}.") and entry.name.endswith(".old") and entry.is_dir()
        ]
    return []
