"""A few weighted modes in place of many: how a spectrum of any length enters sums that are smooth in its eigenvalues.

A kernel's modes matter through sums ``sum_k f(lambda_k)`` and ``sum_k w_k^2 g(lambda_k)`` only, with f and g smooth in
``log lambda`` down to ``1 / scale``, where ``scale`` is the longest time (times the kernel's growth), and linear below.
Some seventy nodes then do the work of a million modes:

- :func:`power_law_modes` for ``lambda_k = k^-a``, ``lambda_k w_k^2 = k^(-a b - 1)``, infinitely many modes included:
  the head exactly, an Euler-Maclaurin junction, Gauss-Legendre panels uniform in ``log lambda``, two tail nodes;
- :func:`compress_modes` for measured spectra, and for power laws of fewer than 1e5 modes: the head exactly, the rest
  interpolated to Chebyshev nodes. It sums over the modes that are there, so that the last mode's exponential decay is
  right too, which an integral over modes gets wrong.

>>> from solvable.models.feature_scaling.mode_quadrature import power_law_modes
>>> nodes = power_law_modes(capacity=1.5, source=0.5, modes=1e6, scale=1e4)
>>> len(nodes.ranks) < 100, round(float((nodes.counts * nodes.eigenvalues).sum()), 3)
(True, 2.61)
"""

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from solvable.checks import is_traced

if TYPE_CHECKING:
    from solvable.models.feature_scaling.model import FeatureScaling

# Spectra up to this length are taken as they are.
_FEW = 64
# Power laws up to this length are summed mode by mode when they are compressed.
LONGEST_LIST = 100_000
_PANEL = 8
# Logarithms of eigenvalues that differ by less than this are those of one eigenvalue.
_EQUAL = 1e-12
_CHEBYSHEV = 12
# Exact modes at the head, nodes per decade of eigenvalues, and how far below 1 / time the spectrum is resolved.
_STANDARD = {"head": 12, "per_decade": 6.0, "reach": 1e2}
_FINE = {"head": 24, "per_decade": 9.0, "reach": 1e4}


class Modes(NamedTuple):
    """Weighted modes. The two tail nodes have no ``counts`` or no ``targets``; ``ranks`` may lie between integers."""

    ranks: Any
    eigenvalues: Any
    counts: Any
    # Sum of the squared target coefficients of the modes that a node stands for.
    targets: Any

    @property
    def trace(self) -> Any:
        return (self.counts * self.eigenvalues).sum()

    @property
    def signal(self) -> Any:
        """The variance of the target, which is the loss before training."""
        return (self.targets * self.eigenvalues).sum()


def power_law_modes(
    capacity: Any,
    source: Any,
    modes: float,
    scale: float,
    *,
    head: int = 16,
    per_decade: float = 7.0,
    reach: float = 1e3,
) -> Modes:
    """Nodes for ``lambda_k = k^-capacity``, ``lambda_k w_k^2 = k^(-capacity source - 1)``, ``k = 1 ... modes``.

    Modes weaker than ``1 / (reach scale)`` are two nodes: one with their trace, one with their signal, each at the
    eigenvalue that makes the next order in ``lambda`` right. ``capacity`` and ``source`` may be traced; the nodes are
    then placed for any capacity up to 3.
    """
    if modes <= (_FEW if is_traced(capacity, source) else LONGEST_LIST):
        ranks = np.arange(1.0, modes + 1)
        values = _power_law(ranks, np.ones_like(ranks), capacity, source)
        return values if modes <= _FEW else compress_modes(*values[1::2], scale, head=head, reach=reach)
    placed = 3.0 if is_traced(capacity) else capacity
    furthest = (reach * scale) ** (1 / (1.25 if is_traced(capacity) else capacity))
    furthest = min(max(furthest, 2.0 * head), modes)
    ranks, weights = _ranks(head, furthest, per_decade * placed)
    nodes = _power_law(ranks, weights, capacity, source)
    return _with_power_law_tail(nodes, capacity, source, furthest + 0.5, modes + 0.5) if furthest < modes else nodes


