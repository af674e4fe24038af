"""The ledger: every claim of every figure, as JSON for machines and as Markdown for people."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from solvable._version import __version__
from solvable.papers import title
from solvable.papers.claims import relation
from solvable.papers.report.outcomes import Outcome


def counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many claims passed and failed, how many figures raised, and how many figures there are."""
    return {
        "passed": sum(outcome.passed for outcome in outcomes),
        "failed": sum(outcome.failed for outcome in outcomes),
        "errors": sum(outcome.error is not None for outcome in outcomes),
        "figures": len(outcomes),
    }


def by_paper(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each paper, in the order they have."""
    papers: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        papers.setdefault(outcome.paper, []).append(outcome)
    return papers


def as_json(outcomes: Sequence[Outcome], scale: str, environment: Mapping[str, str]) -> str:
    """The claims in one list, each with its figure; what raised or was reused is told by the list of figures."""
    papers = list(by_paper(outcomes))
    found = counts(outcomes)
    content = {
        "paper": papers[0] if len(papers) == 1 else papers,
        "scale": scale,
        "version": __version__,
        "device": environment["device"],
        **{key: found[key] for key in ("passed", "failed", "errors")},
        "environment": dict(environment),
        "figures": [_about(outcome) for outcome in outcomes],
        "claims": [
            {"paper": outcome.paper, "figure": outcome.figure, "title": outcome.title, "seconds": outcome.seconds}
            | claim
            for outcome in outcomes
            for claim in outcome.claims
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _about(outcome: Outcome) -> dict[str, Any]:
    keys = (
        "paper",
        "figure",
        "title",
        "seconds",
        "cpu_seconds",
        "finished",
        "reused",
        "data_from",
        "passed",
        "failed",
        "error",
        "files",
    )
    return {key: getattr(outcome, key) for key in keys}


def as_markdown(outcomes: Sequence[Outcome], scale: str, environment: Mapping[str, str]) -> str:
    """Counts, then a table of figures and a table of claims for each paper."""
    lines = ["# Claims", "", f"{sentence(outcomes)} Scale: {scale}. Made {environment['date']}.", ""]
    for paper, own in by_paper(outcomes).items():
        lines += [f"## {_cell(title(paper))}", ""]
        lines += _table(
            ["figure", "title", "passed", "failed", "seconds"],
            [[f"`{o.figure}`", o.title, o.passed, "raised" if o.error else o.failed, o.seconds] for o in own],
        )
        for outcome in own:
            lines += [f"### `{outcome.figure}`", ""]
            if outcome.error:
                lines += ["Raised:", "", *(f"    {line}" for line in outcome.error.splitlines()), ""]
                continue
            lines += _table(["claim", "measured", "expected", "tolerance", "printed", ""], map(_row, outcome.claims))
    lines += ["## Environment", "", *_table(["", ""], [list(item) for item in environment.items()])]
    return "\n".join(lines)


def sentence(outcomes: Sequence[Outcome]) -> str:
    """The counts in words."""
    found = counts(outcomes)
    claims = amount(found["passed"] + found["failed"], "claim")
    raised = f", {amount(found['errors'], 'figure')} raised" if found["errors"] else ""
    total = f"{claims} of {amount(found['figures'], 'figure')}"
    return f"{total}: {found['passed']} passed, {found['failed']} failed{raised}."


def amount(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def number(value: Any) -> str:
    """Five digits; a dash for "never". What is text stays text: infinities, and printed values in words."""
    if isinstance(value, float | int) and not isinstance(value, bool):
        return f"{value:.5g}"
    return {"nan": "–", "inf": "∞", "-inf": "−∞", "None": ""}.get(str(value), str(value))


def tolerance(claim: Mapping[str, Any]) -> tuple[str, str]:
    """How far measured and expected may be apart, and as which fraction of the latter, if it is one."""
    if claim.get("kind", "equals") != "equals":
        return "", ""
    share = f"({number(claim['tolerance'])} of it)" if claim["relative"] else ""
    return f"± {number(claim['allowed'])}", share


def _row(claim: Mapping[str, Any]) -> list[str]:
    return [
        f"{claim['name']} ({claim['because']})",
        number(claim["measured"]),
        relation(claim),
        " ".join(tolerance(claim)),
        number(claim["printed"]),
        "pass" if claim["passed"] else "**FAIL**",
    ]


def _table(head: Sequence[str], rows: Any) -> list[str]:
    body = [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *body, ""]


def _cell(value: Any) -> str:
    """Nothing that comes from a claim may end its cell or its line, or be taken for HTML."""
    return " ".join(str(value).replace("|", "\\|").replace("<", "&lt;").split())
