"""One figure's outcome: computed, or taken from the folder where an earlier run left it.

A figure leaves its data, its picture and last of all its record, ``<figure>.json``. Without a record there is no
result: whatever is interrupted before it leaves nothing that a later run would take for finished.
"""

import ast
import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from solvable.files import default_extension, load, save, write_atomically
from solvable.numerics.cost import unlimited
from solvable.papers import compute as compute_data
from solvable.papers import home, interpret
from solvable.papers.claims import Scale
from solvable.papers.report.environment import now
from solvable.plotting import save_figure

_LONGEST_ERROR = 4000


@dataclass(frozen=True)
class Task:
    """A figure to reproduce at a scale, where its files go, and the fingerprint of what it depends on."""

    paper: str
    figure: str
    scale: str
    folder: Path
    fingerprint: str

    @property
    def record(self) -> Path:
        return self.folder / f"{self.figure}.json"


@dataclass(frozen=True)
class Outcome:
    """What came of a figure. ``claims`` are as in the ledger; a figure that raised has none, and an ``error``.

    ``cpu_seconds`` are those of all threads: on a busy machine they say more of the work than the seconds on the wall.
    """

    paper: str
    figure: str
    title: str
    seconds: float
    cpu_seconds: float
    finished: str
    fingerprint: str
    claims: list[dict[str, Any]] = field(default_factory=list)
    # The SHA-256 checksum of each of the figure's files.
    files: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    reused: bool = False

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
    if found is None or found.fingerprint != task.fingerprint:
        return None
    if not all(_checksum(task.folder / name) == checksum for name, checksum in found.files.items()):
        return None
    return replace(found, reused=True)


def compute(task: Task) -> Outcome:
    """Run the figure and write its files. A figure that raises gives an outcome too, and leaves no file."""
    begin, cpu_begin = time.perf_counter(), time.process_time()
    try:
        claims, files = _run(task)
        error = None
    except Exception as problem:
        claims, files, error = [], {}, _tail(problem)
        clear(task)
    outcome = Outcome(
        paper=task.paper,
        figure=task.figure,
        title=title(task.paper, task.figure),
        seconds=round(time.perf_counter() - begin, 2),
        cpu_seconds=round(time.process_time() - cpu_begin, 2),
        finished=now(),
        fingerprint=task.fingerprint,
        claims=claims,
        files=files,
        error=error,
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


def _run(task: Task) -> tuple[list[dict[str, Any]], dict[str, str]]:
    draft = Path(tempfile.mkdtemp(prefix=f".{task.figure}.", dir=task.folder))
    try:
        # The sizes of a figure are chosen and its duration is told; no estimate is to stop it.
        with unlimited():
            data = compute_data(task.paper, task.figure, cast(Scale, task.scale))
        for part, dataset in data.items():
            save(dataset, draft / f"{task.figure}-{part}{default_extension()}")
        # Claims and picture are made from what was saved, as they are when somebody loads it later.
        saved = {part: load(draft / f"{task.figure}-{part}{default_extension()}") for part in data}
        result = interpret(task.paper, task.figure, saved)
        save_figure(result.figure, draft / f"{task.figure}.png")
        clear(task)
        files = {path.name: str(_checksum(path)) for path in sorted(draft.iterdir())}
        for name in files:
            os.replace(draft / name, task.folder / name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return [claim.to_dict() for claim in result.claims], files


def _checksum(path: Path) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def clear(task: Task) -> None:
    """Take an earlier result away, its record first: files without a record count for nothing."""
    found = _read(task.record)
    task.record.unlink(missing_ok=True)
    for name in found.files if found else []:
        (task.folder / name).unlink(missing_ok=True)


def _read(record: Path) -> Outcome | None:
    """A record; none if there is none, or if it is not one that this version writes."""
    try:
        found = Outcome(**json.loads(record.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    # Records of earlier versions have no checksums. Names only: a record that came from elsewhere must not lead out of
    # its folder.
    sound = isinstance(found.files, dict) and all(Path(name).name == name for name in found.files)
    return found if sound else None


def _tail(problem: Exception) -> str:
    """What was raised, and where; of a long text the end, which says what was raised."""
    text = "".join(traceback.format_exception(problem)).strip()
    return text if len(text) <= _LONGEST_ERROR else "…" + text[-_LONGEST_ERROR:]
