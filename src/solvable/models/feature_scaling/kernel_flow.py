"""A linear network of infinite width on the whole population: the kernel and the error move together, without noise.

With ``Delta_k = sqrt(lambda_k) v_k``, ``y_k = sqrt(lambda_k) w_k`` and ``Lambda = diag(lambda)`` (feature-scaling,
eqs. 51, 52, which hold as printed):

    Delta' = -K Delta
    K'     = gamma [(y - Delta) Delta^T Lambda + Lambda Delta (y - Delta)^T + 2 (y - Delta).Delta Lambda], K(0) = Lambda

:func:`flow` steps through it on logarithmic times with exact exponentials; :func:`descend` takes the steps of
gradient descent on the network itself. Modes of one eigenvalue stay parallel to the target, so nodes do for modes.

>>> import numpy as np
>>> from solvable.models.feature_scaling.kernel_flow import flow
>>> from solvable.models.feature_scaling.mode_quadrature import power_law_modes
>>> modes = power_law_modes(capacity=1.5, source=0.5, modes=100, scale=100.0)
>>> lazy, rich = (flow(modes, richness, np.array([1.0, 100.0])).node_loss.sum(1) for richness in (0.0, 1.0))
>>> bool(rich[-1] < lazy[-1])
True
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import is_traced
from solvable.models.feature_scaling.mode_quadrature import Modes
from solvable.models.feature_scaling.optimiser import descent_step, rates_of

# Up to this many steps of gradient descent compiling takes longer than the steps.
_MOST_LOOPED = 10_000


class Curve(NamedTuple):
    """What each node adds to the loss, and the factor ``1 + gamma |w|^2 / N`` by which the bulk of the kernel grew."""

    node_loss: Float[Array | np.ndarray, "time node"]
    growth: Float[Array | np.ndarray, "time"]


def flow(modes: Modes, richness: Any, times: Float[np.ndarray, "time"], per_decade: int = 32) -> Curve:
    """Gradient flow at increasing times, by an exponential midpoint rule: second order, any stiffness.

    Rounding of the largest eigenvalue of the kernel, times t, is an error of the slow modes.
    """
    grid, places = _grid(modes, times, per_decade)
    if _is_compiled(modes, richness):
        eigenvalues, targets = jnp.asarray(modes.eigenvalues), jnp.asarray(modes.targets)
        node_loss, growth = _flow(eigenvalues, targets, jnp.asarray(richness, float), jnp.asarray(np.diff(grid)))
        return Curve(node_loss[places], growth[places])
    numbers = (np.asarray(modes.eigenvalues, float), np.asarray(modes.targets, float), float(richness))
    start, step = _flow_equations(*numbers, np)
    losses, growths = _followed(start, step, np.diff(grid))
    return Curve(np.concatenate([(start[0] ** 2)[None], losses])[places], np.append(1.0, growths)[places])


def _is_compiled(*values: Any) -> bool:
    """Whether JAX compiles the steps: on accelerators, and where something is traced.

    On a CPU steps are products of small matrices, for which NumPy takes as long, and compiling takes a second.
    """
    return jax.default_backend() != "cpu" or is_traced(*values)


def _grid(modes: Modes, times: np.ndarray, per_decade: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps that grow with time from a fraction of the fastest mode's, and hit each of the times asked for."""
    eigenvalues = modes.eigenvalues
    fastest = 1.0 if isinstance(eigenvalues, jax.core.Tracer) else float(np.max(eigenvalues))
    begin, last = 0.3 / fastest, float(times[-1])
    count = max(2, int(np.ceil(np.log1p(last / begin) / np.log(10) * per_decade)))
    grid = begin * np.expm1(np.linspace(0, np.log1p(last / begin), count + 1))
    # A grid time that all but coincides with one asked for would only make a tiny step.
    near = np.min(np.abs(grid[:, None] - times) / np.maximum(times, begin), axis=1) < 0.2 / per_decade
    grid = np.union1d(np.append(grid[~near], 0.0), times)
    return grid, np.searchsorted(grid, times)


