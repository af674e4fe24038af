"""The last linear layer of an Equinox network: found, or checked, by running the network on a few inputs.

The network without the layer gives the features, and the layer applied to them gives the outputs, if it is the last.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.diagnostics.linear_layers import linear_layers
from solvable.diagnostics.outputs import Field, find_outputs, plain_fields, select_field
from solvable.diagnostics.precision import precision_of
from solvable.diagnostics.tangent import call_module
from solvable.numerics.determinism import jit

Apply = Callable[[Any, Array], Array]
Where = Callable[[Any], eqx.nn.Linear]
# Inputs that show whether a layer is the last.
_CHECKED_INPUTS = 8


def vmapped(model: Any, inputs: Array) -> Array:
    """A network that takes one sample, run on a batch."""
    return jax.vmap(lambda x: plain_fields(call_module(model, x)))(inputs)


def outputs_of(model: Any, inputs: Any, apply: Apply, field: Field | None) -> tuple[Array, Field | None]:
    """The outputs of the network on a few inputs, and the field of its return value that holds them."""
    if not callable(model) and apply is vmapped:
        raise ValueError(f"model must be an Equinox module, not {type(model).__name__}")
    with precision_of(model, inputs), jax.default_matmul_precision("highest"):
        few = jnp.asarray(inputs)[:_CHECKED_INPUTS]
        return find_outputs(apply(eqx.nn.inference_mode(model), few), field, samples=len(few))


def split_off(model: Any, where: Where) -> tuple[Any, eqx.nn.Linear]:
    """The network without its last layer, and that layer."""
    inference = eqx.nn.inference_mode(model)
    return eqx.tree_at(where, inference, eqx.nn.Identity()), where(inference)


@jit
def run_parts(
    body: Any, layer: eqx.nn.Linear, apply: Apply, inputs: Array, precision: str = "highest", field: Field | None = None
) -> tuple[Array, Array]:
    """Features and outputs of a batch: the rest of the network, and then the layer."""
    # By default, accelerators round factors of float32 products to ten bits: too coarse to measure with.
    with jax.default_matmul_precision(precision):
        features = select_field(apply(body, inputs), field)
    with jax.default_matmul_precision("highest"):
        return features, jax.vmap(layer)(features)


def find_layer(model: Any, inputs: Any, apply: Apply, field: Field | None = None) -> Where:
    """A function that picks the last linear layer; a ValueError if the network does not end in one."""
    outputs = outputs_of(model, inputs, apply, field)
    for position in reversed(range(len(linear_layers(model)))):

        def where(tree: Any, position: int = position) -> eqx.nn.Linear:
            return linear_layers(tree)[position]

        if _is_last(model, where, inputs, apply, *outputs):
            return where
    raise ValueError(
        f"{type(model).__name__} does not end in an equinox.nn.Linear: end it there (a softmax belongs to the loss), "
        "or give features, outputs and targets to solvable.diagnostics.FeatureStatistics yourself"
    )


def check_layer(model: Any, where: Where, inputs: Any, apply: Apply, field: Field | None) -> None:
    """Raise a ValueError unless ``where`` picks the last linear layer."""
    if not callable(where):
        raise ValueError(
            "last_layer must be a function that picks a layer, such as lambda network: network.layers[-1], not "
            f"{where!r}"
        )
    layer = where(model)
    if not isinstance(layer, eqx.nn.Linear):
        raise ValueError(f"last_layer must pick an equinox.nn.Linear, not {type(layer).__name__}")
    outputs = outputs_of(model, inputs, apply, field)
    if not _is_last(model, where, inputs, apply, *outputs):
        raise ValueError(
            f"the layer picked by last_layer ({layer.in_features} to {layer.out_features}) is not the last step of "
            f"{type(model).__name__}: its outputs are not the network's {outputs[0].shape[-1]}"
        )


def _is_last(model: Any, where: Where, inputs: Any, apply: Apply, outputs: Array, field: Field | None) -> bool:
    """Whether the network is the rest of it followed by this layer, tested on a few inputs."""
    try:
        with precision_of(model, inputs):
            few = jnp.asarray(inputs)[:_CHECKED_INPUTS]
            _, found = run_parts(*split_off(model, where), apply, few, field=field)
    except (TypeError, ValueError):  # the rest of the network cannot process the features: the layer is inside
        return False
    expected = np.asarray(outputs)
    if expected.shape != found.shape:
        return False
    # Entries that are not finite are reported when the batch is summed; they do not disqualify the layer.
    finite = np.isfinite(expected)
    size = np.abs(expected[finite]).max(initial=0.0)
    return np.allclose(expected[finite], np.asarray(found)[finite], rtol=1e-4, atol=1e-5 * size)
