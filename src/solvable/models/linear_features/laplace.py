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

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Array, Complex, Float

from solvable.numerics.arrays import array_module

# Traced by JAX, or of NumPy; the type checker cannot tell which.
if TYPE_CHECKING:
    Numbers = Any
else:
    Numbers = Array | np.ndarray

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

    points: Complex[Numbers, "*time node"]
    weights: Complex[Numbers, "*time node"]
    crossing: Float[Numbers, "*time"]


def hyperbola(time: Any, nodes: Any = NODES, capacity: int | None = None) -> Contour:
    """The contour for one positive time, or the contours of many.

    With a ``capacity``, the contour has that many points, and those beyond the first ``nodes`` have no weight: rules of
    different sizes then share one compiled program.
    """
    xp = array_module(time, nodes)
    time = xp.asarray(time)[..., None]
    count = np.arange(int(nodes) if capacity is None else capacity)
    step = _STEP / nodes
    position = (count + 0.5) * step
    scale = _SCALE * nodes / time
    points = scale * (1 + xp.sin(1j * position - _ANGLE))
    weights = step / np.pi * xp.exp(points * time) * scale * xp.cos(1j * position - _ANGLE)
    return Contour(points, xp.where(count < nodes, weights, 0.0), scale[..., 0] * (1 - np.sin(_ANGLE)))


def invert(contour: Contour, values: Any) -> Any:
    """The original at the contour's time of a transform with these values at its points, real on the real axis.

    The values may have one axis after that of the points.
    """
    if values.ndim == contour.weights.ndim:
        return (contour.weights * values).sum(-1).real
    return (contour.weights[..., None, :] @ values)[..., 0, :].real


def invert_twice(contour: Contour, same: Any, mirrored: Any) -> Any:
    """The original, at the same time twice, of a transform ``F(z, z')`` of two variables.

    ``same`` holds ``F(z_a, z_b)``, ``mirrored`` holds ``F(z_a, conj(z_b))``; the two other quadrants are conjugates.
    """
    row, column = contour.weights[..., None, :], contour.weights[..., None]
    return ((row @ same @ column + row @ mirrored @ column.conj()) / 2).real[..., 0, 0]
