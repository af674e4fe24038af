"""Ledgers of full runs: for each figure of a paper its last run, what it measured, and what has changed since.

A ledger is one JSON file per paper. Each row has the commit, the device, the seconds and every claim of a figure with
the raw measurement, and a short account of the runs before it, so that a claim that was changed or mended still shows
what it was. The ledgers of this project's own campaigns come with the package (``solvable/papers/ledgers``).
"""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from solvable.files import write_atomically
from solvable.papers import figures, home, papers
from solvable.papers.report.fingerprint import sources
from solvable.papers.report.outcomes import Outcome

# How a failed claim can end. Every failed claim of the ledgers that come with the package has one of these.
ENDINGS = ("mended", "theory's limit", "paper's mistake", "not decided")


@dataclass(frozen=True)
class Row:
    """The last run of a figure.

    ``tree`` names the source files that were run, in the ledger's ``trees``; it is empty for runs whose files are not
    known. ``status`` is ``"finished"``, ``"raised"`` or ``"stopped"``, which is a run that was out of time.
    ``earlier`` are short accounts of the runs before, the newest first.
    """

    figure: str
    status: str
    date: str
    commit: str
    device: str
    seconds: float
    cpu_seconds: float | None = None
    tree: str = ""
    command: str = ""
    versions: str = ""
    note: str = ""
    error: str | None = None
    claims: list[dict[str, Any]] = field(default_factory=list)
    earlier: list[dict[str, Any]] = field(default_factory=list)

    @property
    def passed(self) -> int:
        return sum(bool(claim["passed"]) for claim in self.claims)

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [claim for claim in self.claims if not claim["passed"]]

    def account(self) -> dict[str, Any]:
        """What is kept of this run when a later one takes its place: its counts, and what failed, with the numbers."""
        kept = ("name", "measured", "expected", "tolerance", "printed")
        about = {key: getattr(self, key) for key in ("date", "commit", "device", "seconds", "status")}
        lost = [{key: claim.get(key) for key in kept} for claim in self.failed]
        return about | {"passed": self.passed, "failed": lost}


@dataclass(frozen=True)
class History:
    """A ledger: rows by figure, and the source files of each tree by module, each with the start of its checksum."""

    paper: str
    scale: str = "full"
    rows: dict[str, Row] = field(default_factory=dict)
    trees: dict[str, dict[str, str]] = field(default_factory=dict)

    def with_row(self, row: Row, tree: Mapping[str, str] | None = None) -> "History":
        """The ledger after another run of a figure.

        A run that did not finish takes the place of none that did: it is added to the accounts of earlier runs.
        """
        old = self.rows.get(row.figure)
        if old is not None and (row.date, row.commit, row.status) == (old.date, old.commit, old.status):
            row = replace(row, earlier=old.earlier)
        elif old is not None and old.status == "finished" and row.status != "finished":
            if row.account() in old.earlier:
                return self
            row = replace(old, earlier=[row.account(), *old.earlier])
        elif old is not None:
            row = replace(row, earlier=[old.account(), *old.earlier])
        rows = {**self.rows, row.figure: row}
        trees = {**self.trees, **({row.tree: dict(tree)} if tree and row.tree else {})}
        used = {found.tree for found in rows.values()}
        return replace(self, rows=rows, trees={name: trees[name] for name in trees if name in used})

    def merged(self, other: "History") -> "History":
        """This ledger after the runs of another one."""
        found = self
        for row in other.rows.values():
            found = found.with_row(row, other.trees.get(row.tree))
        return found

    def to_json(self) -> str:
        content = asdict(self) | {"rows": {name: asdict(self.rows[name]) for name in sorted(self.rows)}}
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    def changed(self, figure: str) -> list[str] | None:
        """Modules that the figure uses and that are not what they were when it ran; none if that is not known."""
        row = self.rows[figure]
        if not row.tree:
            return None
        then, now = self.trees[row.tree], tree_of([home(self.paper, figure)])
        return sorted(name for name in now if now[name] != then.get(name))


def tree_of(modules: Iterable[str]) -> dict[str, str]:
    """The start of the SHA-256 checksum of every source file that importing these modules can run, by module."""
    found = sources(*modules)
    return {name: hashlib.sha256(path.read_bytes()).hexdigest()[:10] for name, path in sorted(found.items())}


def whole_tree() -> tuple[str, dict[str, str]]:
    """All source files that any figure can run, and a short name for their state."""
    tree = tree_of(home(paper, figure) for paper in papers() for figure in figures(paper))
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:10], tree


def row_of(outcome: Outcome, commit: str, environment: Mapping[str, str], tree: str, command: str) -> Row:
    """The row of a figure that was just reproduced."""
    versions = ", ".join(f"{name} {environment[name]}" for name in ("Python", "jax", "numpy") if name in environment)
    return Row(
        figure=outcome.figure,
        status="raised" if outcome.error else "finished",
        date=outcome.finished,
        commit=commit,
        device=environment.get("device", "unknown"),
        seconds=outcome.seconds,
        cpu_seconds=outcome.cpu_seconds,
        tree=tree,
        command=command,
        versions=versions,
        error=outcome.error.splitlines()[-1] if outcome.error else None,
        claims=outcome.claims,
    )


def read(path: Path, paper: str) -> History:
    """The ledger of a paper from a file; an empty one if there is no file."""
    if not path.exists():
        return History(paper)
    try:
        content = json.loads(path.read_text("utf-8"))
        rows = {name: Row(**row) for name, row in content["rows"].items()}
        found = History(content["paper"], content["scale"], rows, content["trees"])
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise ValueError(f"{path} is not a ledger of a campaign ({problem}); move it away to begin a new one") from None
    if found.paper != paper:
        raise ValueError(f"{path} is the ledger of {found.paper}, not of {paper}")
    return found


def shipped() -> Path:
    """The folder of the ledgers that come with the package."""
    return Path(str(files("solvable.papers") / "ledgers"))


def read_all(folder: Path | None = None) -> dict[str, History]:
    """The ledgers of all papers in a folder, by default of those that come with the package."""
    place = folder or shipped()
    return {paper: read(place / f"{paper}.json", paper) for paper in papers()}


def write(history: History, folder: Path) -> None:
    write_atomically(folder / f"{history.paper}.json", history.to_json())


def endings(folder: Path | None = None) -> dict[tuple[str, str, str], dict[str, str]]:
    """How each failed claim ended, in words, by paper, figure and name of the claim (file ``endings.toml``)."""
    path = (folder or shipped()) / "endings.toml"
    if not path.exists():
        return {}
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for entry in tomllib.loads(path.read_text("utf-8")).get("ending", []):
        if entry["kind"] not in ENDINGS:
            raise ValueError(f"{path}: kind is {entry['kind']!r}; it must be one of {', '.join(ENDINGS)}")
        for claim in entry["claims"]:
            found[entry["paper"], entry["figure"], claim] = {"kind": entry["kind"], "text": entry["text"]}
    return found
