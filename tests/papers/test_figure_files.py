"""Figure files: data are computed in one function, and claims and pictures are made from data alone.

The last is checked by reading the source: no function that ``claims`` or ``draw`` calls, in the figure's file or in
another file of the papers, runs a model or trains a network. Closed forms may be evaluated there; they are independent
routes to the expected numbers.
"""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import xarray as xr

from solvable import papers
from solvable.papers import load_figure, scale_of

FIGURES = [(paper, figure) for paper in papers.papers() for figure in papers.figures(paper)]
# Methods and functions that compute what a figure shows, by the name under which they are called.
COMPUTING = {"predict", "simulate", "train", "sweep", "forecast", "ntk", "laziness"}


def functions(module: ModuleType) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def reached(module: ModuleType, name: str, seen: set[tuple[str, str]]) -> Iterator[tuple[str, ast.FunctionDef]]:
    """A function of the papers and, in turn, every function of theirs that it names."""
    home = getattr(getattr(module, name, None), "__module__", module.__name__)
    if not home.startswith("solvable.papers.") or (home, name) in seen:
        return
    seen.add((home, name))
    source = importlib.import_module(home)
    node = functions(source).get(name)
    if node is None:
        return
    yield f"{home}.{name}", node
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield from reached(source, inner.id, seen)


def computing_calls(node: ast.AST) -> list[str]:
    calls = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    names = [func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls]
    return [name for name in names if name in COMPUTING]


@pytest.mark.parametrize(("paper", "figure"), FIGURES)
def test_figures_have_three_functions(paper: str, figure: str) -> None:
    module = load_figure(paper, figure)
    assert module.__doc__
    assert module.__doc__.splitlines()[0].endswith((".", ")"))
    assert list(inspect.signature(module.compute).parameters) == ["scale"]
    assert list(inspect.signature(module.claims).parameters) == ["data"]
    assert list(inspect.signature(module.draw).parameters) == ["data"]
    assert not hasattr(module, "reproduce")


@pytest.mark.parametrize(("paper", "figure"), FIGURES)
def test_claims_and_pictures_compute_nothing(paper: str, figure: str) -> None:
    module = load_figure(paper, figure)
    seen: set[tuple[str, str]] = set()
    for start in ("claims", "draw"):
        for name, node in reached(module, start, seen):
            assert not computing_calls(node), f"{name}, which {start} calls, runs {computing_calls(node)}"


def test_the_check_finds_what_computes() -> None:
    compute = functions(load_figure("linear-grokking", "fig1"))["compute"]
    called = {
        name
        for _, node in reached(load_figure("linear-grokking", "fig1"), "compute", set())
        for name in computing_calls(node)
    }
    assert called == {"predict", "simulate"}
    assert not computing_calls(compute), "they are called in a file that several figures share"


def test_scale_of_datasets() -> None:
    quick, full = (xr.Dataset(attrs={"scale": scale}) for scale in ("quick", "full"))
    assert scale_of({"a": full, "b": full}) == "full"
    for data in ({}, {"a": quick, "b": full}, {"a": xr.Dataset()}):
        with pytest.raises(ValueError, match="one scale"):
            scale_of(data)
