"""From measured training curves to the parameters of a law, with intervals and forecasts."""

from solvable.inference.examples import example_curves, example_table
from solvable.inference.law import Law, LawParameter
from solvable.inference.runs import Run, check_runs

__all__ = ["Law", "LawParameter", "Run", "check_runs", "example_curves", "example_table"]
