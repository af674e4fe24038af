"""A progress bar for anything over a few seconds; silent where nobody watches."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


class Advance(Protocol):
    """Call it with the amount of work just done."""

    def __call__(self, amount: float = 1.0) -> None: ...


_shown: ContextVar[bool] = ContextVar("shown", default=False)


@contextmanager
def progress_bar(label: str, total: float, show: bool | None = None, unit: str | None = None) -> Iterator[Advance]:
    """A bar on stderr that counts to ``total``. ``show=None`` shows it only on a terminal.

    With a ``unit`` it also says how many of them are done and how many are done a second.

    Work inside work that already shows a bar shows none: a terminal has room for one.
    """
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
