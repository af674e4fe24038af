"""Ctrl-C on the command line: the process ends within a second or two, with exit code 130, and keeps what is finished.

Python raises ``KeyboardInterrupt`` only between two bytecodes of the main thread. While that thread waits for a
compiled JAX program, which may run for minutes, nothing happens; and if Python shuts down while such a program still
runs in the background, the process crashes with a segmentation fault. Two measures help:

- A watchdog thread hears of every SIGINT through :func:`signal.set_wakeup_fd`, also while the main thread is busy. If
  the main thread has not ended, or at least said that it cleans up (:func:`announce`), within :data:`GRACE` seconds,
  the watchdog ends the process. That also covers an exception that is raised inside a callback and lost there, as
  happens in the callbacks by which JAX follows the garbage collector.
- After an interrupt the process leaves by :func:`os._exit`, which does not wait for programs in the background.

Neither loses anything: files are written under a temporary name and renamed, and stores and reports are resumable.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

INTERRUPTED = 130
# Seconds that the main thread has to react to an interrupt, and then to clean up once it has announced that.
GRACE = 1.5
CLEAN_UP = 15.0

_farewells: list[Callable[[], None]] = []
_announced = threading.Event()


def forget_announcement() -> None:
    """Begin a new command: a process may run several, one after the other."""
    _announced.clear()


def announce(text: str = "interrupted") -> None:
    """Say on stderr that the work was interrupted and what is kept. Only the first announcement is made."""
    if not _announced.is_set():
        _announced.set()
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def farewell(speak: Callable[[], None]) -> Iterator[None]:
    """Call ``speak`` if the process is ended by force while the body runs: it says what is finished and how to go on.

    It is called in the watchdog's thread, since the main thread does not react. An ordinary ``KeyboardInterrupt`` does
    not call it.
    """
    _farewells.append(speak)
    try:
        yield
    finally:
        _farewells.remove(speak)


@contextlib.contextmanager
def prompt_interrupts() -> Iterator[None]:
    """Make SIGINT end this process promptly while the body runs.

    A process that was started with SIGINT ignored, such as a background job of a shell script, goes on ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    heard = False

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        nonlocal heard
        if heard:
            # The first interrupt is being cleaned up after: whoever presses Ctrl-C again wants to leave now.
            leave(INTERRUPTED)
        heard = True
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
        # The end of the pipe's input ends the watchdog.
        os.close(writer)


@contextlib.contextmanager
def ordinary_interrupts() -> Iterator[None]:
    """Leave SIGINT to Python while the body runs: for servers, which end in their own way and time."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _watch(reader: int, handler: Callable[[int, FrameType | None], None]) -> None:
    """Wait for a SIGINT; end the process if the main thread does not react, or reacts and does not come to an end."""
    # Another part of the program, such as a web server, may have installed a handler of its own: leave it to that.
    if not _next_interrupt(reader) or signal.getsignal(signal.SIGINT) is not handler:
        os.close(reader)
        return
    if _announced.wait(GRACE):
        # A second Ctrl-C ends the process, and so does a clean-up that takes too long.
        _wait_for_input(reader, CLEAN_UP)
    if _is_open(reader):
        _leave_by_force()


def _next_interrupt(reader: int) -> bool:
    """Block until a SIGINT arrives; False at the end of the pipe."""
    while received := os.read(reader, 1):
        if received[0] == signal.SIGINT:
            return True
    return False


def _wait_for_input(reader: int, seconds: float) -> None:
    import select

    select.select([reader], [], [], seconds)


def _is_open(reader: int) -> bool:
    """Whether the main thread still works: it closes the pipe when it is done."""
    import select

    readable, _, _ = select.select([reader], [], [], 0)
    return not readable or os.read(reader, 1) != b""


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
    """End the process now, without waiting for compiled programs that still run in the background."""
    if "multiprocessing" in sys.modules:
        import multiprocessing

        for child in multiprocessing.active_children():
            child.terminate()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
