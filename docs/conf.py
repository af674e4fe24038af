"""Configuration of the documentation: MyST pages, API from docstrings, no network while building."""

from typing import Any

import solvable

project = "solvable"
author = "The solvable developers"
copyright = "The solvable developers"
release = version = solvable.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
# The parts are tables that errata.md includes.
exclude_patterns = ["_build", "errata-parts"]

autodoc_member_order = "bysource"
# Shapes of arrays are in the docstrings and in the source; in a signature they hide the arguments.
autodoc_typehints = "none"

html_theme = "furo"
html_title = f"solvable {release}"
html_copy_source = False


def _formulas_as_written(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Indented blocks in docstrings are formulas: keep their lines, instead of flowing them as a quotation."""
    for place in range(len(lines) - 1, 0, -1):
        begins = lines[place].startswith("    ") and not lines[place - 1].strip()
        before = next((line for line in reversed(lines[:place]) if line.strip()), "")
        if begins and not before.startswith((" ", "..", "::")):
            lines[place:place] = ["::", ""]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _formulas_as_written)
