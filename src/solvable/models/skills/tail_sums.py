"""Sums over all whole numbers of a smooth function: Euler-Maclaurin on a logarithmic grid, no truncation.

A sum from ``a`` on equals the integral from ``a - 1/2`` on plus a few weighted differences of the summand at the whole
numbers around ``a`` (Euler-Maclaurin, with derivatives replaced by central differences of matching order). So a sum to
``N`` costs a short direct sum, Gauss quadrature of the logarithm between, and sixteen values at the end, and all ends
that are asked for share one set of points.

>>> from math import pi
>>> from solvable.models.skills.tail_sums import power_sum
>>> round(float(power_sum(2.0, 1)) - pi**2 / 6, 12)
0.0
"""

from collections.abc import Callable
from fractions import Fraction
from math import comb, factorial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from solvable.checks import is_traced
from solvable.numerics.arrays import numpy_unless_traced

_PAIRS = 8
_NODES = 16
# Terms of a zeta function that are added one by one before Euler-Maclaurin takes over.
_ZETA_HEAD = 24
_MOST_PANELS = 100_000
# A grid has at least this many terms and panels, so that most sums have the same shape, and share compiled code.
_LEAST_HEAD, _LEAST_PANELS = 256, 128


def _end_weights(pairs: int) -> np.ndarray:
    """``w`` with ``sum_{k >= a} f(k) = integral_{a-1/2} f + sum_j w_j (f(a+j) - f(a-1-j))``.

    Exact for polynomials of degree ``2 pairs``: on ``f = exp(-t x)`` both sides must agree in the powers of ``t``,
    where the sum less the integral is ``sum_n B_2n(1/2) t^(2n-1) / (2n)!``. Solved in fractions, because the system is
    ill conditioned.
    """
    bernoulli = [Fraction(1)]
    for n in range(1, 2 * pairs + 1):
        bernoulli.append(-sum(comb(n + 1, j) * bernoulli[j] for j in range(n)) / Fraction(n + 1))
    rows = []
    for n in range(1, pairs + 1):
        at_half = (Fraction(1, 2 ** (2 * n - 1)) - 1) * bernoulli[2 * n]
        powers = [-2 * Fraction(2 * j + 1, 2) ** (2 * n - 1) / factorial(2 * n - 1) for j in range(pairs)]
        rows.append([*powers, at_half / factorial(2 * n)])
    for column in range(pairs):
        pivot = rows[column][column]
        rows[column] = [entry / pivot for entry in rows[column]]
        for other in range(pairs):
            if other != column:
                factor = rows[other][column]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[column], strict=True)]
    return np.array([float(row[-1]) for row in rows])


_WEIGHTS = _end_weights(_PAIRS)
_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(_NODES)


class SumGrid(NamedTuple):
    """Where a summand must be known so that its sums to several ends follow; see :func:`partial_sums`.

    A PyTree of arrays. Their lengths are rounded up, so that grids for similar sums share compiled code.
    """

    first: np.ndarray
    """The whole numbers that are added one by one, and eight more."""
    nodes: np.ndarray
    """Gauss nodes, one row per panel."""
    weights: np.ndarray
    around: np.ndarray
    """Whole numbers around each end that lies beyond the head, one row per end."""
    panels_to_end: np.ndarray
    """How many panels lie below each of these ends."""
    pick: np.ndarray
    """For each end that was asked for, its row among the direct sums and the ends beyond the head."""
    reach: float
    """Where the panels end."""

    @property
    def points(self) -> Any:
        """All arguments at which the summand is needed."""
        xp = jnp if is_traced(self.first, self.nodes, self.around) else np
        return xp.concatenate([xp.ravel(part) for part in (self.first, self.nodes, self.around)])

    @property
    def size(self) -> int:
        return self.first.size + self.nodes.size + self.around.size


def sum_grid(ends: np.ndarray, head: int, width: Callable[[float], float], reach: float | None = None) -> SumGrid:
    """A grid for sums from 1 to each of ``ends`` (whole numbers, any order), and on to the real number ``reach`` or
    the last end, whichever is later.

    The summand is added one by one up to ``head``. Beyond, ``width(log k)`` says how wide in ``log k`` a panel may be
    for the summand to be a polynomial of degree 31 there, to the accuracy wanted; near ``head`` it must be smooth
    on the scale of one.
    """
    head = rounded_up(int(head), _LEAST_HEAD)
    ends = np.asarray(ends, dtype=float)
    far = np.unique(ends[ends > head])
    stops = np.log(far + 0.5)
    if reach is not None and reach > head + 0.5:
        stops = np.union1d(stops, np.log(reach))
    edges = _edges(float(np.log(head + 0.5)), stops, width)
    half = np.diff(edges)[:, None] / 2
    nodes = np.exp(edges[:-1, None] + half * (1 + _GAUSS_NODES))
    # Empty panels, and ends that nobody picks, change nothing but the shape.
    wanted = rounded_up(len(nodes), _LEAST_PANELS) if len(nodes) else 0
    empty, unused = wanted - len(nodes), rounded_up(ends.size) - far.size
    around = [_around(end) for end in far] + [np.ones(2 * _PAIRS)] * unused
    last = float(np.exp(edges[-1]))
    return SumGrid(
        first=np.arange(1.0, head + _PAIRS + 1),
        nodes=np.concatenate([nodes, np.full((empty, _NODES), last)]),
        weights=np.concatenate([half * _GAUSS_WEIGHTS * nodes, np.zeros((empty, _NODES))]),
        around=np.stack(around),
        panels_to_end=np.concatenate([np.searchsorted(edges, np.log(far + 0.5)), np.zeros(unused, int)]),
        pick=np.where(ends > head, head + 1 + np.searchsorted(far, ends), np.minimum(ends, head)).astype(int),
        reach=last,
    )


