"""Reproduce figures at quick scale within a time limit, and fail if a claim fails that is not a known failure.

    .venv/bin/python .ci/claims.py SECONDS [all | PAPER [FIGURE ...]]

Figures that were not started in time are listed, but are not failures. The report is in the folder ``report``.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from solvable.cli.reproduce import choose
from solvable.papers.claims import relation
from solvable.papers.report.ledger import tolerance

HERE = Path(__file__).parent
REPORT = HERE.parent / "report"
KNOWN = HERE / "known-failures.txt"
# Seconds in which an interrupted command must write its results and end, before it is killed.
GRACE = 30.0


def run(names: list[str], limit: float) -> None:
    """Reproduce figures, and interrupt the command (as by Ctrl-C) at the time limit; finished figures are recorded."""
    command = [sys.executable, "-m", "solvable", "reproduce", *names, "--scale", "quick"]

    def listen_to_interrupts() -> None:
        # A shell starts background jobs, such as this one, with interrupts ignored.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = subprocess.Popen([*command, "--out", str(REPORT)], preexec_fn=listen_to_interrupts)
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def known_failures() -> set[str]:
    lines = (line.strip() for line in KNOWN.read_text("utf-8").splitlines())
    return {line for line in lines if line and not line.startswith("#")}


def failures(ledger: dict[str, Any]) -> dict[str, str]:
    """Claims that failed and figures that raised an error, with a description of each."""
    raised = {
        f"{figure['paper']} {figure['figure']} raised": figure["error"].splitlines()[-1]
        for figure in ledger["figures"]
        if figure["error"]
    }
    failed = {
        f"{claim['paper']} {claim['figure']}: {claim['name']}": (
            f"measured {claim['measured']}, expected {relation(claim)} {tolerance(claim)[0]}".rstrip()
        )
        for claim in ledger["claims"]
        if not claim["passed"]
    }
    return raised | failed


def listed(title: str, lines: list[str]) -> None:
    if lines:
        print(f"{title}:", *(f"  {line}" for line in lines), sep="\n")


def main(limit: float, names: list[str]) -> int:
    file = REPORT / "claims.json"
    file.unlink(missing_ok=True)
    run(names, limit)
    if not file.exists():
        print(f"claims: no figure was finished within {limit:g} s")
        return 1
    ledger, known = json.loads(file.read_text("utf-8")), known_failures()
    found = failures(ledger)
    new = [f"{name} ({why})" for name, why in found.items() if name not in known]
    finished = {(figure["paper"], figure["figure"]) for figure in ledger["figures"]}
    asked = [(paper, figure) for paper, figures in choose(names).items() for figure in figures]
    not_run = [" ".join(pair) for pair in asked if pair not in finished]
    # Known failures, of figures that were run, that no longer happen.
    mended = sorted(name for name in known - set(found) if tuple(name.split(":")[0].split()[:2]) in finished)
    print(
        f"claims: {ledger['passed']} held, {ledger['failed']} failed and {ledger['errors']} figures raised "
        f"({len(found) - len(new)} of these known), in {len(finished)} of {len(asked)} figures"
    )
    listed(f"not run within {limit:g} s", not_run)
    listed(f"known failures that hold now: remove them from {KNOWN.name}", mended)
    listed("failed", new)
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:] or ["all"]))
