"""HTML tables for notebooks. All text is escaped, so that parameters and claims cannot inject HTML."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def table(caption: Any, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table of plain text with a caption, in the style of the notebook."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    top = f'<caption style="text-align: left"><b>{escape(str(caption))}</b></caption>'
    return f"<table>{top}<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
