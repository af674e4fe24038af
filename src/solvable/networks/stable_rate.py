"""The largest learning rate at which gradient descent is stable at the start, from the tangent kernel."""

import math
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.checks import check_choice
from solvable.dataset import Meaning, make_dataset
from solvable.diagnostics.kernels import ntk
from solvable.networks.parts import cast, trainable
from solvable.precision import in_float64

SquaredLoss = Literal["mse", "half-mse"]
_MEANINGS = {
    "stable_learning_rate": Meaning("learning rate from which training diverges", "1", "η_max", may_be_infinite=True),
    "largest_eigenvalue": Meaning("largest eigenvalue of the Gauss-Newton matrix with learning rates", "1", "λ_max"),
}


@in_float64
def stable_learning_rate(network: Any, inputs: Any, *, loss: SquaredLoss = "mse", factors: Any = None) -> xr.Dataset:
    """``2 / λ_max``: the rate from which gradient descent on a squared loss, linearised at these parameters, diverges.

    The dataset has the numbers ``stable_learning_rate`` and ``largest_eigenvalue``, λ_max: that of the loss's
    Gauss-Newton matrix, which is the one of the tangent kernel ``sum_a c_a K_a`` of all arrays a, with the factors c_a
    of their learning rates, times 2 / (samples outputs) for ``"mse"`` or 1 / samples for ``"half-mse"``.

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
    >>> found = networks.stable_learning_rate(network, np.eye(2))  # the mean of two squared weights' errors
    >>> round(float(found.stable_learning_rate), 6)
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
    per_sample = 2 / outputs if loss == "mse" else 1.0
    largest = per_sample / samples * float(np.linalg.eigvalsh(kernel.values.reshape(samples * outputs, -1))[-1])
    rate = 2 / largest if largest > 0 else math.inf
    numbers = {"stable_learning_rate": ((), rate), "largest_eigenvalue": ((), largest)}
    attributes = {"model": "network", "loss": loss, "samples": samples, "version": __version__}
    return make_dataset(numbers, {}, attributes, _MEANINGS)
