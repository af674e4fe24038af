"""Scaling on images: the tangent kernel of a CNN, gradient descent with a kernel, and the settings of the figure."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from solvable.networks import trainable
from solvable.networks.convolutional.cnn import CNN
from solvable.papers.feature_scaling import fig6
from solvable.papers.feature_scaling._image_kernels import kernel_descent, source_of, tangent_kernel
from solvable.papers.feature_scaling._images import curves, measured_steps, training


def test_kernel_of_a_cnn_is_that_of_its_gradients() -> None:
    """Against all gradients, one by one. Sizes are odd, so that pools leave a row out; the richness scales the rate."""
    network = CNN(
        (7, 6, 2), 2, key=jax.random.key(0), channels=(3, 4), width=5, parameterisation="mean-field", richness=0.3
    )
    images = jax.random.normal(jax.random.key(1), (4, 7, 6, 2))
    parameters, rest = eqx.partition(network, trainable(network))
    parameters = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), parameters)
    slopes = jax.jit(jax.jacrev(lambda own: jax.vmap(eqx.combine(own, rest))(images)))(parameters)
    rows = [np.asarray(leaf).reshape(4, -1) for leaf in jax.tree.leaves(slopes)]
    expected = sum(row @ row.T for row in rows)
    # Factors are float32 in one and float64 in the other.
    np.testing.assert_allclose(tangent_kernel(network, images), expected / 2 * 0.3**2 * 5, rtol=1e-6)


def power_law_features(key: int, points: int, capacity: float, source: float) -> tuple[np.ndarray, np.ndarray, object]:
    """Kernel and targets on random points of a model with known exponents, and the loss of flow on the population."""
    generator = np.random.default_rng(key)
    modes = np.arange(1, 801)
    eigenvalues = modes**-capacity
    power = modes ** (-capacity * source - 1)
    features = generator.normal(size=(points, modes.size))
    kernel = (features * eigenvalues) @ features.T
    targets = features @ (np.sqrt(power) * generator.choice([-1, 1], modes.size))
    return kernel, targets[:, None], lambda time: 0.5 * np.sum(power * np.exp(-2 * eigenvalues * time))


def test_descent_of_a_kernel_is_that_of_the_linear_model() -> None:
    """The same gradient descent in the space of the weights, by powers of a matrix."""
    generator = np.random.default_rng(0)
    features, targets = generator.normal(size=(30, 8)), generator.normal(size=(30, 2))
    points, rate, measure_at = 20, 0.2, [1, 7, 40]
    kernel = features @ features.T
    found = kernel_descent(kernel, targets, points, rate, measure_at)
    hessian = features[:points].T @ features[:points] / points
    slope = features[:points].T @ targets[:points] / points
    for place, steps in enumerate(measure_at):
        faded = np.linalg.matrix_power(np.eye(8) - rate * hessian, steps)
        weights = scipy.linalg.solve(hessian, (np.eye(8) - faded) @ slope)
        residuals = targets - features @ weights
        expected = [np.mean(np.sum(part**2, axis=1)) / 2 for part in (residuals[:points], residuals[points:])]
        np.testing.assert_allclose([found.train[place], found.test[place]], expected, rtol=1e-10)


def test_a_stream_lies_between_the_two_losses_of_a_kernel() -> None:
    """In the mean of 8 draws; the losses approach each other as there are more images."""
    rate, measure_at = 0.02, [100, 500, 1500]
    gaps = {}
    for points in (80, 320):
        losses = []
        for key in range(8):
            kernel, targets, loss = power_law_features(key, points + 200, 1.5, 0.5)
            losses.append(kernel_descent(kernel, targets, points, rate, measure_at))
        learned, others = (np.mean([getattr(one, name) for one in losses], axis=0) for name in ("train", "test"))
        exact = np.array([loss(rate * step) for step in measure_at])
        # The standard error of the means is about 3 % (targets are Gaussian: 1600 others, 640 or more learned from);
        # steps are not flow, rate times eigenvalue being 0.02 for the first mode: 1 %.
        assert (learned < 1.07 * exact).all()
        assert (others > 0.93 * exact).all()
        gaps[points] = others / learned - 1
    assert gaps[320][-1] < 0.5 * gaps[80][-1]


def test_source_of_a_kernel_with_known_exponents() -> None:
    kernel, targets, _ = power_law_features(3, 600, 1.5, 0.5)
    found = source_of(kernel, targets)
    assert found.capacity == pytest.approx(1.5, abs=2 * found.capacity_error)
    # The power is that of the modes up to sampling noise, about sqrt(2 / 600) of a mode's own and of its neighbours.
    assert found.source == pytest.approx(0.5, abs=0.1)
    assert found.capacity_error < 0.3
    assert found.power.sum() == pytest.approx(1)


def test_steps_measured_are_whole_stretches() -> None:
    steps = measured_steps(6000)
    assert steps[0] == 0
    assert steps[-1] == 6000
    assert all(step % 50 == 0 for step in steps)
    assert len(steps) == len(set(steps)) > 20


def test_settings_of_the_figure_fit_together() -> None:
    """Windows of more than a decade, so that half a decade can be cut off, within what is trained and stable."""
    for panel in (*fig6.PANELS["quick"], *fig6.PANELS["full"]):
        first, last = panel.window
        assert last >= 10 * first
        assert 50 * panel.rate <= first
        assert last <= panel.rate * panel.steps * (1 + 1e-9)
        assert panel.richness[0] == min(panel.richness) == 0.01


@pytest.mark.slow
def test_lazy_training_is_that_of_the_linearised_network() -> None:
    """Same initialisation, same images: the difference from the tangent model is of the order of the richness."""
    task, rate = fig6.DIGITS, 0.04
    tangent, trained = (
        curves(training(task, richness, [rate] * len(richness), steps=200, seeds=1, lazy=lazy), rate).test_loss[:, 0]
        for richness, lazy in (([1.0], True), ([0.001, 0.01], False))
    )
    difference = abs(trained / tangent[0].drop_vars("richness") - 1).max("time").values
    assert difference[1] < 0.01
    # In proportion to the richness it would be a tenth; pools and ReLUs that switch add to it.
    assert difference[0] < 0.4 * difference[1]
    assert float(tangent[0, -1]) < 0.9 * float(tangent[0, 0])
