"""Finite input dimension: moments of Wishart matrices, sums over eigenvalues, and simulated datasets."""

import numpy as np
import pytest

from solvable import SGD, GradientDescent, GradientFlow, LinearEstimator
from solvable.models.linear_estimator.finite_size import mean_shift, mode_losses, variance


def at_angles(function: object, ratio: float, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    angles = np.pi * (np.arange(count) + 0.5) / count
    inside = 1 + ratio + 2 * np.sqrt(ratio) * np.cos(angles)
    edges = np.array([(1 - np.sqrt(ratio)) ** 2, (1 + np.sqrt(ratio)) ** 2])
    return function(inside), function(edges)  # type: ignore[operator]


@pytest.mark.parametrize("ratio", [0.3, 1.0, 2.5])
def test_moments_of_wishart_matrices(ratio: float) -> None:
    """Exact: the trace has no bias and the variance ``2 lambda``; that of the square has the bias ``lambda``.

    The variance of the trace of the square is ``4 lambda (2 + 5 lambda + 2 lambda^2)`` to leading order.
    """
    first, second = at_angles(lambda x: x, ratio), at_angles(lambda x: x**2, ratio)
    assert mean_shift(*first) == pytest.approx(0, abs=1e-12)
    assert variance(first[0]) == pytest.approx(2 * ratio)
    assert mean_shift(*second) == pytest.approx(ratio)
    assert variance(second[0]) == pytest.approx(4 * ratio * (2 + 5 * ratio + 2 * ratio**2))


@pytest.mark.parametrize("training", [GradientFlow(0.02), GradientDescent(0.02)])
def test_losses_of_modes_average_to_the_theory(training: GradientFlow | GradientDescent) -> None:
    model = LinearEstimator(0.6, outputs=2, initial_scale=0.7, label_noise=0.2)
    training = training.replace(weight_decay=0.1)
    count = 4000
    angles = np.pi * (np.arange(count) + 0.5) / count
    inside = 1.6 + 2 * np.sqrt(0.6) * np.cos(angles)
    density = 2 * np.sin(angles) ** 2 / (count * inside)
    for time in (0.0, 30.0, 1000.0):
        train, test = mode_losses(model, training, inside, time)
        exact = model.predict([time], training)
        assert float(exact.test_loss[0]) == pytest.approx(np.sum(density * test), rel=1e-9)
        outside = 0.2**2 * (1 - 0.6)
        assert float(exact.train_loss[0]) == pytest.approx(np.sum(density * train) + outside, rel=1e-9)


def test_the_start_is_known_exactly() -> None:
    """At the start all modes are alike: no bias, and the mean of ``d_in * outputs`` squares."""
    band = LinearEstimator(0.5, outputs=3).finite_size([0], dimension=100)
    assert float(band.test_loss[0]) == pytest.approx(1 / 3)
    assert float(band.test_loss_spread[0]) == pytest.approx(1 / 3 * np.sqrt(2 / 300))
    # The training loss fluctuates with the trace of the covariance, too: 2 lambda / d^2.
    expected = 2 / 300 * (1.5 + 0.5 / 100) + 2 * 0.5 / 100**2
    assert float(band.train_loss_spread[0]) == pytest.approx(1 / 3 * np.sqrt(expected))


@pytest.mark.parametrize(
    ("model", "training", "times", "visible"),
    [
        (LinearEstimator(0.5), GradientDescent(0.01), (10.0, 100.0, 300.0), True),
        (LinearEstimator(0.3, outputs=8), GradientDescent(0.01, weight_decay=0.05), (10.0, 1000.0), True),
        (LinearEstimator(1.6, label_noise=0.3), GradientFlow(0.01), (10.0, 100.0), False),
    ],
)
def test_runs_fill_the_band(
    model: LinearEstimator, training: GradientDescent | GradientFlow, times: tuple[float, ...], visible: bool
) -> None:
    """Means and variances of 1500 datasets in 40 dimensions, where the limit itself is off by several standard errors.

    Fourteen means within 4 standard errors are missed by chance once in 1100 keys. Variances of such numbers have a
    relative standard error of 0.04 to 0.07, and corrections of higher order; 20 % are allowed.
    """
    band = model.finite_size(times, training, dimension=40)
    runs = model.simulate(times, training, dimension=40, seeds=1500, key=3, progress=False)
    limit = model.replace(aspect_ratio=40 / round(40 / model.aspect_ratio)).predict(times, training)
    off_the_limit = []
    for name in ("train_loss", "test_loss"):
        mean, spread = runs[name].mean("seed"), runs[name].std("seed", ddof=1)
        error = spread / np.sqrt(1500)
        assert float(abs((mean - band[name]) / error).max()) < 4, name
        off_the_limit.append(float(abs((mean - limit[name]) / error).max()))
        np.testing.assert_allclose(spread**2, band[f"{name}_spread"] ** 2, rtol=0.2)
    assert not visible or max(off_the_limit) > 4


def test_it_says_what_it_does_not_cover_and_when_it_is_of_no_use() -> None:
    model = LinearEstimator(0.9)
    with pytest.raises(ValueError, match="full batches"):
        model.finite_size([10], SGD(0.01, batch_fraction=0.5))
    with pytest.raises(ValueError, match="one layer"):
        model.replace(width=20).finite_size([10])
    with pytest.raises(ValueError, match="dimension"):
        model.finite_size([10], dimension=0)
    with pytest.raises(ValueError, match="constant learning rate"):
        model.finite_size([10], GradientDescent(0.01, momentum=0.9))
    band = model.finite_size([100, 20000], dimension=200)
    assert band.relative_correction[0] < 0.05
    assert band.relative_correction[1] > 0.3
