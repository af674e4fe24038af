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

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import is_traced
from solvable.models.feature_scaling.mode_quadrature import Modes
from solvable.models.feature_scaling.optimiser import descent_step, rates_of


class Curve(NamedTuple):
    """What each node adds to the loss, and the factor ``1 + gamma |w|^2 / N`` by which the bulk of the kernel grew."""

    node_loss: Float[Array, "time node"]
    growth: Float[Array, "time"]


def flow(modes: Modes, richness: Any, times: Float[np.ndarray, "time"], per_decade: int = 32) -> Curve:
    """Gradient flow at increasing times, by an exponential midpoint rule: second order, any stiffness, to t = 1e8."""
    grid, places = _grid(modes, times, per_decade)
    eigenvalues, targets = jnp.asarray(modes.eigenvalues), jnp.asarray(modes.targets)
    node_loss, growth = _flow(eigenvalues, targets, jnp.asarray(richness, float), jnp.asarray(np.diff(grid)))
    return Curve(node_loss[places], growth[places])


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
    signal = _root(eigenvalues * targets)

    def change(first: Array, second: Array) -> tuple[Array, Array]:
        """K' / gamma but for its last term, and what that one adds to every eigenvalue; from Delta, Delta Delta^T."""
        mixed = (jnp.outer(signal, first) - second) * eigenvalues
        return mixed + mixed.T, 2 * (signal * first - jnp.diagonal(second)).sum()

    def step(
        state: tuple[Array, Array, Array], length: Array
    ) -> tuple[tuple[Array, Array, Array], tuple[Array, Array]]:
        error, spike, growth = state
        spike_rate, growth_rate = change(error, jnp.outer(error, error))
        growth_middle = growth + length / 2 * richness * growth_rate
        middle = spike + length / 2 * richness * spike_rate + jnp.diag(eigenvalues * growth_middle)
        rates, basis = jnp.linalg.eigh(middle)
        rates = jnp.maximum(rates, 0.0)
        parts = basis.T @ error
        mean = basis @ (_average_decay(rates * length) * parts) * length
        pairs = _average_decay((rates[:, None] + rates) * length) * jnp.outer(parts, parts)
        spike_gain, growth_gain = change(mean, basis @ pairs @ basis.T * length)
        error = basis @ (jnp.exp(-rates * length) * parts)
        spike, growth = spike + richness * spike_gain, growth + richness * growth_gain
        return (error, spike, growth), (error**2, growth)

    start = (signal, jnp.zeros((signal.size, signal.size)), jnp.ones(()))
    _, (losses, growths) = jax.lax.scan(step, start, steps)
    return jnp.concatenate([(signal**2)[None], losses]), jnp.concatenate([jnp.ones(1), growths])


def _average_decay(x: Array) -> Array:
    """``(1 - exp(-x)) / x``."""
    safe = jnp.where(x == 0, 1.0, x)
    return jnp.where(x == 0, 1.0, -jnp.expm1(-safe) / safe)


def _root(values: Array) -> Array:
    """The square root, whose derivative at the zeros of nodes without signal is taken as zero."""
    return jnp.where(values > 0, jnp.sqrt(jnp.where(values > 0, values, 1.0)), 0.0)


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

    node_loss: Float[Array, "time node"]
    growth: Float[Array, "time"]
    averaged_loss: Float[Array, "time"]


def descend(modes: Modes, richness: Any, plan: Steps, steps: int) -> Path:
    """Gradient descent before each of the steps ``0 ... steps - 1``: eq. 4 with ``A(0)^T A(0) / N = 1`` and no noise.

    With ``A = A(0) V`` and ``w = A(0) omega`` the step is ``omega += eta V v2``, ``V += eta gamma omega v2^T``, where
    ``v2 = Lambda v`` and ``v = w* - V^T omega``. Momentum and weight decay act on both (on omega alone if lazy).
    """
    rates = rates_of(plan.learning_rate, steps)
    feature_rates = rates if plan.feature_rate is None else rates_of(plan.feature_rate, steps)
    shares = jnp.ones(steps) if plan.averaging is None else jnp.asarray(plan.averaging)
    lazy = not is_traced(richness) and richness == 0
    momenta = rates_of(plan.momentum, steps)
    numbers = (modes.eigenvalues, modes.targets, richness, rates, feature_rates, shares, momenta)
    arrays = (jnp.asarray(value, float) for value in (*numbers, plan.weight_decay))
    return Path(*_descend(*arrays, plan.nesterov, plan.decoupled, lazy, plan.averaging is not None))


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
    goal = _root(targets)
    Weights = tuple[Array, ...]

    def error_of(weights: Weights) -> Array:
        return goal - (weights[0] if lazy else weights[0] + weights[1].T @ weights[0])

    def step(state: tuple[Weights, Weights, Weights], now: Array) -> tuple[Any, tuple[Array, Array, Array]]:
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
            pulls = (gradient + weights[1] @ gradient, richness * jnp.outer(weights[0], gradient))
            # What is kept of the features is V - 1; weight decay acts on V.
            weights = (weights[0], weights[1] + jnp.eye(goal.size))
        each = (rate, feature_rate)
        moves = [descent_step(w, v, p, r, *how) for w, v, p, r in zip(weights, velocity, pulls, each, strict=False)]
        weights, velocity = (tuple(part) for part in zip(*moves, strict=True))
        if not lazy:
            weights = (weights[0], weights[1] - jnp.eye(goal.size))
        return (weights, velocity, mean), saved

    start = (jnp.zeros_like(goal),) + (() if lazy else (jnp.zeros((goal.size, goal.size)),))
    return jax.lax.scan(step, (start, start, start), jnp.stack([rates, feature_rates, shares, momenta], 1))[1]