def rounded_up(count: int, least: int = 8) -> int:
    """The next power of two: arrays whose lengths are rounded up share compiled code."""
    return max(least, 1 << max(count - 1, 0).bit_length())


def _edges(start: float, stops: np.ndarray, width: Callable[[float], float]) -> np.ndarray:
    """Panels from ``start`` on, at most as wide as asked, with an edge at each stop."""
    edges = [start]
    for stop in stops:
        while edges[-1] < stop:
            step, left = width(edges[-1]), stop - edges[-1]
            # The last two panels before a stop share what is left, so that none is needlessly thin.
            edges.append(stop if left <= step else edges[-1] + min(step, max(left / 2, step / 2)))
            if len(edges) > _MOST_PANELS:
                raise ValueError(f"the sum needs more than {_MOST_PANELS} panels: its summand varies too fast")
    return np.array(edges)


def _around(end: float) -> np.ndarray:
    """The points of the correction at an end: those above it, then those below, nearest first."""
    return np.concatenate([end + 1 + np.arange(_PAIRS), end - np.arange(_PAIRS)])


def _end_difference(xp: Any, values: Any) -> Any:
    """The weighted differences of values at the points of :func:`_around`, which lie on the second-last axis."""
    return xp.einsum("j,...jt->...t", _WEIGHTS, values[..., :_PAIRS, :] - values[..., _PAIRS:, :])


@numpy_unless_traced
def partial_sums(xp: Any, grid: SumGrid, values: Any) -> tuple[Any, Any]:
    """Sums from the values at ``grid.points`` (points on the first axis, anything on the second).

    Gives the sum from 1 to each end, and the sum on to ``grid.reach``, to which what follows is to be added as an
    integral from there (no correction for an end is made).
    """
    head, columns = grid.first.size - _PAIRS, values.shape[-1]
    direct = xp.concatenate([xp.zeros_like(values[:1]), xp.cumsum(values[:head], axis=0)])
    lower = xp.concatenate([values[head : head + _PAIRS], values[head - _PAIRS : head][::-1]])
    start = direct[head] + _end_difference(xp, lower)
    split = grid.first.size + grid.nodes.size
    inner = values[grid.first.size : split].reshape(*grid.nodes.shape, columns)
    panels = xp.cumsum(xp.einsum("pn,pnt->pt", grid.weights, inner), axis=0)
    panels = start + xp.concatenate([xp.zeros_like(values[:1]), panels])
    around = values[split:].reshape(*grid.around.shape, columns)
    beyond = panels[grid.panels_to_end] - _end_difference(xp, around)
    return xp.concatenate([direct, beyond])[grid.pick], panels[-1]


def power_sum(power: Any, first: Any, last: Any = np.inf) -> Any:
    """``sum k^-power`` for ``k`` from ``first`` to ``last`` (plain whole numbers or infinity; arrays are paired).

    The Hurwitz zeta function where ``last`` is infinite. Differentiable in ``power``, which must exceed one;
    empty where ``last`` is below ``first``. Accurate to rounding of the largest term.
    """
    return _power_sum(power, first, last)


@numpy_unless_traced
def _power_sum(xp: Any, power: Any, first: Any, last: Any) -> Any:
    first, last = xp.broadcast_arrays(xp.asarray(first, float), xp.asarray(last, float))
    # Where nothing is to be added both ends are put at the same place.
    after = xp.where(last < first, first, last + 1)
    infinite = xp.isinf(after)
    after = xp.where(infinite, first, after)
    begin, end = first + _ZETA_HEAD - 0.5, after + _ZETA_HEAD - 0.5
    share = xp.where(infinite, 1.0, -xp.expm1((1 - power) * xp.log(end / begin)))
    integral = xp.exp((1 - power) * xp.log(begin)) * share / (power - 1)
    return integral + _without_integral(xp, power, first) - xp.where(infinite, 0.0, _without_integral(xp, power, after))


def _without_integral(xp: Any, power: Any, first: Any) -> Any:
    """The sum from ``first`` on, less its integral from ``first + _ZETA_HEAD - 1/2``."""
    below = first[..., None] + np.arange(_ZETA_HEAD)
    above = first[..., None] + _ZETA_HEAD + np.arange(_PAIRS)
    terms = xp.exp(-power * xp.log(below))
    nearest = terms[..., ::-1][..., :_PAIRS]
    return terms.sum(-1) + ((xp.exp(-power * xp.log(above)) - nearest) * _WEIGHTS).sum(-1)
