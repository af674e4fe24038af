"""Sphinx extension for tables made from the ledgers of full runs: one row per figure, and one per claim that failed.

``{campaign-status}`` shows the last full run of every figure, and ``{failed-claims}`` how each failed claim ended.
Every figure has the anchor ``run-<paper>-<figure>``, so that a page can link to the run that a statement rests on.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from solvable.papers import figures, papers, title
from solvable.papers.report import history
from solvable.papers.report.ledger import number


def anchor(paper: str, figure: str) -> str:
    """The name of a figure's anchor."""
    return f"run-{paper}-{figure}"


def status_rows(ledger: history.History) -> list[tuple[str, list[str]]]:
    """For every figure of a paper its anchor and the cells of its row."""
    found = []
    for figure in figures(ledger.paper):
        row = ledger.rows.get(figure)
        if row is None:
            cells = [figure, "never", "", "", "", ""]
        else:
            held = f"{row.passed} of {len(row.claims)}" if row.status == "finished" else row.status
            cells = [figure, row.date, row.commit, row.device, f"{row.seconds:g}" if row.seconds else "", held]
        found.append((anchor(ledger.paper, figure), cells))
    return found


def failed_rows(ledgers: Iterable[history.History]) -> list[list[str]]:
    """Cells of every claim that failed in its last full run."""
    explained = history.endings()
    rows = []
    for ledger in ledgers:
        for figure, row in ledger.rows.items():
            for claim in row.failed:
                ending = explained.get((ledger.paper, figure, claim["name"]), {"kind": "", "text": ""})
                numbers = f"{number(claim['measured'])} for {number(claim['expected'])}"
                rows.append([f"{ledger.paper} {figure}", claim["name"], numbers, ending["kind"], ending["text"]])
    return rows


def _table(head: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> nodes.table:
    table = nodes.table(classes=["ledger"])
    group = nodes.tgroup(cols=len(head))
    table += group
    for _ in head:
        group += nodes.colspec(colwidth=1)
    group += nodes.thead("", _row(head))
    body = nodes.tbody()
    for name, cells in rows:
        made = _row(cells)
        if name:
            made["ids"].append(name)
        body += made
    group += body
    return table


def _row(cells: Sequence[str]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))


class CampaignStatus(SphinxDirective):
    """The last full run of every figure, a table per paper."""

    def run(self) -> list[nodes.Node]:
        made: list[nodes.Node] = []
        head = ["figure", "last full run", "commit", "device", "seconds", "claims held"]
        for paper, ledger in history.read_all().items():
            held = sum(row.passed for row in ledger.rows.values())
            total = sum(len(row.claims) for row in ledger.rows.values())
            made.append(nodes.rubric("", title(paper)))
            made.append(nodes.paragraph("", f"{held} of {total} claims held in the last full runs."))
            rows = status_rows(ledger)
            made.append(_table(head, rows))
            # So that {ref}`text <run-paper-figure>` works on other pages.
            for name, _ in rows:
                self.env.get_domain("std").anonlabels[name] = (self.env.docname, name)  # type: ignore[attr-defined]
        return made


class FailedClaims(SphinxDirective):
    """Every claim that failed in its last full run, with how it ended."""

    def run(self) -> list[nodes.Node]:
        rows = failed_rows(history.read_all()[paper] for paper in papers())
        return [_table(["figure", "claim", "measured", "ended as", "why"], [("", row) for row in rows])]


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("campaign-status", CampaignStatus)
    app.add_directive("failed-claims", FailedClaims)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