@jax.jit
def _flow(eigenvalues: Array, targets: Array, richness: Array, steps: Array) -> tuple[Array, Array]:
    start, step = _flow_equations(eigenvalues, targets, richness, jnp)
    _, (losses, growths) = jax.lax.scan(step, start, steps)
    return jnp.concatenate([(start[0] ** 2)[None], losses]), jnp.concatenate([jnp.ones(1), growths])


def _flow_equations(eigenvalues: Any, targets: Any, richness: Any, library: Any) -> tuple[Any, Callable[..., Any]]:
    """The start and a step of the flow, in the operations of NumPy or of JAX."""
    signal = _root(eigenvalues * targets, library)

    def change(first: Any, second: Any) -> tuple[Any, Any]:
        """K' / gamma but for its last term, and what that one adds to every eigenvalue; from Delta, Delta Delta^T."""
        mixed = (library.outer(signal, first) - second) * eigenvalues
        return mixed + mixed.T, 2 * (signal * first - library.diagonal(second)).sum()

    def step(state: tuple[Any, Any, Any], length: Any) -> tuple[tuple[Any, Any, Any], tuple[Any, Any]]:
        error, spike, growth = state
        spike_rate, growth_rate = change(error, library.outer(error, error))
        growth_middle = growth + length / 2 * richness * growth_rate
        middle = spike + length / 2 * richness * spike_rate + library.diag(eigenvalues * growth_middle)
        rates, basis = library.linalg.eigh(middle)
        rates = library.maximum(rates, 0.0)
        parts = basis.T @ error
        mean = basis @ (_average_decay(rates * length, library) * parts) * length
        pairs = _average_decay((rates[:, None] + rates) * length, library) * library.outer(parts, parts)
        spike_gain, growth_gain = change(mean, basis @ pairs @ basis.T * length)
        error = basis @ (library.exp(-rates * length) * parts)
        spike, growth = spike + richness * spike_gain, growth + richness * growth_gain
        return (error, spike, growth), (error**2, growth)

    return (signal, library.zeros((signal.size, signal.size)), library.ones(())), step


def _average_decay(x: Any, library: Any) -> Any:
    """``(1 - exp(-x)) / x``."""
    safe = library.where(x == 0, 1.0, x)
    return library.where(x == 0, 1.0, -library.expm1(-safe) / safe)


def _root(values: Any, library: Any) -> Any:
    """The square root, whose derivative at the zeros of nodes without signal is taken as zero."""
    return library.where(values > 0, library.sqrt(library.where(values > 0, values, 1.0)), 0.0)


def _followed(start: Any, step: Callable[..., Any], inputs: Any) -> list[np.ndarray]:
    """What each step saves, as ``jax.lax.scan`` would return it, without compiling anything."""
    state, saved = start, []
    # What diverges ends in infinities, which the caller looks for.
    with np.errstate(over="ignore", invalid="ignore"):
        for value in inputs:
            state, found = step(state, value)
            saved.append(found)
    return [np.array(column) for column in zip(*saved, strict=True)]


class Steps(NamedTuple):
    """Steps of gradient descent; rates and momentum are one number, or one number per step."""

    learning_rate: Any
    # None for that of the readout.
    feature_rate: Any = None
    momentum: Any = 0.0
    nesterov: bool = False
    weight_decay: Any = 0.0
    decoupled: bool = False
    # Share of the weights at each time in their average, if there is one.
    averaging: Float[np.ndarray, "time"] | None = None


class Path(NamedTuple):
    """As :class:`Curve`, with the loss of the averaged weights; without an average, of the weights themselves."""

    node_loss: Float[Array | np.ndarray, "time node"]
    growth: Float[Array | np.ndarray, "time"]
    averaged_loss: Float[Array | np.ndarray, "time"]


