"""The little Markdown that the errata use, as HTML: headings, paragraphs, tables, code and formulas."""

import re
from collections.abc import Sequence
from html import escape

from solvable.papers.report.mathml import mathml

# A role, as in {doc}`page`, shows its text.
_INLINE = re.compile(r"(?:\{\w+\})?`([^`]+)`|\$([^$]+)\$|\*\*([^*]+)\*\*")
_RULE = re.compile(r"^\|[\s:|-]+\|$")


def html_of(text: str, heading: int = 4) -> str:
    """Blocks separated by blank lines. Headings begin at level ``heading``, whatever their level in the text."""
    blocks = re.split(r"\n\s*\n", text.strip())
    return "\n".join(_block(block.strip().splitlines(), heading) for block in blocks if block.strip())


def inline(text: str) -> str:
    """A line of text with code, formulas and bold as HTML; everything else is escaped."""
    parts: list[str] = []
    end = 0
    for found in _INLINE.finditer(text):
        code, formula, bold = found.groups()
        parts.append(escape(text[end : found.start()]))
        if code:
            parts.append(f"<code>{escape(code)}</code>")
        else:
            parts.append(_formula(formula) if formula else f"<b>{inline(bold)}</b>")
        end = found.end()
    return "".join(parts) + escape(text[end:])


def _formula(tex: str) -> str:
    """A formula as MathML; one that cannot be drawn is shown as it is written."""
    try:
        return mathml(tex)
    except ValueError:
        return f"<code>{escape(tex)}</code>"


def _block(lines: Sequence[str], heading: int) -> str:
    if lines[0].startswith("#"):
        head = f"<h{heading}>{inline(lines[0].lstrip('# '))}</h{heading}>"
        return head + (_block(lines[1:], heading) if len(lines) > 1 else "")
    if lines[0].startswith("|"):
        return _table([_cells(line) for line in lines if line.startswith("|") and not _RULE.match(line)])
    return f"<p>{inline(' '.join(lines))}</p>"


def _cells(line: str) -> list[str]:
    """The cells of a row. A bar after a backslash belongs to its cell."""
    cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
    return [cell.strip().replace(r"\|", "|") for cell in cells]


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    titles = [inline(cell) for cell in head]
    top = "".join(f'<th scope="col">{title}</th>' for title in titles)
    lines = (
        # The label is shown before the cell where the page is too narrow for columns.
        "".join(f'<td data-label="{escape(label)}">{inline(cell)}</td>' for label, cell in zip(head, row, strict=False))
        for row in body
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"
