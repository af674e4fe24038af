"""Measurements of a network during training, beyond losses."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from solvable import diagnostics
from solvable.diagnostics.eigenbasis import eigenbasis
from solvable.diagnostics.features import features_in
from solvable.networks.losses import LossName, SampleLoss, sample_loss
from solvable.networks.one_set import Measured, OneSet
from solvable.networks.sources import Fixed, Source
from solvable.precision import in_float64

_COLLAPSE = (
    "within_class", "mean_norms", "mean_angles", "weight_norms", "weight_angles", "self_duality", "nearest_class",
)  # fmt: skip
Samples = tuple[Any, Any]


@in_float64
def feature_metrics(network: Any, data: Source, initial: Any = None) -> dict[str, float]:
    """Effective dimensions, κ_CKA and ⟨e_1|1⟩ of the last-layer features: for ``train(inspect=feature_metrics)``.

    Parameters
    ----------
    network
        A network that ends in a linear layer, as those of this package do.
    data
        The eigenbasis is that of the training set, and overlaps are taken on the test set (on the training set if there
        is none).
    initial
        The initial network, which is not used.
    """
    del initial
    from solvable.equinox import diagnose

    report = diagnose(network, *_sets(data, None), progress=False)
    dimensions = {f"effective_dimension_{name}": value for name, value in report.effective_dimensions.items()}
    return {"mp_distance": report.mp_distance, "constant_overlap": report.constant_overlap, **dimensions}


def feature_record(
    samples: int | None = None,
    *,
    last_layer: Callable[[Any], Any] | None = None,
    loss: LossName | SampleLoss = "mse",
    precision: Literal["default", "highest"] = "default",
) -> Callable[[Any, Source, Any], dict[str, Any]]:
    """All feature metrics of a network, for ``train(inspect=feature_record(...))``. Each set is read once.

    They are losses and accuracies of the training and the test set; ``intensity``, ``quality`` and ``utilisation`` of
    all modes, NaN beyond the rank; κ_CKA as ``mp_distance``, the overlap of the first feature with a constant as
    ``constant_overlap``, and the effective dimensions; and for classes the measures of neural collapse on the training
    set, NC1 to NC4, under their names in :class:`~solvable.diagnostics.CollapseReport`.

    Parameters
    ----------
    samples
        Use the first samples of each set only; by default all.
    last_layer
        A function that picks the last linear layer, as in :func:`equinox.tree_at`. It is found if not given.
    loss
        The loss, as in :func:`train`.
    precision
        With ``"default"`` an accelerator may shorten the products below the last layer, as it does in training.
    """
    where = last_layer
    loss_of = sample_loss(loss)

    @in_float64
    def inspect(network: Any, data: Source, initial: Any = None) -> dict[str, Any]:
        nonlocal where
        del initial
        train, test = _sets(data, samples)
        if where is None:
            from solvable.equinox import find_last_layer

            where = find_last_layer(network, train[0])
        layer = where(network)
        first, second = begin(network, where, train, test, loss_of, precision)
        # While the device is at the test set, the host works on the training set.
        measured = first.finish()
        statistics = measured.statistics
        basis = eigenbasis(statistics)
        found: dict[str, Any] = {f"train_{name}": value for name, value in measured.numbers.items()}
        if statistics.classes is not None:
            found |= _collapse(measured, layer)
        tested = measured if second is first else second.finish()
        report = features_in(basis, statistics, tested.statistics)
        found |= {f"test_{name}": value for name, value in tested.numbers.items()}
        for name in ("intensity", "quality", "utilisation", "cumulative_quality", "cumulative_utilisation"):
            values = getattr(report, name)
            found[name] = np.pad(values, (0, statistics.features - values.size), constant_values=np.nan)
        for name in ("mp_distance", "constant_overlap", "target_rank"):
            found[name] = getattr(report, name)
        return found | {f"effective_dimension_{name}": value for name, value in report.effective_dimensions.items()}

    return inspect


def _sets(data: Source, samples: int | None) -> tuple[Samples, Samples]:
    """The first samples of the training and the test set; the training set twice if there is no other."""
    if not isinstance(data, Fixed):
        raise ValueError("feature metrics need a fixed training set: with networks.Fresh, write your own inspect")
    count = data.size if data.count is None else int(data.count)
    count = count if samples is None else min(count, samples)
    train = data.inputs[:count], data.targets[:count]
    if data.test_inputs is None:
        return train, train
    return train, (data.test_inputs[:samples], data.test_targets[:samples])


def begin(
    network: Any, where: Callable[[Any], Any], train: Samples, test: Samples, loss: SampleLoss, precision: str
) -> tuple[OneSet, OneSet]:
    """The measurements of both sets, which the device begins with; once only if the sets are the same."""
    from solvable.equinox import features_and_outputs

    run, layer = features_and_outputs(network, where, precision=precision), where(network)
    first = OneSet(run, layer, *train, loss)
    return first, first if test is train else OneSet(run, layer, *test, loss)


def _collapse(measured: Measured, layer: Any) -> dict[str, Any]:
    """The measures of neural collapse; NC4 from the features where it is not known yet."""
    nearest = measured.nearest_class
    batches = measured.batches if nearest is None else None
    report = diagnostics.collapse(measured.statistics, layer.weight, layer.bias, batches=batches)
    found = {name: getattr(report, name) for name in _COLLAPSE}
    return found if nearest is None else found | {"nearest_class": nearest}


def kernel_metrics(samples: int = 64) -> Callable[[Any, Source, Any], dict[str, float]]:
    """The tangent kernel during training, for ``train(inspect=kernel_metrics(64))``.

    ``kernel_distance`` is one minus the alignment with the kernel of the initial network, ``kernel_alignment`` the
    alignment with the targets, both centred (CKA), and ``kernel_trace`` the mean of the diagonal.

    Parameters
    ----------
    samples
        The kernel is computed for this many samples: the first of the training set, or of the test set of
        :class:`Fresh` data.
    """

    @in_float64
    def inspect(network: Any, data: Source, initial: Any) -> dict[str, float]:
        if isinstance(data, Fixed):
            inputs, targets = data.inputs, data.targets
        elif data.test_inputs is not None:
            inputs, targets = data.test_inputs, data.test_targets
        else:
            raise ValueError("kernel_metrics needs a fixed set of samples: give the source a test set")
        inputs, labels = inputs[:samples], np.asarray(targets[:samples])
        if np.issubdtype(labels.dtype, np.integer):
            labels = np.eye(int(labels.max()) + 1)[labels]
        now, before = (diagnostics.ntk(one, inputs, progress=False).values for one in (network, initial))
        goal = labels.astype(float).reshape(len(labels), -1)
        return {
            "kernel_distance": 1 - float(diagnostics.cka(now, before)),
            "kernel_alignment": float(diagnostics.cka(now, goal @ goal.T)),
            "kernel_trace": float(np.trace(now)) / len(now),
        }

    return inspect
