"""The largest learning rate at which gradient descent is stable at the start, from the tangent kernel."""

from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.checks import check_choice
from solvable.diagnostics.kernels import ntk
from solvable.networks.parts import cast, trainable
from solvable.precision import in_float64

SquaredLoss = Literal["mse", "half-mse"]


@in_float64
def stable_learning_rate(network: Any, inputs: Any, *, loss: SquaredLoss = "mse", factors: Any = None) -> float:
    """``2 / λ_max``: the largest stable rate of gradient descent on a squared loss, linearised at these parameters.

    λ_max is the largest eigenvalue of the loss's Gauss-Newton matrix, which is that of the tangent kernel
    ``sum_a c_a K_a`` of all arrays a, with the factors c_a of their learning rates, times 2 / (samples outputs) for
    ``"mse"`` or 1 / samples for ``"half-mse"``.

    For a linear network of L layers in standard parameterisation, the mean kernel over initialisations is
    ``(1 + (L - 1) n / d) x·x'`` at width n and d inputs, so that the stable rate falls as 1 / n in wide networks. In
    maximal-update parameterisation n is replaced by the base width, and the rate does not depend on the width.

    Parameters
    ----------
    network
        An Equinox module of one input.
    inputs
        The training inputs, one row per sample.
    loss
        The squared loss: ``"mse"`` or ``"half-mse"``, as in :func:`train`.
    factors
        Factors of the learning rate of every array, such as :meth:`MLP.learning_rate_factors`; by default 1.

    >>> import jax, numpy as np
    >>> from solvable import networks
    >>> network = networks.MLP(2, 1, width=64, depth=1, key=jax.random.key(0), bias=False)
    >>> round(networks.stable_learning_rate(network, np.eye(2)), 6)  # the mean of two squared weights' errors
    2.0
    """
    check_choice("loss", loss, get_args(SquaredLoss))
    wide = cast(network, jnp.float64)
    start, rest = eqx.partition(wide, trainable(wide))
    roots = jax.tree.map(jnp.ones_like, start)
    if factors is not None:
        roots = jax.tree.map(lambda leaf, factor: jnp.sqrt(jnp.asarray(factor, leaf.dtype)), start, factors)
    # Gradient descent with a rate c of its own is that of θ / sqrt(c) with a rate of 1.
    rescaled = jax.tree.map(jnp.divide, start, roots)

    def apply(parameters: Any, rows: Any) -> Any:
        outputs = jax.vmap(eqx.combine(jax.tree.map(jnp.multiply, parameters, roots), rest))(rows)
        return outputs.reshape(len(rows), -1)

    rows = jnp.asarray(inputs)
    kernel = ntk(apply, rows, parameters=rescaled, outputs="full", progress=False)
    samples, outputs = kernel.shape[:2]
    largest = float(np.linalg.eigvalsh(kernel.values.reshape(samples * outputs, -1))[-1])
    per_sample = 2 / outputs if loss == "mse" else 1.0
    return 2 * samples / (per_sample * largest)
