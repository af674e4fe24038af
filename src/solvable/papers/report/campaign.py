"""A campaign: many figures at full scale, each in a process of its own, within a limited time, to be resumed later.

Each figure is reproduced by ``solvable reproduce`` in a child process with a folder of its own, so that one that fails,
hangs or takes all memory harms no other. Datasets stay in that folder, and the same campaign continues from them. What
came out is written into one ledger per paper after every figure (:mod:`solvable.papers.report.history`).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from solvable.files import write_atomically
from solvable.papers.report import history
from solvable.papers.report.environment import now
from solvable.papers.report.outcomes import Outcome

# Seconds between a request to stop, which lets trainings save a checkpoint, and the end of a process.
_GRACE = 20.0


@dataclass(frozen=True)
class Job:
    """A figure of a campaign and the folder of its files."""

    paper: str
    figure: str
    scale: str
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.paper} {self.figure}"

    @property
    def arguments(self) -> list[str]:
        """What somebody types after ``solvable`` to reproduce this figure alone."""
        return ["reproduce", self.paper, self.figure, "--scale", self.scale]

    @property
    def command(self) -> list[str]:
        """The command of the child process, which leaves ``claims.json`` in the folder."""
        return [sys.executable, "-m", "solvable", *self.arguments, "--json", "--out", str(self.folder)]


@dataclass
class _Running:
    job: Job
    process: "subprocess.Popen[bytes]"
    began: float
    asked_to_stop: float | None = None


@dataclass(frozen=True)
class Result:
    """How a job ended: its row in the ledger, whose status is ``"finished"``, ``"raised"`` or ``"stopped"``."""

    job: Job
    row: history.Row


def commit_of_source() -> str:
    """The Git commit of the source files, with a plus sign if they were changed since; "unknown" outside Git."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, timeout=20)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = git("rev-parse", "--short", "HEAD")
        changed = git("status", "--porcelain", "--", ".") if commit else ""
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}{'+' if changed else ''}" if commit else "unknown"


def order(jobs: Sequence[Job], ledgers: Mapping[str, history.History]) -> list[Job]:
    """Figures without a finished run first, then those whose source has changed, then the others; short ones first."""

    def rank(job: Job) -> tuple[int, float]:
        ledger = ledgers[job.paper]
        row = ledger.rows.get(job.figure)
        if row is None or row.status != "finished":
            return 0, row.seconds if row else 60.0
        return (2 if ledger.changed(job.figure) == [] else 1), row.seconds

    return sorted(jobs, key=rank)


def run(
    jobs: Sequence[Job],
    folder: Path,
    limit: float,
    total: float,
    processes: int,
    commit: str,
    report: Callable[[Result, int], None],
    environment: Mapping[str, str] | None = None,
) -> list[Result]:
    """Run jobs side by side and record each in the ledgers of ``folder``. Jobs that find no time left are not begun.

    Parameters
    ----------
    jobs
        Figures, in the order in which they begin.
    folder
        Folder of the ledgers, one file per paper.
    limit
        Seconds after which a figure is stopped. What it has stored is used when the campaign goes on.
    total
        Seconds after which all are stopped.
    processes
        How many figures run at the same time.
    commit
        Commit of the source files, for the ledger.
    report
        Called after each figure with its result and the number of figures still to come.
    environment
        Variables of the environment for the processes, in addition to those of this one.
    """
    tree_name, tree = history.whole_tree()
    end = time.monotonic() + total
    waiting, running, results = list(jobs), list[_Running](), list[Result]()
    with _exit_on_termination():
        try:
            while running or (waiting and time.monotonic() < end):
                while waiting and len(running) < processes and time.monotonic() < end:
                    running.append(_start(waiting.pop(0), environment or {}))
                time.sleep(0.2)
                for child in list(running):
                    stopped = _stop_in_time(child, min(child.began + limit, end))
                    if child.process.poll() is None:
                        continue
                    running.remove(child)
                    row = _row(child, stopped, commit, tree_name)
                    ledger = history.read(folder / f"{child.job.paper}.json", child.job.paper)
                    history.write(ledger.with_row(row, tree), folder)
                    results.append(Result(child.job, row))
                    report(results[-1], len(waiting) + len(running))
        finally:
            for child in running:
                _kill(child.process)
    return results


@contextlib.contextmanager
def _exit_on_termination() -> Iterator[None]:
    """Make SIGTERM an exception, so that figures do not go on without the campaign, which has its time limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _start(job: Job, environment: Mapping[str, str]) -> _Running:
    job.folder.mkdir(parents=True, exist_ok=True)
    # A result of an earlier run must not be taken for that of this one.
    (job.folder / "claims.json").unlink(missing_ok=True)
    with open(job.folder / "log.txt", "wb") as log:
        process = subprocess.Popen(
            job.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    return _Running(job, process, time.monotonic())


def _stop_in_time(child: _Running, end: float) -> bool:
    """Ask a process to stop when its time is over, and end it if it has not stopped a little later."""
    at = time.monotonic()
    if child.process.poll() is None and at > end:
        if child.asked_to_stop is None:
            child.asked_to_stop = at
            child.process.send_signal(signal.SIGINT)
        elif at > child.asked_to_stop + _GRACE:
            _kill(child.process)
    return child.asked_to_stop is not None


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _row(child: _Running, stopped: bool, commit: str, tree: str) -> history.Row:
    job, seconds = child.job, round(time.monotonic() - child.began, 1)
    command = f"solvable {' '.join(job.arguments)}"
    found = _claims(job.folder / "claims.json")
    if found is not None and found["figures"]:
        about = {key: value for key, value in found["figures"][0].items() if key not in ("passed", "failed")}
        own = ("paper", "figure", "title", "seconds")
        claims = [{key: value for key, value in claim.items() if key not in own} for claim in found["claims"]]
        outcome = Outcome(**about, fingerprint="", claims=claims)
        return history.row_of(outcome, commit, found["environment"], tree, command)
    status = "stopped" if stopped else "raised"
    error = (
        None if stopped else _last_line(job.folder / "log.txt") or f"ended with exit code {child.process.returncode}"
    )
    return history.Row(job.figure, status, now(), commit, "unknown", seconds, tree=tree, command=command, error=error)


def _claims(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _last_line(path: Path) -> str:
    lines = path.read_text("utf-8", errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1][:500] if lines else ""


def write_summary(results: Sequence[Result], path: Path) -> None:
    """A short table of a campaign for people, as Markdown."""
    lines = ["| figure | status | claims held | seconds |", "|---|---|---|---|"]
    for result in results:
        row = result.row
        held = f"{row.passed} of {len(row.claims)}" if row.claims else ""
        lines.append(f"| {result.job.name} | {row.error or row.status} | {held} | {row.seconds:g} |")
    write_atomically(path, "\n".join(lines) + "\n")
