"""What can be measured of a network along its training, beyond losses."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from solvable import diagnostics
from solvable.networks.sources import Fixed, Source


def feature_metrics(network: Any, data: Source, initial: Any = None) -> dict[str, float]:
    """Effective dimensions and κ_CKA of the last-layer features: for ``train(inspect=feature_metrics)``.

    The eigenbasis is that of the training set, overlaps are taken on the test set (on the training set if there is
    none). The network must end in a linear layer, as those of this package do.
    """
    del initial
    from solvable.equinox import diagnose

    if not isinstance(data, Fixed):
        raise ValueError("feature_metrics needs a fixed training set: for new points every step write your own inspect")
    train = data.inputs, data.targets
    if data.count is not None:
        train = tuple(array[: int(data.count)] for array in train)  # type: ignore[assignment]
    test = train if data.test_inputs is None else (data.test_inputs, data.test_targets)
    report = diagnose(network, train, test, progress=False)
    dimensions = {f"effective_dimension_{name}": value for name, value in report.effective_dimensions.items()}
    return {"mp_distance": report.mp_distance, **dimensions}


def kernel_metrics(points: int = 64) -> Callable[[Any, Source, Any], dict[str, float]]:
    """The tangent kernel on the first points of the data: how far it is from where it began, and how well it fits.

    ``kernel_distance`` is one minus the alignment with the kernel of the initial network, ``kernel_alignment`` the
    alignment with the targets, both centred (CKA). For ``train(inspect=kernel_metrics(64))``.
    """

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
