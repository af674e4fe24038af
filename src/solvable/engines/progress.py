"""A progress bar for anything over a few seconds; silent where nobody watches."""

import sys
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
    """A bar on stderr that counts to ``total``. ``show=None`` shows it only on a terminal.

    With a ``unit`` it also says how many of them are done and how many are done a second.

    Work inside work that already shows a bar shows none: a terminal has room for one.
    """
    listener = _listener.get()
    if listener is not None:
        with _reported(listener, total) as advance:
            yield advance
        return
    if show is None:
        show = sys.stderr.isatty()
    if not show or _shown.get():
        yield lambda amount=1.0: None
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
