"""What the page shows of the feature-scaling model."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.controls import Controls, Slider, Summary, log_slider, of_method
from solvable.training import SGD


def _regime(model: Any) -> str:
    return "rich" if model.richness > 0 else "lazy"


def _exponent(quantity: str) -> Summary:
    def of(model: Any, training: Any) -> float:
        return float(model.exponents()["exponent"].sel(quantity=quantity, regime=_regime(model)))

    def over(model: Any, training: Any, axes: Mapping[str, np.ndarray]) -> xr.DataArray | None:
        if set(axes) != {"capacity", "source"}:
            return None
        found = model.phase_map(axes["capacity"], axes["source"])
        return found["exponent"].sel(quantity=quantity, regime=_regime(model))

    return Summary(quantity, f"exponent in {quantity}", of, over=over)


CONTROLS = Controls(
    sliders={
        "capacity": Slider(1.05, 4, count=59),
        "source": Slider(0.05, 4, count=79),
        "features": log_slider(4, 4096, whole=True, after=("inf",)),
        "richness": log_slider(0.01, 10, before=("0",)),
        "learning_rate": log_slider(1e-3, 1),
        "modes": log_slider(10, 4000, whole=True, after=("inf",)),
        "samples": log_slider(4, 4096, whole=True, after=("",)),
    },
    start={"capacity": "1.5", "source": "0.5", "modes": "1000", "seeds": "8"},
    summaries=(
        Summary("phase", "phase of the task", lambda model, training: model.phase(), planar=False),
        *map(_exponent, ("time", "features", "compute")),
        Summary("limit", "test loss in the end", of_method("limit", "test_loss")),
    ),
    plane=("time", "capacity", "source"),
    # Mean-field theory of finite features, samples or batches.
    slow=lambda model, training: isinstance(training, SGD) or model.features < math.inf or model.samples is not None,
)
