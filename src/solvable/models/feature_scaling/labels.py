"""What the variables of the feature-scaling model are, and what the page shows of it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.controls import Controls, Slider, Summary, log_slider, of_method
from solvable.dataset import VARIABLES, Meaning
from solvable.models.feature_scaling import schedule_story, story
from solvable.training import SGD

MEANINGS: Mapping[str, Meaning] = {
    **VARIABLES,
    "test_loss": Meaning("mean square error on new data", "1", "L"),
    "train_loss": Meaning("mean square error on the training set, with its label noise", "1", "L_train"),
    "averaged_test_loss": Meaning("mean square error of the averaged weights on new data", "1", "L̄"),
    "mode_loss": Meaning("what one mode adds to the test loss", "1", "λ_k⟨v_k²⟩"),
    "mode_weight": Meaning("number of modes that a node stands for", "1"),
    "mode_eigenvalue": Meaning("eigenvalue of the initial kernel", "1", "λ_k"),
    "mode_rank": Meaning("rank of the mode; between integers for a node that stands for many", "1", "k"),
    "node": Meaning("number of the quadrature node, which stands for one mode or many", "1"),
    "kernel_growth": Meaning("growth of the kernel's bulk by its readout, 1 + γ|w|²/N", "1", "M"),
    "C_0": Meaning("correlation of the error, weighted by the kernel", "1", "C_0"),
    "C_2": Meaning("correlation of the error on the batch, seen by the modes", "1", "C_2"),
    "C_3": Meaning("correlation of the error, seen by the features", "1", "C_3"),
    "C_w": Meaning("correlation of the readout weights", "1", "C_w"),
    "R_3": Meaning("response of the features' error to a field on it", "1", "R_3"),
    "R_24": Meaning("response of the modes' error to a field on the readout", "1", "R_{2,4}"),
    "earlier_time": Meaning("the earlier of two times, in steps", "steps", "s"),
    "spike": Meaning("squared norm of the readout weights", "1", "|w|²"),
    "exponent": Meaning("exponent of the loss", "1"),
    "printed": Meaning("the exponent as printed in the paper", "1"),
    "quantity": Meaning("what the loss is a power of", "1"),
    "round": Meaning("rounds of self-consistency", "1", "n"),
    "regime": Meaning("whether features learn", "1"),
    "phase": Meaning("difficulty of the task: 0 hard, 1 easy, 2 super-easy", "1"),
    "capacity": Meaning("exponent of the eigenvalues", "1", "α"),
    "source": Meaning("exponent of the target in terms of the eigenvalues", "1", "β"),
    "capacity_error": Meaning("standard error of the capacity", "1"),
    "source_error": Meaning("standard error of the source", "1"),
    "first_mode": Meaning("first mode of the range that was fitted", "1"),
    "last_mode": Meaning("last mode of the range that was fitted", "1"),
    "epoch": Meaning("passes over the training set", "1", "K"),
    "effective_epochs": Meaning("epochs of new samples with the same test loss", "1", "E(K)"),
    "final_effective_epochs": Meaning("effective epochs of infinitely many epochs", "1", "E(∞)", may_be_infinite=True),
    "half_epoch": Meaning("epoch at which half of an epoch's worth is lost", "1", "K*", may_be_infinite=True),
    "best_epoch": Meaning("epoch of the least test loss", "1"),
    "online_test_loss": Meaning("mean square error on new data after as many steps on new samples", "1", "L_online"),
    "horizon": Meaning("number of steps of the whole run", "steps", "T"),
    "step": Meaning("number of the step", "steps", "t"),
    "schedule": Meaning("learning-rate schedule", "1"),
    "learning_rate": Meaning("learning rate", "1", "η_t"),
    "batch_size": Meaning("samples in each batch", "1", "B_t"),
    "excess": Meaning("relative excess of the loss over that of the best schedule", "1"),
    "predicted_exponent": Meaning("exponent of the loss in the number of steps, from asymptotic theory", "1"),
    "budget": Meaning("compute, features times time", "1", "C"),
    "features": Meaning("number of features", "1", "N"),
    "features_exponent": Meaning("local exponent of the optimal number of features", "1"),
}


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
    stories=(story.STORY, schedule_story.STORY),
    explain=story.explain,
    system=story.system,
    # Mean-field theory of finite features, samples or batches.
    slow=lambda model, training: isinstance(training, SGD) or model.features < math.inf or model.samples is not None,
)
