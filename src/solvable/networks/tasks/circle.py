r"""Functions on the circle whose Fourier coefficients decay as a power: a task of known source and capacity.

The target is ``y(θ) = sum_k k^-q cos(k θ + phase_k)`` of the input ``(cos θ, sin θ)`` (feature-scaling, eq. 13). The
kernel of a wide network with activations ``max(0, h)^power`` has Fourier modes as eigenfunctions, with eigenvalues
``~ k^(-2 power)``; so the capacity is ``α = 2 power`` and the source ``β = (2 q - 1) / (2 power)`` (eq. 14).
"""

import math
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.checks import check_choice, check_count, is_traced
from solvable.networks.mlp import check_positive
from solvable.networks.sources import Fixed, Fresh
from solvable.precision import in_float64

Kind = Literal["population", "fresh"]
# Fourier modes that are summed at once, to save memory.
_MODES_AT_ONCE = 256


def fourier_decay(source: Any, capacity: Any = 2.0) -> Any:
    """``q = (1 + α β) / 2``: the decay of the Fourier coefficients for a source, given the capacity of the kernel.

    Parameters
    ----------
    source
        β.
    capacity
        α.

    >>> fourier_decay(0.5, capacity=2.0)
    1.0
    """
    check_positive("source", source)
    check_positive("capacity", capacity)
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
    """The task, given by the decay q of its Fourier coefficients, or by its source and capacity.

    Decay, source and capacity may be traced.

    Parameters
    ----------
    decay
        q.
    source, capacity
        β and α, instead of the decay.
    kind
        ``"population"`` trains on a grid of angles, which integrates products of Fourier modes below ``points / 2``
        exactly, so that the training loss is the population loss. ``"fresh"`` draws new angles at every step and tests
        on the grid.
    points
        Number of angles of the grid.
    modes
        Number of Fourier modes of the target; by default all that the grid resolves.
    random_phases
        Whether the modes have random phases; otherwise the target is even and largest at 0.
    key
        JAX key of the random phases.
    dtype
        Type of inputs and targets.

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

    samples = _Samples(decay, phases, modes, jnp.dtype(dtype))
    grid = samples.at(circle_grid(points))
    return Fixed(*grid) if kind == "population" else Fresh(samples, *grid)


class _Samples(eqx.Module):
    """Inputs and targets at angles; a PyTree, so that training with a traced decay can carry it from step to step."""

    decay: Any
    phases: Array | None
    modes: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def at(self, angles: Array) -> tuple[Array, Array]:
        values = circle_target(angles, self.decay, self.modes, self.phases)
        return circle_inputs(angles).astype(self.dtype), values[:, None].astype(self.dtype)

    def __call__(self, key: jax.Array, count: int) -> tuple[Array, Array]:
        return self.at(jax.random.uniform(key, (count,), float, 0, 2 * math.pi))


def circle_grid(points: int) -> Array:
    """Angles ``2 π j / points``."""
    return 2 * math.pi * jnp.arange(points) / points


def circle_inputs(angles: Array) -> Array:
    """Points ``(cos θ, sin θ)`` of the unit circle, one per row."""
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)


def circle_target(angles: Array, decay: Any, modes: int, phases: Array | None = None) -> Array:
    """``sum_k k^-q cos(k θ + phase_k)``, k = 1 ... modes."""
    total = jnp.zeros_like(angles)
    for first in range(1, modes + 1, _MODES_AT_ONCE):
        frequencies = jnp.arange(first, min(first + _MODES_AT_ONCE, modes + 1), dtype=angles.dtype)
        shift = 0.0 if phases is None else phases[first - 1 : first - 1 + frequencies.size]
        total = total + jnp.cos(angles[:, None] * frequencies + shift) @ frequencies**-decay
    return total
