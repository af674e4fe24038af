"""A single weight: limits, an identity, simulation, gradients, bad input, the contract."""

import jax
import numpy as np
import pytest

import solvable
from solvable.models.single_weight import SingleWeight

TIMES = np.linspace(0, 2, 9)


def test_many_samples_give_the_population_flow():
    theory = SingleWeight(samples=10**9).predict(TIMES)
    np.testing.assert_allclose(theory.test_loss, np.exp(-2 * TIMES) / 2, rtol=1e-7)


def test_test_loss_falls_at_twice_the_training_loss():
    # For one run d/dt (S - w)^2 / 2 = -s (S - w)^2, so that the means obey it, too.
    step, model = 1e-5, SingleWeight(samples=7, target=-3.0)
    around = model.predict([1 - step, 1, 1 + step])
    slope = float(around.test_loss[2] - around.test_loss[0]) / (2 * step)
    assert slope == pytest.approx(-2 * float(around.train_loss[1]), rel=1e-8)


def test_simulation_agrees():
    # The largest of 18 correlated z-scores; 4 is passed by chance less than once in 800 keys. The key is fixed.
    model = SingleWeight(samples=20)
    scores = solvable.compare(model.predict(TIMES), model.simulate(TIMES, seeds=2000, key=1)).sel(statistic="z_score")
    assert float(abs(scores).to_array().max()) < 4


def test_learning_rate_sets_the_unit_of_time():
    model = SingleWeight(samples=7)
    slower = model.predict(4 * TIMES, solvable.GradientFlow(learning_rate=0.25))
    np.testing.assert_allclose(slower.test_loss, model.predict(TIMES).test_loss, rtol=1e-14)


def test_theory_is_differentiable():
    with jax.enable_x64(True):
        slope = jax.grad(lambda target: SingleWeight(samples=5, target=target).predict([1.0]).test_loss.data[0])(2.0)
    assert slope == pytest.approx(2.0 * (1 + 4 / 5) ** -2.5)


@pytest.mark.parametrize("samples", [0, -1, 2.5, float("nan"), "many"])
def test_impossible_samples_are_refused(samples):
    with pytest.raises(ValueError, match="samples must be a whole number, 1 or more"):
        SingleWeight(samples=samples)


def test_the_contract_is_kept():
    solvable.models.check_model(SingleWeight)
