"""Sphinx extension that offers the tutorials as notebooks, with a link at the top of each page.

Python blocks become code cells, all other text becomes Markdown cells, and pictures are stored in the notebook.
"""

import base64
import re
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

FOLDER = "_notebooks"
PAGES = "tutorials/"
_CODE = re.compile(r"^```python\n(.*?)^```\n?", re.M | re.S)
_DIRECTIVE = re.compile(r"^```\{([\w-]+)\} *(.*?)\n(.*?)^```$", re.M | re.S)
_DOCUMENT = re.compile(r"\{doc\}`(?:([^`<]*?) *<([^`>]*)>|([^`]*))`")
_ROLE = re.compile(r"\{[\w:]+\}`([^`]*)`")


def to_notebook(page: Path, docs: Path) -> nbformat.NotebookNode:
    """Convert a page in MyST Markdown to a notebook.

    Parameters
    ----------
    page : Path
        The page.
    docs : Path
        Folder of the documentation, in which links to other pages are looked up.
    """
    parts = _CODE.split(page.read_text("utf-8"))
    cells = []
    for place, text in enumerate(parts):
        if not text.strip():
            continue
        if place % 2:
            cells.append(new_code_cell(text.strip()))
        else:
            cells.append(_markdown(text.strip(), page, docs))
    for place, cell in enumerate(cells):
        cell["id"] = f"cell-{place}"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = new_notebook(cells=cells, metadata=kernel)
    nbformat.validate(notebook)
    return notebook


def _markdown(text: str, page: Path, docs: Path) -> nbformat.NotebookNode:
    """A Markdown cell, without what only Sphinx understands."""
    pictures: dict[str, dict[str, str]] = {}

    def directive(match: re.Match[str]) -> str:
        name, argument, body = match.groups()
        options = dict(re.findall(r"^:(\w[\w-]*): *(.*)$", body, re.M))
        if name == "image":
            file = page.parent / argument
            pictures[file.name] = {"image/png": base64.b64encode(file.read_bytes()).decode()}
            return f"![{options.get('alt', '')}](attachment:{file.name})"
        if name == "literalinclude":
            source = (page.parent / argument).read_text("utf-8")
            return f"```python\n{source}```"
        if name == "code-block":
            code = re.sub(r"\A(:.*\n)+\n?", "", body)
            return f"```{argument}\n{code}```"
        raise ValueError(f"{page.name}: a notebook cannot show {{{name}}}; teach it to docs/_extensions/notebooks.py")

    text = _DIRECTIVE.sub(directive, text)
    text = _DOCUMENT.sub(lambda match: f"*{match[1] or _title(match[3], page, docs)}*", text)
    text = _ROLE.sub(r"`\1`", text)
    return new_markdown_cell(text, attachments=pictures) if pictures else new_markdown_cell(text)


def _title(target: str, page: Path, docs: Path) -> str:
    """The title of a page that is linked to."""
    file = docs / f"{target[1:]}.md" if target.startswith("/") else page.parent / f"{target}.md"
    return file.read_text("utf-8").partition("\n")[0].removeprefix("# ")


def _link(app: Any, document: nodes.document) -> None:
    """Put the link to the notebook below the title."""
    name = app.env.docname
    if not name.startswith(PAGES):
        return
    address = f"../{FOLDER}/{name.removeprefix(PAGES)}.ipynb"
    link = f'<p class="notebook"><a href="{address}" download>Download this page as a notebook</a></p>'
    title = next(iter(document.findall(nodes.title)))
    title.parent.insert(title.parent.index(title) + 1, nodes.raw("", link, format="html"))


def _write(app: Any, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    docs, folder = Path(app.srcdir), Path(app.outdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for page in sorted((docs / PAGES).glob("*.md")):
        nbformat.write(to_notebook(page, docs), folder / f"{page.stem}.ipynb")


def setup(app: Any) -> dict[str, Any]:
    app.connect("doctree-read", _link)
    app.connect("build-finished", _write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
