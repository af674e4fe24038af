"""Progress of anything over a few seconds: a bar on a terminal, and a line now and then where output is piped."""

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
    """Call it with the amount of work just done."""

    def __call__(self, amount: float = 1.0) -> None: ...


# Hears the share of the work that is done, from 0 to 1. What it raises ends the work.
Listener = Callable[[float], None]

# Without a terminal, the first line comes after this many seconds; later ones as far apart as the last number says.
FIRST_LINE, LINE_INTERVAL = 5.0, 5.0
# Work that takes longer than a minute says less often how far it is, so that a log of hours stays readable.
PATIENT_AFTER, PATIENT_INTERVAL = 60.0, 30.0

_shown: ContextVar[bool] = ContextVar("shown", default=False)
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Work done inside reports to ``listener`` in place of a bar: a page shows it, and stops the work by raising."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def part_of(begin: float, length: float) -> Iterator[None]:
    """Work inside is heard of as the share from ``begin`` on, ``length`` long, of a longer work."""
    listener = _listener.get()
    if listener is None:
        yield
        return
    with heard_by(lambda share: listener(begin + length * share)):
        yield


@contextmanager
def progress_bar(label: str, total: float, show: bool | None = None, unit: str | None = None) -> Iterator[Advance]:
    """Show on stderr how much of ``total`` is done; the body calls what it is given with each amount of work done.

    On a terminal this is a bar. Elsewhere (a pipe, a log file, a notebook) it is a line every few seconds, from the
    fifth second on, also while the work itself reports nothing. ``show=True`` asks for the bar and ``show=False`` for
    silence; None chooses. With a ``unit`` the bar also states how many units are done, and how many per second.

    Work inside work that already shows its progress shows none of its own.
    """
    listener = _listener.get()
    if listener is not None:
        with _reported(listener, total) as advance:
            yield advance
        return
    if show is False or _shown.get():
        yield lambda amount=1.0: None
        return
    if show is None and not sys.stderr.isatty():
        token = _shown.set(True)
        try:
            with _lines(label, total) as advance:
                yield advance
        finally:
            _shown.reset(token)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()]
    if unit is not None:
        columns.append(TextColumn("{task.completed:.0f} of {task.total:.0f} " + unit))
        columns.append(_rate_column(unit))
    columns.append(TimeRemainingColumn())
    token = _shown.set(True)
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda amount=1.0: bar.advance(task, amount)
    finally:
        _shown.reset(token)


@contextmanager
def _lines(label: str, total: float) -> Iterator[Advance]:
    """Write a line every few seconds that says how much is done, from a thread, since the work may be one long call."""
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


def _line(label: str, share: float, elapsed: float) -> str:
    share = min(share, 1.0)
    text = f"{label}: {100 * share:.0f} % after {elapsed:.0f} s"
    # Early estimates are of compilation more than of the work.
    return text if share < 0.02 else f"{text}, about {elapsed * (1 / share - 1):.0f} s left"


def _rate_column(unit: str) -> "ProgressColumn":
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.3g} {unit}/s")

    return Rate()


@contextmanager
def _reported(listener: Listener, total: float) -> Iterator[Advance]:
    done = 0.0

    def share() -> float:
        return min(done / total, 1.0) if total > 0 else 1.0

    def advance(amount: float = 1.0) -> None:
        nonlocal done
        done += amount
        listener(share())

    # Work inside this work does not move the bar; it is only asked whether to go on.
    with heard_by(lambda _: listener(share())):
        yield advance
