"""Networks are measured with full products: accelerators round factors of float32 products to ten bits by default."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable import diagnostics
from solvable.equinox import statistics


class Watched(eqx.Module):
    """A linear layer that notes the precision of products at the time it is traced or run."""

    linear: eqx.nn.Linear
    seen: list = eqx.field(static=True)

    def __call__(self, x):
        self.seen.append(jax.config.jax_default_matmul_precision)
        return self.linear(jnp.tanh(x))


def test_features_and_kernels_are_made_with_full_products():
    seen = []
    network = Watched(eqx.nn.Linear(3, 2, key=jax.random.key(0)), seen)
    inputs = np.random.default_rng(0).normal(size=(10, 3))
    diagnostics.ntk(network, inputs)
    statistics(network, (inputs, np.arange(10) % 2))
    assert len(seen) >= 2
    assert set(seen) == {"highest"}


def test_derivatives_inherit_the_precision():
    """A product's precision goes to the products of its gradient, which make the kernel."""

    def function(weights, x):
        with jax.default_matmul_precision("highest"):
            return weights @ x

    text = str(jax.make_jaxpr(jax.jacrev(function))(jnp.ones((2, 3)), jnp.ones(3)))
    assert "dot_general" in text
    assert text.count("HIGHEST") >= text.count("dot_general[")
