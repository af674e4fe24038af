"""Emergence in networks: where curves cross, the errors of predictions, and a real training."""

import jax
import numpy as np
import optax
import pytest

from solvable.models.skills import SkillModel
from solvable.networks import MLP, train
from solvable.networks.tasks.parity import SparseParity
from solvable.papers.layerwise import _emergence as shared


def test_crossings_of_known_curves():
    times = np.arange(0, 2001, 20.0)
    half, slope = np.array([300.0, 700.0, 5000.0]), 0.02
    curves = 1 / (1 + np.exp(-slope * (times[:, None] - half)))
    found = shared.crossings(times, curves[None])
    # Between points 20 apart a sigmoid is straight to (slope * 20)^2 / 30 of the distance at most.
    np.testing.assert_allclose(found[0, :2], half[:2], atol=0.2)
    assert np.isnan(found[0, 2])
    # On a log axis, a straight line in log x is met exactly.
    places = np.array([1.0, 10.0, 100.0, 1000.0])
    assert shared.crossing(places, np.log10(places) / 3, log=True) == pytest.approx(10**1.5, rel=1e-12)
    assert shared.crossing([5, 6], [0.7, 0.9]) == 5


def test_what_never_emerges_counts_as_an_infinite_error():
    measured = np.array([[10.0, 20.0, np.nan], [10.0, np.nan, np.nan]])
    errors = shared.errors_of(np.array([10.0, 22.0, 30.0]), measured)
    assert errors[0, 1] == pytest.approx(0.1)
    claim = shared.median_claim("time", errors, 0.25, "because")
    assert np.isinf(claim.measured)
    assert not claim.passed
    assert shared.median_claim("time", errors[:1, :2], 0.25, "because").measured == pytest.approx(0.1)


def test_shots_are_found_where_there_is_one_skill():
    """The frequency of the only skill rounds to just above one; the distribution function was NaN there."""
    samples = np.array([5, 10, 20, 30, 50])
    fit = SkillModel(0.6, skills=1).calibrate_shots(samples, np.minimum(samples / 40, 1))
    assert int(fit.shots) == 40
    assert float(fit.misfit) < 1e-12


def _emergence(steps, every, seeds):
    """Tasks with one and with two skills side by side: times, and relative strengths (practised, seed, time, skill)."""
    task = SparseParity(skills=2, skill_bits=6, relevant=2, exponent=0.1)
    training = train(
        lambda key, practised: MLP(task.inputs, 1, width=64, depth=2, key=key, std=0.01),
        lambda key, practised: task.fresh(practised),
        optax.sgd(0.05),
        steps=steps,
        batch_size=64,
        loss="half-mse",
        variants={"practised": [1, 2]},
        seeds=seeds,
        measure={"strength": task.held_out(jax.random.key(1), 64).strengths},
        measure_at=range(0, steps + 1, every),
        progress=False,
    )
    return training.curves.time.values, training.curves.strength.values / task.target_scale, task.frequencies()


def test_a_practised_skill_emerges_and_others_do_not():
    _, strength, _ = _emergence(steps=180, every=180, seeds=2)
    assert strength[0, :, -1, 0].min() > 0.8
    assert np.abs(strength[0, :, -1, 1]).max() < 0.1
    # With a second skill the first is practised less, and is behind.
    assert (strength[1, :, -1, 0] < strength[0, :, -1, 0] - 0.2).all()


@pytest.mark.slow
def test_the_first_skill_takes_longer_by_its_frequency():
    times, strength, frequencies = _emergence(steps=800, every=20, seeds=5)
    half = np.median([shared.crossings(times, runs) for runs in strength], axis=1)
    # Single half times spread by 5 %; a narrow network comes later by up to a fifth where skills share neurons.
    assert half[1, 0] / half[0, 0] == pytest.approx(1 / float(frequencies[0]), rel=0.25)
    assert half[1, 1] / half[0, 0] == pytest.approx(1 / float(frequencies[1]), rel=0.4)
