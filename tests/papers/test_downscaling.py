"""Fig. 6.3, the experiment: each case trains what it says, from where it says, and at its rate."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.networks import MLP, Constant, Images, Training, load_images
from solvable.papers.layerwise import fig6_3
from solvable.papers.layerwise.fig6_3 import CASES, LAZY, LINEAR, LessInitial, Setting

# One step: Adam's first moves every weight that has a gradient by the rate, whatever the size of the gradient.
SETTING = Setting("digits", 60, 12, 30, 1, 1e-3, 1)


@pytest.fixture(scope="module")
def images() -> Images:
    return load_images("digits", train=60, balanced=True, standardise=True)


@pytest.fixture(scope="module")
def training(images: Images) -> Training:
    return fig6_3.train_cases(SETTING, images)


def by_hand(network: MLP, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features and outputs of a network in plain NumPy."""
    hidden = inputs.astype(float)
    for layer in network.layers[:-1]:
        hidden = np.maximum(hidden @ np.asarray(layer.weight, float).T + np.asarray(layer.bias), 0)
    last = network.layers[-1]
    return hidden, hidden @ np.asarray(last.weight, float).T + np.asarray(last.bias)


def changes(network: LessInitial) -> list[float]:
    pairs = zip(network.network.layers, network.initial.value.layers, strict=True)
    return [float(np.abs(np.asarray(now.weight) - np.asarray(before.weight)).max()) for now, before in pairs]


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(CASES)), ids=[case.name for case in CASES])
def test_each_case_trains_its_layers_at_its_rate(training: Training, images: Images, case: int) -> None:
    network, settings = training.network(0, case), CASES[case]
    moved, rate = changes(network), SETTING.rate * settings.rate
    # float32: weights of about 0.3 are known to 3e-8; Adam's epsilon takes 1e-8 over the gradient.
    assert moved[-1] == pytest.approx(rate, rel=0.02, abs=1e-7)
    body = 0.0 if settings is LINEAR else rate
    assert moved[:-1] == pytest.approx([body] * 3, rel=0.02, abs=1e-7 if body else 0)

    targets = images.train_targets / settings.downscaling
    np.testing.assert_allclose(training.data(0, case).targets, targets, rtol=1e-6)
    start = (1 - settings.centred) * by_hand(network.initial.value, images.train_inputs)[1]
    assert float(training.curves.train_loss[case, 0, 0]) == pytest.approx(np.mean((start - targets) ** 2), rel=1e-4)


@eqx.filter_jit  # one program in place of one for each draw
def small_mlp(key: jax.Array) -> MLP:
    return MLP(64, 10, 12, 4, key=key, initialisation="uniform")


def small_network(centred: float) -> LessInitial:
    made, before = small_mlp(jax.random.key(0)), small_mlp(jax.random.key(1))
    return LessInitial(made, Constant(before), Constant(jnp.float32(centred)))


def test_only_the_last_layer_is_let_through() -> None:
    network = small_network(0.0)
    held = fig6_3._held(network, jnp.float32(0))
    assert all(not np.any(layer.weight) and not np.any(layer.bias) for layer in held.network.layers[:-1])
    np.testing.assert_array_equal(held.network.layers[-1].weight, network.network.layers[-1].weight)
    through: Any = fig6_3._held(network, jnp.float32(1))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(through), jax.tree.leaves(network), strict=True))


def test_centring_takes_the_initial_function_away(images: Images) -> None:
    for case in (LAZY, LINEAR):
        network = small_network(case.centred)
        _, outputs = fig6_3._run(network, jnp.asarray(images.test_inputs))
        now, before = (by_hand(one, images.test_inputs)[1] for one in (network.network, network.initial.value))
        np.testing.assert_allclose(outputs, now - before if case is LAZY else now, atol=1e-5)


def test_the_best_last_layer_leaves_errors_that_no_feature_explains(images: Images) -> None:
    network = fig6_3.with_best_last_layer(small_network(0.0), images)
    hidden, outputs = by_hand(network.network, images.train_inputs)
    errors = outputs - images.train_targets
    # Normal equations; weights are rounded to float32.
    assert np.abs(hidden.T @ errors).max() < 1e-4 * np.linalg.norm(hidden) * np.linalg.norm(errors)
    assert np.abs(errors.mean(axis=0)).max() < 1e-5
