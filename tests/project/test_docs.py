"""What the documentation shows runs: the examples of the pages, and the worked example of a new model."""

import ast
import fnmatch
import functools
import importlib.util
import itertools
import json
import posixpath
import re
import subprocess
import sys

import pytest
from check_links import broken_links, problem_outside
from paper_gallery import as_restructured_text, write_gallery
from paths import ROOT

EXAMPLE = ROOT / "docs" / "how-to" / "example"
PAGES = [
    ROOT / "docs" / "quick-start.md",
    ROOT / "docs" / "training.md",
    ROOT / "docs" / "reproduce.md",
    *sorted((ROOT / "docs/models").glob("*.md")),
    *sorted((ROOT / "docs/diagnostics").glob("*.md")),
    *(page for page in sorted((ROOT / "docs/networks").glob("*.md")) if "```python" in page.read_text("utf-8")),
    *sorted((ROOT / "docs/primer").glob("[1-9]*.md")),
    *sorted((ROOT / "docs/tutorials").glob("[1-57]*.md")),
    ROOT / "docs" / "numerics" / "streaming-statistics.md",
    ROOT / "docs" / "sweeps" / "fits.md",
    ROOT / "docs" / "sweeps" / "index.md",
    *(
        ROOT / "docs" / "how-to" / f"{name}.md"
        for name in (
            "best-schedule",
            "bring-your-own-algorithm",
            "mini-batches-and-epochs",
            "momentum",
            "reuse-data",
            "sgd-noise-stops-feature-learning",
        )
    ),
]


def python_blocks(page):
    """The pieces of code of a page; what needs PyTorch only where there is one."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    torch = importlib.util.find_spec("torch") is not None
    return [block for block in blocks if torch or "import torch" not in block]


def run_code(code, folder):
    """In a process of its own, as a reader would."""
    run = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def run_page(page, folder):
    run_code("".join(python_blocks(page)), folder)


def test_readme_examples_run_each_on_its_own(tmp_path):
    # In one process, which imports everything once, but none sees the names of another.
    blocks = python_blocks(ROOT / "README.md")
    run_code(f"for block in {blocks!r}:\n    exec(block, {{'__name__': '__main__'}})\n", tmp_path)
    assert {"grokking.png", "plane.png"} <= {path.name for path in tmp_path.iterdir()}


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
    tests.test_learning_rate_sets_the_unit_of_time()
    tests.test_the_contract_is_kept()


def test_figure_of_the_new_model_keeps_its_claims(example):
    figure = example("example_figure", "power_law.py")
    data = figure.compute("quick")
    assert all(claim.passed for claim in figure.claims(data))
    assert len(figure.draw(data).axes) == 1


def pages():
    """Every page that is written by hand, by the name a toctree gives it."""
    folder = ROOT / "docs"
    skipped = ("_build", "_extensions", "gallery", "gallery-scripts")
    found = [path.relative_to(folder) for path in sorted(folder.rglob("*.md"))]
    return {path.with_suffix("").as_posix() for path in found if path.parts[0] not in skipped}


def listed_in_toctrees():
    """Where the toctrees of all pages lead, patterns filled in."""
    listed = set()
    for page in pages():
        text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
        for block in re.findall(r"^```{toctree}\n(.*?)^```", text, re.M | re.S):
            for entry in (line for line in block.splitlines() if line and line[0] != ":"):
                name = posixpath.normpath(posixpath.join(posixpath.dirname(page), entry))
                listed.update(fnmatch.filter(pages(), name) if "*" in name else [name])
    return listed


def test_every_page_is_in_a_toctree():
    assert pages() - listed_in_toctrees() == {"index"}
    # The gallery's pages are made when the site is built.
    assert listed_in_toctrees() - pages() == {"gallery/index"}


def test_every_model_has_a_page():
    from solvable import models

    assert {f"models/{name}" for name in models.names()} == {page for page in pages() if page.startswith("models/")}


def test_readme_names_every_model():
    from solvable import models

    text = (ROOT / "README.md").read_text("utf-8")
    assert [name for name in models.names() if f"docs/models/{name}.md" not in text] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_outside_the_site_lead_to_files(name):
    text = (ROOT / name).read_text("utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        assert (ROOT / link.partition("#")[0]).exists() or problem_outside(link) is None, link


@pytest.mark.parametrize("page", sorted(pages()))
def test_addresses_are_on_known_hosts(page):
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    addresses = [link.rstrip(".,;") for link in re.findall(r"https?://[^\s)>\]\"'`]+", text)]
    assert [problem for link in addresses if (problem := problem_outside(link))] == []


@functools.cache
def imported_at_the_top(path):
    """The modules of the package that a file imports when it is loaded."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def test_the_import_chain_of_the_architecture_page_exists():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    listed = re.search(r"longest chain of imports.*?\n\n((?:    \S+\.py\n)+)", text, re.S).group(1).split()
    assert listed[0] == "models/committee/model.py"
    for file, following in itertools.pairwise(listed):
        module = "solvable." + following.removesuffix(".py").replace("/", ".")
        assert module in imported_at_the_top(ROOT / "src/solvable" / file), f"{file} does not import {following}"
    assert len(listed) == longest_chain(listed[0])


