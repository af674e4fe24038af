r"""Functions on the circle whose Fourier coefficients fall as a power: a task whose source and capacity are known.

The target is ``y(θ) = sum_k k^-q cos(k θ + phase_k)`` of the input ``(cos θ, sin θ)`` (feature-scaling, eq. 13). The
kernel of a wide network with activations ``max(0, h)^power`` has the waves as eigenfunctions, with eigenvalues
``~ k^(-2 power)``; so the capacity is ``α = 2 power`` and the source ``β = (2 q - 1) / (2 power)`` (eq. 14).
"""

import math
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.checks import check_choice, check_count, is_traced
from solvable.networks.sources import Fixed, Fresh
from solvable.precision import in_float64

Kind = Literal["population", "fresh"]
_HARMONICS_AT_ONCE = 256


def fourier_decay(source: Any, capacity: Any = 2.0) -> Any:
    """``q = (1 + α β) / 2``: how fast coefficients must fall for this source, given the capacity of the kernel.

    >>> fourier_decay(0.5, capacity=2.0)
    1.0
    """
    for name, value in (("source", source), ("capacity", capacity)):
        if not is_traced(value) and not 0 < float(value) < math.inf:
            raise ValueError(f"{name} must be a positive finite number, not {value!r}")
    return (1 + capacity * source) / 2


@in_float64
def circle(
    decay: Any = None,
    *,
    source: Any = None,
    capacity: Any = 2.0,
    kind: Kind = "population",
    points: int = 1024,
    modes: int | None = None,
    random_phases: bool = False,
    key: jax.Array | None = None,
    dtype: Any = jnp.float32,
) -> Fixed | Fresh:
    """The task, given by the decay q of its coefficients, or by its source (and capacity) instead.

    ``kind="population"`` trains on a grid of ``points`` angles, which integrates products of waves below ``points / 2``
    exactly: descent on it is descent on the population. ``kind="fresh"`` draws new angles every step and tests on the
    grid. The target has the first ``modes`` waves, by default all that the grid resolves. With ``random_phases`` they
    are drawn from ``key``; otherwise the target is even and largest at 0. Decay, source and capacity may be traced.

    >>> task = circle(source=0.5, points=8)
    >>> task.inputs.shape, task.targets.shape, round(float(task.targets[0, 0]), 4)
    ((8, 2), (8, 1), 1.8333)
    """
    check_choice("kind", kind, get_args(Kind))
    check_count("points", points)
    if (decay is None) == (source is None):
        raise ValueError("give either decay, of the coefficients, or source (with capacity)")
    decay = fourier_decay(source, capacity) if decay is None else decay
    if not is_traced(decay) and not 0.5 < float(decay) < math.inf:
        raise ValueError(f"decay must be above 1/2, or the target has no finite norm, not {decay!r}")
    resolved = (points - 1) // 2
    modes = resolved if modes is None else check_count("modes", modes)
    if not 1 <= modes <= resolved:
        raise ValueError(
            f"modes must lie between 1 and {resolved}, what a grid of {points} points resolves, not {modes}: "
            "give more points"
        )
    phases = None
    if random_phases:
        if key is None:
            raise ValueError("random phases need a key, a jax.random.key")
        phases = jax.random.uniform(key, (modes,), jnp.float64, 0, 2 * math.pi)

    def pairs(angles: Array) -> tuple[Array, Array]:
        values = circle_target(angles, decay, modes, phases)
        return circle_inputs(angles).astype(dtype), values[:, None].astype(dtype)

    grid = pairs(circle_grid(points))
    if kind == "population":
        return Fixed(*grid)

    def sample(key: jax.Array, count: int) -> tuple[Array, Array]:
        return pairs(jax.random.uniform(key, (count,), float, 0, 2 * math.pi))

    return Fresh(sample, *grid)


def circle_grid(points: int) -> Array:
    """Angles ``2 π j / points``."""
    return 2 * math.pi * jnp.arange(points) / points


def circle_inputs(angles: Array) -> Array:
    """Points ``(cos θ, sin θ)`` of the unit circle, one a row."""
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)


def circle_target(angles: Array, decay: Any, modes: int, phases: Array | None = None) -> Array:
    """``sum_k k^-q cos(k θ + phase_k)``, k = 1 ... modes, some hundred waves at a time to save memory."""
    total = jnp.zeros_like(angles)
    for first in range(1, modes + 1, _HARMONICS_AT_ONCE):
        waves = jnp.arange(first, min(first + _HARMONICS_AT_ONCE, modes + 1), dtype=angles.dtype)
        shift = 0.0 if phases is None else phases[first - 1 : first - 1 + waves.size]
        total = total + jnp.cos(angles[:, None] * waves + shift) @ waves**-decay
    return total
