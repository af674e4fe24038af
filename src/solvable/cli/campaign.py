"""``solvable campaign`` and ``solvable reproduce status``: full runs in pieces, and the ledgers of what they found."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from solvable import papers
from solvable.checks import check_choice, check_count
from solvable.cli import show
from solvable.cli.outputs import check_folder
from solvable.cli.reproduce import choose
from solvable.papers.report import campaign as campaigns
from solvable.papers.report import history

# Characters of the table's last column, in which the names of changed modules are listed.
_LONGEST_LIST = 60


def campaign(
    names: Sequence[str],
    scale: str = "full",
    out: str = "campaign",
    limit: float = 600.0,
    total: float = 3600.0,
    processes: int = 1,
    commit: str | None = None,
    ledgers: str | None = None,
) -> int:
    """Run figures in pieces of limited length; 1 if one raised, was stopped or has a claim that fails, else 0."""
    check_choice("scale", scale, ("quick", "full"))
    check_count("processes", processes)
    for name, seconds in (("limit", limit), ("total", total)):
        if not 0 < seconds < math.inf:
            raise ValueError(f"{name} is {seconds:g}, but must be a positive number of seconds")
    chosen = choose(names)
    folder = check_folder("out", out)
    if ledgers is not None and not (ledgers.strip() and Path(ledgers).is_dir()):
        raise ValueError(f"--ledgers {ledgers}: there is no such folder; leave it out for those of the package")
    known = history.read_all(Path(ledgers) if ledgers is not None else None)
    jobs = [
        campaigns.Job(paper, figure, scale, folder / paper / figure)
        for paper, figures in chosen.items()
        for figure in figures
    ]
    folder.mkdir(parents=True, exist_ok=True)

    def report(result: campaigns.Result, left: int) -> None:
        row = result.row
        held = f", {row.passed} of {len(row.claims)} claims hold" if row.claims else ""
        ending = f"{row.status}{f' ({row.error})' if row.error else ''}"
        print(f"{result.job.name}: {ending} after {row.seconds:g} s{held}; {left} left", flush=True)

    results = campaigns.run(
        campaigns.order(jobs, known), folder, limit, total, processes, commit or campaigns.commit_of_source(), report
    )
    campaigns.write_summary(results, folder / "summary.md")
    unfinished = len(jobs) - sum(result.row.status == "finished" for result in results)
    print(f"ledgers and data are in {folder}; the same command goes on from there")
    if unfinished:
        print(f"{unfinished} of {len(jobs)} figures are not finished", file=sys.stderr)
    return 1 if unfinished or any(result.row.failed for result in results) else 0


def merge(folders: Sequence[str], into: str) -> int:
    """Add the ledgers of campaigns to those of a folder."""
    sources = [Path(folder) for folder in folders]
    for folder in sources:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder; name the folder of a campaign")
        if not any(ledger.rows for ledger in history.read_all(folder).values()):
            raise ValueError(f"{folder} holds no ledger of a campaign, such as {papers.papers()[0]}.json; name another")
    place = check_folder("into", into)
    for paper, ledger in history.read_all(place).items():
        merged = ledger
        for folder in sources:
            merged = merged.merged(history.read(folder / f"{paper}.json", paper))
        if merged.rows:
            history.write(merged, place)
            print(f"{paper}: {len(merged.rows)} figures in {place / f'{paper}.json'}")
    return 0


def status(as_json: bool = False, ledgers: str | None = None) -> int:
    """Print for every figure its last full run, its commit, the claims that held and what has changed since."""
    folder = Path(ledgers) if ledgers else None
    if folder is not None and not folder.is_dir():
        raise ValueError(f"ledgers is {ledgers!r}, which is not a folder; leave it out for those of the package")
    known, explained = history.read_all(folder), history.endings(folder)
    rows = [_row(paper, figure, known[paper]) for paper in papers.papers() for figure in papers.figures(paper)]
    if as_json:
        print(json.dumps(rows, ensure_ascii=False))
        return 0
    for paper in papers.papers():
        own = [row for row in rows if row["paper"] == paper]
        cells = [[row["figure"], row["last_run"], row["commit"], _held(row), _changed(row)] for row in own]
        show.table(paper, ["figure", "last full run", "commit", "claims held", "changed since"], cells, text_columns=5)
        held, total = sum(row["passed"] for row in own), sum(row["claims"] for row in own)
        failed = [(paper, row["figure"], name) for row in own for name in row["failed"]]
        print(
            f"{held} of {total} claims held at full scale; of {len(failed)} that failed, "
            f"{sum(key in explained for key in failed)} are explained (endings.toml)\n"
        )
    return 0


def _row(paper: str, figure: str, ledger: history.History) -> dict[str, Any]:
    row = ledger.rows.get(figure)
    return {
        "paper": paper,
        "figure": figure,
        "status": row.status if row else "never run",
        "last_run": row.date if row else "never",
        "commit": row.commit if row else "",
        "device": row.device if row else "",
        "seconds": row.seconds if row else None,
        "passed": row.passed if row else 0,
        "claims": len(row.claims) if row else 0,
        "failed": [claim["name"] for claim in row.failed] if row else [],
        "changed": ledger.changed(figure) if row else None,
    }


def _held(row: dict[str, Any]) -> str:
    return f"{row['passed']} of {row['claims']}" if row["status"] == "finished" else str(row["status"])


def _changed(row: dict[str, Any]) -> str:
    changed = row["changed"]
    if not isinstance(changed, list):
        return "" if row["status"] == "never run" else "files of that run not known"
    text = ", ".join(name.removeprefix("solvable.") for name in changed)
    if len(text) <= _LONGEST_LIST:
        return text or "nothing"
    return f"{len(changed)} modules: {text[:_LONGEST_LIST].rpartition(',')[0]}, …"
