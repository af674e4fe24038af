"""What can be measured of a network along its training, beyond losses."""

from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from solvable import diagnostics
from solvable.networks.losses import LossName, PointLoss, correct, is_classification, point_loss
from solvable.networks.sources import Fixed, Source, equal_pieces
from solvable.precision import in_float64


@in_float64
def feature_metrics(network: Any, data: Source, initial: Any = None) -> dict[str, float]:
    """Effective dimensions and κ_CKA of the last-layer features: for ``train(inspect=feature_metrics)``.

    The eigenbasis is that of the training set, overlaps are taken on the test set (on the training set if there is
    none). The network must end in a linear layer, as those of this package do.
    """
    del initial
    from solvable.equinox import diagnose

    report = diagnose(network, *_sets(data, None), progress=False)
    dimensions = {f"effective_dimension_{name}": value for name, value in report.effective_dimensions.items()}
    return {"mp_distance": report.mp_distance, **dimensions}


def feature_record(
    points: int | None = None,
    *,
    last_layer: Callable[[Any], Any] | None = None,
    loss: LossName | PointLoss = "mse",
    precision: Literal["default", "highest"] = "default",
) -> Callable[[Any, Source, Any], dict[str, Any]]:
    """Everything the diagnostics tell of a network, for ``train(inspect=feature_record(...))``.

    Gives losses and accuracies of the training and the test set; ``intensity``, ``quality`` and ``utilisation`` of all
    modes, NaN beyond the rank; κ_CKA as ``mp_distance`` and the effective dimensions; and for classes the measures of
    neural collapse on the training set, NC1 to NC4, under their names in
    :class:`~solvable.diagnostics.CollapseReport`. The first ``points`` of each set are used, or all. Each set is passed
    once. ``last_layer`` picks the last linear layer, as in :func:`equinox.tree_at`; without it, it is found once.
    ``precision="default"`` lets an accelerator shorten the products below the last layer, as it does in training.
    """
    where = last_layer
    of_points = point_loss(loss)

    @in_float64
    def inspect(network: Any, data: Source, initial: Any = None) -> dict[str, Any]:
        nonlocal where
        del initial
        train, test = _sets(data, points)
        if where is None:
            from solvable.equinox import find_last_layer

            where = find_last_layer(network, train[0])
        passed = [_passed(network, *one, where, of_points, precision) for one in (train, test)]
        (statistics, kept, numbers), (test_statistics, _, test_numbers) = passed
        report = diagnostics.features(statistics, test_statistics)
        found: dict[str, Any] = {f"train_{name}": value for name, value in numbers.items()}
        found |= {f"test_{name}": value for name, value in test_numbers.items()}
        for name in ("intensity", "quality", "utilisation", "cumulative_quality", "cumulative_utilisation"):
            values = getattr(report, name)
            found[name] = np.pad(values, (0, statistics.features - values.size), constant_values=np.nan)
        found |= {"mp_distance": report.mp_distance, "target_rank": report.target_rank}
        found |= {f"effective_dimension_{name}": value for name, value in report.effective_dimensions.items()}
        if statistics.classes is not None:
            layer = where(network)
            collapse = diagnostics.collapse(statistics, layer.weight, layer.bias, batches=kept)
            found |= {name: getattr(collapse, name) for name in _COLLAPSE}
        return found

    return inspect


_COLLAPSE = (
    "within_class", "mean_norms", "mean_angles", "weight_norms", "weight_angles", "self_duality", "nearest_class",
)  # fmt: skip
# Points that are passed through a network at a time.
_BATCH = 1000


def _sets(data: Source, points: int | None) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Training and test set, as far as they are measured; the training set twice if there is no other."""
    if not isinstance(data, Fixed):
        raise ValueError("feature metrics need a fixed training set: for new points every step write your own inspect")
    count = data.size if data.count is None else int(data.count)
    count = count if points is None else min(count, points)
    train = data.inputs[:count], data.targets[:count]
    if data.test_inputs is None:
        return train, train
    return train, (data.test_inputs[:points], data.test_targets[:points])


def _passed(
    network: Any, inputs: Any, targets: Any, where: Callable[[Any], Any], loss: PointLoss, precision: str
) -> tuple[diagnostics.FeatureStatistics, list[Any], dict[str, float]]:
    """Statistics of one set, its features piece by piece, its mean loss and accuracy."""
    from solvable.equinox import features_and_outputs

    look = features_and_outputs(network, where, precision=precision)
    step = equal_pieces(len(inputs), _BATCH)
    # Nothing is asked of an accelerator until it has all pieces to work on.
    passed = [look(inputs[first : first + step]) for first in range(0, len(inputs), step)]
    features, outputs = (jnp.concatenate(pieces) for pieces in zip(*passed, strict=True))
    numbers = {"loss": float(jnp.mean(loss(outputs, targets), dtype=jnp.float64))}
    labelled = is_classification(outputs.shape[1], targets)
    if labelled:
        numbers["accuracy"] = float(jnp.mean(correct(outputs, targets), dtype=jnp.float64))
    named = jnp.argmax(targets, axis=1) if labelled and targets.ndim == 2 else targets
    return diagnostics.FeatureStatistics().update(features, outputs, named), [piece for piece, _ in passed], numbers


def kernel_metrics(points: int = 64) -> Callable[[Any, Source, Any], dict[str, float]]:
    """The tangent kernel on the first points of the data: how far it is from where it began, and how well it fits.

    ``kernel_distance`` is one minus the alignment with the kernel of the initial network, ``kernel_alignment`` the
    alignment with the targets, both centred (CKA). For ``train(inspect=kernel_metrics(64))``.
    """

    @in_float64
    def inspect(network: Any, data: Source, initial: Any) -> dict[str, float]:
        inputs, targets = _some(data, points)
        now, before = (diagnostics.ntk(one, inputs, progress=False).values for one in (network, initial))
        wanted = np.asarray(targets, float).reshape(len(targets), -1)
        return {
            "kernel_distance": 1 - float(diagnostics.cka(now, before)),
            "kernel_alignment": float(diagnostics.cka(now, wanted @ wanted.T)),
            "kernel_trace": float(np.trace(now)) / len(now),
        }

    return inspect


def _some(data: Source, points: int) -> tuple[Any, Any]:
    if isinstance(data, Fixed):
        inputs, targets = data.inputs[:points], data.targets[:points]
    elif data.test_inputs is not None:
        inputs, targets = data.test_inputs[:points], data.test_targets[:points]
    else:
        raise ValueError("kernel_metrics needs a fixed set of points: give the source a test set")
    if jnp.issubdtype(jnp.asarray(targets).dtype, jnp.integer):
        targets = np.eye(int(np.max(targets)) + 1)[np.asarray(targets)]
    return inputs, targets
