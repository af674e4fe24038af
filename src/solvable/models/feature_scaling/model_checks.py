"""Whether a feature-scaling model, its trainings and what is asked of it make sense."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.checks import check_count, check_value, is_traced, rules
from solvable.models.feature_scaling.prediction import batch_size as batch_size_of
from solvable.optax_descent import OptaxDescent
from solvable.timegrid import check_times
from solvable.training import SGD, Schedule, Training

if TYPE_CHECKING:
    from solvable.models.feature_scaling.model import FeatureScaling


def check_signal(capacity: Any, source: Any) -> None:
    """The tail of the target's power, ``k^-(capacity source)``, must be a number, and its sum finite."""
    if is_traced(capacity, source):
        return
    if not 1e-9 <= capacity * source <= 1e3:
        raise ValueError(
            f"capacity * source must lie between 1e-9 and 1000, not {capacity * source:g}: with source = {source:g} "
            "the target would have no finite power, or no second mode; change source"
        )


def check_target(model: "FeatureScaling") -> None:
    """Raise a ValueError unless the model has a power law, or a spectrum with its target."""
    if (model.spectrum is None) != (model.target is None):
        raise ValueError("spectrum and target belong together: give both, or neither with capacity and source")
    if model.spectrum is None:
        check_signal(model.capacity, model.source)
        return
    if model.capacity is not None or model.source is not None or model.modes != math.inf:
        raise ValueError(
            "a spectrum says it all: leave out capacity, source and modes (fit_source_capacity measures them)"
        )
    if isinstance(model.spectrum, np.ndarray) and isinstance(model.target, np.ndarray):
        if model.spectrum.shape != model.target.shape:
            raise ValueError(f"target must have one entry for each of the {model.spectrum.size} eigenvalues")
        if not model.target.any():
            raise ValueError("target is zero: at least one coefficient must not be")


def check_sampling(model: "FeatureScaling", training: SGD | OptaxDescent) -> None:
    """Refuse batches that cannot be drawn from the samples there are."""
    if (model.samples is not None) != (training.sampling != "online"):
        raise ValueError(
            f"sampling={training.sampling!r} does not fit samples = {model.sample_count}: batches are drawn with "
            '"replacement", in "epochs" or in "cyclic" order from a training set of finite size, and "online" '
            "without one"
        )
    size = batch_size_of(model, training)
    if training.sampling in ("epochs", "cyclic"):
        if isinstance(size, Schedule):
            raise ValueError(
                f"sampling={training.sampling!r} needs batches of one size, not a schedule of batch_size: use "
                'sampling="replacement"'
            )
        if not is_traced(model.samples, size) and model.sample_count % size:
            raise ValueError(
                f"batch_size = {size} does not divide the training set of {model.sample_count} samples, as "
                f"sampling={training.sampling!r} needs: change one of them"
            )


def check_schedule_request(
    model: "FeatureScaling", steps: Any, max_learning_rate: float, batch_size: float
) -> np.ndarray:
    """The increasing numbers of steps of ``best_schedule``, if the best schedule is known for the model."""
    horizons = np.unique([check_count("steps", one, least=4) for one in np.atleast_1d(steps).tolist()])
    for name, value in (("max_learning_rate", max_learning_rate), ("batch_size", batch_size)):
        check_value(name, value, rules.positive, False, "")
    if model.richness != 0 or model.features < math.inf or model.samples is not None:
        raise ValueError(
            "the best schedule is known for lazy networks of infinitely many features on new samples: "
            "replace(richness=0, features=inf, samples=None)"
        )
    strongest = 1.0 if model.spectrum is None else float(np.max(model.spectrum))
    if max_learning_rate >= 2 / strongest:
        raise ValueError(
            f"max_learning_rate = {max_learning_rate:g} is not below {2 / strongest:g}, from which gradient "
            "descent is unstable: lower it"
        )
    return horizons


def check_epochs(
    model: "FeatureScaling", epochs: Any, training: Training | None, solver: str | None
) -> tuple[np.ndarray, SGD]:
    """Epochs and training of ``effective_epochs``, if it is defined for them."""
    if model.samples is None:
        raise ValueError("effective_epochs needs a training set: give the model samples")
    epochs = check_times(epochs)
    if isinstance(training, SGD) and training.sampling is None:
        training = training.replace(sampling="replacement" if solver == "slot-march" else "epochs")
    training = model.check_training(training, "predict")
    if not isinstance(training, SGD) or not training.is_constant:
        raise ValueError(f"effective_epochs is for SGD of constant learning rate and batch size, not {training!r}")
    return epochs, training
