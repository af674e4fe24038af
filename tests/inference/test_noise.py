"""Noise along a curve: whitening, and the estimate of correlation and tails from residuals."""

import math

import numpy as np

from solvable.inference.noise import Noise, estimate, gaps
from solvable.inference.runs import Run


def autoregression(generator, count, rho, innovations=None):
    noise = generator.normal(size=count) if innovations is None else innovations
    for place in range(1, count):
        noise[place] = rho * noise[place - 1] + math.sqrt(1 - rho**2) * noise[place]
    return noise


def test_whitening_inverts_the_covariance_of_uneven_records():
    """The sum of squares of whitened residuals is the quadratic form of the inverse covariance matrix."""
    steps = np.array([1.0, 2.0, 3.0, 7.0, 20.0, 21.0])
    own = gaps(steps, "log")
    noise = Noise(correlation=0.6)
    places = np.append(0.0, np.cumsum(own))
    covariance = 0.6 ** np.abs(places[:, None] - places)
    values = np.random.default_rng(0).normal(size=6)
    white = noise.whiten(values, own)
    np.testing.assert_allclose(white @ white, values @ np.linalg.solve(covariance, values), rtol=1e-12)
    np.testing.assert_allclose(noise.log_determinant(own), np.linalg.slogdet(covariance)[1], rtol=1e-12)


def test_restricted_likelihood_recovers_the_correlation_that_a_fit_hides():
    """A parabola fitted to 60 records of rho = 0.8 leaves residuals of less correlation; the estimate is right.

    The mean of 40 estimates has a standard error near 0.02, so that a window of 0.07 has a false alarm below 1e-3.
    """
    generator, steps = np.random.default_rng(1), np.geomspace(1, 1000, 60)
    line = np.stack([np.ones(60), np.log(steps), np.log(steps) ** 2], axis=1)
    found, plain = [], []
    for _ in range(40):
        noise = 0.01 * autoregression(generator, 60, 0.8)
        left = noise - line @ np.linalg.lstsq(line, noise, rcond=None)[0]
        run = Run("one", steps, np.exp(-0.5 * np.log(steps)))
        found.append(estimate([run], [left], [line], "gaussian-ar1").correlation)
        plain.append(left[1:] @ left[:-1] / (left @ left))
    assert abs(np.mean(found) - 0.8) < 0.07
    assert np.mean(plain) < 0.72


def test_independent_noise_is_mostly_called_independent():
    generator, steps = np.random.default_rng(2), np.geomspace(1, 1000, 60)
    run = Run("one", steps, steps**-0.5)
    line = np.stack([np.ones(60), np.log(steps)], axis=1)
    found = [estimate([run], [generator.normal(size=60)], [line], "gaussian-ar1").correlation for _ in range(40)]
    # The gate passes 8 % of independent curves (chi-square of one degree, one side).
    assert np.mean(np.array(found) == 0) > 0.75
    assert max(found) < 0.6


def test_heavy_tails_are_noticed_and_gaussian_ones_are_not():
    generator, steps = np.random.default_rng(3), np.geomspace(1, 1000, 200)
    run, one = Run("one", steps, steps**-0.5), np.ones((200, 1))
    heavy = estimate([run], [0.01 * generator.standard_t(3, 200)], [one], "student")
    light = estimate([run], [0.01 * generator.normal(size=200)], [one], "student")
    assert heavy.freedom <= 6
    assert light.freedom >= 10
    assert abs(light.deviation / 0.01 - 1) < 0.15


def test_groups_of_different_noise_get_their_own_scales():
    generator, steps = np.random.default_rng(4), np.geomspace(1, 1000, 100)
    runs = [Run(name, steps, steps**-0.5, group=name) for name in ("quiet", "loud")]
    residuals = [0.01 * generator.normal(size=100), 0.05 * generator.normal(size=100)]
    noise = estimate(runs, residuals, [np.ones((100, 1))] * 2, "gaussian")
    assert 3.5 < noise.relative["loud"] / noise.relative["quiet"] < 7
