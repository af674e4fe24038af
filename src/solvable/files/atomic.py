"""Atomic writes: a file is written under a temporary name and renamed, so that it is replaced whole or not at all."""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

# With less free space than this, not even a small dataset fits: refused before the work.
_MINIMUM_FREE_BYTES = 64 * 1024
# File systems allow names of 255 bytes, and the name of a folder is lengthened while the folder is being replaced.
_MAXIMUM_NAME_BYTES = 210
_DRAFT_NAME = re.compile(r"\.solvable-[0-9a-f]{32}")


def check_writable(path: str | os.PathLike[str], bytes_needed: int = 0) -> None:
    """Raise a ValueError if no file can be written at this path. Nothing is left behind.

    Parameters
    ----------
    path
        Where the file would be written. A symbolic link is followed.
    bytes_needed
        Expected size of the file, which the disk must have room for.
    """
    check_name(Path(path))
    target = follow_link(path)
    if target.is_dir():
        raise ValueError(f"cannot write {target}: it is a folder; name a file")
    check_folder(target, bytes_needed)


def check_name(path: Path) -> None:
    """Raise a ValueError if the system does not allow the name, or if it is too long for temporary files beside it."""
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.lstat()
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot write {str(path)[:200]!r}: {getattr(error, 'strerror', error)}") from error
    if len(os.fsencode(path.name)) > _MAXIMUM_NAME_BYTES:
        raise ValueError(
            f"cannot write {path}: its name has more than {_MAXIMUM_NAME_BYTES} bytes; choose a shorter one"
        )


def check_folder(path: Path, bytes_needed: int = 0) -> None:
    """Raise a ValueError unless a new file can be created beside this path."""
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    # A single call of stat, because another process may replace the file between two calls.
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ValueError(f"cannot write {path}: it is a device or a pipe; name a file")
    try:
        free = shutil.disk_usage(path.parent).free
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        raise ValueError(f"cannot write {path}: {_reason(error)}; choose another folder") from error
    needed = max(bytes_needed, _MINIMUM_FREE_BYTES)
    if free < needed:
        raise ValueError(
            f"cannot write {path}: the disk has {free} bytes free and about {needed} are needed; "
            "make room or choose another folder"
        )


def write_atomically(path: str | os.PathLike[str], data: bytes | str) -> Path:
    """Write bytes or text under a temporary name, then rename the file. Returns the path.

    Parameters
    ----------
    path
        Where to write. A symbolic link is followed, not replaced.
    data
        The content; text is written as UTF-8.
    """
    path = Path(path)
    check_writable(path)
    target = follow_link(path)
    with explain_os_errors(path), new_draft(target, folder=False) as draft:
        write_file(draft, data.encode() if isinstance(data, str) else data)
        os.replace(draft, target)
    return path


def write_file(path: Path, data: bytes) -> None:
    """Write a file and flush it to the disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def new_draft(path: Path, folder: bool) -> Iterator[Path]:
    """Create a file or folder with a temporary name beside a path, and remove it at the end unless it was renamed.

    A draft in use has an advisory lock. Drafts without one were left by processes that were killed, and are removed.
    """
    remove_abandoned(path.parent)
    draft, handle = _create_locked(path, folder)
    try:
        yield draft
    finally:
        with contextlib.suppress(OSError):
            if is_same(handle, draft):
                complete(lambda: _remove(draft))
        os.close(handle)


def complete(clean_up: Callable[[], None]) -> None:
    """Run a clean-up to its end: after an interrupt (Ctrl-C) it is run again before the interrupt is raised."""
    try:
        clean_up()
    except BaseException:
        clean_up()
        raise


def _create_locked(path: Path, folder: bool) -> tuple[Path, int]:
    while True:
        draft = draft_path(path)
        try:
            if folder:
                draft.mkdir()
            # The permissions of a new file are those that the user's umask leaves.
            handle = os.open(draft, os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            lock(handle, wait=True)
            if is_same(handle, draft):
                return draft, handle
            os.close(handle)
        except FileNotFoundError:
            # Another process took the draft for abandoned before it was locked, and removed it: create another one.
            if not (folder and path.parent.is_dir()):
                raise
        except KeyboardInterrupt:
            _remove(draft)
            raise


def remove_abandoned(folder: Path) -> None:
    """Remove the drafts in a folder that no process has locked."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in [entry for entry in entries if _DRAFT_NAME.fullmatch(entry.name)]:
            remove_unlocked(Path(entry.path), _remove)


def remove_unlocked(path: Path, remove: Callable[[Path], None]) -> None:
    """Remove a file or folder by the given function, unless a process has locked it."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            if lock(handle, wait=False):
                remove(path)
        finally:
            os.close(handle)


def lock(handle: int, wait: bool) -> bool:
    """Take an advisory lock. False if another process has it, or if the file system does not support locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_same(handle: int, path: Path) -> bool:
    """Whether an open file or folder is still the one at the path."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def draft_path(path: Path) -> Path:
    """A new, unique temporary name in the same folder."""
    return path.with_name(f".solvable-{uuid.uuid4().hex}")


def follow_link(path: str | os.PathLike[str]) -> Path:
    """The path that a symbolic link points to: that file is replaced, and the link stays."""
    path = Path(path)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


UNCHANGED = "what was there before is unchanged: make room or choose another folder"


@contextlib.contextmanager
def explain_os_errors(path: Path, consequence: str = UNCHANGED) -> Iterator[None]:
    """Add to every OSError which path could not be written, why, and what that means for existing data."""
    try:
        yield
    except OSError as error:
        if error.errno is None or str(error.strerror).startswith("cannot write"):
            raise
        raise type(error)(error.errno, f"cannot write {path}: {_reason(error)}; {consequence}") from error


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full or the file too large ({error.strerror})"
    return error.strerror or str(error)
