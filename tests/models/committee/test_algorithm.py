"""Algorithms of the user's own: the built-in ones rewritten, agreement with simulation, and bad input."""

import jax.numpy as jnp
import numpy as np
import pytest
from committees import classifier

import solvable
from solvable import SGD, Algorithm, GradientDescent, compare, solvers

FEW = solvers.Latent(samples=512, replicates=2)


class HeavyBall(Algorithm):
    """Momentum as a theorist would write it."""

    learning_rate: float
    momentum: float
    batch_fraction: float
    sampling: str = "subsets"

    def start(self, system):
        return system.start, 0.0 * system.start

    def step(self, system, state, count):
        weights, velocity = state
        signals = system.batch(count) * system.signals(system.fields(weights))
        velocity = self.momentum * velocity + system.pull(signals)
        return weights + self.learning_rate * velocity, velocity

    def weights(self, state):
        return state[0]


class Clipped(Algorithm):
    """Sample-wise clipping, and Polyak's average of the weights."""

    learning_rate: float
    bound: float

    def start(self, system):
        return system.start, system.start

    def step(self, system, state, count):
        weights, average = state
        signals = system.signals(system.fields(weights))
        sizes = jnp.linalg.norm(signals, axis=0)
        signals = signals * jnp.minimum(1, self.bound / jnp.maximum(sizes, 1e-12))
        weights = weights + self.learning_rate * system.pull(signals)
        return weights, average + (weights - average) / (count + 1)

    def weights(self, state):
        return state[0]

    def average(self, state):
        return state[1]


def test_a_built_in_algorithm_written_by_hand_gives_the_same_curves():
    model, times = classifier(), [0, 2, 5]
    own, built_in = HeavyBall(0.5, 0.4, 0.25), SGD(0.5, momentum=0.4, batch_fraction=0.25, sampling="subsets")
    pairs = [
        [model.predict(times, training, solver=FEW) for training in (own, built_in)],
        [model.simulate(times, training, dimension=30, seeds=2, form="primal") for training in (own, built_in)],
    ]
    for one, other in pairs:
        assert set(one.data_vars) == set(other.data_vars)
        for name in one.data_vars:
            # The errors are differences of nearly equal numbers, on which rounding shows more.
            np.testing.assert_allclose(one[name], other[name], rtol=1e-6, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(one.flow_time, other.flow_time)


@pytest.mark.slow
def test_an_algorithm_that_the_package_does_not_have_meets_simulation():
    model, algorithm, times = classifier(label_flips=0.1), Clipped(0.8, 0.3), [2, 6, 12]
    theory = model.predict(times, algorithm, solver=solvers.Latent(samples=4096))
    runs = model.simulate(times, algorithm, dimension=150, seeds=30)
    verdict = compare(theory, runs).attrs["verdict"]
    assert verdict.startswith("theory and simulation agree"), verdict
    assert "averaged_test_error_rate" in theory
    # Clipping matters: without it the overlap is elsewhere.
    plain = model.predict(times, GradientDescent(0.8), solver=FEW)
    assert np.abs(plain.overlap.values[-1] / theory.overlap.values[-1] - 1).max() > 0.1


def test_bad_algorithms_are_refused():
    class Nothing(Algorithm):
        learning_rate: float

    with pytest.raises(NotImplementedError, match="Nothing must define step"):
        classifier().predict([1], Nothing(0.1), solver=FEW)
    with pytest.raises(ValueError, match="does not cover algorithms of your own: use Latent"):
        classifier(loss="squared", labels="teacher").predict([1], Clipped(0.1, 1.0), solver="response")
    with pytest.raises(ValueError, match="needs a finite samples_per_dimension"):
        classifier(samples_per_dimension=np.inf).predict([1], Clipped(0.1, 1.0))
    with pytest.raises(ValueError, match="training must be GradientFlow"):
        solvable.ScalarNetwork().predict([1.0], "clipped")