def descend(modes: Modes, richness: Any, plan: Steps, steps: int) -> Path:
    """Gradient descent before each of the steps ``0 ... steps - 1``: eq. 4 with ``A(0)^T A(0) / N = 1`` and no noise.

    With ``A = A(0) V`` and ``w = A(0) omega`` the step is ``omega += eta V v2``, ``V += eta gamma omega v2^T``, where
    ``v2 = Lambda v`` and ``v = w* - V^T omega``. Momentum and weight decay act on both (on omega alone if lazy).
    """
    rates = rates_of(plan.learning_rate, steps)
    feature_rates = rates if plan.feature_rate is None else rates_of(plan.feature_rate, steps)
    shares = np.ones(steps) if plan.averaging is None else plan.averaging
    lazy = not is_traced(richness) and richness == 0
    momenta = rates_of(plan.momentum, steps)
    numbers = (modes.eigenvalues, modes.targets, richness, rates, feature_rates, shares, momenta, plan.weight_decay)
    kind = (plan.nesterov, plan.decoupled, lazy, plan.averaging is not None)
    if steps > _MOST_LOOPED or _is_compiled(numbers):
        return Path(*_descend(*(jnp.asarray(value, float) for value in numbers), *kind))
    eigenvalues, targets, gamma, *by_step, decay = (np.asarray(value, float) for value in numbers)
    start, step = _descent_equations(eigenvalues, targets, gamma, decay, *kind, np)
    return Path(*_followed(start, step, np.stack(by_step, 1)))


@partial(jax.jit, static_argnames=("nesterov", "decoupled", "lazy", "averaged"))
def _descend(
    eigenvalues: Array,
    targets: Array,
    richness: Array,
    rates: Array,
    feature_rates: Array,
    shares: Array,
    momenta: Array,
    decay: Array,
    nesterov: bool,
    decoupled: bool,
    lazy: bool,
    averaged: bool,
) -> tuple[Array, Array, Array]:
    start, step = _descent_equations(eigenvalues, targets, richness, decay, nesterov, decoupled, lazy, averaged, jnp)
    return jax.lax.scan(step, start, jnp.stack([rates, feature_rates, shares, momenta], 1))[1]


def _descent_equations(
    eigenvalues: Any,
    targets: Any,
    richness: Any,
    decay: Any,
    nesterov: bool,
    decoupled: bool,
    lazy: bool,
    averaged: bool,
    library: Any,
) -> tuple[Any, Callable[..., Any]]:
    """The start and a step of gradient descent, in the operations of NumPy or of JAX."""
    goal = _root(targets, library)
    Weights = tuple[Any, ...]

    def error_of(weights: Weights) -> Any:
        return goal - (weights[0] if lazy else weights[0] + weights[1].T @ weights[0])

    def step(state: tuple[Weights, Weights, Weights], now: Any) -> tuple[Any, tuple[Any, Any, Any]]:
        weights, velocity, mean = state
        rate, feature_rate, share, momentum = now
        error = error_of(weights)
        mean = jax.tree.map(lambda old, new: old + share * (new - old), mean, weights) if averaged else mean
        of_mean = (eigenvalues * error_of(mean if averaged else weights) ** 2).sum()
        saved = eigenvalues * error**2, 1 + richness * (weights[0] ** 2).sum(), of_mean
        gradient = eigenvalues * error
        how = (momentum, decay, nesterov, decoupled)
        if lazy:
            pulls: Weights = (gradient,)
        else:
            pulls = (gradient + weights[1] @ gradient, richness * library.outer(weights[0], gradient))
            # What is kept of the features is V - 1; weight decay acts on V.
            weights = (weights[0], weights[1] + library.eye(goal.size))
        each = (rate, feature_rate)
        moves = [descent_step(w, v, p, r, *how) for w, v, p, r in zip(weights, velocity, pulls, each, strict=False)]
        weights, velocity = (tuple(part) for part in zip(*moves, strict=True))
        if not lazy:
            weights = (weights[0], weights[1] - library.eye(goal.size))
        return (weights, velocity, mean), saved

    zeros = (library.zeros_like(goal),) + (() if lazy else (library.zeros((goal.size, goal.size)),))
    return (zeros, zeros, zeros), step
