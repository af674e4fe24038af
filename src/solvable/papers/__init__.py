"""The source papers, one folder each, one file a figure or table; every file states claims that can fail.

A figure file has a docstring (its first line is the title) and a function ``reproduce(scale) -> Reproduction``.
"""

import difflib
import importlib
import pkgutil
from types import ModuleType

from solvable.papers.claims import Claim, Reproduction

__all__ = ["Claim", "Reproduction", "figures", "load_figure", "papers"]

_PAPERS = {
    "delayed-features": "solvable.papers.delayed_features",
    "linear-grokking": "solvable.papers.linear_grokking",
    "layerwise": "solvable.papers.layerwise",
    "feature-scaling": "solvable.papers.feature_scaling",
}


def papers() -> list[str]:
    """Short names of the papers."""
    return list(_PAPERS)


def figures(paper: str) -> list[str]:
    """Names of the figures and tables of a paper, in order."""
    if paper not in _PAPERS:
        raise ValueError(_unknown("paper", paper, list(_PAPERS)))
    package = importlib.import_module(_PAPERS[paper])
    return [info.name.replace("_", "-") for info in pkgutil.iter_modules(package.__path__) if info.name[0] != "_"]


def load_figure(paper: str, figure: str) -> ModuleType:
    """The module that reproduces a figure."""
    known = figures(paper)
    if figure not in known:
        raise ValueError(_unknown(f"figure of {paper}", figure, known))
    return importlib.import_module(f"{_PAPERS[paper]}.{figure.replace('-', '_')}")


def _unknown(what: str, name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"no {what} is named {name!r}; " + (
        f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
    )
