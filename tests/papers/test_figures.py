"""The claims of the figures hold at quick scale."""

import pytest

from solvable import papers

FIGURES = [(paper, figure) for paper in papers.papers() for figure in papers.figures(paper)]
# A few seconds each: figures without simulations.
QUICK = [
    *[("linear-grokking", name) for name in ("eq12", "fig6", "output-maximum")],
    ("delayed-features", "eq20"),
    *[("feature-scaling", name) for name in ("fig7", "fig10")],
    *[("layerwise", name) for name in ("fig1-1", "minimum-projection")],
]


def check(paper: str, figure: str) -> None:
    result = papers.reproduce(paper, figure)
    assert result.claims
    assert result.datasets
    for claim in result.claims:
        assert claim.because
        assert claim.passed, claim


@pytest.mark.parametrize(("paper", "figure"), QUICK)
def test_claims_hold(paper: str, figure: str) -> None:
    check(paper, figure)


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "figure"), [pair for pair in FIGURES if pair not in QUICK])
def test_claims_hold_in_simulation(paper: str, figure: str) -> None:
    check(paper, figure)
