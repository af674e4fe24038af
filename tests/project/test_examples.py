"""Examples in docstrings and on the pages of the API give what they say, and every public name has one."""

import doctest
import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest
from paths import ROOT

import solvable
from solvable import models, papers, plotting, sweeps

SOURCE = ROOT / "src"
PAGES = sorted(path for path in (ROOT / "docs/api").glob("*.md") if ">>>" in path.read_text())
OPTIONAL = {"solvable.torch": "torch", "solvable.diagnostics._torch_transfer": "torch"}


def modules_with_examples():
    files = [path for path in sorted((SOURCE / "solvable").rglob("*.py")) if ">>> " in path.read_text("utf-8")]
    return [".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in files]


@pytest.mark.parametrize("name", modules_with_examples())
def test_docstring_examples(name):
    if name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name])
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_pages(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A fence ends the output that is expected above it.
    text = re.sub(r"^```.*$", "", page.read_text("utf-8"), flags=re.M)
    examples = doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)
    results = doctest.DocTestRunner().run(examples)
    assert results.attempted > 0
    assert results.failed == 0


def public_names():
    """Functions and classes that a user is meant to call, by the name under which the API lists them."""
    rooms = {"solvable": solvable.__all__, "solvable.models": models.__all__}
    rooms |= {"solvable.papers": papers.__all__, "solvable.plotting": plotting.__all__}
    rooms |= {"solvable.sweeps": sweeps.__all__}
    for name in ("diagnostics", "networks", "solvers", "fits", "torch", "equinox"):
        home = importlib.util.find_spec(f"solvable.{name}").origin
        # Read, not imported: a bridge's library may be missing.
        found = re.search(r"^__all__ = (\[.*?\])", Path(home).read_text("utf-8"), re.M | re.S)
        rooms[f"solvable.{name}"] = eval(found.group(1))
    # What has a short name, too, is listed under that.
    short = {("solvable.plotting", "plot"), ("solvable.plotting", "plot_plane"), ("solvable.sweeps", "sweep")}
    short |= {("solvable.networks", "forecast"), ("solvable.networks", "ForecastReport")}
    found = [(room, name) for room, names in rooms.items() for name in names if name[0] != "_"]
    return [place for place in found if place not in short]


def api_text():
    return "".join(path.read_text("utf-8") for path in sorted((ROOT / "docs/api").glob("*.md")))


def test_every_public_name_is_in_the_api():
    text = api_text()
    whole = set(re.findall(r"automodule:: (solvable[\w.]*)\n   :members:", text))
    missing = []
    for room, name in public_names():
        listed = re.search(rf"auto\w+:: {re.escape(room)}\.{name}\b", text) or room in whole
        if not listed and not inspect.ismodule(getattr(importlib.import_module(room), name)):
            missing.append(f"{room}.{name}")
    assert missing == []


def test_all_shared_numerics_are_in_the_api():
    text = api_text()
    for path in (SOURCE / "solvable/numerics").glob("*.py"):
        if path.stem != "__init__":
            assert f"automodule:: solvable.numerics.{path.stem}\n" in text, path.stem


@pytest.mark.parametrize("name", ["compare", "save", "load", "plot", "fit_source_capacity", "Model"])
def test_verbs_have_an_example(name):
    assert ">>>" in getattr(solvable, name).__doc__


@pytest.mark.parametrize("name", models.names())
def test_every_model_has_an_example(name):
    assert ">>>" in models.get(name).__doc__