@functools.cache
def longest_chain(file):
    """The number of files on the longest way from a file of the package to one that imports none of its modules."""
    modules = [name.removeprefix("solvable.") for name in imported_at_the_top(ROOT / "src/solvable" / file)]
    files = {f"{module.replace('.', '/')}.py" for module in modules}
    return 1 + max((longest_chain(one) for one in files if (ROOT / "src/solvable" / one).exists()), default=0)


def test_broken_links_are_found(tmp_path):
    (tmp_path / "index.html").write_text("""<a href="two.html#here">1</a> <a href="two.html#gone">2</a>
        <a href="three.html">3</a> <a href="http://arxiv.org/a">4</a> <a href="https://example.com">5</a>
        <a href="https://arxiv.org/abs/2310.16441">6</a> <a href="../two.html">7</a> <a href="#top">8</a>""")
    (tmp_path / "two.html").write_text('<p id="here"><a href="index.html">back</a></p>')
    found = broken_links(tmp_path)
    assert [line.split()[1] for line in found] == [
        "two.html#gone",
        "three.html",
        "http://arxiv.org/a",
        "https://example.com",
        "../two.html",
        "#top",
    ]


def test_a_gallery_script_shows_text_picture_claims_and_source(tmp_path):
    from solvable import papers

    report = tmp_path / "report"
    (report / "linear-grokking").mkdir(parents=True)
    (report / "linear-grokking" / "eq12.png").write_bytes(b"a picture")
    claim = {"paper": "linear-grokking", "figure": "eq12", "name": "a|b*", "measured": 1.5, "expected": "nan"}
    claims = [claim | {"allowed": 0.1, "passed": False}]
    bound = {"name": "c", "measured": 3.0, "expected": 2.0, "allowed": 0.0, "passed": True, "kind": "at_least"}
    claims.append(claim | bound)
    (report / "claims.json").write_text(json.dumps({"paper": ["linear-grokking", "layerwise"], "claims": claims}))
    folders = [tmp_path / "scripts", tmp_path / "pictures"]
    write_gallery(*folders, report, tmp_path / "kept")

    scripts = {path.stem for path in (tmp_path / "scripts").rglob("*.py")}
    assert scripts == {f"{paper}-{figure}" for paper in papers.papers() for figure in papers.figures(paper)}
    text = (tmp_path / "scripts/linear-grokking/linear-grokking-eq12.py").read_text("utf-8")
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring.startswith("Eq. 12: the printed grokking time")
    assert "solvable reproduce linear-grokking eq12" in docstring
    assert ".. image:: /pictures/linear-grokking/eq12.png" in docstring
    assert "- a\\|b\\*\n     - 1.5\n     - –\n     - 0.1\n     - **failed**" in docstring
    assert "- c\n     - 3\n     - ≥ 2\n     - \n     - passed" in docstring
    assert "from solvable.models.linear_estimator import LinearEstimator" in text
    assert 'papers.reproduce("linear-grokking", "eq12")' in text
    assert "thumbnail_path = 'pictures/linear-grokking/eq12.png'" in text

    # Without a reproduction there are the same pages with the committed pictures, and none of an earlier reproduction.
    for folder in ("gallery", "pictures"):
        (tmp_path / "kept" / folder / "linear-grokking").mkdir(parents=True)
        (tmp_path / "kept" / folder / "linear-grokking" / "eq16.png").write_bytes(folder.encode())
    write_gallery(*folders, tmp_path / "nothing", tmp_path / "kept")
    assert [path.name for path in (tmp_path / "pictures").rglob("*.png")] == ["eq16.png"]
    assert (tmp_path / "pictures/linear-grokking/eq16.png").read_bytes() == b"pictures"
    assert {path.stem for path in (tmp_path / "scripts").rglob("*.py")} == scripts
    assert "image::" not in (tmp_path / "scripts/linear-grokking/linear-grokking-eq12.py").read_text("utf-8")
    text = (tmp_path / "scripts/linear-grokking/linear-grokking-eq16.py").read_text("utf-8")
    assert ".. image:: /pictures/linear-grokking/eq16.png" in text
    assert "thumbnail_path = 'kept/gallery/linear-grokking/eq16.png'" in text


@pytest.mark.parametrize("folder", ["gallery", "pictures"])
def test_every_figure_has_a_committed_picture(folder):
    from solvable import papers

    committed = ROOT / "docs" / "figures" / folder
    expected = {f"{paper}/{figure}.png" for paper in papers.papers() for figure in papers.figures(paper)}
    assert {path.relative_to(committed).as_posix() for path in committed.rglob("*.png")} == expected


def test_docstrings_become_restructured_text():
    assert as_restructured_text("Norm |x| and ``|y|``:\n\n    a = |b|\n\n    c\n\nend\n\n>>> 1 | 2\n3") == (
        "Norm \\|x\\| and ``|y|``:\n\n::\n\n    a = |b|\n\n    c\n\nend\n\n>>> 1 | 2\n3"
    )


def test_every_figure_is_listed():
    from solvable import papers

    page = (ROOT / "docs" / "reproduce.md").read_text()
    missing = [figure for paper in papers.papers() for figure in papers.figures(paper) if f"`{figure}`" not in page]
    assert missing == []


def test_the_readme_lists_every_story_with_its_question():
    from solvable import stories
    from solvable.stories.catalogue import story_of

    text = (ROOT / "README.md").read_text("utf-8")
    for name in stories.names():
        model = stories.model_of(name)
        assert f"| {story_of(name).question} | [`{model}`](docs/models/{model}.md) |" in text
