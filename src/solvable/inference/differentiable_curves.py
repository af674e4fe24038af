"""The emulated curves of feature scaling as pure functions in JAX, for densities that a sampler differentiates.

The same tables and splines as in :mod:`solvable.inference.feature_curves`, written so that JAX can compile and
differentiate them: interpolating polynomials in product form, which has no division at the nodes, and the two numbers
that NumPy finds by series and root finding (the initial loss and the plateau of finitely many features) as Chebyshev
polynomials over the box.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.inference import feature_curves
from solvable.inference.emulator import Axis, Emulator
from solvable.inference.splines import Grid

_GRID = Grid(np.log(feature_curves.TIMES))


def polynomial(emulator: Emulator) -> Callable[..., Array]:
    """The emulator as a function of JAX numbers, in the order of its axes.

    Parameters
    ----------
    emulator
        The emulator.
    """
    values = np.asarray(emulator.values, float)
    positions = [axis.positions for axis in emulator.axes]
    spans = [nodes[-1] - nodes[0] for nodes, _ in positions]

    def evaluate(*point: Any) -> Array:
        found = jnp.asarray(values)
        for axis, (nodes, weights), span, value in zip(emulator.axes, positions, spans, point, strict=True):
            away = (axis.coordinate(value, jnp.log) - nodes) * (4 / span)
            # Each node's product leaves its own factor out.
            factors = jnp.where(np.eye(nodes.size, dtype=bool), 1.0, away[None, :])
            found = jnp.tensordot(weights * jnp.prod(factors, axis=1), found, axes=1)
        return found

    return evaluate


def spline(grid: Grid, values: Array, at: Array) -> Array:
    """As :meth:`solvable.inference.splines.Grid.__call__`, in JAX.

    Parameters
    ----------
    grid
        The knots.
    values
        One value per knot.
    at
        Positions.
    """
    knots = jnp.asarray(grid.knots)
    at = jnp.clip(at, knots[0], knots[-1])
    place = jnp.clip(jnp.searchsorted(knots, at, side="right") - 1, 0, knots.size - 2)
    slopes = jnp.asarray(grid.slopes) @ values
    length = knots[place + 1] - knots[place]
    x = (at - knots[place]) / length
    left, right = values[place], values[place + 1]
    first, last = slopes[place] * length, slopes[place + 1] * length
    return left + x * (first + x * (3 * (right - left) - 2 * first - last + x * (2 * (left - right) + first + last)))


@functools.cache
def _initial() -> Callable[..., Array]:
    """The logarithm of the initial loss as a function of capacity times source."""
    low, high = (a * b for a, b in zip(feature_curves.CAPACITY, feature_curves.SOURCE, strict=True))
    axis = Axis.between("product", low, high, 24, log=True)
    values = np.log([[feature_curves.initial(1.0, float(node))] for node in axis.nodes])
    return polynomial(Emulator((axis,), np.ones(1), values))


@functools.cache
def _lazy() -> Callable[..., Array]:
    return polynomial(feature_curves.lazy_table())


@functools.cache
def _shipped(name: str) -> Callable[..., Array]:
    return polynomial(feature_curves.table(name))


def initial(capacity: Any, source: Any) -> Array:
    """The loss before training.

    Parameters
    ----------
    capacity, source
        Parameters of the model.
    """
    return jnp.exp(_initial()(capacity * source)[0])


def emulated(capacity: Any, source: Any, richness: Any, width: float = math.inf, noise: Any = 0.0) -> Array:
    """The logarithm of the loss at the times of the tables.

    Parameters
    ----------
    capacity, source
        Parameters of the model, within the box of the tables.
    richness
        Richness, within the box of the tables, or the number 0.0 for lazy networks.
    width
        Number of features, a plain number, which may be infinite.
    noise
        Learning rate over batch size, within the box of the tables, or the number 0.0 for full batches.
    """
    lazy, full = (isinstance(value, float) and value == 0 for value in (richness, noise))
    found = _lazy()(capacity, source)
    if not lazy:
        found = found + _shipped(feature_curves.INFINITE_TABLE)(capacity, source, richness)
    if not full and lazy:
        found = found + _shipped(feature_curves.LAZY_NOISE_TABLE)(capacity, source, noise)
    elif not full:
        found = found + _shipped(feature_curves.NOISE_TABLE)(capacity, source, richness, noise)
    if math.isinf(width):
        return found
    least = feature_curves.RICHNESS[0] if lazy else richness
    ratio = _shipped(feature_curves.WIDTH_TABLE)(capacity, source, least, width)
    end = jnp.exp(polynomial(feature_curves.plateau_table(width))(capacity, source)[0])
    start = initial(capacity, source)
    above = found - jnp.log(end)
    places = jnp.where(above > 0, above / jnp.log(start / end), above)
    near = jnp.log(end + jnp.exp(found) * (1 - end / start))
    zero = int(np.searchsorted(feature_curves.PLACES, 0.0))
    late = spline(feature_curves.LATE, ratio[: zero + 1], places)
    early = spline(feature_curves.EARLY, ratio[zero:], places)
    return near + jnp.where(places < 0, late, early)


def curve(logs: Array, start: Array, times: Array) -> Array:
    """The loss at any times, continued as :class:`solvable.inference.theory_laws.Curve` does.

    Parameters
    ----------
    logs
        Logarithm of the loss at the times of the tables.
    start
        The loss at time zero.
    times
        Times, zero or more.
    """
    begin, end = float(feature_curves.TIMES[0]), float(feature_curves.TIMES[-1])
    inside = jnp.exp(spline(_GRID, logs, jnp.log(jnp.clip(times, begin, end))))
    early = start + (jnp.exp(logs[0]) - start) * times / begin
    late = jnp.exp(logs[-1] + jnp.asarray(_GRID.slopes[-1]) @ logs * jnp.log(jnp.maximum(times, end) / end))
    return jnp.where(times < begin, early, jnp.where(times > end, late, inside))
