"""What is learned from some samples or with some basis functions, and when a fraction of the target is reached."""

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.checks import is_traced
from solvable.models.skills.binomial import expected_shortfall, small_count_chances
from solvable.models.skills.dynamics import frequencies, growth, law, plain, shares

if TYPE_CHECKING:
    from solvable.models.skills.parameters import SkillParameters

_LARGEST_TABLE = 2**23


def learned_from_data(model: "SkillParameters", samples: np.ndarray, skills: np.ndarray) -> Array:
    """E[min(d, D_c)] / D_c with d ~ Binomial(D, P_k), times the share of its basis functions that a skill has.

    Equation 5.5, corrected (see docs/errata). Rows are numbers of samples.
    """
    chance, shots = frequencies(law(model), skills), int(plain(model, "shots"))
    rest = jnp.stack([unseen(float(count), chance, shots) for count in samples])
    return jnp.asarray(shares(model, skills)) * (1 - rest)


def spread_from_data(model: "SkillParameters", samples: np.ndarray, skills: np.ndarray) -> Array:
    """Standard deviation over training sets of what :func:`learned_from_data` expects.

    With ``d`` of the ``D_c`` wanted samples the strength is the squared length of the projection of a fixed direction
    on d random ones, which has the variance ``2 d (D_c - d) / (D_c^2 (D_c + 2))`` for Gaussians; d is binomial.
    """
    chance, shots = frequencies(law(model), skills), int(plain(model, "shots"))
    short = np.arange(float(shots)) / shots
    square = (1 - short) ** 2 + 2 * short * (1 - short) / (shots + 2)

    def variance(count: float) -> Array:
        if math.isinf(count):
            return jnp.zeros_like(chance)
        size = max(1, _LARGEST_TABLE // shots)
        parts = [_mean_over_few(count, chance[at : at + size], square) for at in range(0, chance.size, size)]
        return jnp.concatenate(parts) - unseen(count, chance, shots) ** 2

    variances = jnp.stack([variance(float(count)) for count in samples])
    return jnp.asarray(shares(model, skills)) * jnp.sqrt(jnp.maximum(variances, 0.0))


@jax.jit
def _mean_over_few(samples: Array, chance: Array, values: np.ndarray) -> Array:
    return small_count_chances(samples, chance, values.size - 1) @ values


def unseen(samples: float, chance: Array, shots: int) -> Array:
    """How far short of the wanted number of shots the data falls, relative to it, expected over the data."""
    if math.isinf(samples):
        return jnp.zeros_like(chance)
    size = max(1, _LARGEST_TABLE // shots)
    parts = [_shortfall(samples, chance[begin : begin + size], shots) for begin in range(0, chance.size, size)]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


@partial(jax.jit, static_argnames="shots")
def _shortfall(samples: Array, chance: Array, shots: int) -> Array:
    return expected_shortfall(samples, chance, shots)


def learned_with_basis(model: "SkillParameters", basis: np.ndarray, skills: np.ndarray) -> np.ndarray:
    """The share of its basis functions that each skill has (eq. 5.9); rows are sizes of the basis."""
    return np.stack([shares(model, skills, float(count)) for count in basis])


def times_to_reach(model: "SkillParameters", fraction: float, skills: np.ndarray) -> Any:
    """Equation 5.2 (eq. C.4 for the linear model) solved for the time; infinite where the end is below ``fraction``.

    A skill with a share ``r`` of its basis functions reaches ``fraction / r`` of its own end, at a rate lower by
    ``sqrt(r)``; see :func:`solvable.models.skills.dynamics.strengths_and_losses`.
    """
    share, rules = shares(model, skills), law(model)
    reached = share > fraction
    # Skills that never get there take part with harmless numbers.
    own = np.where(reached, share, 1.0)
    relative = np.where(reached, fraction / own, 0.5)
    if rules.log_odds is None:
        needed, slower = -np.log1p(-relative), np.ones_like(own)
    else:
        needed, slower = rules.log_odds + np.log(relative / (1 - relative)), np.sqrt(own)
    speed = growth(model) * frequencies(rules, skills) * slower
    xp = jnp if is_traced(needed, speed) else np
    return xp.where(reached, xp.maximum(needed, 0.0) / speed, xp.inf)
