"""The posterior: its gradient, and its agreement with the covariance where the problem is nearly linear."""

import numpy as np
import pytest

from solvable.inference import PowerLaw, Run
from solvable.inference.fitting import fit
from solvable.inference.posterior import _Posterior, nuts
from solvable.inference.profiles import covariance


@pytest.fixture
def found():
    steps = np.geomspace(1, 1000, 60)
    noise = np.exp(0.01 * np.random.default_rng(0).normal(size=60))
    run = Run("one", steps, (0.3 + steps**-0.5) * noise)
    return fit(PowerLaw().prepare([run]), [run], starts=2)


def test_gradient_is_the_derivative_of_the_density(found):
    posterior = _Posterior(found)
    place = 0.3 * np.random.default_rng(1).normal(size=posterior.size)
    gradient = posterior.value_and_gradient(place)[1:]
    steps = 1e-4 * np.eye(posterior.size)
    ends = [[posterior.value_and_gradient(place + sign * step)[0] for sign in (-1, 1)] for step in steps]
    np.testing.assert_allclose(gradient, np.diff(ends)[:, 0] / 2e-4, rtol=1e-3, atol=1e-2)


@pytest.mark.slow
def test_nuts_agrees_with_the_covariance(found):
    """Effective draws of at least 100 give a mean to 0.1 and a spread to 0.07 of the standard error; four of each."""
    pytest.importorskip("blackjax")
    drawn = nuts(found, warm_up=200, draws=400)
    error = np.sqrt(covariance(found)[0, 0])
    assert drawn.effective > 100
    assert abs(drawn.coordinates[:, 0].mean() - found.best.coordinates[0]) < 0.4 * error
    assert 0.7 < drawn.coordinates[:, 0].std() / error < 1.3
