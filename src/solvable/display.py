"""Tables for terminals and notebooks. All text is escaped, so that parameters and claims cannot inject HTML."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def table(caption: Any, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table of plain text with a caption, in the style of the notebook."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    top = f'<caption style="text-align: left"><b>{escape(str(caption))}</b></caption>'
    return f"<table>{top}<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


class Report:
    """Mixin for reports: subclasses list (label, text) rows; this class renders them as text and HTML."""

    def _rows(self) -> list[tuple[str, str]]:
        raise NotImplementedError

    def summary(self) -> str:
        """The report as a table of text."""
        return "\n".join(f"{label:<40} {text}" for label, text in self._rows())

    def _repr_html_(self) -> str:
        """The report as a table in a notebook."""
        return table(type(self).__name__, (), self._rows())
