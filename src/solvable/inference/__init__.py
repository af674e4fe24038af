"""From measured training curves to the parameters of a law, with intervals and forecasts."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solvable.inference.inferring import infer, run_of_dataset
    from solvable.inference.law import Law, LawParameter
    from solvable.inference.registry import law_names, register_law
    from solvable.inference.report import InferenceReport
    from solvable.inference.runs import Run, check_runs
    from solvable.inference.theory_laws import FeatureScalingLaw, ModelLaw
    from solvable.inference.thinning import thin

_HOME = {
    "FeatureScalingLaw": "theory_laws",
    "InferenceReport": "report",
    "Law": "law",
    "LawParameter": "law",
    "ModelLaw": "theory_laws",
    "Run": "runs",
    "check_runs": "runs",
    "infer": "inferring",
    "law_names": "registry",
    "register_law": "registry",
    "run_of_dataset": "inferring",
    "thin": "thinning",
}

__all__ = [
    "FeatureScalingLaw",
    "InferenceReport",
    "Law",
    "LawParameter",
    "ModelLaw",
    "Run",
    "check_runs",
    "infer",
    "law_names",
    "register_law",
    "run_of_dataset",
    "thin",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'solvable.inference' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"solvable.inference.{_HOME[name]}"), name)
    globals()[name] = value
    return value
