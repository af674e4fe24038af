"""From measured training curves to the parameters of a law, with intervals and forecasts."""

from solvable.inference.examples import example_curves, example_table
from solvable.inference.law import Law, LawParameter
from solvable.inference.readers import Curves, CurveWarning, read_curves
from solvable.inference.runs import Run, check_runs
from solvable.inference.thinning import thin
from solvable.inference.tidying import count_forks_once

__all__ = [
    "CurveWarning",
    "Curves",
    "Law",
    "LawParameter",
    "Run",
    "check_runs",
    "count_forks_once",
    "example_curves",
    "example_table",
    "read_curves",
    "thin",
]
