"""The source papers: one folder per paper, one file per figure or table, and in every file claims that can fail.

A figure file has a docstring, whose first line is the title, and three functions. ``compute(scale)`` runs models and
trains networks, and returns datasets by name. ``claims(data)`` and ``draw(data)`` only read these datasets, which may
come from a file, so that a claim or a picture can be tested, mended or redrawn without training anything again.
Misprints of a paper are listed in ``errata.md`` in its folder; the documentation and the report show that file.
"""

import difflib
import importlib
import pkgutil
from fnmatch import fnmatch
from importlib.resources import files
from types import ModuleType

import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale, scale_of
from solvable.precision import in_float64

__all__ = [
    "Claim",
    "Reproduction",
    "compute",
    "errata",
    "figures",
    "home",
    "interpret",
    "load_figure",
    "papers",
    "reproduce",
    "reproduce_paper",
    "scale_of",
    "title",
]

_PAPERS = {
    "delayed-features": "solvable.papers.delayed_features",
    "linear-grokking": "solvable.papers.linear_grokking",
    "layerwise": "solvable.papers.layerwise",
    "feature-scaling": "solvable.papers.feature_scaling",
}


def papers() -> list[str]:
    """Short names of the papers.

    >>> from solvable import papers
    >>> papers.papers()
    ['delayed-features', 'linear-grokking', 'layerwise', 'feature-scaling']
    """
    return list(_PAPERS)


def title(paper: str) -> str:
    """What the paper is called, with its year where it has one.

    >>> from solvable import papers
    >>> papers.title("linear-grokking")
    'Grokking in Linear Estimators (Levi, Beck, Bar-Sinai, 2023)'
    """
    return (importlib.import_module(_package(paper)).__doc__ or paper).strip().splitlines()[0]


def errata(paper: str) -> str:
    """What is wrong in print, as Markdown: tables of what is printed, what is correct and how we know. May be empty."""
    parts = [part for part in files(_package(paper)).iterdir() if fnmatch(part.name, "errata*.md")]
    texts = [part.read_text("utf-8") for part in sorted(parts, key=lambda part: part.name.removesuffix(".md"))]
    return "\n".join(texts)


def figures(paper: str) -> list[str]:
    """Names of the figures and tables of a paper, in order.

    >>> from solvable import papers
    >>> papers.figures("linear-grokking")[:3]
    ['eq12', 'eq16', 'eq19']
    """
    package = importlib.import_module(_package(paper))
    return [info.name.replace("_", "-") for info in pkgutil.iter_modules(package.__path__) if info.name[0] != "_"]


def home(paper: str, figure: str) -> str:
    """The name of the module that reproduces a figure."""
    known = figures(paper)
    if figure not in known:
        raise ValueError(_unknown(f"figure of {paper}", figure, known))
    return f"{_PAPERS[paper]}.{figure.replace('-', '_')}"


def load_figure(paper: str, figure: str) -> ModuleType:
    """The module that reproduces a figure.

    >>> from solvable import papers
    >>> papers.load_figure("linear-grokking", "eq12").__name__
    'solvable.papers.linear_grokking.eq12'
    """
    return importlib.import_module(home(paper, figure))


@in_float64
def compute(paper: str, figure: str, scale: Scale = "quick") -> dict[str, xr.Dataset]:
    """Compute the datasets of a figure, without testing its claims or drawing it.

    Every dataset has the scale among its attributes (see :func:`scale_of`), so that claims and pictures made from a
    file know which sizes they are looking at.

    Parameters
    ----------
    paper, figure
        Short names: see :func:`papers` and :func:`figures`.
    scale
        ``"quick"``, for two cores and minutes at most, or ``"full"``, the sizes of the paper.

    >>> from solvable import papers
    >>> data = papers.compute("linear-grokking", "eq12")
    >>> sorted(data), papers.scale_of(data)
    (['delay', 'times'], 'quick')
    """
    return {name: part.assign_attrs(scale=scale) for name, part in load_figure(paper, figure).compute(scale).items()}


@in_float64
def interpret(paper: str, figure: str, data: dict[str, xr.Dataset]) -> Reproduction:
    """Test the claims of a figure on its datasets, and draw it.

    Parameters
    ----------
    paper, figure
        Short names: see :func:`papers` and :func:`figures`.
    data
        What :func:`compute` returned, now or in an earlier session.
    """
    module = load_figure(paper, figure)
    return Reproduction(data, module.draw(data), module.claims(data))


def reproduce(paper: str, figure: str, scale: Scale = "quick") -> Reproduction:
    """Reproduce a figure: compute its data, test its claims and draw it.

    Parameters
    ----------
    paper, figure
        Short names: see :func:`papers` and :func:`figures`.
    scale
        ``"quick"``, for two cores and minutes at most, or ``"full"``, the sizes of the paper.

    >>> from solvable import papers
    >>> result = papers.reproduce("linear-grokking", "eq12")
    >>> all(claim.passed for claim in result.claims)
    True
    """
    return interpret(paper, figure, compute(paper, figure, scale))


def reproduce_paper(paper: str, scale: Scale = "quick") -> dict[str, Reproduction]:
    """Reproduce every figure of a paper, one after the other.

    Parameters
    ----------
    paper
        Short name of the paper: see :func:`papers`.
    scale
        ``"quick"``, for two cores and minutes at most, or ``"full"``, the sizes of the paper.
    """
    return {figure: reproduce(paper, figure, scale) for figure in figures(paper)}


def _package(paper: str) -> str:
    if paper not in _PAPERS:
        raise ValueError(_unknown("paper", paper, list(_PAPERS)))
    return _PAPERS[paper]


def _unknown(what: str, name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"no {what} is named {name!r}; " + (
        f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
    )
