"""A folder takes the place of another one, also where several processes save at the same time.

Where the system can exchange two names (Linux), that is one step. Elsewhere the old folder steps aside first, to a
name by which :func:`set_aside` finds it should the process be killed before the new one is in place.
"""

import contextlib
import ctypes
import errno
import os
import shutil
import uuid
from pathlib import Path

from solvable.files import folders
from solvable.files.atomic import draft_path, explained, real_path, write_file
from solvable.files.sealing import Found

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_READING_ATTEMPTS = 100


def write_folder(path: Path, files: folders.Files) -> None:
    """Write a dataset's folder, or leave everything as it was."""
    with explained(path):
        draft = draft_path(path)
        draft.mkdir()
        identity = draft.stat().st_ino
        try:
            for name, data in files.items():
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                write_file(draft / name, data)
            _put_in_place(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                if draft.stat().st_ino == identity:
                    shutil.rmtree(draft, ignore_errors=True)
            raise
    for left in _left_aside(path):
        discard(left)


def _put_in_place(draft: Path, path: Path) -> None:
    stepped_aside: list[Path] = []
    try:
        while not _rename_to_free(draft, path):
            folders.refuse_foreign(path)
            if _exchange(draft, path):
                _refuse_what_came_between(draft, path)
                stepped_aside.append(draft)
                break
            aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.old")
            # It may be gone meanwhile: then another process is replacing it too.
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, aside)
                stepped_aside.append(aside)
                if not folders.is_ours(aside):
                    raise FileExistsError(errno.EEXIST, "something else was put there while it was written")
    except BaseException:
        for old in reversed(stepped_aside):
            with contextlib.suppress(OSError):
                os.rename(old, path)
        raise
    for old in stepped_aside:
        discard(old)


def _refuse_what_came_between(draft: Path, path: Path) -> None:
    """What was exchanged for the new folder must be what was there when it was checked."""
    if not folders.is_ours(draft):
        _exchange(draft, path)
        raise FileExistsError(errno.EEXIST, "something else was put there while it was written")


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
            shutil.rmtree(doomed, ignore_errors=True)


def read_folder(path: Path) -> Found:
    """Read a dataset's folder; if it is being replaced meanwhile, the old or the new one."""
    for _ in range(_READING_ATTEMPTS):
        place = set_aside(path)
        try:
            folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            return folders.read_zarr(place, folder)
        except (OSError, folders.DamagedDatasetError):
            if _is_still(place, folder):
                raise
        finally:
            os.close(folder)
    raise ValueError("it was replaced by others again and again while it was read; try once more")


def _is_still(path: Path, folder: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(folder))
    except FileNotFoundError:
        return False


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
