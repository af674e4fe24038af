"""How weights, outputs and learning rates depend on the width: parameterisations, and learning rates per layer.

Maximal-update parameterisation (μP) of a network of width ``n``, relative to a base width ``n₀``, with ``m = n / n₀``
(Tensor Programs V, table 8; Yang and Hu 2021). At ``m = 1`` it is the standard parameterisation, rates included.

===================  ============  ==================  ===========  ============
arrays               multiplier    initial variance    SGD's rate   Adam's rate
===================  ============  ==================  ===========  ============
input weights        1             as at base width    m            1
hidden biases, etc.  1             as at base width    m            1
hidden weights       1             base value / m      1            1 / m
output weights       1 / m         as at base width    m            1
output biases        1             as at base width    1            1
===================  ============  ==================  ===========  ============

"Etc." are all arrays with one axis that grows with the width: embeddings of tokens and positions, scales and shifts of
LayerNorms. Attention divides its scores by the width of a head, in place of its root (and agrees at the base width).
With these factors every layer changes its activations at a speed that does not depend on the width, which is why the
best learning rate does not either.
"""

from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from solvable.checks import check_choice, check_count
from solvable.networks.parts import trainable

OptimiserName = Literal["sgd", "adam"]
Role = Literal["input", "vector", "hidden", "output", "output-bias"]
PyTree = Any
BASE_WIDTH = 64

# Powers of m that multiply the learning rate, by role of the array and optimiser: the last two columns above.
RATE_POWERS: dict[Role, dict[OptimiserName, int]] = {
    "input": {"sgd": 1, "adam": 0},
    "vector": {"sgd": 1, "adam": 0},
    "hidden": {"sgd": 0, "adam": -1},
    "output": {"sgd": 1, "adam": 0},
    "output-bias": {"sgd": 0, "adam": 0},
}


def rate_factor(role: Role, optimiser: OptimiserName, ratio: Any) -> Any:
    """The factor of the learning rate of arrays of this role, at ``ratio`` times the base width."""
    power = RATE_POWERS[role][optimiser]
    return ratio**power if power else jnp.ones_like(ratio)


def uniform_factors(network: Any, factor: Any) -> PyTree:
    """The same factor for every trained array of a network."""
    return jax.tree.map(lambda leaf: jnp.asarray(factor, leaf.dtype), eqx.filter(network, trainable(network)))


def check_optimiser_name(optimiser: Any) -> OptimiserName:
    """Check the name of a kind of optimiser."""
    check_choice("optimiser", optimiser, get_args(OptimiserName))
    return optimiser


def check_base_width(parameterisation: str, base_width: Any) -> int | None:
    """The base width of maximal-update parameterisation; None for the others, which have none."""
    if parameterisation != "maximal-update":
        if base_width is not None:
            raise ValueError(f"base_width belongs to parameterisation='maximal-update', not to {parameterisation!r}")
        return None
    if base_width is None:
        return BASE_WIDTH
    return check_count("base_width", base_width)


def scale_layers(optimiser: optax.GradientTransformation, factors: PyTree) -> optax.GradientTransformation:
    """An optimiser whose learning rate is multiplied by a factor of each array.

    Parameters
    ----------
    optimiser
        An Optax transformation. Its updates are multiplied, so that decoupled weight decay is scaled as well.
    factors
        One number per trained array, such as those of :meth:`MLP.learning_rate_factors`.

    >>> import jax, optax
    >>> from solvable import networks
    >>> network = networks.MLP(2, 1, width=256, depth=3, key=jax.random.key(0), parameterisation="maximal-update")
    >>> factors = network.learning_rate_factors("adam")
    >>> [float(layer.weight) for layer in factors.layers]
    [1.0, 0.25, 1.0]
    >>> optimiser = networks.scale_layers(optax.adam(1e-3), factors)
    """

    def scaled(updates: PyTree, _: PyTree = None) -> PyTree:
        return jax.tree.map(lambda update, factor: update * jnp.asarray(factor, update.dtype), updates, factors)

    return optax.chain(optimiser, optax.stateless(scaled))
