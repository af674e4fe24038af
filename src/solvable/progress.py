"""Progress of long computations: a bar on a terminal, a line from time to time if output is piped, or a callback."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


class Advance(Protocol):
    """Function to call with the amount of work that was just done."""

    def __call__(self, amount: float = 1.0) -> None: ...


# Receives the fraction of the work that is done, from 0 to 1. An exception that it raises ends the work.
Callback = Callable[[float], None]

# Without a terminal, a line is printed after the first number of seconds, and then in intervals of the second number.
FIRST_LINE, LINE_INTERVAL = 5.0, 5.0
# After a minute the interval is longer, so that a log of hours stays readable.
PATIENT_AFTER, PATIENT_INTERVAL = 60.0, 30.0

_is_shown: ContextVar[bool] = ContextVar("is_shown", default=False)
_callback: ContextVar[Callback | None] = ContextVar("callback", default=None)


@contextmanager
def progress_callback(callback: Callback) -> Iterator[None]:
    """Report progress to a callback instead of a progress bar, for work inside this context.

    Parameters
    ----------
    callback
        Called with the fraction of the work that is done, from 0 to 1. It can raise an exception to stop the work.
    """
    token = _callback.set(callback)
    try:
        yield
    finally:
        _callback.reset(token)


@contextmanager
def progress_part(begin: float, length: float) -> Iterator[None]:
    """Report work inside this context as a part of longer work, to the callback if there is one.

    Parameters
    ----------
    begin
        Fraction of the longer work that is done before.
    length
        Fraction of the longer work that is done inside.
    """
    callback = _callback.get()
    if callback is None:
        yield
        return
    with progress_callback(lambda fraction: callback(begin + length * fraction)):
        yield


@contextmanager
def progress_bar(label: str, total: float, show: bool | None = None, unit: str | None = None) -> Iterator[Advance]:
    """Show on stderr how much work is done. The context provides a function to call with each amount of work.

    On a terminal this is a bar. Elsewhere (a pipe, a log file, a notebook) a line is printed every few seconds, also
    while the work itself reports nothing. Nested work shows no progress of its own.

    Parameters
    ----------
    label
        Name of the work.
    total
        Total amount of work.
    show
        True for a bar and False for nothing; None decides by whether stderr is a terminal.
    unit
        Name of one unit of work. If given, the bar also shows the number of units and the rate.
    """
    callback = _callback.get()
    if callback is not None:
        with _call_back(callback, total) as advance:
            yield advance
        return
    if show is False or _is_shown.get():
        yield lambda amount=1.0: None
        return
    show_progress = _lines(label, total) if show is None and not sys.stderr.isatty() else _bar(label, total, unit)
    token = _is_shown.set(True)
    try:
        with show_progress as advance:
            yield advance
    finally:
        _is_shown.reset(token)


@contextmanager
def _bar(label: str, total: float, unit: str | None) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()]
    if unit is not None:
        columns.append(TextColumn("{task.completed:.0f} of {task.total:.0f} " + unit))
        columns.append(_rate_column(unit))
    columns.append(TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda amount=1.0: bar.advance(task, amount)


@contextmanager
def _lines(label: str, total: float) -> Iterator[Advance]:
    """Print every few seconds how much is done, from a thread, because the work may be one long call."""
    done, begin, finished = 0.0, time.monotonic(), threading.Event()

    def advance(amount: float = 1.0) -> None:
        nonlocal done
        done += amount

    def report() -> None:
        interval = FIRST_LINE
        while not finished.wait(interval):
            elapsed = time.monotonic() - begin
            print(_line(label, done / total if total > 0 else 0.0, elapsed), file=sys.stderr, flush=True)
            interval = LINE_INTERVAL if elapsed < PATIENT_AFTER else PATIENT_INTERVAL

    reporter = threading.Thread(target=report, name="progress", daemon=True)
    reporter.start()
    try:
        yield advance
    finally:
        finished.set()
        reporter.join()


def _line(label: str, fraction: float, elapsed: float) -> str:
    fraction = min(fraction, 1.0)
    text = f"{label}: {100 * fraction:.0f} % after {elapsed:.0f} s"
    # Early estimates would be dominated by compilation.
    return text if fraction < 0.02 else f"{text}, about {elapsed * (1 / fraction - 1):.0f} s left"


def _rate_column(unit: str) -> "ProgressColumn":
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.3g} {unit}/s")

    return Rate()


@contextmanager
def _call_back(callback: Callback, total: float) -> Iterator[Advance]:
    done = 0.0

    def fraction() -> float:
        return min(done / total, 1.0) if total > 0 else 1.0

    def advance(amount: float = 1.0) -> None:
        nonlocal done
        done += amount
        callback(fraction())

    # Nested work does not change the fraction; the callback may only stop it.
    with progress_callback(lambda _: callback(fraction())):
        yield advance
