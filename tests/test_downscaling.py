"""Fig. 6.3, the experiment: each case trains what it says, from where it says, and at its rate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.networks import Training
from solvable.networks.data import Images, load_images
from solvable.papers.layerwise import fig6_3
from solvable.papers.layerwise.fig6_3 import CASES, LAZY, LINEAR, Setting

# One step: Adam's first moves every weight that has a gradient by the rate, whatever the size of the gradient.
SETTING = Setting("digits", 60, 12, 30, 1, 1e-3, 2)


@pytest.fixture(scope="module")
def images() -> Images:
    return load_images("digits", train=60, balanced=True, standardise=True)


@pytest.fixture(scope="module")
def training(images: Images) -> Training:
    return fig6_3.train_cases(SETTING, images)


def changes(training: Training, case: int, seed: int) -> list[float]:
    network = training.network(seed, case)
    pairs = zip(network.network.layers, network.initial.value.layers, strict=True)
    return [float(jnp.abs(now.weight - before.weight).max()) for now, before in pairs]


@pytest.mark.parametrize("case", range(len(CASES)), ids=[case.name for case in CASES])
def test_each_case_trains_its_layers_at_its_rate(training: Training, case: int) -> None:
    moved = changes(training, case, seed=1)
    rate = SETTING.rate * CASES[case].rate
    # float32: weights of about 0.3 are known to 3e-8; Adam's epsilon takes 1e-8 over the gradient.
    assert moved[-1] == pytest.approx(rate, rel=0.02, abs=1e-7)
    if CASES[case] is LINEAR:
        assert moved[:-1] == [0.0] * 3
    else:
        assert moved[:-1] == pytest.approx([rate] * 3, rel=0.02, abs=1e-7)


def test_targets_and_outputs(training: Training, images: Images) -> None:
    for case, settings in enumerate(CASES):
        assert float(training.data(0, case).targets.max()) == pytest.approx(1 / settings.downscaling)
        loss = float(training.curves.train_loss[case, 0, 0])
        network = training.network(0, case)
        first = jax.vmap(network.initial.value)(jnp.asarray(images.train_inputs))
        start = (1 - settings.centred) * np.asarray(first, float)
        expected = np.mean((start - images.train_targets / settings.downscaling) ** 2)
        assert loss == pytest.approx(expected, rel=1e-4)
    lazy = training.network(0, CASES.index(LAZY))
    inputs = jnp.asarray(images.test_inputs[:5])
    difference = jax.vmap(lazy.network)(inputs) - jax.vmap(lazy.initial.value)(inputs)
    np.testing.assert_allclose(jax.vmap(lazy)(inputs), difference, rtol=1e-6)


def test_the_best_last_layer_leaves_errors_that_no_feature_explains(training: Training, images: Images) -> None:
    network = fig6_3.with_best_last_layer(training.network(0, CASES.index(LINEAR)), images)
    inputs = jnp.asarray(images.train_inputs)
    hidden = np.asarray(jax.vmap(network.network.features)(inputs), float)
    errors = np.asarray(jax.vmap(network)(inputs), float) - images.train_targets
    # Normal equations; weights and outputs are rounded to float32.
    assert np.abs(hidden.T @ errors).max() < 1e-4 * np.linalg.norm(hidden) * np.linalg.norm(errors)
    assert np.abs(errors.mean(axis=0)).max() < 1e-5
