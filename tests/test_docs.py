"""What the documentation shows runs: the examples of the pages, and the worked example of a new model."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs" / "how-to" / "example"
PAGES = [
    ROOT / "docs" / "quick-start.md",
    ROOT / "docs" / "reproduce.md",
    *sorted((ROOT / "docs/models").glob("*.md")),
    *sorted((ROOT / "docs/diagnostics").glob("*.md")),
    ROOT / "docs" / "sweeps" / "fits.md",
    ROOT / "docs" / "sweeps" / "index.md",
    ROOT / "docs" / "how-to" / "sgd-noise-stops-feature-learning.md",
]


def python_blocks(page):
    return "".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))


def run_page(page, folder):
    """In a process of its own, as a reader would."""
    run = subprocess.run([sys.executable, "-c", python_blocks(page)], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_readme_runs(tmp_path):
    run_page(ROOT / "README.md", tmp_path)
    assert (tmp_path / "grokking.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_runs(page, tmp_path):
    assert python_blocks(page)
    run_page(page, tmp_path)


@pytest.fixture
def example(monkeypatch):
    """Loads a file of the worked example, which imports the model from where a reader has put it."""

    def load(name, file):
        spec = importlib.util.spec_from_file_location(name, EXAMPLE / file)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    load("solvable.models.single_weight", "single_weight.py")
    return load


def test_tests_of_the_new_model_pass(example):
    tests = example("example_tests", "test_single_weight.py")
    tests.test_many_samples_give_the_population_flow()
    tests.test_test_loss_falls_at_twice_the_training_loss()
    tests.test_simulation_agrees()
    tests.test_theory_is_differentiable()
    tests.test_impossible_samples_are_refused(0)


def test_figure_of_the_new_model_keeps_its_claims(example):
    claims = example("example_figure", "power_law.py").reproduce("quick").claims
    assert all(claim.passed for claim in claims)


def test_every_model_has_a_page():
    from solvable import models

    index = (ROOT / "docs" / "index.md").read_text()
    for name in models.names():
        assert (ROOT / "docs" / "models" / f"{name}.md").exists()
        assert f"models/{name}\n" in index


def test_every_figure_is_listed():
    from solvable import papers

    page = (ROOT / "docs" / "reproduce.md").read_text()
    missing = [figure for paper in papers.papers() for figure in papers.figures(paper) if f"`{figure}`" not in page]
    assert missing == []
