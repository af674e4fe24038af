"""The source papers: one folder per paper, one file per figure or table, and in every file claims that can fail.

A figure file has a docstring, whose first line is the title, and three functions. ``compute(scale)`` runs models and
trains networks, and returns datasets by name. ``claims(data)`` and ``draw(data)`` only read these datasets, which may
come from a file, so that a claim or a picture can be tested, mended or redrawn without training anything again.
Misprints of a paper are listed in ``errata.md`` in its folder; the documentation and the report show that file.
"""

import difflib
import importlib
import os
import pkgutil
from collections.abc import Mapping
from fnmatch import fnmatch
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale, scale_of
from solvable.papers.storage import read_record
from solvable.precision import in_float64

__all__ = [
    "Claim",
    "Reproduction",
    "compute",
    "errata",
    "figures",
    "home",
    "interpret",
    "load_data",
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

    Parameters
    ----------
    paper
        Name of the paper.

    >>> from solvable import papers
    >>> papers.title("linear-grokking")
    'Grokking in Linear Estimators (Levi, Beck, Bar-Sinai, 2023)'
    """
    return (importlib.import_module(_package(paper)).__doc__ or paper).strip().splitlines()[0]


def errata(paper: str) -> str:
    """What is wrong in print, as Markdown: tables of what is printed, what is correct and how we know. May be empty.

    Parameters
    ----------
    paper
        Name of the paper.

    >>> from solvable import papers
    >>> papers.errata("linear-grokking").splitlines()[0]
    '## Grokking in Linear Estimators'
    """
    parts = [part for part in files(_package(paper)).iterdir() if fnmatch(part.name, "errata*.md")]
    texts = [part.read_text("utf-8") for part in sorted(parts, key=lambda part: part.name.removesuffix(".md"))]
    return "\n".join(texts)


def figures(paper: str) -> list[str]:
    """Names of the figures and tables of a paper, in order.

    Parameters
    ----------
    paper
        Name of the paper.

    >>> from solvable import papers
    >>> papers.figures("linear-grokking")[:3]
    ['eq12', 'eq16', 'eq19']
    """
    package = importlib.import_module(_package(paper))
    return [info.name.replace("_", "-") for info in pkgutil.iter_modules(package.__path__) if info.name[0] != "_"]


def home(paper: str, figure: str) -> str:
    """The name of the module that reproduces a figure.

    Parameters
    ----------
    paper
        Name of the paper.
    figure
        Name of the figure.

    >>> from solvable import papers
    >>> papers.home("layerwise", "table4-1")
    'solvable.papers.layerwise.table4_1'
    """
    known = figures(paper)
    if figure not in known:
        raise ValueError(_unknown(f"figure of {paper}", figure, known))
    return f"{_PAPERS[paper]}.{figure.replace('-', '_')}"


def load_figure(paper: str, figure: str) -> ModuleType:
    """The module that reproduces a figure.

    Parameters
    ----------
    paper
        Name of the paper.
    figure
        Name of the figure.

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
def interpret(paper: str, figure: str, data: Mapping[str, xr.Dataset]) -> Reproduction:
    """Test the claims of a figure on its datasets, and draw it.

    Parameters
    ----------
    paper, figure
        Short names: see :func:`papers` and :func:`figures`.
    data
        What :func:`compute` returned, or what :func:`load_data` read from a report.

    >>> from solvable import papers
    >>> data = papers.compute("linear-grokking", "eq12")
    >>> data["times"]["delay"] = 2 * data["times"].delay
    >>> [claim.passed for claim in papers.interpret("linear-grokking", "eq12", data).claims]
    [False, False, False, False, True, True]
    """
    module = load_figure(paper, figure)
    return Reproduction(dict(data), module.draw(data), module.claims(data))


def load_data(paper: str, figure: str, folder: str | os.PathLike[str]) -> dict[str, xr.Dataset]:
    """Read the datasets of a figure from the folder of a report, whether its claims hold, fail or raise.

    Parameters
    ----------
    paper, figure
        Short names: see :func:`papers` and :func:`figures`.
    folder
        The folder that ``solvable reproduce --out`` was given.

    After ``solvable reproduce linear-grokking eq12 --out report``:

    >>> from solvable import papers
    >>> data = papers.load_data("linear-grokking", "eq12", "report")  # doctest: +SKIP
    >>> papers.interpret("linear-grokking", "eq12", data).figure.savefig("eq12.pdf")  # doctest: +SKIP

    Without it:

    >>> papers.load_data("linear-grokking", "eq12", "nowhere")
    Traceback (most recent call last):
        ...
    ValueError: there are no datasets of linear-grokking eq12 in nowhere; this command computes them: \
solvable reproduce linear-grokking eq12 --out nowhere
    """
    home(paper, figure)
    # Of several papers each has a folder of its own in that of the report, and in a campaign every figure has one.
    for place in (Path(folder), Path(folder) / paper, Path(folder) / paper / figure):
        stored = read_record(place, figure)
        if stored and stored.paper == paper:
            return stored.load(place)
    raise ValueError(
        f"there are no datasets of {paper} {figure} in {folder}; this command computes them: "
        f"solvable reproduce {paper} {figure} --out {folder}"
    )


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

    >>> from solvable import papers
    >>> results = papers.reproduce_paper("linear-grokking")  # doctest: +SKIP
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
