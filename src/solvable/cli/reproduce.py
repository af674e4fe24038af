"""``solvable reproduce``: run the figures of papers, test their claims, keep the ledger and write the report."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import jax

from solvable import papers
from solvable.checks import check_choice
from solvable.cli import show
from solvable.cli.interrupts import announce, farewell, was_interrupted
from solvable.cli.outputs import check_folder
from solvable.cli.streams import StdoutError, printing
from solvable.files import write_atomically
from solvable.papers.claims import relation
from solvable.papers.report.environment import computed_with, environment
from solvable.papers.report.fingerprint import data_fingerprint, fingerprint
from solvable.papers.report.ledger import as_json, as_markdown, number, sentence, tolerance
from solvable.papers.report.outcomes import Outcome, Task, clear, compute, kept
from solvable.papers.report.page import duration, page

ALL = "all"


def reproduce(
    names: Sequence[str],
    scale: str = "quick",
    out: str = "reproduction",
    json: bool = False,
    only: str | None = None,
    fresh: bool = False,
) -> int:
    """Reproduce figures into a folder; 1 if a claim fails or a figure raises, else 0."""
    check_choice("scale", scale, ("quick", "full"))
    if only is not None:
        check_choice("only", only, ("failing",))
    chosen = choose(names)
    folder = check_folder("out", out)
    # One paper has its files in the folder itself, several have a folder each.
    folders = {paper: folder if len(chosen) == 1 and names[0] != ALL else folder / paper for paper in chosen}
    for place in folders.values():
        place.mkdir(parents=True, exist_ok=True)
    run = _Run(_tasks(chosen, folders, scale), folder, folders, scale, fresh, only is not None, quiet=json)
    run.go()
    return run.deliver()


def choose(names: Sequence[str]) -> dict[str, list[str]]:
    """Papers with their figures, from names in a row: a paper, some of its figures, the next paper and so on."""
    if names[0] == ALL:
        if len(names) > 1:
            raise ValueError(f"{ALL!r} stands for every figure of every paper: drop {names[1]!r}, or name its paper")
        return {paper: papers.figures(paper) for paper in papers.papers()}
    chosen: dict[str, list[str]] = {}
    paper = names[0]
    for name in names:
        if name in papers.papers() or not chosen:
            paper = name
            papers.figures(paper)
            chosen.setdefault(paper, [])
        else:
            papers.home(paper, name)
            chosen[paper].append(name)
    return {paper: list(dict.fromkeys(figures)) or papers.figures(paper) for paper, figures in chosen.items()}


def _tasks(chosen: dict[str, list[str]], folders: dict[str, Path], scale: str) -> list[Task]:
    """All fingerprints before any work: source that changes later must not be taken for what was run."""
    made_with = computed_with()

    def task(paper: str, figure: str) -> Task:
        about = (papers.home(paper, figure), scale, made_with)
        return Task(paper, figure, scale, folders[paper], fingerprint(*about), data_fingerprint(*about))

    return [task(paper, figure) for paper, figures in chosen.items() for figure in figures]


class _Run:
    """The figures of one command, one after the other, and what has come of them so far."""

    def __init__(
        self,
        tasks: list[Task],
        folder: Path,
        folders: dict[str, Path],
        scale: str,
        fresh: bool,
        only_failing: bool,
        quiet: bool,
    ) -> None:
        self.tasks, self.folder, self.folders, self.scale = tasks, folder, folders, scale
        self.fresh, self.only_failing, self.quiet = fresh, only_failing, quiet
        self.environment = environment()
        self.outcomes: list[Outcome] = []
        self.begin = time.perf_counter()

    def go(self) -> None:
        if self.fresh:
            # All at once, so that a run that is interrupted can be taken up again without --fresh.
            for task in self.tasks:
                clear(task)
        try:
            with farewell(self._stop):
                for task in self.tasks:
                    outcome = self._outcome(task)
                    if outcome.error and was_interrupted():
                        raise KeyboardInterrupt
                    self.outcomes.append(outcome)
                    # After every figure, so that an interrupted run leaves what it has found; before anything is
                    # printed.
                    self._write_ledger()
                    with printing():
                        self._show(self.outcomes[-1])
        except StdoutError:
            self._write_page()
            raise
        except KeyboardInterrupt:
            self._stop()
            raise

    def _stop(self) -> None:
        """Say what is finished, and leave a page of it."""
        done = f"{len(self.outcomes)} of {len(self.tasks)} figures are finished and kept in {self.folder}"
        again = "the same command without --fresh" if self.fresh else "the same command"
        announce(f"stopped: {done}; {again} goes on from there")
        self._write_page()

    def deliver(self) -> int:
        """Write the page, say what failed, and give the exit code."""
        self._write_page()
        if self.quiet:
            print((self.folder / "claims.json").read_text("utf-8"))
        else:
            print(f"{sentence(self.outcomes)} Ledger, data and figures are in {self.folder}.")
            print(f"report: {self.folder / 'index.html'}")
        for outcome in self.outcomes:
            if outcome.error is not None:
                print(f"RAISED {self._name(outcome)}: {outcome.error.splitlines()[-1]}", file=sys.stderr)
            for claim in outcome.claims:
                if not claim["passed"]:
                    print(f"FAILED {self._name(outcome)}: {claim['name']}", file=sys.stderr)
        return 0 if all(outcome.holds for outcome in self.outcomes) else 1

    def _outcome(self, task: Task) -> Outcome:
        found = kept(task)
        if found is None:
            place = f"[{len(self.outcomes) + 1}/{len(self.tasks)}]"
            so_far = duration(time.perf_counter() - self.begin)
            print(f"{place} {task.paper} {task.figure} … ({so_far} so far)", file=sys.stderr, flush=True)
            if self.outcomes and self.outcomes[-1].paper != task.paper:
                # What was compiled for one paper is of little use to the next, and all of it takes gigabytes.
                jax.clear_caches()
            found = compute(task)
        return found

    def _show(self, outcome: Outcome) -> None:
        if self.quiet or (self.only_failing and outcome.holds):
            return
        kept_from = f", kept from {outcome.finished}" if outcome.reused else ""
        title = f"{self._name(outcome)}: {outcome.title} ({outcome.seconds:g} s{kept_from})"
        if outcome.error is not None:
            print(f"{title}\nraised: {outcome.error.splitlines()[-1]}\n")
        elif len(self.folders) == 1:
            _print_claims(title, outcome)
        else:
            print(f"{title}: {outcome.passed} claims passed, {outcome.failed} failed", flush=True)

    def _name(self, outcome: Outcome) -> str:
        return outcome.figure if len(self.folders) == 1 else f"{outcome.paper} {outcome.figure}"

    def _write_ledger(self) -> None:
        write_atomically(self.folder / "claims.json", as_json(self.outcomes, self.scale, self.environment))
        write_atomically(self.folder / "claims.md", as_markdown(self.outcomes, self.scale, self.environment))

    def _write_page(self) -> None:
        unfinished = [f"{task.paper} {task.figure}" for task in self.tasks[len(self.outcomes) :]]
        text = page(self.outcomes, self.folders, self.scale, self.environment, self.only_failing, unfinished)
        write_atomically(self.folder / "index.html", text)


def _print_claims(title: str, outcome: Outcome) -> None:
    rows = [
        [
            claim["name"],
            number(claim["measured"]),
            relation(claim),
            " ".join(tolerance(claim)),
            number(claim["printed"]),
            "pass" if claim["passed"] else "FAIL",
        ]
        for claim in outcome.claims
    ]
    show.table(title, ["claim", "measured", "expected", "tolerance", "printed", ""], rows)
    print()
