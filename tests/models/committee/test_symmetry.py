"""Quadratic networks may be rotated among their neurons: an identity of finite networks, and its use in theory."""

import numpy as np
import pytest

from solvable import Committee, GradientDescent, GradientFlow, activations, solvers
from solvable.models.committee import latent
from solvable.models.committee.exchangeable import ExchangeableClosure
from solvable.models.committee.problem import problem_of
from solvable.models.committee.symmetry import symmetry_of
from solvable.precision import in_float64

pytestmark = pytest.mark.filterwarnings("error")
TRAINING = GradientDescent(0.25)
RNG = np.random.default_rng(3)
RANDOM = 0.2 * RNG.normal(size=(12, 1))
TWO_INDICES = 0.2 * RNG.normal(size=(8, 2))


def product(fields):
    return fields[0] * fields[1]


def committee(alignment, **changes):
    """Weights that are orthonormal beside their alignments."""
    neurons, indices = alignment.shape
    settings = {
        "samples_per_dimension": 4.0,
        "output_scale": 0.5,
        "activation": activations.quadratic(0.2),
        "initial_overlap": np.eye(neurons) + alignment @ alignment.T,
        "initial_alignment": alignment,
    }
    if indices > 1:
        settings["teacher"] = product
    return Committee(**{**settings, **changes})


@in_float64
def symmetry(model, training=TRAINING):
    return symmetry_of(problem_of(model, training))


@pytest.mark.parametrize("alignment", [RANDOM, TWO_INDICES, 0.1 * np.array([[1.0], [-1.0], [1.0], [-1.0]])])
def test_a_few_neurons_carry_all_differences(alignment):
    found = symmetry(committee(alignment))
    neurons, indices = alignment.shape
    assert sorted(map(len, found.groups)) == [*[1] * indices, neurons - indices]
    np.testing.assert_allclose(found.rotation @ found.rotation.T, np.eye(neurons), atol=1e-13)
    np.testing.assert_allclose(found.rotation @ np.ones(neurons), 1, atol=1e-13)


def test_neurons_with_other_readouts_are_rotated_by_themselves():
    readout = np.repeat([0.1, -0.1], 6)
    found = symmetry(committee(RANDOM, readout=readout))
    assert [len(group) for group in found.groups] == [1, 5, 1, 5]
    assert not found.rotation[:6, 6:].any()
    assert not found.rotation[6:, :6].any()


@pytest.mark.parametrize(
    ("changes", "training"),
    [
        ({"activation": activations.Polynomial((0.0, 1.0, 0.1, 0.05))}, TRAINING),
        ({"activation": activations.tanh}, TRAINING),
        ({"readout": np.linspace(0.1, 0.2, 12)}, TRAINING),
        ({}, GradientDescent(0.1, temperature=0.1)),
        ({}, GradientDescent(0.1, readout_learning_rate=0.1)),
        # Overlaps that differ from pair to pair stay different under a rotation.
        ({"initial_overlap": np.eye(12) + 0.1 * np.cov(RNG.normal(size=(12, 40)))}, TRAINING),
    ],
)
def test_other_networks_have_no_such_symmetry(changes, training):
    assert symmetry(committee(RANDOM, **changes), training) is None


def test_a_start_whose_neurons_begin_alike_is_left_as_it_is_where_that_is_as_good():
    found = symmetry(committee(np.full((6, 1), 0.2)))
    assert found.rotation is None
    assert [len(group) for group in found.groups] == [6]


@in_float64
def test_training_a_finite_network_commutes_with_the_rotation():
    # Gradient descent written out: nothing here knows of the library but the rotation.
    model = committee(RANDOM)
    problem, _, rotation = symmetry(model)
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 30)) / np.sqrt(30)
    labels = (inputs @ rng.normal(size=30)) ** 2
    coefficients = problem.activation.coefficients

    def train(weights):
        losses = []
        for _ in range(30):
            fields = inputs @ weights.T
            error = labels - np.polynomial.polynomial.polyval(fields, coefficients).sum(axis=1) / 12
            losses.append(np.mean(error**2))
            slopes = coefficients[1] + 2 * coefficients[2] * fields
            weights = weights + 0.3 * (error[:, None] * slopes).T @ inputs / 12 - 0.01 * weights
        return weights, losses

    start = rng.normal(size=(12, 30))
    weights, losses = train(start)
    rotated, same = train(rotation @ start)
    assert losses[-1] < 0.8 * losses[0]
    np.testing.assert_allclose(same, losses, rtol=1e-11)
    np.testing.assert_allclose(rotation.T @ rotated, weights, atol=1e-11)


@in_float64
@pytest.mark.parametrize("alignment", [RANDOM, TWO_INDICES])
def test_the_start_is_the_one_asked_for(alignment):
    model = committee(alignment)
    settings = {"samples": 128, "tolerance": 3e-3, "shrunk": 0.5, "key": (0, 0), "memory_limit": 2.0**32}
    closure = ExchangeableClosure(*symmetry(model), **settings)
    np.testing.assert_allclose(closure.overlap(closure.start), model.initial_overlap, atol=1e-12)
    np.testing.assert_allclose(closure.alignment(closure.start), model.initial_alignment, atol=1e-12)


def test_a_rotated_start_has_the_same_losses_and_rotated_order_parameters():
    model, times = committee(RANDOM), [0, 10, 30]
    problem, _, rotation = symmetry(model)
    other = committee(np.asarray(problem.initial_alignment), initial_overlap=np.asarray(problem.initial_overlap))
    solver = solvers.Latent(samples=256, replicates=2)
    one, two = (each.predict(times, TRAINING, solver=solver) for each in (model, other))
    for name in ("train_loss", "test_loss"):
        np.testing.assert_allclose(two[name], one[name], rtol=1e-9)
    np.testing.assert_allclose(two.alignment, rotation @ one.alignment.values, atol=1e-8)
    np.testing.assert_allclose(two.overlap, rotation @ one.overlap.values @ rotation.T, atol=1e-8)


@pytest.mark.parametrize("alignment", [RANDOM, TWO_INDICES])
def test_theory_agrees_with_the_closure_of_single_neurons_at_a_fraction_of_the_bias(alignment, monkeypatch):
    model, times = committee(alignment), [2.0, 8.0, 20.0]
    solver = solvers.Flow(samples=1024, replicates=3)
    together = model.predict(times, GradientFlow(), solver=solver)
    monkeypatch.setattr(latent, "symmetry_of", lambda problem: None)
    single = model.predict(times, GradientFlow(), solver=solver)
    for name in ("train_loss", "test_loss", "alignment", "overlap"):
        error = np.hypot(together[f"{name}_error"], single[f"{name}_error"])
        # Over all times and neurons: errors from three sets of samples are too uncertain for each number by itself.
        assert np.linalg.norm(together[name] - single[name]) < 3 * np.linalg.norm(error)
    assert float(together.test_loss_error[-1]) < 0.6 * float(single.test_loss_error[-1])


def test_functions_of_two_times_are_those_of_single_neurons():
    model = committee(RANDOM)
    solver = solvers.Latent(samples=256, replicates=2)
    found = model.predict([0, 4], TRAINING, solver=solver, correlations=True)
    assert found.weight_correlation.sizes["neuron"] == 12
