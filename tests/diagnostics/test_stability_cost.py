"""What products of curvature cost in JAX, against the operations that the compiler counts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.diagnostics import curvature
from solvable.diagnostics.stability import _batched

RNG = np.random.default_rng(0)


def perceptron(inputs, key):
    return eqx.nn.MLP(inputs.shape[1], 4, 64, depth=3, key=key)


class Pixels(eqx.Module):
    layers: list

    def __init__(self, inputs, key):
        one, two, three = jax.random.split(key, 3)
        self.layers = [eqx.nn.Conv1d(1, 16, 3, padding=1, key=one), eqx.nn.Conv1d(16, 16, 3, padding=1, key=two)]
        self.layers.append(eqx.nn.Linear(16 * inputs.shape[1], 4, key=three))

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x.reshape(-1, len(x) if x.ndim == 1 else x.shape[1])))
        return self.layers[-1](x.ravel())


class Attention(eqx.Module):
    read: eqx.nn.Linear
    look: eqx.nn.MultiheadAttention
    last: eqx.nn.Linear

    def __init__(self, inputs, key):
        one, two, three = jax.random.split(key, 3)
        self.read, self.last = eqx.nn.Linear(2, 32, key=one), eqx.nn.Linear(32, 4, key=three)
        self.look = eqx.nn.MultiheadAttention(4, 32, key=two)

    def __call__(self, x):
        words = jax.vmap(self.read)(x.reshape(-1, 2))
        return self.last(self.look(words, words, words).mean(0))


@pytest.mark.parametrize("make", [perceptron, Pixels, Attention])
@pytest.mark.parametrize("kind", ["hessian", "gauss-newton"])
def test_a_product_takes_no_more_operations_than_it_counts(make, kind):
    """Operations of the compiled programs, as the compiler counts them, by forward mode and by reverse mode alone."""
    inputs = RNG.normal(size=(32, 16)).astype("float32")
    module = make(inputs, jax.random.key(0))
    data = inputs, RNG.integers(0, 4, 32)
    network = curvature.JaxCurvature(_batched, module, data, None, None, None, None)
    found = next(iter(network._batches()))

    def operations(function, *arguments):
        arrays, rest = eqx.partition(arguments, eqx.is_array)
        program = jax.jit(lambda given: function(*eqx.combine(given, rest))).lower(arrays).compile()
        counted = program.cost_analysis()
        return (counted[0] if isinstance(counted, list) else counted)["flops"]

    parts = found[0], network._trained, *found[1:]
    one = operations(curvature._gradient, *parts)
    vector = jnp.ones(network.size)
    for forward, costs in ((True, curvature.FORWARD), (False, curvature.REVERSE)):
        assert operations(curvature._product, kind, forward, *parts, vector) <= costs[kind] * one
