"""The source papers, one folder each, one file a figure or table; every file states claims that can fail.

A figure file has a docstring (its first line is the title) and three functions: ``compute(scale)`` makes datasets,
``claims(data)`` and ``draw(data)`` only read them, so that a claim or a picture is tested without training. What a
paper has wrong in print is in its folder too, in ``errata.md`` (and ``errata-*.md``): the documentation and the report
show these files, so that they are written once.
"""

import difflib
import importlib
import pkgutil
from fnmatch import fnmatch
from importlib.resources import files
from types import ModuleType

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.precision import in_float64

__all__ = [
    "Claim",
    "Reproduction",
    "errata",
    "figures",
    "home",
    "load_figure",
    "papers",
    "reproduce",
    "reproduce_paper",
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
    module = load_figure(paper, figure)
    if not hasattr(module, "compute"):
        return module.reproduce(scale)
    data = module.compute(scale)
    return Reproduction(data, module.draw(data), module.claims(data))


def reproduce_paper(paper: str, scale: Scale = "quick") -> dict[str, Reproduction]:
    """Reproduce every figure of a paper, one after the other; the results by figure."""
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
