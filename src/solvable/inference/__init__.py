"""From measured training curves to the parameters of a law, with intervals and forecasts."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solvable.inference.backtest import compare_laws, early_to_late, forecast_end
    from solvable.inference.empirical_laws import BrokenPowerLaw, PowerLaw, ScheduleLaw, borrowed_kernel
    from solvable.inference.examples import example_curves, example_table
    from solvable.inference.feature_scaling_law import FeatureScalingLaw
    from solvable.inference.inferring import infer, run_of_dataset
    from solvable.inference.law import Law, LawParameter
    from solvable.inference.model_law import ModelLaw
    from solvable.inference.rates_ahead import KnownRates, read_rates, with_rates_ahead
    from solvable.inference.readers import Curves, CurveWarning, read_curves
    from solvable.inference.registry import law_names, register_law
    from solvable.inference.report import InferenceReport
    from solvable.inference.runs import Run, check_runs
    from solvable.inference.thinning import thin
    from solvable.inference.tidying import count_forks_once

_HOME = {
    "BrokenPowerLaw": "empirical_laws",
    "CurveWarning": "readers",
    "Curves": "readers",
    "FeatureScalingLaw": "feature_scaling_law",
    "InferenceReport": "report",
    "KnownRates": "rates_ahead",
    "Law": "law",
    "LawParameter": "law",
    "ModelLaw": "model_law",
    "PowerLaw": "empirical_laws",
    "Run": "runs",
    "ScheduleLaw": "empirical_laws",
    "borrowed_kernel": "empirical_laws",
    "check_runs": "runs",
    "compare_laws": "backtest",
    "count_forks_once": "tidying",
    "early_to_late": "backtest",
    "example_curves": "examples",
    "example_table": "examples",
    "forecast_end": "backtest",
    "infer": "inferring",
    "law_names": "registry",
    "read_curves": "readers",
    "read_rates": "rates_ahead",
    "register_law": "registry",
    "run_of_dataset": "inferring",
    "thin": "thinning",
    "with_rates_ahead": "rates_ahead",
}

__all__ = [
    "BrokenPowerLaw",
    "CurveWarning",
    "Curves",
    "FeatureScalingLaw",
    "InferenceReport",
    "KnownRates",
    "Law",
    "LawParameter",
    "ModelLaw",
    "PowerLaw",
    "Run",
    "ScheduleLaw",
    "borrowed_kernel",
    "check_runs",
    "compare_laws",
    "count_forks_once",
    "early_to_late",
    "example_curves",
    "example_table",
    "forecast_end",
    "infer",
    "law_names",
    "read_curves",
    "read_rates",
    "register_law",
    "run_of_dataset",
    "thin",
    "with_rates_ahead",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'solvable.inference' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"solvable.inference.{_HOME[name]}"), name)
    globals()[name] = value
    return value
