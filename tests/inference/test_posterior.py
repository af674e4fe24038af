"""The posterior: its gradient, its compiled form, and its agreement with the covariance of nearly linear problems."""

import math

import jax
import numpy as np
import pytest

from solvable.inference import PowerLaw, Run, differentiable_curves, feature_curves
from solvable.inference.feature_scaling_law import FeatureScalingLaw
from solvable.inference.fitting import fit
from solvable.inference.posterior import _Posterior, nuts
from solvable.inference.profiles import covariance
from solvable.inference.splines import Grid
from solvable.inference.theory_laws import Curve
from solvable.precision import in_float64


@pytest.fixture
def found():
    steps = np.geomspace(1, 1000, 60)
    noise = np.exp(0.01 * np.random.default_rng(0).normal(size=60))
    run = Run("one", steps, (0.3 + steps**-0.5) * noise)
    return fit(PowerLaw().prepare([run]), [run], starts=2)


def widths(*chosen):
    """Runs of feature scaling from the tables, with 1 % noise."""
    times, runs = np.geomspace(1, 1000, 40), []
    for seed, width in enumerate(chosen):
        logs = feature_curves.emulated(1.5, 0.5, 1.0, width)
        curve = Curve(Grid(np.log(feature_curves.TIMES)), logs, feature_curves.initial(1.5, 0.5))(times) + 0.02
        noise = np.exp(0.01 * np.random.default_rng(seed).normal(size=40))
        sizes = {} if math.isinf(width) else {"width": width}
        runs.append(Run(f"N = {width:g}", times, curve * noise, sizes=sizes, group="all"))
    return runs


def test_gradient_is_the_derivative_of_the_density(found):
    posterior = _Posterior(found)
    place = 0.3 * np.random.default_rng(1).normal(size=posterior.size)
    gradient = posterior.value_and_gradient(place)[1:]
    steps = 1e-4 * np.eye(posterior.size)
    ends = [[posterior.value_and_gradient(place + sign * step)[0] for sign in (-1, 1)] for step in steps]
    np.testing.assert_allclose(gradient, np.diff(ends)[:, 0] / 2e-4, rtol=1e-3, atol=1e-2)


@in_float64
def test_curves_in_jax_are_those_of_numpy():
    """Lazy and rich, infinite and finite width, before, within and beyond the times of the tables."""
    times = np.geomspace(1e-3, 1e6, 30)
    for richness, width in ((0.0, math.inf), (0.7, 100.0)):
        logs = differentiable_curves.emulated(1.37, 0.62, richness, width)
        np.testing.assert_allclose(logs, feature_curves.emulated(1.37, 0.62, richness, width), rtol=1e-10)
        start = differentiable_curves.initial(1.37, 0.62)
        np.testing.assert_allclose(start, feature_curves.initial(1.37, 0.62), rtol=1e-12)
        curve = Curve(Grid(np.log(feature_curves.TIMES)), np.asarray(logs), float(start))
        np.testing.assert_allclose(differentiable_curves.curve(logs, start, times), curve(times), rtol=1e-10)


@in_float64
def test_compiled_density_is_that_of_numpy():
    """Two independent routes to the density and its gradient; one of them takes differences of the law."""
    runs = widths(math.inf)
    posterior = _Posterior(fit(FeatureScalingLaw().prepare(runs), runs, starts=2))
    place = 0.5 * np.random.default_rng(2).normal(size=posterior.size)
    value, gradient = jax.jit(jax.value_and_grad(posterior.compiled()))(place)
    expected = posterior.value_and_gradient(place)
    np.testing.assert_allclose(value, expected[0], rtol=1e-9)
    np.testing.assert_allclose(gradient, expected[1:], rtol=2e-3, atol=2e-3)


@pytest.mark.slow
def test_nuts_agrees_with_the_covariance(found):
    """Effective draws of at least 100 give a mean to 0.1 and a spread to 0.07 of the standard error; four of each."""
    pytest.importorskip("blackjax")
    drawn = nuts(found, warm_up=150, draws=200, chains=2)
    error = np.sqrt(covariance(found)[0, 0])
    assert drawn.effective > 100
    assert drawn.mixing < 1.1
    assert abs(drawn.coordinates[:, 0].mean() - found.best.coordinates[0]) < 0.4 * error
    assert 0.7 < drawn.coordinates[:, 0].std() / error < 1.3


@pytest.mark.slow
def test_nuts_of_three_widths_mixes():
    """Four chains agree (R-hat below 1.05), and the truth is within four standard deviations (chance 2e-4 each)."""
    pytest.importorskip("blackjax")
    runs = widths(16.0, 64.0, 256.0)
    drawn = nuts(fit(FeatureScalingLaw().prepare(runs), runs, starts=8))
    assert drawn.mixing < 1.05
    assert drawn.effective > 100
    for number, truth in enumerate((1.5, 0.5, 0.0, 0.0)):
        own = drawn.coordinates[:, number]
        assert abs(own.mean() - truth) < 4 * own.std()
