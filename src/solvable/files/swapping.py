"""A folder takes the place of another one, also where several processes save at the same time.

Where the system can exchange two names (Linux), that is one step. Elsewhere the old folder steps aside first, to a
name by which :func:`set_aside` finds it should the process be killed before the new one is in place.
"""

import contextlib
import ctypes
import errno
import os
import shutil
import time
import uuid
from pathlib import Path

from solvable.files import folders
from solvable.files.atomic import (
    draft_path,
    explained,
    insist,
    is_same,
    lock,
    new_draft,
    real_path,
    remove_abandoned,
    write_file,
)
from solvable.files.sealing import Found

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_READING_ATTEMPTS = 50
_CAME_BETWEEN = "something else was put there while it was written"


def write_folder(path: Path, files: folders.Files) -> None:
    """Write a dataset's folder, or leave everything as it was."""
    try:
        with explained(path), new_draft(path, folder=True) as draft:
            for name, data in files.items():
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                write_file(draft / name, data)
            _put_in_place(draft, path)
    finally:
        # Also after an interrupt (Ctrl-C) between two of the steps above.
        insist(lambda: _clear(path))


def _clear(path: Path) -> None:
    """Remove what this or a killed process left beside a path: old folders, and drafts."""
    _discard_abandoned(path)
    remove_abandoned(path.parent)


def _put_in_place(draft: Path, path: Path) -> None:
    while not _rename_to_free(draft, path):
        folders.refuse_foreign(path)
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.old")
        if _exchanged(draft, path, aside) or _stepped_aside(draft, path, aside):
            discard(aside)
            return


def _exchanged(draft: Path, path: Path, aside: Path) -> bool:
    """One step: the new folder goes to the path and the old one aside. False where the system cannot do it."""
    os.rename(draft, aside)
    if not _exchange(aside, path):
        os.rename(aside, draft)
        return False
    # It may be gone already, when others have cleared it away.
    if not folders.is_ours(aside) and os.path.lexists(aside):
        if _exchange(aside, path):
            os.rename(aside, draft)
        raise FileExistsError(errno.EEXIST, _CAME_BETWEEN)
    return True


def _stepped_aside(draft: Path, path: Path, aside: Path) -> bool:
    """Two steps: the old folder goes aside, then the new one to the path. False if others came first."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # Locked, so that nobody takes it for abandoned while it may have to be put back.
        lock(handle, wait=True)
        if not is_same(handle, path):
            return False
        os.rename(path, aside)
        try:
            if not folders.is_ours(aside):
                raise FileExistsError(errno.EEXIST, _CAME_BETWEEN)
            placed = _rename_to_free(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.rename(aside, path)
            raise
        if not placed:
            discard(aside)
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
    """Exchange two names in one step; False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    arguments = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    return renameat2(*arguments) == 0


def discard(folder: Path) -> None:
    """Remove a dataset of ours; anything else is left alone."""
    # Renamed first: a folder half removed must not be taken for one that only stepped aside.
    doomed = draft_path(folder)
    with contextlib.suppress(OSError):
        if folders.is_ours(folder):
            os.rename(folder, doomed)
            insist(lambda: shutil.rmtree(doomed, ignore_errors=True))


def _discard_abandoned(path: Path) -> None:
    """Remove the folders that stepped aside for processes that were killed."""
    for folder in _left_aside(path):
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                if lock(handle, wait=False):
                    discard(folder)
            finally:
                os.close(handle)


def read_folder(path: Path) -> Found:
    """Read a dataset's folder; if it is being replaced meanwhile, the old or the new one."""
    for _ in range(_READING_ATTEMPTS):
        place = set_aside(path)
        try:
            folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            time.sleep(0.001)
            continue
        try:
            return folders.read_zarr(place, folder)
        except (OSError, folders.DamagedDatasetError):
            if is_same(folder, place):
                raise
        finally:
            os.close(folder)
    raise FileNotFoundError(errno.ENOENT, f"there is no dataset {path}")


def set_aside(path: Path) -> Path:
    """The path, or where its dataset is if a replacement was cut short before the new one was in place."""
    path = real_path(path)
    if path.exists():
        return path
    found = [folder for folder in _left_aside(path) if folders.is_ours(folder)]
    return max(found, key=_last_change, default=path)


def _last_change(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _left_aside(path: Path) -> list[Path]:
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if entry.name.startswith(f".{path.name}.") and entry.name.endswith(".old") and entry.is_dir()
        ]
    return []
