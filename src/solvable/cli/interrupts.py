"""Ctrl-C on the command line: the process ends within two seconds, with exit code 130, and keeps finished results.

Python raises ``KeyboardInterrupt`` only between two bytecodes of the main thread. While that thread waits for a
compiled JAX program, which may run for minutes, nothing happens; and if Python shuts down while such a program is still
running in the background, the process crashes with a segmentation fault. There are two remedies:

- A watchdog thread is notified of every SIGINT through :func:`signal.set_wakeup_fd`, even while the main thread is
busy.
  If the main thread has not ended, or announced that it is cleaning up (:func:`announce`), within :data:`GRACE`
  seconds, the watchdog ends the process. This also covers exceptions that are raised inside a callback and lost there,
  as in JAX's callbacks of the garbage collector.
- After an interrupt the process exits by :func:`os._exit`, which does not wait for programs in the background.

No results are lost: files are written atomically, and stores and reports can be resumed.
"""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

INTERRUPTED = 130
# Seconds for the main thread to react to an interrupt, and then to clean up once it has announced that.
GRACE = 1.5
CLEAN_UP = 15.0

_farewells: list[Callable[[], None]] = []
_announced = threading.Event()
_received = threading.Event()


def forget_announcement() -> None:
    """Reset the announcement at the start of a command, because a process may run several commands."""
    _announced.clear()
    _received.clear()


def was_interrupted() -> bool:
    """Whether this command received a SIGINT, even if a library turned the ``KeyboardInterrupt`` into another error.

    JAX does so where the interrupt arrives inside a Python function that its compiled code called.
    """
    return _received.is_set()


def announce(text: str = "interrupted") -> None:
    """Print on stderr that the work was interrupted and what is kept. Only the first announcement is printed."""
    if not _announced.is_set():
        _announced.set()
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def farewell(speak: Callable[[], None]) -> Iterator[None]:
    """Register a callback for the case that the watchdog ends the process: it prints what is finished.

    It is called in the thread of the watchdog, because the main thread does not react. An ordinary
    ``KeyboardInterrupt`` does not call it.
    """
    _farewells.append(speak)
    try:
        yield
    finally:
        _farewells.remove(speak)


@contextlib.contextmanager
def prompt_interrupts() -> Iterator[None]:
    """Make SIGINT end this process promptly while the body runs.

    A process that was started with SIGINT ignored, such as a background job of a shell script, still ignores it.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    interrupted = False

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            # A second Ctrl-C during the clean-up after the first one ends the process at once.
            leave(INTERRUPTED)
        interrupted = True
        _received.set()
        raise KeyboardInterrupt

    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, interrupt)
    watchdog = threading.Thread(target=_watch, args=(reader, interrupt), name="interrupts", daemon=True)
    watchdog.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(before)
        # Closing the pipe ends the watchdog.
        os.close(writer)


@contextlib.contextmanager
def ordinary_interrupts() -> Iterator[None]:
    """Leave SIGINT to Python while the body runs: for servers, which shut down by themselves."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _watch(reader: int, handler: Callable[[int, FrameType | None], None]) -> None:
    """Wait for a SIGINT, and end the process if the main thread does not react, or does not finish its clean-up."""
    while (received := os.read(reader, 1)) and received[0] != signal.SIGINT:
        pass
    # Another part of the program, such as a web server, may have installed its own handler, which is then responsible.
    if not received or signal.getsignal(signal.SIGINT) is not handler:
        os.close(reader)
        return
    if _announced.wait(GRACE):
        # A second Ctrl-C ends the process, and so does a clean-up that takes too long.
        select.select([reader], [], [], CLEAN_UP)
    # The main thread closes the pipe when it is done.
    readable, _, _ = select.select([reader], [], [], 0)
    if not readable or os.read(reader, 1) != b"":
        _leave_by_force()


def _leave_by_force() -> None:
    for speak in reversed(_farewells):
        with contextlib.suppress(Exception):
            speak()
    announce()
    if sys.stderr.isatty():
        # A progress bar hides the cursor.
        print("\x1b[?25h", end="", file=sys.stderr)
    leave(INTERRUPTED)


def leave(code: int) -> None:
    """End the process now, without waiting for compiled programs that are running in the background."""
    if "multiprocessing" in sys.modules:
        import multiprocessing

        for child in multiprocessing.active_children():
            child.terminate()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
