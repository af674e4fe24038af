"""Fully connected networks: their sizes at initialisation, masks, and what a step does in each parameterisation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import solvable.networks as networks
from solvable import diagnostics
from solvable.networks.mlp import layer_kernel

KEY = jax.random.key(0)
X = jnp.asarray([[0.6, -0.8], [0.28, 0.96], [-1.0, 0.0]])


def plain(network, x):
    """The same network with NumPy: weights and factors read off."""
    hidden = np.asarray(x, float)
    for index, layer in enumerate(network.layers):
        scale = 1.0 if layer.input_factor is None else float(layer.input_factor.value)
        hidden = hidden @ np.asarray(layer.weight, float).T * scale + np.asarray(layer.bias, float)
        if index < len(network.layers) - 1:
            hidden = np.maximum(hidden, 0)
        elif layer.output_factor is not None:
            hidden = hidden * float(layer.output_factor.value)
    return hidden


@pytest.mark.parametrize("parameterisation", ["standard", "ntk", "mean-field"])
def test_outputs_are_those_of_numpy(parameterisation):
    network = networks.MLP(2, 3, 7, 3, key=KEY, parameterisation=parameterisation, bias_scale=0.3, output_scale=0.5)
    np.testing.assert_allclose(jax.vmap(network)(X), plain(network, X), rtol=2e-6, atol=1e-7)
    scaled = networks.MLP(2, 3, 7, 3, key=KEY, parameterisation=parameterisation, bias_scale=0.3, input_scale=0.01)
    same = networks.MLP(2, 3, 7, 3, key=KEY, parameterisation=parameterisation, bias_scale=0.3)
    np.testing.assert_allclose(jax.vmap(scaled)(X), jax.vmap(same)(X * 0.01), rtol=1e-6)


def test_variances_at_the_start():
    """Variances of 4e5 weights are known to 0.3 %; four of these are allowed."""
    for parameterisation, expected in (("standard", 25 / 400), ("ntk", 25.0), ("mean-field", 25.0)):
        made = networks.MLP(2, 1, 400, 4, key=KEY, parameterisation=parameterisation, weight_scale=5.0)
        weights = np.concatenate([np.asarray(layer.weight).ravel() for layer in made.layers[1:3]])
        assert weights.var() == pytest.approx(expected, rel=0.012)
        assert not np.asarray(made.layers[0].bias).any()
    uniform = networks.MLP(2, 1, 400, 3, key=KEY, initialisation="uniform")
    for layer, fan_in in zip(uniform.layers, (2, 400, 400), strict=True):
        assert np.abs(layer.weight).max() <= fan_in**-0.5
        assert np.abs(layer.bias).max() <= fan_in**-0.5
    assert np.asarray(uniform.layers[1].weight).std() == pytest.approx((3 * 400) ** -0.5, rel=0.012)
    small = networks.MLP(37, 1, 400, 2, key=KEY, std=0.01)
    assert np.asarray(small.layers[0].weight).std() == pytest.approx(0.01, rel=0.03)
    assert np.asarray(small.layers[0].bias).std() == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize("bias", [False, True])
def test_mean_field_learns_at_a_speed_without_width_and_richness(bias):
    """The kernel times the learning-rate scale is the same at any richness, and tends to a limit in the width."""
    kernels = {}
    for width, richness in ((4096, 1.0), (4096, 0.01), (256, 1.0)):
        network = networks.MLP(
            2, 1, width, 2, key=KEY, parameterisation="mean-field", richness=richness, bias=bias, dtype=jnp.float64
        )
        kernels[width, richness] = diagnostics.ntk(network, X).values * float(network.learning_rate_scale)
        assert float(network.learning_rate_scale) == pytest.approx(richness**2 * width)
    np.testing.assert_allclose(kernels[4096, 1.0], kernels[4096, 0.01], rtol=1e-9)
    # At infinite width, for unit vectors at angle u, inputs and hidden sums scaled by one over the root of the fan-in:
    # E[relu relu] = (sin u + (pi - u) cos u)/(4 pi), and the weights below add (x.x'/2 + bias)(pi - u)/(2 pi).
    angle = np.arccos(np.clip(np.asarray(X @ X.T), -1, 1))
    limit = (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (4 * np.pi)
    limit += (np.cos(angle) / 2 + bias) * (np.pi - angle) / (2 * np.pi) + bias
    # Each entry is a mean over neurons of a number with spread about 1: five standard errors.
    np.testing.assert_allclose(kernels[4096, 1.0], limit, atol=5 / 4096**0.5)
    assert np.abs(kernels[256, 1.0] - limit).max() < 5 / 256**0.5


def test_dead_neurons_stay_dead():
    """A masked network is the network of that width: same output scale, no gradient beyond it."""
    masked = networks.MLP(2, 1, 16, 3, key=KEY, active_width=5, parameterisation="ntk")
    gradient = eqx.filter_jit(eqx.filter_grad(lambda network: jnp.sum(jax.vmap(network)(X) ** 2)))(masked)
    assert not np.asarray(gradient.layers[0].weight[5:]).any()
    assert not np.asarray(gradient.layers[1].weight[:, 5:]).any()
    assert not np.asarray(gradient.layers[2].weight[:, 5:]).any()
    assert np.asarray(gradient.layers[0].weight[:5]).any()
    assert float(masked.layers[1].input_factor.value) == pytest.approx(5**-0.5)

    @jax.jit
    @jax.vmap
    def of_width(width):
        return networks.MLP(2, 1, 16, 3, key=KEY, active_width=width, parameterisation="ntk")(X[0])

    np.testing.assert_allclose(of_width(jnp.array([5, 16]))[0], masked(X[0]), rtol=1e-6)


@jax.jit
def power_and_slope(power, place):
    return jax.value_and_grad(networks.mlp.PowerReLU(networks.Constant(power)))(place)


@given(st.floats(0.3, 3.0), st.floats(-2, 2))
def test_powers_of_relu_and_their_slopes(power, place):
    if 0 < abs(place) < 1e-3:
        place = 0.0
    value, slope = power_and_slope(power, place)
    assert float(value) == pytest.approx(max(place, 0) ** power if place > 0 else 0)
    assert float(slope) == pytest.approx(power * place ** (power - 1) if place > 0 else 0)


def test_a_centred_network_starts_at_zero_and_its_copy_is_not_trained():
    network = networks.centred(networks.MLP(2, 1, 8, 2, key=KEY, parameterisation="mean-field", richness=0.1))
    assert not np.asarray(jax.vmap(network)(X)).any()
    trained = eqx.filter(network, networks.trainable(network))
    assert not jax.tree.leaves(trained.initial)
    assert len(jax.tree.leaves(trained.network)) == 4
    assert float(network.learning_rate_scale) == pytest.approx(0.08)


def test_the_last_layer_is_found_by_the_diagnostics():
    from solvable.equinox import diagnose

    network = networks.MLP(2, 3, 32, 2, key=KEY, output_scale=0.1, parameterisation="mean-field")
    inputs = jax.random.normal(KEY, (64, 2))
    report = diagnose(network, (inputs, jnp.arange(64) % 3), (inputs, jnp.arange(64) % 3))
    assert report.features == 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, "width must be"),
        ({"parameterisation": "mup"}, "parameterisation must be one of"),
        ({"richness": 0.5}, "richness belongs to parameterisation='mean-field'"),
        ({"richness": 0.5, "parameterisation": "ntk"}, "parameterisation='mean-field', not to 'ntk'"),
        ({"std": -1.0}, "std must be a positive finite number"),
        ({"active_width": 9}, "active_width must be at most the width of 8"),
        ({"activation": "tanh", "power": 2.0}, "power belongs to activation='relu'"),
        ({"activation": "softplus"}, "activation must be one of"),
    ],
)
def test_bad_networks(change, message):
    with pytest.raises(ValueError, match=message):
        networks.MLP(**{"inputs": 2, "outputs": 1, "width": 8, "depth": 2, "key": KEY, **change})


def test_the_kernel_by_layers_is_that_of_all_gradients():
    """Three outputs, biases, scales everywhere: both routes to the same matrix."""
    network = networks.MLP(
        2, 3, 9, 3, key=KEY, parameterisation="mean-field", richness=0.3, bias_scale=0.4, output_scale=0.7,
        input_scale=1.3, activation="tanh", dtype=jnp.float64,
    )  # fmt: skip
    expected = diagnostics.ntk(network, X).values
    np.testing.assert_allclose(layer_kernel(network, X), expected, rtol=1e-11)
