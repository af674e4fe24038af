"""Files that are written whole or not at all, and checks that this will be possible."""

import contextlib
import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

# Less free space than this is refused before the work: even a small dataset would not fit.
_LEAST_FREE_BYTES = 64 * 1024


def check_writable(path: str | os.PathLike[str], bytes_needed: int = 0) -> None:
    """Raise a ValueError if no file can be written at this path; leaves nothing behind."""
    path = real_path(path)
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder; name a file")
    check_folder(path, bytes_needed)


def check_folder(path: Path, bytes_needed: int = 0) -> None:
    """Raise a ValueError unless a new file can be made beside this path."""
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if path.exists() and not (path.is_file() or path.is_dir()):
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


def write_atomically(path: str | os.PathLike[str], data: bytes | str) -> Path:
    """Write bytes or text under a temporary name, then rename. A link is followed, not replaced."""
    path = Path(path)
    check_writable(path)
    target = real_path(path)
    with explained(path):
        draft = draft_path(target)
        try:
            write_file(draft, data.encode() if isinstance(data, str) else data)
            os.replace(draft, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
    return path


def write_file(path: Path, data: bytes) -> None:
    """Write a new file and see it on the disk."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


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
