"""One coordinator a store: a kernel lock on a file beside it, with a text that says who holds it.

The kernel drops the lock when its process ends, however it ends, so a lock left by a killed coordinator on this
machine is free at once. Between machines a kernel lock can be silently local (it depends on the file system), so
there the text decides: a lock with another machine's name is never taken over unasked.
"""

import contextlib
import errno
import fcntl
import getpass
import json
import os
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from solvable.sweeps.schema import LockedStoreError

HEARTBEAT_SECONDS = 30.0
STALE_SECONDS = 600.0

# A process's own second lock on a file succeeds, and closing any second handle drops the first: what this process
# holds is therefore remembered here and its file never opened twice.
_held: dict[str, "Lock"] = {}


def lock_path(store: Path) -> Path:
    return store.with_name(store.name + ".lock")


class Lock:
    """The lock of one store, held from construction until :meth:`release`."""

    def __init__(self, store: Path, steal: bool = False) -> None:
        self.path = lock_path(store)
        self.text: dict[str, Any] = {}
        self._key = os.path.realpath(self.path)
        if self._key in _held:
            raise LockedStoreError(_refusal(store, _held[self._key].text, "in this very process; close it first"))
        self._handle = self._acquire(store)
        previous = _parse(self._handle)
        self.recovered_from: dict[str, Any] | None = previous
        now = _now()
        self.text = {"owner": _user(), "pid": os.getpid(), "host": socket.gethostname(), "since": now, "heartbeat": now}
        try:
            _refuse_other_file(self.path, self._handle, previous)
            _refuse_foreign(store, previous, steal)
            self._write_text()
        except OSError as error:
            os.close(self._handle)
            raise type(error)(error.errno, f"cannot write {self.path}: {error.strerror}; make room there") from error
        except LockedStoreError:
            os.close(self._handle)
            raise
        _held[self._key] = self
        self._released = threading.Event()
        threading.Thread(target=self._beat, name="sweep lock heartbeat", daemon=True).start()

    def _acquire(self, store: Path) -> int:
        while True:
            try:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                words = f"cannot write beside {store}: {error.strerror}; make the folder, or choose another one"
                raise type(error)(error.errno, words) from error
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The last owner removes the file as it lets go: a lock on a removed file keeps nobody out.
                if _same_file(handle, self.path):
                    return handle
                os.close(handle)
            except OSError as error:
                text = _parse(handle)
                os.close(handle)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise LockedStoreError(_refusal(store, text, "wait for it, or end it and run again")) from error
                raise OSError(
                    error.errno, f"the file system of {self.path} gives no locks ({error}); put the store elsewhere"
                ) from error

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS):
            self.text["heartbeat"] = _now()
            # A full disk must not end the thread: the next beat may succeed.
            with contextlib.suppress(OSError):
                self._write_text()

    def _write_text(self) -> None:
        # One short padded write: a reader sees the old text or the new one.
        os.pwrite(self._handle, json.dumps(self.text).encode().ljust(512), 0)

    def release(self) -> None:
        if _held.pop(self._key, None) is None:
            return
        self._released.set()
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        os.close(self._handle)


def owner(store: Path) -> dict[str, Any] | None:
    """Who holds, or last held and did not release, the lock of a store; None if nobody. Takes no lock."""
    path = lock_path(store)
    mine = _held.get(os.path.realpath(path))
    if mine is not None:
        return dict(mine.text)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _parse(handle)
    finally:
        os.close(handle)


def is_running(text: dict[str, Any]) -> bool | None:
    """Whether the owner in a lock's text still runs; None if it is on another machine and cannot be asked."""
    if text.get("host") != socket.gethostname():
        return None
    try:
        os.kill(int(text["pid"]), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, KeyError, ValueError):
        return True
    return True


def _refuse_other_file(path: Path, handle: int, text: dict[str, Any] | None) -> None:
    """A file of that name that is no lock belongs to somebody, who would lose it."""
    if text is None and os.fstat(handle).st_size > 0:
        raise LockedStoreError(f"{path} is no lock of a sweep, but its name is needed; move it away")


def _refuse_foreign(store: Path, previous: dict[str, Any] | None, steal: bool) -> None:
    if previous is None or previous.get("host") == socket.gethostname():
        return
    age = time.time() - datetime.fromisoformat(previous["heartbeat"]).timestamp()
    if age < STALE_SECONDS:
        remedy = f"it gave a sign of life {age:.0f} s ago; wait until that is {STALE_SECONDS / 60:.0f} minutes old"
        raise LockedStoreError(_refusal(store, previous, remedy))
    if not steal:
        remedy = f"no sign of life for {age / 60:.0f} minutes; if it is surely dead, pass steal_lock=True"
        raise LockedStoreError(_refusal(store, previous, remedy))


def _refusal(store: Path, text: dict[str, Any] | None, remedy: str) -> str:
    if not text:
        return f"another coordinator is taking {store}; {remedy}"
    return (
        f"{store} is in use by {text.get('owner')} (process {text.get('pid')} on {text.get('host')}) "
        f"since {text.get('since')}; {remedy}"
    )


def _parse(handle: int) -> dict[str, Any] | None:
    try:
        text = json.loads(os.pread(handle, 4096, 0))
        datetime.fromisoformat(text["heartbeat"])
        return dict(text)
    except (ValueError, KeyError, TypeError, OSError):
        return None


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
