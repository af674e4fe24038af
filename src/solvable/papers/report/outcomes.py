"""One figure's outcome: computed, or taken from the folder where an earlier run left it.

A figure is made in two steps. The first computes its datasets and leaves them with a record of their own,
``<figure>.data.json``. The second reads them back, tests the claims and draws, and leaves the picture and
``<figure>.json``, the record of a finished figure. What an exception or an interruption stops in the second step is
repeated from the datasets, and so is a figure of which only claims or picture have changed.
"""

import ast
import importlib
import importlib.util
import json
import time
import traceback
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from solvable.files import write_atomically
from solvable.numerics.cost import unlimited
from solvable.papers import compute as compute_data
from solvable.papers import home, interpret
from solvable.papers.claims import Scale
from solvable.papers.report.environment import now
from solvable.papers.storage import (
    StoredData,
    are_names,
    are_whole,
    checksum,
    read_record,
    record_path,
    remove,
    store,
)
from solvable.plotting import save_figure

_LONGEST_ERROR = 4000


@dataclass(frozen=True)
class Task:
    """A figure to reproduce at a scale, where its files go, and fingerprints of what it and its data depend on."""

    paper: str
    figure: str
    scale: str
    folder: Path
    fingerprint: str
    data_fingerprint: str

    @property
    def record(self) -> Path:
        return self.folder / f"{self.figure}.json"

    @property
    def picture(self) -> Path:
        return self.folder / f"{self.figure}.png"


@dataclass(frozen=True)
class Outcome:
    """What came of a figure. ``claims`` are as in the ledger; a figure that raised has none, and an ``error``.

    ``seconds`` are those of its datasets and of claims and picture together. ``cpu_seconds`` are those of all threads:
    on a busy machine they say more about the work than the seconds on the clock.
    """

    paper: str
    figure: str
    title: str
    seconds: float
    cpu_seconds: float
    finished: str
    fingerprint: str
    claims: list[dict[str, Any]] = field(default_factory=list)
    # The SHA-256 checksum of each of the figure's files. If claims or picture raised, these are its datasets.
    files: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    reused: bool = False
    # When the datasets were computed, if that was in an earlier run than claims and picture.
    data_from: str | None = None

    @property
    def failed(self) -> int:
        return sum(not claim["passed"] for claim in self.claims)

    @property
    def passed(self) -> int:
        return len(self.claims) - self.failed

    @property
    def holds(self) -> bool:
        return self.error is None and self.failed == 0

    @property
    def picture(self) -> str:
        return f"{self.figure}.png"


def kept(task: Task) -> Outcome | None:
    """The outcome of an earlier run, if nothing that it depends on has changed and its files are there, undamaged."""
    found = _read(task.record)
    if found is None or found.fingerprint != task.fingerprint or not are_whole(task.folder, found.files):
        return None
    return replace(found, reused=True)


def compute(task: Task) -> Outcome:
    """Make the datasets of a figure, unless an earlier run left them; test its claims, draw it and write its files.

    A figure that raises gives an outcome too. It leaves its datasets if it was the claims or the picture that raised,
    and otherwise no file.
    """
    begin, cpu_begin = time.perf_counter(), time.process_time()
    earlier = data = _kept_data(task)
    claims: list[dict[str, Any]] = []
    error = None
    try:
        data = data or _compute_data(task)
        claims = _interpret(task, data)
    except Exception as problem:
        error = _tail(problem)
        if data is None:
            clear(task)
    files = dict(data.files) if data else {}
    outcome = Outcome(
        paper=task.paper,
        figure=task.figure,
        title=title(task.paper, task.figure),
        seconds=round(time.perf_counter() - begin + (earlier.seconds if earlier else 0.0), 2),
        cpu_seconds=round(time.process_time() - cpu_begin + (earlier.cpu_seconds if earlier else 0.0), 2),
        finished=now(),
        fingerprint=task.fingerprint,
        claims=claims,
        files=files if error else files | {task.picture.name: str(checksum(task.picture))},
        error=error,
        data_from=earlier.finished if earlier else None,
    )
    if error is None:
        write_atomically(task.record, json.dumps(asdict(outcome), indent=2, ensure_ascii=False) + "\n")
    return outcome


def title(paper: str, figure: str) -> str:
    """The first line of the figure's docstring, read and not run: a figure that cannot be imported has one too."""
    spec = importlib.util.find_spec(home(paper, figure))
    try:
        text = ast.get_docstring(ast.parse(Path(spec.origin).read_bytes())) if spec and spec.origin else None
    except SyntaxError:
        text = None
    return (text or figure).splitlines()[0]


def _kept_data(task: Task) -> StoredData | None:
    """The datasets of an earlier run, if nothing that they depend on has changed and their files are undamaged."""
    found = read_record(task.folder, task.figure)
    if found is None or found.fingerprint != task.data_fingerprint or not found.is_whole(task.folder):
        return None
    return found


def _compute_data(task: Task) -> StoredData:
    begin, cpu_begin = time.perf_counter(), time.process_time()
    # The sizes of a figure are chosen and its duration is reported; no estimate is to stop it.
    with unlimited():
        data = compute_data(task.paper, task.figure, cast(Scale, task.scale))
    clear(task)
    about = StoredData(
        paper=task.paper,
        figure=task.figure,
        scale=task.scale,
        fingerprint=task.data_fingerprint,
        seconds=round(time.perf_counter() - begin, 2),
        cpu_seconds=round(time.process_time() - cpu_begin, 2),
        finished=now(),
    )
    return store(task.folder, about, data)


def _interpret(task: Task, stored: StoredData) -> list[dict[str, Any]]:
    """Test the claims and draw the picture, from what was saved, as when somebody loads it later."""
    task.record.unlink(missing_ok=True)
    task.picture.unlink(missing_ok=True)
    result = interpret(task.paper, task.figure, stored.load(task.folder))
    save_figure(result.figure, task.picture)
    return [claim.to_dict() for claim in result.claims]


def clear(task: Task) -> None:
    """Take an earlier result away, its records first: files without a record count for nothing."""
    outcome, data = _read(task.record), read_record(task.folder, task.figure)
    task.record.unlink(missing_ok=True)
    record_path(task.folder, task.figure).unlink(missing_ok=True)
    for found in (outcome, data):
        remove(task.folder, found.files if found else [])


def _read(record: Path) -> Outcome | None:
    """A record; none if there is none, or if it is not one that this version writes."""
    try:
        found = Outcome(**json.loads(record.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return found if are_names(found.files) else None


def _tail(problem: Exception) -> str:
    """What was raised, and where; of a long text the end, which says what was raised."""
    text = "".join(traceback.format_exception(problem)).strip()
    return text if len(text) <= _LONGEST_ERROR else "…" + text[-_LONGEST_ERROR:]
