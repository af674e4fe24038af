"""What there is to reproduce: papers and their figures, none of which is computed."""

import json

from solvable import papers
from solvable.cli import show
from solvable.papers.report.outcomes import title


def list_papers(as_json: bool) -> None:
    """Print every paper with its figures and tables, and what each shows."""
    found = {paper: {figure: title(paper, figure) for figure in papers.figures(paper)} for paper in papers.papers()}
    if as_json:
        print(json.dumps(found))
        return
    for paper, figures in found.items():
        show.table(f"{paper}: {papers.title(paper)}", ["figure", "what it shows"], list(figures.items()), words=2)
        print()
    print("solvable reproduce PAPER [FIGURE ...] computes figures of a paper, solvable reproduce all every one.")
