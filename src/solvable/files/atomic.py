"""Files that are written whole or not at all, and checks that this will be possible."""

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

# Less free space than this is refused before the work: even a small dataset would not fit.
_LEAST_FREE_BYTES = 64 * 1024
# Names may have 255 bytes; that of a folder that is replaced is lengthened meanwhile.
_LONGEST_NAME = 210
_DRAFT_NAME = re.compile(r"\.solvable-[0-9a-f]{32}")


def check_writable(path: str | os.PathLike[str], bytes_needed: int = 0) -> None:
    """Raise a ValueError if no file can be written at this path; leaves nothing behind."""
    check_name(Path(path))
    path = real_path(path)
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder; name a file")
    check_folder(path, bytes_needed)


def check_name(path: Path) -> None:
    """Raise a ValueError if the system takes no such name, or if it leaves no room for those of temporary files."""
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.lstat()
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot write {str(path)[:200]!r}: {getattr(error, 'strerror', error)}") from error
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise ValueError(f"cannot write {path}: its name has more than {_LONGEST_NAME} bytes; choose a shorter one")


def check_folder(path: Path, bytes_needed: int = 0) -> None:
    """Raise a ValueError unless a new file can be made beside this path."""
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if not _is_replaceable(path):
        raise ValueError(f"cannot write {path}: it is a device or a pipe; name a file")
    try:
        free = shutil.disk_usage(path.parent).free
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        raise ValueError(f"cannot write {path}: {_reason(error)}; choose another folder") from error
    if free < max(bytes_needed, _LEAST_FREE_BYTES):
        needed = max(bytes_needed, _LEAST_FREE_BYTES)
        raise ValueError(
            f"cannot write {path}: the disk has {free} bytes free and about {needed} are needed; "
            "make room or choose another folder"
        )


def _is_replaceable(path: Path) -> bool:
    # One look at the path: another process may replace what is there between two of them.
    try:
        mode = path.stat().st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def write_atomically(path: str | os.PathLike[str], data: bytes | str) -> Path:
    """Write bytes or text under a temporary name, then rename. A link is followed, not replaced."""
    path = Path(path)
    check_writable(path)
    target = real_path(path)
    with explained(path), new_draft(target, folder=False) as draft:
        write_file(draft, data.encode() if isinstance(data, str) else data)
        os.replace(draft, target)
    return path


def write_file(path: Path, data: bytes) -> None:
    """Write a file and see it on the disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def new_draft(path: Path, folder: bool) -> Iterator[Path]:
    """A new file or folder beside a path, under a temporary name; at the end it is removed if it was not renamed.

    It is locked meanwhile: what a killed process left is known by having no lock, and is removed here.
    """
    remove_abandoned(path.parent)
    draft, handle = _make_locked(path, folder)
    try:
        yield draft
    finally:
        with contextlib.suppress(OSError):
            if is_same(handle, draft):
                insist(lambda: _remove(draft))
        os.close(handle)


def insist(clean_up: Callable[[], None]) -> None:
    """Clean up to the end: an interrupt (Ctrl-C) in the middle of it is raised after a second try."""
    try:
        clean_up()
    except BaseException:
        clean_up()
        raise


def _make_locked(path: Path, folder: bool) -> tuple[Path, int]:
    while True:
        draft = draft_path(path)
        # Somebody may take it for abandoned before it is locked, and remove it: then another one is made.
        if folder:
            draft.mkdir()
        try:
            # The permissions of a new file are those that the user's umask leaves.
            handle = os.open(draft, os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileNotFoundError:
            if folder and path.parent.is_dir():
                continue
            raise
        except KeyboardInterrupt:
            _remove(draft)
            raise
        try:
            lock(handle, wait=True)
            if is_same(handle, draft):
                return draft, handle
        except KeyboardInterrupt:
            _remove(draft)
            raise
        os.close(handle)


def remove_abandoned(folder: Path) -> None:
    """Remove the drafts in a folder that no process holds."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in [entry for entry in entries if _DRAFT_NAME.fullmatch(entry.name)]:
            with contextlib.suppress(OSError):
                handle = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    if lock(handle, wait=False):
                        _remove(Path(entry.path))
                finally:
                    os.close(handle)


def lock(handle: int, wait: bool) -> bool:
    """False if another has the lock, or if the file system gives none: then nothing is taken for abandoned."""
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
    """A new name in the same folder; nobody else has it."""
    return path.with_name(f".solvable-{uuid.uuid4().hex}")


def real_path(path: str | os.PathLike[str]) -> Path:
    """The path that a link leads to: what it points at is written, and the link stays."""
    path = Path(path)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Trouble with the disk in words: what could not be written and why."""
    try:
        yield
    except OSError as error:
        if error.errno is None or str(error.strerror).startswith("cannot write"):
            raise
        comfort = "what was there before is unchanged: make room or choose another folder"
        raise type(error)(error.errno, f"cannot write {path}: {_reason(error)}; {comfort}") from error


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full or the file too large ({error.strerror})"
    return error.strerror or str(error)
