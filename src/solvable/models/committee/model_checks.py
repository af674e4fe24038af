"""Whether the parts of a committee, its task and its training fit together."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.models.committee.losses import check_labels
from solvable.models.committee.start import check_teacher
from solvable.training import SGD

if TYPE_CHECKING:
    from solvable.models.committee.model import Committee


def check_task(model: "Committee", neurons: int, indices: int) -> None:
    """Raise a ValueError unless loss, labels, clusters and readouts fit together."""
    means, weights, rows = model.cluster_means, model.cluster_weights, model.class_readout
    if means is not None and means.shape[1] != indices:
        raise ValueError(f"cluster_means must have one column per index field, {indices} in all, not {means.shape[1]}")
    if weights is not None and (means is None or len(weights) != len(means)):
        raise ValueError("cluster_weights must have one number for each row of cluster_means")
    if rows is not None and rows.shape[1] != neurons:
        raise ValueError(f"class_readout must have one column per neuron, {neurons} in all, not {rows.shape[1]}")
    if rows is not None and (model.readout is not None or model.gradient_readout is not None):
        raise ValueError("class_readout replaces readout and gradient_readout: leave them out")
    check_labels(model.loss_function, model.labelling, means, None if rows is None else len(rows))
    if model.labels != "cluster":
        check_teacher(model.teacher, indices, len(rows) if model.labels == "argmax" and rows is not None else None)


def check_batches(samples_per_dimension: float, training: SGD) -> None:
    """Raise a ValueError unless batches and training set fit together."""
    infinite = math.isinf(samples_per_dimension)
    if training.sampling == "online":
        if not infinite:
            raise ValueError(
                "SGD with sampling='online' draws a new sample at every step, which needs samples_per_dimension = inf, "
                f"not {samples_per_dimension:g}: change it, or draw batches from the training set with "
                "SGD(learning_rate, batch_fraction=...)"
            )
        if training.batch_size != 1:
            raise ValueError(
                f"the theory of online SGD is that of one sample per step: give batch_size=1, not {training.batch_size}"
            )
    elif infinite:
        raise ValueError(
            f"sampling={training.sampling!r} draws batches from a training set, but samples_per_dimension is infinite: "
            "change it, or use sampling='online' with batch_size=1"
        )
    elif training.batch_fraction is None:
        raise ValueError(
            "the training set grows with the dimension, and batches with it: give batch_fraction, the batch as a "
            f"fraction of the training set, in place of batch_size={training.batch_size!r}"
        )


def check_readout_training(model: "Committee", training: Any) -> None:
    """Raise a ValueError unless a trained readout follows the gradient of the loss."""
    if getattr(training, "readout_learning_rate", None) is None:
        return
    if training.momentum:
        raise ValueError("readout_learning_rate with momentum is not covered: train the readout without momentum")
    neurons = model.initial_overlap.shape[0]
    readout = np.full(neurons, model.output_scale / neurons) if model.readout is None else model.readout
    same = model.gradient_readout is not None and np.array_equal(model.gradient_readout, readout)
    if model.class_readout is None and not same:
        raise ValueError(
            "a trained readout needs gradient_readout equal to readout, so that weights and readout follow the "
            "gradient of one loss: give both"
        )
