"""Inverse Laplace transforms of functions whose singularities all lie on the negative real axis.

Functions of a positive matrix in time are such transforms of its resolvent, ``exp(-A t) = L^-1[(z + A)^-1](t)``, so
that random-matrix theory, which speaks of resolvents, gives curves in time. The trapezoid rule on a hyperbola around
the negative axis converges geometrically (Weideman and Trefethen, Math. Comp. 76, 2007), whatever the singularities
on the axis are: a dense spectrum, gaps and eigenvalues many decades apart cost nothing.

>>> import jax.numpy as jnp
>>> from solvable.models.linear_features.laplace import hyperbola, invert
>>> contour = hyperbola(jnp.array(2.0))
>>> round(float(invert(contour, 1 / (contour.points + 1)) - jnp.exp(-2.0)), 8)
-0.0
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

# The optimal hyperbola for functions with singularities on the whole negative axis: angle, step and scale.
_ANGLE, _STEP, _SCALE = 1.172104229, 1.081792140, 4.492075287
# Rounding grows as exp(0.35 nodes), truncation falls as 10^-nodes: they meet near here.
NODES = 14
# The error is estimated by a rule with more nodes.
MORE_NODES = NODES + 3


class Contour(NamedTuple):
    """Upper half of a contour: ``points`` from the positive real axis outwards, and ``weights``.

    ``crossing`` is where the contour meets the positive real axis.
    """

    points: Complex[Array, "node"]
    weights: Complex[Array, "node"]
    crossing: Float[Array, ""]


def hyperbola(time: Float[Array, ""], nodes: Array | int = NODES, capacity: int | None = None) -> Contour:
    """The contour for one positive time.

    With a ``capacity``, the contour has that many points, and those beyond the first ``nodes`` have no weight: rules of
    different sizes then share one compiled program.
    """
    count = np.arange(int(nodes) if capacity is None else capacity)
    step = _STEP / nodes
    position = (count + 0.5) * step
    scale = _SCALE * nodes / time
    points = scale * (1 + jnp.sin(1j * position - _ANGLE))
    weights = step / np.pi * jnp.exp(points * time) * scale * jnp.cos(1j * position - _ANGLE)
    return Contour(points, jnp.where(count < nodes, weights, 0.0), scale * (1 - np.sin(_ANGLE)))


def invert(contour: Contour, values: Complex[Array, "node ..."]) -> Float[Array, "..."]:
    """The original at the contour's time of a transform with these values at its points, real on the real axis."""
    return jnp.tensordot(contour.weights, values, axes=1).real


def invert_twice(
    contour: Contour, same: Complex[Array, "node node"], mirrored: Complex[Array, "node node"]
) -> Float[Array, ""]:
    """The original, at the same time twice, of a transform ``F(z, z')`` of two variables.

    ``same`` holds ``F(z_a, z_b)``, ``mirrored`` holds ``F(z_a, conj(z_b))``; the two other quadrants are conjugates.
    """
    weights = contour.weights
    return ((weights @ same @ weights + weights @ mirrored @ weights.conj()) / 2).real
