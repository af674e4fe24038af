"""Extensions of the documentation: embedded stories, anchors of the errata, notebooks behind the pages."""

import re
from pathlib import Path

import pytest
from paths import ROOT

pytest.importorskip("myst_parser", reason="needs myst-parser (pip install 'solvable[docs]')")
pytest.importorskip("nbformat", reason="needs nbformat (pip install 'solvable[docs]')")
from check_links import broken_links
from sphinx.application import Sphinx

CONFIGURATION = """
extensions = ["myst_parser", "mathml", "story", "errata_table", "notebooks"]
myst_enable_extensions = ["dollarmath", "amsmath"]
html_math_renderer = "mathml"
html_theme = "furo"
suppress_warnings = ["toc.not_included"]
"""
PAPERS = ("linear_grokking", "delayed_features", "feature_scaling", "layerwise")


def build(folder: Path, **pages: str) -> Path:
    (folder / "conf.py").write_text(CONFIGURATION)
    for name, text in pages.items():
        path = folder / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    site = folder / "site"
    with open(folder / "log", "w") as log:
        folders = (folder, folder, site, folder / "doctrees")
        Sphinx(*folders, "html", status=None, warning=log).build()
    return site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    errata = "\n\n".join((ROOT / f"src/solvable/papers/{paper}/errata.md").read_text("utf-8") for paper in PAPERS)
    story = "# Story\n\n```{story} skills\n:height: 700\n```\n"
    tutorial = "# Tutorial\n\nSay $x$.\n\n```python\nprint(1)\n```\n"
    return build(
        tmp_path_factory.mktemp("site"),
        **{"index": story, "models/one": story, "errata": f"# Errata\n\n{errata}", "tutorials/1-first": tutorial},
    )


def test_a_story_is_a_frame_with_a_title_and_no_request(site):
    for page, up in (("index", ""), ("models/one", "../")):
        text = (site / f"{page}.html").read_text("utf-8")
        assert f'<iframe src="{up}_stories/skills.html" title="Story: Why do abilities' in text
        assert 'height="700"' in text
    story = (site / "_stories/skills.html").read_text("utf-8")
    assert not re.search(r'(src|href)="(https?:)?//', story)


def test_a_story_that_does_not_exist_stops_the_build(tmp_path):
    """``make docs`` turns errors in a page into a failure of the build."""
    build(tmp_path, index="# Story\n\n```{story} nothing\n```\n")
    assert "ERROR: there is no story 'nothing'; stories are linear-estimator" in (tmp_path / "log").read_text()


def test_every_entry_of_the_errata_has_an_anchor_of_its_own(site):
    text = (site / "errata.html").read_text("utf-8")
    rows = re.findall(r"<tr[^>]*>", text.split("<body")[1])
    anchors = re.findall(r'<tr[^>]* id="([^"]+)"', text)
    tables = text.count('class="errata')
    assert len(anchors) == len(set(anchors)) == len(rows) - tables
    assert len(anchors) > 90
    assert all(f'href="#{anchor}"' in text for anchor in anchors)
    assert "grokking-in-linear-estimators-12" in anchors


def test_a_tutorial_links_to_its_notebook(site):
    assert 'href="../_notebooks/1-first.ipynb"' in (site / "tutorials/1-first.html").read_text("utf-8")
    assert (site / "_notebooks/1-first.ipynb").is_file()


def test_all_links_lead_somewhere(site):
    links = [line for line in broken_links(site) if "_sources" not in line]
    assert links == []
