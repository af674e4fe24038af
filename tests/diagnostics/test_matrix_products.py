"""Kernels of JAX functions whose matrices have outer products for gradients: equal to those of whole Jacobians."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.diagnostics import ntk
from solvable.diagnostics.tangent import network_of
from solvable.precision import in_float64

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(7, 12))
SHAPES = ((12, 60), (60, 60), (60, 10))


@in_float64
def weights():
    return [(jnp.asarray(RNG.normal(size=shape) / np.sqrt(shape[0])), jnp.ones(shape[1])) for shape in SHAPES]


WEIGHTS = weights()


def plain(parameters, x):
    for matrix, bias in parameters[:-1]:
        x = jnp.tanh(x @ matrix + bias)
    return x @ parameters[-1][0] + parameters[-1][1]


def compiled(parameters, x):
    return jax.jit(plain)(parameters, x)


def turned(parameters, x):
    """The second matrix is used transposed, which is no product from the left."""
    (a, b), (c, _), (d, _) = parameters
    return jnp.tanh(jnp.tanh(x @ a + b) @ c.T) @ d


def twice(parameters, x):
    (a, _), (b, _), (c, _) = parameters
    return jnp.tanh(jnp.tanh(jnp.tanh(x @ a) @ b) @ b) @ c


def penalised(parameters, x):
    (a, _), (b, _), (c, _) = parameters
    return jnp.tanh(jnp.tanh(x @ a) @ b) @ c * jnp.sum(a**2)


def dotted(parameters, x):
    (a, _), (b, _), (c, _) = parameters
    return jnp.dot(jnp.tanh(x @ a) @ b, c)


def positions(parameters, x):
    """The first matrix is applied to three vectors of one input."""
    (a, _), (b, _), (c, _) = parameters
    several = jnp.stack([x, 2 * x, x**2], axis=1)
    return jnp.tanh(jnp.tanh(several @ a).mean(1) @ b) @ c


def jacobian_kernel(apply):
    """Independent of the package: the Jacobian of each input, in full."""
    with jax.enable_x64(True):
        rows = jax.jit(jax.vmap(jax.jacrev(lambda own, x: apply(own, x[None])[0]), (None, 0)))(WEIGHTS, INPUTS)
    flat = np.concatenate([np.asarray(leaf).reshape(len(INPUTS), 10, -1) for leaf in jax.tree.leaves(rows)], axis=2)
    return np.einsum("icp,jdp->icjd", flat, flat)


@pytest.mark.parametrize(
    ("apply", "found"),
    # The leaves are matrix and bias in turn. What jit takes must be arrays, and then nothing is known. Which matrices
    # jnp.dot and ** betray depends on how JAX refuses their arguments: all of them, or none.
    [(plain, (0, 2, 4)), (compiled, ()), (turned, (0, 4)), (twice, (0, 4)), (penalised, None), (dotted, None),
     (positions, (2, 4))],
)  # fmt: skip
def test_outer_products_of_functions(apply, found):
    network = network_of(apply, WEIGHTS, "float64")
    assert found is None or network._outer_products(network._cast(INPUTS))[0] == found
    expected = jacobian_kernel(apply)
    options = {"parameters": WEIGHTS, "dtype": "float64", "progress": False}
    full = ntk(apply, INPUTS, outputs="full", method="jacobian", **options).values
    trace = ntk(apply, INPUTS, **options).values
    np.testing.assert_allclose(full, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
    np.testing.assert_allclose(trace, np.einsum("icjc->ij", expected), rtol=1e-12)


def test_the_size_of_gradients_is_that_of_vectors():
    network = network_of(plain, WEIGHTS, "float64")
    # Rows and columns of each matrix, and the biases in full.
    assert network.gradient_size(INPUTS) == sum(map(sum, SHAPES)) + 60 + 60 + 10
