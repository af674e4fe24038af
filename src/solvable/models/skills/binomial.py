"""Expectations over a binomial number, exact or to rounding, for few trials and for 10^12 alike.

>>> import jax.numpy as jnp
>>> from solvable.models.skills.binomial import expected_shortfall
>>> round(float(expected_shortfall(10, jnp.array([0.5]), 1)[0]) * 1024, 8)
1.0
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def small_count_chances(trials: Any, chances: Float[Array, " p"], most: int) -> Float[Array, "p count"]:
    """Probabilities of 0, 1, ..., ``most`` successes.

    Built up as logarithms from the chance of none, so that nothing of the size of ``log(trials!)`` has to cancel.
    """
    count = np.arange(1.0, most + 1)
    # Counts above the number of trials get the logarithm of zero, without a NaN on the way.
    ways = jnp.where(count <= trials, jnp.log(jnp.maximum(trials - count + 1, 1.0) / count), -jnp.inf)
    # A certain success is the limit of a nearly certain one; the logarithms exist only for the latter.
    chances = jnp.minimum(chances, 1 - 2.0**-53)
    odds = jnp.log(chances) - jnp.log1p(-chances)
    none = trials * jnp.log1p(-chances)
    steps = jnp.cumsum(ways[None, :] + odds[:, None], axis=1)
    return jnp.exp(none[:, None] + jnp.concatenate([jnp.zeros((chances.size, 1)), steps], axis=1))


def gauss_rule(
    trials: Any, chances: Float[Array, " p"], nodes: int
) -> tuple[Float[Array, "p node"], Float[Array, "p node"]]:
    """Nodes and weights that integrate polynomials in the number of successes exactly, up to degree ``2 nodes - 1``.

    From the three-term recurrence of the Krawtchouk polynomials (Golub and Welsch). For functions that vary little
    over a standard deviation this is all there is to an expectation, however many trials there are.
    """
    index = np.arange(float(nodes))
    chances = chances[:, None]
    diagonal = chances * (trials - index) + index * (1 - chances)
    coupling = jnp.sqrt(chances * (1 - chances)) * jnp.sqrt(jnp.maximum(index[1:] * (trials - index[1:] + 1), 0.0))
    jacobi = jnp.eye(nodes) * diagonal[:, None, :]
    place = np.arange(nodes - 1)
    jacobi = jacobi.at[:, place, place + 1].set(coupling).at[:, place + 1, place].set(coupling)
    values, vectors = jnp.linalg.eigh(jacobi)
    return jnp.clip(values, 0.0, trials), vectors[:, 0, :] ** 2


def expected_shortfall(trials: Any, chances: Float[Array, " p"], wanted: int) -> Float[Array, " p"]:
    """``E[max(0, wanted - successes)] / wanted``: how far short of ``wanted`` successes one falls.

    A sum of positive terms, hence to relative accuracy also where it is very small.
    """
    below = small_count_chances(trials, chances, wanted - 1)
    return below @ (1 - np.arange(float(wanted)) / wanted)
