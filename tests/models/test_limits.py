"""What docs/limits.md says the library does at the edge of a theory, it does."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from paths import DOCS

from solvable import (
    SGD,
    Committee,
    DiagonalNetwork,
    FeatureScaling,
    GradientDescent,
    LinearEstimator,
    LinearFeatures,
    LinearNetwork,
    ParityMode,
    ScalarNetwork,
    SkillModel,
    activations,
    models,
)

PAGE = DOCS / "limits.md"


@pytest.mark.parametrize("name", models.names())
def test_every_model_has_its_limits(name):
    assert f"\n## {models.get(name).__name__}\n" in PAGE.read_text()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: LinearEstimator(0.9).predict([10], GradientDescent(0.5)), "0.263"),
        (lambda: LinearEstimator(0.9, outputs=5, width=3).predict([10]), "width >= outputs"),
        (lambda: DiagonalNetwork([1.0], [1.0], [1e-80], [1e-80]), "1e-70"),
        (lambda: LinearFeatures(np.ones(5), np.ones(5), samples=5, noise=0.0).limit(), "expected loss infinite"),
        (lambda: LinearFeatures(np.ones(5), np.ones(5), samples=5, noise=0.0).kappa, "fewer samples than modes"),
        (lambda: SkillModel(0.6, skills=5).simulate([10.0], GradientDescent(100.0), seeds=2), "descent is unstable"),
        (lambda: SkillModel(0.6, skills=5, samples=100, shots=3).predict([10.0]), "shots = 1"),
        (lambda: ParityMode(initial_first=-1.0), "positive"),
        (lambda: Committee(activation=jnp.sign).predict([2]), "continuous"),
        (lambda: Committee(2.0, activation=activations.quadratic(1.0)).escape_time(), "eq. 20 holds"),
        (lambda: FeatureScaling(1.5, 0.4, modes=math.inf).predict([0, 50], GradientDescent(1.5)), "training diverges"),
    ],
)
def test_raises(ask, words):
    with pytest.raises(ValueError, match=words):
        ask()


def test_noise_that_feeds_itself_warns():
    model = FeatureScaling(1.5, 0.4, features=64, modes=100, richness=0.0)
    with pytest.warns(UserWarning, match="near 1"):
        assert model.predict([0, 1, 5], SGD(0.9, batch_size=1)).attrs["noise_gain"] > 1


def test_infinite_answers():
    assert np.isinf(DiagonalNetwork([1.0], [1.0], [0.1], [-0.1]).emergence_time(0.5).emergence_time.values).all()
    assert np.isinf(ScalarNetwork([1.0], [-1.0], target=1.0).final_growth)


def test_a_narrow_network_learns_as_many_modes_as_it_is_wide():
    strength = LinearNetwork([3.0, 2.0, 1.0], width=2).predict([20.0]).strength.values[0]
    # The sigmoid of the second mode is within e^(-2 rho t) of its end.
    assert strength == pytest.approx([3.0, 2.0, 0.0], abs=1e-12)
