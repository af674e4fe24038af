"""Notebooks: tutorials that can be downloaded run from top to bottom, and pages are shown in a live kernel."""

import pytest
from paths import ROOT

nbformat = pytest.importorskip("nbformat", reason="needs nbformat (pip install 'solvable[test]')")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient (pip install 'solvable[test]')")
pytest.importorskip("ipykernel", reason="needs ipykernel (pip install 'solvable[test]')")
notebooks = pytest.importorskip("notebooks")

DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
SECONDS = 1800


def execute(notebook, folder):
    """Run all cells in a new kernel, in an empty folder; an error in a cell raises."""
    nbclient.NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_becomes_a_notebook_without_markup_of_sphinx(page):
    notebook = notebooks.to_notebook(page, DOCS)
    kinds = {cell.cell_type for cell in notebook.cells}
    assert kinds == ({"code", "markdown"} if "```python" in page.read_text("utf-8") else {"markdown"})
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert text.startswith("# ")
    assert not any(mark in text for mark in ("{doc}", "{class}", "{func}", "```{"))


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_as_a_notebook(page, tmp_path):
    if "```python" not in page.read_text("utf-8"):
        pytest.skip("has no code to run")
    execute(notebooks.to_notebook(page, DOCS), tmp_path)


def test_a_live_kernel_shows_the_first_tutorial_a_story_and_the_explorer(tmp_path):
    """One kernel for all three, because it takes seconds to start."""
    pytest.importorskip("panel", reason="needs panel (pip install 'solvable[explore]')")
    notebook = notebooks.to_notebook(DOCS / "tutorials/1-first-grokking-curve.md", DOCS)
    new = nbformat.v4.new_code_cell
    notebook.cells += [new("import solvable\n\nsolvable.stories.show('linear-estimator')")]
    notebook.cells += [new("solvable.explore('scalar-network')")]
    *tutorial, story, explorer = execute(notebook, tmp_path)
    assert all(cell.execution_count for cell in tutorial)
    assert any(output.get("name") == "stdout" for cell in tutorial for output in cell.outputs)
    frame = story.outputs[-1].data["text/html"]
    assert frame.startswith("<iframe srcdoc=")
    assert 'sandbox="allow-scripts' in frame
    page = explorer.outputs[-1].data
    assert {"application/vnd.holoviews_exec.v0+json", "text/html"} <= set(page)
    assert "bk-" in page["text/html"] or "root" in page["text/html"]
