"""Averages over the Marchenko-Pastur law, to near machine precision at every aspect ratio.

The eigenvalues of a sample covariance matrix of ``d`` Gaussian variables and ``N`` samples follow, as both grow at
fixed ``lambda = d/N``, the Marchenko-Pastur law: a bulk on ``[(1-sqrt(lambda))^2, (1+sqrt(lambda))^2]`` and, for
``lambda > 1``, a mass ``1 - 1/lambda`` at zero.

Near ``lambda = 1`` the bulk touches zero and ordinary Gauss rules need millions of nodes. Writing

    nu = edge + 4 sqrt(lambda) x,   x = u^2 / (1 + u^2),   u = exp(y)

turns the bulk into the whole line in ``y``, where the integrand is analytic and decays exponentially on both sides, so
that the plain trapezoid rule converges geometrically. The weights do not depend on ``lambda``: one set of nodes serves
every aspect ratio, which is what makes whole phase diagrams cheap.

>>> from solvable.models.linear_estimator.spectra import MarchenkoPastur
>>> law = MarchenkoPastur(0.5)
>>> round(float(law.weights.sum()), 10), round(float(law.weights @ law.nodes), 10)
(1.0, 1.5)
"""

from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.precision import require_float64

# Of JAX, or of NumPy; the type checker cannot tell which.
if TYPE_CHECKING:
    Numbers = Any
else:
    Numbers = Array | np.ndarray


class TrapezoidRule(NamedTuple):
    """Nodes ``x`` in (0, 1) and weights for averages over the bulk; none depends on the aspect ratio."""

    positions: Float[np.ndarray | Array, "node"]
    weights: Float[np.ndarray | Array, "node"]


def trapezoid_rule(step: float = 0.15, lower: float = -38.0, upper: float = 12.5, offset: float = 0.0) -> TrapezoidRule:
    """The trapezoid rule in ``y``; ``offset`` (in steps) shifts all nodes, for estimating the error of the rule.

    The default covers ``lambda = 1`` and times up to 1e7 steps with an error near 1e-13. A spectrum whose upper edge
    matters at late times (descent close to its stability limit) needs ``upper = -lower``.
    """
    y = np.arange(lower, upper, step) + offset * step
    u = np.exp(y)
    return TrapezoidRule(u**2 / (1 + u**2), 16 / np.pi * step * (u / (1 + u**2)) ** 3)


class MarchenkoPastur(eqx.Module):
    """The Marchenko-Pastur law as a discrete measure.

    ``average(f)`` is ``E[f(nu)] = null_mass * f(0) + sum_k weights_k f(nodes_k) / nodes_k``; ``weights`` alone average
    ``nu * f``, which spares the division where the eigenvalue is wanted as a factor anyway. Nodes are the last axis of
    what is averaged; with ``in_rows`` they are the first of two, and the columns are many functions at once.
    """

    edge: Float[Numbers, ""]
    offsets: Float[Numbers, "node *column"]
    weights: Float[Numbers, "node"]
    null_mass: Float[Numbers, ""]
    in_rows: bool = eqx.field(static=True)

    def __init__(
        self,
        aspect_ratio: Float[Numbers, ""] | float,
        rule: TrapezoidRule | None = None,
        xp: ModuleType = jnp,
        in_rows: bool = False,
    ):
        require_float64()
        rule = trapezoid_rule() if rule is None else rule
        root = xp.sqrt(aspect_ratio)
        # (1 - sqrt(lambda))^2 without the cancellation at lambda -> 1.
        self.edge = xp.asarray(((1 - aspect_ratio) / (1 + root)) ** 2)
        self.offsets = 4 * root * (rule.positions[:, None] if in_rows else rule.positions)
        self.weights = xp.asarray(rule.weights)
        self.null_mass = xp.asarray(xp.maximum(1 - 1 / xp.asarray(aspect_ratio, float), 0.0))
        self.in_rows = in_rows

    @property
    def nodes(self) -> Float[Numbers, "node *column"]:
        """The eigenvalues of the bulk."""
        return self.edge + self.offsets

    def average(self, values: Numbers, at_zero: Any = 0.0) -> Any:
        """``E[f]`` from the values of ``f`` at the nodes and at zero."""
        return self.bulk_average(values) + self.null_mass * at_zero

    def bulk_average(self, values: Numbers) -> Any:
        """``E[f; nu > 0]``: the part of the average without the mass at zero."""
        if self.in_rows:
            return (self.weights / self.nodes[:, 0]) @ values
        return values @ (self.weights / self.nodes)

    def weighted_average(self, values: Numbers) -> Any:
        """``E[nu f]``."""
        return self.weights @ values if self.in_rows else values @ self.weights


def upper_edge(aspect_ratio: float) -> float:
    """Largest eigenvalue of the Marchenko-Pastur law, ``(1 + sqrt(lambda))^2``."""
    return (1 + aspect_ratio**0.5) ** 2
