"""What the page and the command line need to know of the linear estimator: sliders, summaries, plane and story."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.controls import Controls, Slider, Summary, log_slider, of_trained
from solvable.models.linear_estimator.story import STORY, explain, system


def _over(quantity: str) -> Any:
    def plane(model: Any, training: Any, axes: Mapping[str, np.ndarray]) -> xr.DataArray | None:
        if model.width is not None:
            return None
        return model.phase_diagram(training=training, **axes)[quantity]

    return plane


def _time(quantity: str, label: str) -> Summary:
    undefined = "never fits" if quantity == "train_time" else "never groks"
    return Summary(
        quantity, label, of_trained("grokking_time", quantity), "time", over=_over(quantity), undefined=undefined
    )


CONTROLS = Controls(
    sliders={
        "aspect_ratio": Slider(0.03, 3, count=99),
        "outputs": log_slider(1, 1000, whole=True),
        "learning_rate": log_slider(1e-4, 1),
        "threshold": log_slider(1e-6, 0.1),
        "initial_scale": Slider(0, 4, count=80),
        "label_noise": Slider(0, 1),
        "width": log_slider(1, 1000, whole=True, before=("",)),
    },
    # Batch noise of a given batch size depends on the input dimension; that of a given fraction does not.
    start={"dimension": "400", "seeds": "8", "batch_fraction": "0.1"},
    summaries=(
        _time("train_time", "training accuracy 95 % at"),
        _time("test_time", "test accuracy 95 % at"),
        _time("delay", "grokking delay"),
        Summary("limit", "test loss in the end", of_trained("limit", "test_loss")),
        Summary(
            "critical",
            "groks for weight decay below",
            of_trained("critical_weight_decay", "critical_weight_decay"),
            planar=False,
        ),
    ),
    plane=("delay", "aspect_ratio", "weight_decay"),
    stories=(STORY,),
    explain=explain,
    system=system,
)
