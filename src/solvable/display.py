"""Tables for notebooks. Every text is escaped: what a parameter or a claim holds is shown, never run."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def table(caption: Any, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table of plain texts under a caption; the notebook's own style sheet dresses it."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    top = f'<caption style="text-align: left"><b>{escape(str(caption))}</b></caption>'
    return f"<table>{top}<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
