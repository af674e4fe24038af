"""Configuration of the documentation: MyST pages, API from docstrings, a gallery of the papers; no network needed."""

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

from paper_gallery import as_restructured_text, write_gallery

import solvable

HERE = Path(__file__).parent

project = "solvable"
author = "The solvable developers"
copyright = "The solvable developers"
release = version = solvable.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "story",
    "errata_table",
    "ledger_tables",
    "notebooks",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
# The scripts become pages under gallery/.
exclude_patterns = ["_build", "_extensions", "gallery-scripts", "gallery/**/*.ipynb", "figures"]

# A reference to something of ours that does not exist is an error; other packages have pages of their own.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!solvable\b).*")]

autodoc_member_order = "bysource"
napoleon_google_docstring = False
# A parameter may be named like a field of the class and have another type: no types from annotations.
napoleon_attr_annotations = False
# Shapes of arrays are in the docstrings and in the source; in a signature they hide the arguments.
autodoc_typehints = "none"

# What `make reproduce`, or `solvable reproduce all --out FOLDER`, has drawn is shown, else the committed
# pictures; nothing is run here.
REPRODUCED = Path(os.environ.get("SOLVABLE_FIGURES", HERE.parent / "report")).expanduser().resolve()
write_gallery(HERE / "gallery-scripts", HERE / "gallery-pictures", REPRODUCED, HERE / "figures")

sphinx_gallery_conf = {
    "examples_dirs": "gallery-scripts",
    "gallery_dirs": "gallery",
    "plot_gallery": False,
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": None,
    "default_thumb_file": str(HERE / "figures" / "not-drawn.png"),
    "download_all_examples": False,
    # The picture is stored in the notebook.
    "notebook_images": True,
    "image_scrapers": (),
    "reset_modules": (),
    "remove_config_comments": True,
    "min_reported_time": 1e9,
    "show_signature": False,
    "write_computation_times": False,
}

html_theme = "furo"
html_title = f"solvable {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["solvable.css"]


def _docstrings(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_restructured_text("\n".join(lines)).split("\n")


def setup(app: Any) -> None:
    # Before napoleon reads the sections of the docstring, whose priority is 500.
    app.connect("autodoc-process-docstring", _docstrings, priority=400)
