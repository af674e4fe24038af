"""The claims of the quick figures hold, and claims can fail."""

import math

import pytest

from solvable import papers
from solvable.papers import Claim

FIGURES = [(paper, figure) for paper in papers.papers() for figure in papers.figures(paper)]
# Below a few seconds each: what claims need no simulation.
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


@pytest.mark.parametrize(
    ("measured", "expected", "tolerance", "relative", "passed"),
    [
        (1.0, 1.1, 0.2, False, True),
        (1.0, 1.3, 0.2, False, False),
        (90.0, 100.0, 0.1, True, True),
        (89.0, 100.0, 0.1, True, False),
        (math.nan, math.nan, 0.0, False, True),
        (math.nan, 1.0, 1e9, False, False),
        (1.0, math.nan, 1e9, False, False),
        (math.inf, math.inf, 0.0, False, True),
        (1.0, math.inf, 1.0, False, False),
    ],
)
def test_claims_can_fail(measured: float, expected: float, tolerance: float, relative: bool, passed: bool) -> None:
    claim = Claim("a claim", measured, expected, tolerance, "by definition", relative=relative)
    assert claim.passed is passed
    assert claim.to_dict()["passed"] is passed
