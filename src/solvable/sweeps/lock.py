"""One coordinator per store: an advisory lock on a file beside the store, whose text says who holds it.

The kernel releases the lock when its process ends, however it ends, so the lock of a killed coordinator on this machine
is free at once. Between machines an advisory lock can silently be local (that depends on the file system), so there the
text decides: a lock with the name of another machine is not taken over unless asked.
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

from solvable.files.atomic import is_same
from solvable.sweeps.schema import LockedStoreError

HEARTBEAT_SECONDS = 30.0
STALE_SECONDS = 600.0

# A process can lock a file twice, and closing any handle of the file releases both locks. The locks that this process
# holds are therefore recorded here, and their files are never opened a second time.
_held: dict[str, "Lock"] = {}


def lock_path(store: Path) -> Path:
    return store.with_name(store.name + ".lock")


class Lock:
    """The lock of one store, held from construction until :meth:`release`.

    ``previous`` is the text of an owner that did not release the lock, or None.
    """

    def __init__(self, store: Path, steal: bool = False) -> None:
        self.path = lock_path(store)
        self._key = os.path.realpath(self.path)
        if self._key in _held:
            raise LockedStoreError(_refusal(store, _held[self._key].text, "in this very process; close it first"))
        self._handle = self._acquire(store)
        self.previous = _parse(self._handle)
        now = _now()
        self.text: dict[str, Any] = {"owner": _user(), "pid": os.getpid(), "host": socket.gethostname(), "since": now}
        self.text["heartbeat"] = now
        try:
            if self.previous is None and os.fstat(self._handle).st_size > 0:
                raise LockedStoreError(f"{self.path} is not the lock of a sweep, but its name is needed; move it away")
            _check_takeover(store, self.previous, steal)
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
                message = f"cannot write beside {store}: {error.strerror}; make the folder, or choose another one"
                raise type(error)(error.errno, message) from error
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The previous owner removes the file as it releases the lock: a lock on a removed file is worthless.
                if is_same(handle, self.path):
                    return handle
                os.close(handle)
            except OSError as error:
                text = _parse(handle)
                os.close(handle)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise LockedStoreError(_refusal(store, text, "wait for it, or end it and run again")) from error
                raise OSError(
                    error.errno, f"the file system of {self.path} has no locks ({error}); put the store elsewhere"
                ) from error

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS):
            self.text["heartbeat"] = _now()
            # A full disk must not end the thread: the next heartbeat may succeed.
            with contextlib.suppress(OSError):
                self._write_text()

    def _write_text(self) -> None:
        # One short padded write: a reader sees either the old text or the new one.
        os.pwrite(self._handle, json.dumps(self.text).encode().ljust(512), 0)

    def release(self) -> None:
        if _held.pop(self._key, None) is None:
            return
        self._released.set()
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        os.close(self._handle)


def owner(store: Path) -> dict[str, Any] | None:
    """Who holds the lock of a store, or held it last and did not release it; None if nobody. Does not take the lock."""
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
    """Whether the owner of a lock is still running; None if it is on another machine."""
    if text.get("host") != socket.gethostname():
        return None
    try:
        os.kill(int(text["pid"]), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, KeyError, ValueError):
        pass
    return True


def _check_takeover(store: Path, previous: dict[str, Any] | None, steal: bool) -> None:
    """Raise an error if the lock belongs to another machine, unless its heartbeat is old and it may be stolen."""
    if previous is None or previous.get("host") == socket.gethostname():
        return
    age = time.time() - datetime.fromisoformat(previous["heartbeat"]).timestamp()
    if age < STALE_SECONDS:
        remedy = f"its last heartbeat was {age:.0f} s ago; wait until that is {STALE_SECONDS / 60:.0f} minutes"
        raise LockedStoreError(_refusal(store, previous, remedy))
    if not steal:
        remedy = f"no heartbeat for {age / 60:.0f} minutes; if it has surely ended, pass steal_lock=True"
        raise LockedStoreError(_refusal(store, previous, remedy))


def _refusal(store: Path, text: dict[str, Any] | None, remedy: str) -> str:
    if not text:
        return f"another coordinator is opening {store}; {remedy}"
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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
