"""Sphinx extension for tables of errata: one anchor per entry, and a class by which CSS makes rows fit the page."""

import re
from typing import Any

from docutils import nodes

COLUMNS = ("printed", "correct", "evidence")


def add_anchors(document: nodes.document) -> list[str]:
    """Give each row of the tables of errata an anchor, named after its section and its equation; return the names.

    Parameters
    ----------
    document : nodes.document
        The page, which is changed in place. Tables without the columns of an errata table are left alone.
    """
    taken: list[str] = []
    for table in document.findall(nodes.table):
        header = [entry.astext() for entry in next(iter(table.findall(nodes.thead))).findall(nodes.entry)]
        if tuple(header[1:]) != COLUMNS:
            continue
        table["classes"].append("errata")
        section = table.parent["ids"][0] if table.parent.get("ids") else "errata"
        for row in next(iter(table.findall(nodes.tbody))).findall(nodes.row):
            where = row[0].astext()
            name = _unique(f"{section}-{_slug(where)}", taken)
            row["ids"].append(name)
            link = nodes.reference("", "#", refuri=f"#{name}", classes=["headerlink"], reftitle="Link to this entry")
            row[0][0].append(link)
            for label, entry in zip(COLUMNS, list(row)[1:], strict=True):
                entry.insert(0, nodes.paragraph("", label, classes=["label"]))
    return taken


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "general"


def _unique(name: str, taken: list[str]) -> str:
    same = sum(1 for other in taken if other == name or re.fullmatch(re.escape(name) + r"-no-\d+", other))
    taken.append(f"{name}-no-{same + 1}" if same else name)
    return taken[-1]


def _read(app: Any, document: nodes.document) -> None:
    if app.env.docname == "errata":
        add_anchors(document)


def setup(app: Any) -> dict[str, Any]:
    app.connect("doctree-read", _read)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