def _ranks(head: int, last: float, per_decade: float) -> tuple[np.ndarray, np.ndarray]:
    """The first ranks exactly, then Gauss-Legendre panels of equal length in ``log k`` up to ``last + 1/2``."""
    exact = np.arange(1.0, head + 2)
    weights = np.ones(head + 2 - 1)
    # The midpoint rule's error at the junction, f'/24, taken from the two modes beside it (Euler-Maclaurin).
    weights[-2:] = 23 / 24, 1 / 24
    low, high = math.log(head + 0.5), math.log(last + 0.5)
    panels = max(1, math.ceil(per_decade * (high - low) / math.log(10) / _PANEL))
    points, areas = np.polynomial.legendre.leggauss(_PANEL)
    half = (high - low) / panels / 2
    middles = low + half * (2 * np.arange(panels) + 1)
    positions = np.exp(middles[:, None] + half * points).ravel()
    return np.concatenate([exact, positions]), np.concatenate([weights, np.tile(areas, panels) * half * positions])


def _power_law(ranks: np.ndarray, weights: np.ndarray, capacity: Any, source: Any) -> Modes:
    return Modes(ranks, ranks**-capacity, weights, weights * ranks ** (capacity * (1 - source) - 1))


def _with_power_law_tail(nodes: Modes, capacity: Any, source: Any, begin: float, end: float) -> Modes:
    def integral(power: Any) -> Any:
        rest = 0.0 if end == math.inf else end ** (1 - power)
        return (begin ** (1 - power) - rest) / (power - 1)

    of_trace, of_signal = integral(capacity), integral(capacity * source + 1)
    trace_node = integral(2 * capacity) / of_trace
    # A signal that falls so steeply that nothing of it is left in float64 has no place of its own either.
    lost = not is_traced(of_signal) and of_signal < 1e-290
    signal_node = trace_node if lost else integral(capacity * source + 1 + capacity) / of_signal
    return _join(nodes, _tail(begin, trace_node, of_trace, signal_node, of_signal))


def _tail(rank: float, trace_node: Any, trace: Any, signal_node: Any, signal: Any) -> Modes:
    return Modes((rank, rank), (trace_node, signal_node), (trace / trace_node, 0.0), (0.0, signal / signal_node))


def _join(first: Modes, second: Modes) -> Modes:
    library: Any = jnp if is_traced(first, second) else np
    return Modes(
        *(library.concatenate([library.asarray(a), library.asarray(b)]) for a, b in zip(first, second, strict=True))
    )


def compress_modes(
    eigenvalues: Float[np.ndarray, "mode"],
    targets: Float[np.ndarray, "mode"],
    scale: float,
    *,
    head: int = 16,
    per_decade: float = 12.0,
    reach: float = 1e3,
) -> Modes:
    """Nodes for a list of eigenvalues and squared target coefficients; a short list is returned as it is.

    Smooth functions are interpolated in ``log lambda`` through Chebyshev points, panel by panel; panels halve towards
    the smallest eigenvalue where that one is fast enough (``lambda scale > 0.1``) for its decay to be seen.
    """
    order = np.argsort(-eigenvalues, kind="stable")
    eigenvalues, targets = eigenvalues[order], targets[order]
    ranks = np.arange(1.0, eigenvalues.size + 1)
    weak = eigenvalues * scale * reach < 1
    weak[: max(head, _FEW)] = False
    kept = ranks.size - int(weak.sum())
    middle = slice(head, kept)
    if kept <= _FEW:
        nodes = Modes(ranks[:kept], eigenvalues[:kept], np.ones(kept), targets[:kept])
    else:
        first = Modes(ranks[:head], eigenvalues[:head], np.ones(head), targets[:head])
        nodes = _join(first, _interpolated(ranks[middle], eigenvalues[middle], targets[middle], scale, per_decade))
        if nodes.ranks.size >= kept:
            nodes = Modes(ranks[:kept], eigenvalues[:kept], np.ones(kept), targets[:kept])
    if kept == ranks.size:
        return nodes
    rest, signal = eigenvalues[kept:], eigenvalues[kept:] * targets[kept:]
    trace_node = (rest**2).sum() / rest.sum()
    signal_node = (rest * signal).sum() / signal.sum() if signal.any() else trace_node
    return _join(nodes, _tail(float(kept + 1), trace_node, rest.sum(), signal_node, signal.sum()))


