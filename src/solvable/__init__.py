"""Exactly solvable models of how neural networks learn.

Importing this package changes nothing for the rest of the process. Every theory curve is computed in float64, because
late-time losses of 1e-30 mean nothing in float32: public functions switch JAX to float64 for their own duration.

The public names are loaded on first use, so that ``import solvable`` and ``solvable --help`` stay fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

from solvable._version import __version__

if TYPE_CHECKING:
    from solvable import (
        activations,
        diagnostics,
        fits,
        inference,
        models,
        networks,
        numerics,
        papers,
        solvers,
        stories,
        sweeps,
        teachers,
    )
    from solvable.comparison import compare
    from solvable.explorer import explore
    from solvable.files import load, save
    from solvable.inference.inferring import infer
    from solvable.inference.readers import read_curves
    from solvable.inference.report import InferenceReport
    from solvable.model import Model
    from solvable.models.committee import Algorithm, Committee
    from solvable.models.diagonal_network import DiagonalNetwork
    from solvable.models.feature_scaling import FeatureScaling, fit_source_capacity
    from solvable.models.linear_estimator import LinearEstimator
    from solvable.models.linear_features import LinearFeatures
    from solvable.models.linear_network import LinearNetwork
    from solvable.models.parity_mode import ParityMode
    from solvable.models.scalar_network import ScalarNetwork
    from solvable.models.skills import SkillModel
    from solvable.networks.forecast import forecast
    from solvable.networks.forecast_report import ForecastReport
    from solvable.optax_descent import OptaxDescent
    from solvable.plotting import plot, plot_plane
    from solvable.sweeps import sweep
    from solvable.training import SGD, GradientDescent, GradientFlow

_HOME = {
    "Algorithm": "solvable.models.committee",
    "Committee": "solvable.models.committee",
    "DiagonalNetwork": "solvable.models.diagonal_network",
    "FeatureScaling": "solvable.models.feature_scaling",
    "ForecastReport": "solvable.networks.forecast_report",
    "GradientDescent": "solvable.training",
    "GradientFlow": "solvable.training",
    "InferenceReport": "solvable.inference.report",
    "LinearEstimator": "solvable.models.linear_estimator",
    "LinearFeatures": "solvable.models.linear_features",
    "LinearNetwork": "solvable.models.linear_network",
    "Model": "solvable.model",
    "OptaxDescent": "solvable.optax_descent",
    "ParityMode": "solvable.models.parity_mode",
    "SGD": "solvable.training",
    "ScalarNetwork": "solvable.models.scalar_network",
    "SkillModel": "solvable.models.skills",
    "compare": "solvable.comparison",
    "explore": "solvable.explorer",
    "fit_source_capacity": "solvable.models.feature_scaling",
    "forecast": "solvable.networks.forecast",
    "infer": "solvable.inference.inferring",
    "load": "solvable.files",
    "plot": "solvable.plotting",
    "plot_plane": "solvable.plotting",
    "read_curves": "solvable.inference.readers",
    "save": "solvable.files",
    "sweep": "solvable.sweeps",
}
_ROOMS = (
    "activations",
    "diagnostics",
    "fits",
    "inference",
    "models",
    "networks",
    "numerics",
    "papers",
    "solvers",
    "stories",
    "sweeps",
    "teachers",
)
# Faces to other libraries: loaded on first use, and only listed because one of those may be missing.
_BRIDGES = ("equinox", "torch")

__all__ = [
    "SGD",
    "Algorithm",
    "Committee",
    "DiagonalNetwork",
    "FeatureScaling",
    "ForecastReport",
    "GradientDescent",
    "GradientFlow",
    "InferenceReport",
    "LinearEstimator",
    "LinearFeatures",
    "LinearNetwork",
    "Model",
    "OptaxDescent",
    "ParityMode",
    "ScalarNetwork",
    "SkillModel",
    "__version__",
    "activations",
    "compare",
    "diagnostics",
    "explore",
    "fit_source_capacity",
    "fits",
    "forecast",
    "infer",
    "inference",
    "load",
    "models",
    "networks",
    "numerics",
    "papers",
    "plot",
    "plot_plane",
    "read_curves",
    "save",
    "solvers",
    "stories",
    "sweep",
    "sweeps",
    "teachers",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _ROOMS + _BRIDGES:
        value = importlib.import_module(f"solvable.{name}")
    else:
        raise AttributeError(f"module 'solvable' has no attribute {name!r}; it has {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
