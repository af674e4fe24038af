"""The modes of a model: its power law or its lists, as weighted nodes fit for the times asked for."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from solvable.checks import is_traced
from solvable.models.feature_scaling.mode_quadrature import Modes, compress_modes, power_law_modes, static_error

if TYPE_CHECKING:
    from solvable.models.feature_scaling.model import FeatureScaling

# Exact modes at the head, nodes a decade of eigenvalues, and how far below 1 / time the spectrum is resolved.
_STANDARD = {"head": 12, "per_decade": 6.0, "reach": 1e2}
_FINE = {"head": 24, "per_decade": 9.0, "reach": 1e4}


def nodes(model: "FeatureScaling", scale: float, fine: bool = False) -> Modes:
    """Weighted modes for times up to ``scale``, which includes the kernel's growth."""
    settings: dict[str, Any] = dict(_FINE if fine else _STANDARD)
    if model.spectrum is None:
        return power_law_modes(model.capacity, model.source, model.mode_count, scale, **settings)
    if isinstance(model.spectrum, jax.core.Tracer) or isinstance(model.target, jax.core.Tracer):
        size = model.spectrum.shape[0]
        return Modes(np.arange(1.0, size + 1), model.spectrum, np.ones(size), model.target**2)
    settings["per_decade"] *= 2
    return compress_modes(model.spectrum, model.target**2, scale, **settings)


def nodes_until(model: "FeatureScaling", time: float) -> tuple[Modes, float | None]:
    """Weighted modes for flow times up to ``time``, and the error of their sums against a finer set.

    The kernel grows by less than what the lazy error gives, ``1 + 2 gamma sum_k w_k^2 (1 - exp(-lambda_k t))``.
    """
    if is_traced(model):
        return nodes(model, 100 * time), None
    rough = nodes(model, max(time, 1.0))
    gain = 1 + 2 * model.richness * float((rough.targets * -np.expm1(-rough.eigenvalues * time)).sum())
    scale = max(time * gain, 1.0 / float(np.max(rough.eigenvalues)))
    chosen = nodes(model, scale)
    checked = np.geomspace(min(1.0, scale), scale, 33)
    return chosen, static_error(chosen, nodes(model, scale, fine=True), checked)


def listed(model: "FeatureScaling") -> tuple[Any, Any]:
    """Eigenvalues and target coefficients one by one, for simulations: all of them, finitely many."""
    if model.spectrum is not None:
        return model.spectrum, model.target
    ranks = np.arange(1.0, float(model.modes or 0) + 1)
    capacity, source = float(model.capacity or 0.0), float(model.source or 0.0)
    return ranks**-capacity, ranks ** ((capacity * (1 - source) - 1) / 2)