def _interpolated(
    ranks: np.ndarray, eigenvalues: np.ndarray, targets: np.ndarray, scale: float, per_decade: float
) -> Modes:
    logs = np.log(eigenvalues)
    low, high = logs[-1] - 1e-9, logs[0] + 1e-9
    panels = max(1, math.ceil(per_decade * (high - low) / math.log(10) / _CHEBYSHEV))
    edges = np.linspace(high, low, panels + 1)
    speed = 2 * scale * eigenvalues[-1] * (edges[-2] - edges[-1])
    halvings = min(max(0, math.ceil(math.log2(speed))), 6) if speed > 0.2 else 0
    inner = edges[-1] + (edges[-2] - edges[-1]) * 0.5 ** np.arange(1, halvings + 1)
    edges = np.concatenate([edges[:-1], inner, edges[-1:]])
    parts = [_panel(ranks, logs, targets, top, bottom) for top, bottom in itertools.pairwise(edges)]
    return Modes(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _panel(ranks: np.ndarray, logs: np.ndarray, targets: np.ndarray, top: float, bottom: float) -> Modes:
    """Chebyshev nodes for the modes between two values of ``log lambda``; the modes themselves where they are few.

    Weights must be positive, or a node would be a mode of negative variance; a panel that makes such is halved. Modes
    of one eigenvalue are one node.
    """
    inside = (logs <= top) & (logs > bottom)
    ranks, logs, targets = ranks[inside], logs[inside], targets[inside]
    if ranks.size <= _CHEBYSHEV:
        return Modes(ranks, np.exp(logs), np.ones(ranks.size), targets)
    if np.ptp(logs) < _EQUAL:
        one = ranks.mean(), np.exp(logs.mean()), float(ranks.size), targets.sum()
        return Modes(*(np.array([value]) for value in one))
    angles = np.pi * (np.arange(_CHEBYSHEV) + 0.5) / _CHEBYSHEV
    middle, half = (top + bottom) / 2, (top - bottom) / 2
    distance = ((logs - middle) / half)[:, None] - np.cos(angles)
    ratio = (-1.0) ** np.arange(_CHEBYSHEV) * np.sin(angles) / np.where(distance == 0, 1e-300, distance)
    share = ratio / ratio.sum(axis=1, keepdims=True)
    # Interpolating lambda w^2 / lambda keeps the total signal of the panel exact.
    counts, signal = share.sum(axis=0), share.T @ (np.exp(logs) * targets)
    if (counts <= 0).any() or (signal < 0).any():
        upper, lower = _panel(ranks, logs, targets, top, middle), _panel(ranks, logs, targets, middle, bottom)
        return Modes(*(np.concatenate(pair) for pair in zip(upper, lower, strict=True)))
    nodes = np.exp(middle + half * np.cos(angles))
    return Modes(share.T @ ranks / counts, nodes, counts, signal / nodes)


def static_error(nodes: Modes, finer: Modes, times: Float[np.ndarray, "time"]) -> float:
    """Largest relative difference of loss, noise and degrees of freedom between two sets of nodes over the times."""

    def sums(modes: Modes) -> np.ndarray:
        rates = np.multiply.outer(times, modes.eigenvalues)
        signal, trace = modes.eigenvalues * modes.targets, modes.eigenvalues * modes.counts
        decay = np.exp(-2 * rates)
        rows = (
            decay @ signal,
            decay @ (trace * modes.eigenvalues),
            (trace / (1 + rates)).sum(1),
            (signal / (1 + rates)).sum(1),
        )
        return np.stack(rows)

    coarse, fine = sums(nodes), sums(finer)
    # What has decayed to rounding has no meaningful relative error.
    seen = fine > 1e-12 * fine.max(axis=1, keepdims=True)
    return float(np.max(np.abs(coarse - fine)[seen] / fine[seen]))


def nodes(model: "FeatureScaling", scale: float, fine: bool = False) -> Modes:
    """Weighted modes for times up to ``scale``, which includes the kernel's growth."""
    settings: dict[str, Any] = dict(_FINE if fine else _STANDARD)
    if model.spectrum is None:
        return power_law_modes(model.capacity, model.source, model.mode_count, scale, **settings)
    if is_traced(model.spectrum, model.target):
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
