"""The tangent kernel of an MLP layer by layer: products of activations and slopes, without a gradient of any weight."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from solvable.networks.mlp import MLP
from solvable.precision import in_float64


@in_float64
def layer_kernel(network: MLP, inputs: Any) -> Float[Array, "input input"]:
    """The tangent kernel on a batch of inputs, summed over outputs, in float64.

    ``sum_l (δ_l δ_l^T) ∘ (φ_l φ_l^T + [bias])`` over layers, with inputs φ_l and pulled back slopes δ_l of layer l. It
    costs as much as n² entries of a width each, where gradients cost as much as n² of all weights: what takes minutes
    at width 1000 takes less than a second.

    >>> import jax, numpy as np
    >>> from solvable import diagnostics, networks
    >>> from solvable.networks.layer_kernel import layer_kernel
    >>> network, inputs = networks.MLP(3, 1, width=8, depth=2, key=jax.random.key(0)), np.eye(3)
    >>> bool(np.allclose(layer_kernel(network, inputs), diagnostics.ntk(network, inputs), atol=1e-6))
    True
    """
    if network.mask is not None:
        raise ValueError("a network with active_width has no tangent kernel here: make one of that width")
    return _kernel(network, jnp.asarray(inputs, jnp.float64))


@eqx.filter_jit
def _kernel(network: MLP, inputs: Array) -> Array:
    layers = [_Layer(layer) for layer in network.layers]
    scale = 1.0 if network.input_scale is None else network.input_scale.value
    below, slopes = [inputs * scale], []
    for layer in layers[:-1]:
        sums = layer.outward * (layer.inward * below[-1] @ layer.weight.T + layer.bias)
        hidden, slope = jax.jvp(network.activation, (sums,), (jnp.ones_like(sums),))
        below.append(hidden)
        slopes.append(slope)
    points, outputs = inputs.shape[0], layers[-1].weight.shape[0]
    kernel = jnp.zeros((points, points))
    # Slopes of every output with respect to the sums of a layer: (outputs, points, width).
    pulled = jnp.broadcast_to(jnp.eye(outputs)[:, None], (outputs, points, outputs))
    for index in reversed(range(len(layers))):
        layer = layers[index]
        pulled = layer.outward * pulled
        similarity = layer.inward**2 * below[index] @ below[index].T + layer.learned_bias
        flat = jnp.moveaxis(pulled, 0, 1).reshape(points, -1)
        kernel = kernel + (flat @ flat.T) * similarity
        if index:
            pulled = layer.inward * (pulled @ layer.weight) * slopes[index - 1]
    return kernel


class _Layer:
    """A layer of an MLP in float64, with ones and zeros for what it does not have."""

    def __init__(self, layer: Any) -> None:
        self.weight = jnp.asarray(layer.weight, jnp.float64)
        self.bias = jnp.asarray(0.0 if layer.bias is None else layer.bias, jnp.float64)
        self.learned_bias = float(layer.bias is not None)
        self.inward, self.outward = (
            jnp.asarray(1.0 if factor is None else factor.value, jnp.float64)
            for factor in (layer.input_factor, layer.output_factor)
        )
