"""The latent closure: against linear regression, which random matrices solve, and against itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from committees import paper_problem, problem

from solvable.activations import linear, relu
from solvable.models.committee import closure as latent
from solvable.models.committee.basis import largest_rate
from solvable.models.committee.closure import LatentClosure
from solvable.models.committee.protocol import Weights
from solvable.models.linear_estimator.spectra import MarchenkoPastur
from solvable.teachers import linear as linear_teacher


def _regression(ratio):
    """One linear neuron that is to become the index field: ``g = error = h* - h``."""
    return problem(linear, linear_teacher(), [1.0], alignment=[[0.2]], overlap=[[0.7]], ratio=ratio)


def _closure(problem, *, samples=4096, **options):
    settings = {"tolerance": 1e-3, "shrunk": False, "key": (0,), "memory_limit": 2**31, **options}
    return LatentClosure(problem, samples=samples, **settings)


def _descend(closure, step, count):
    weights, losses = closure.start.coordinates, []
    for _ in range(count + 1):
        evaluation = closure.evaluate(weights)
        losses.append(float(evaluation.loss))
        final = closure.widen(weights)
        weights = final + step * evaluation.velocity
    return np.array(losses), np.asarray(final)


@pytest.mark.parametrize("ratio", [0.5, 2.0, 6.0])
def test_linear_regression_follows_the_marchenko_pastur_law(ratio):
    # w - beta shrinks by 1 - dt x along an eigenvector of (1/gamma) sum x x^T, whose eigenvalues follow the law of
    # ratio 1/gamma; the zero modes of gamma < 1 stay. Errors: sampling of 4 sets, and a bias below rank gamma / S.
    step, count = 0.3, 30
    start = 1 - 2 * 0.2 + 0.7
    results = []
    for replicate in range(4):
        for shrunk in (False, True):
            losses, weights = _descend(_closure(_regression(ratio), key=(replicate,), shrunk=shrunk), step, count)
            results.append([losses[10], losses[30], np.sum(weights**2) - 2 * weights[0, 0] + 1])
    law = MarchenkoPastur(1 / ratio)

    def average(function):
        return float(law.average(function(law.nodes), function(0.0)))

    exact = [
        start * average(lambda x: x * (1 - step * x) ** 20),
        start * average(lambda x: x * (1 - step * x) ** 60),
        start * average(lambda x: (1 - step * x) ** 60),
    ]
    mean, error = np.mean(results, 0), np.std(results, axis=0, ddof=1) / np.sqrt(4)
    # Four standard errors of four independent sets, and 0.5 % for the bias left: a false alarm in about 30 such tests.
    assert (np.abs(mean - exact) < 4 * error + 5e-3 * np.abs(exact)).all(), (mean, exact, error)


def _committee():
    return paper_problem(ratio=2.0)


def test_directions_are_orthonormal_and_new_normals_orthogonal_to_them():
    closure = _closure(_committee())
    _descend(closure, 0.1, 60)
    rank, samples = closure.rank, closure.samples
    directions = np.asarray(closure._basis.directions)[:, :rank]
    latents = np.asarray(closure._basis.latents)[:, closure.fixed : closure.fixed + rank]
    np.testing.assert_allclose(directions.T @ directions / samples, np.eye(rank), atol=1e-10)
    # <Y_a e_b> = delta_ab / sqrt(gamma) for b <= a: the normals of a direction know nothing of earlier ones.
    products = latents.T @ directions / samples
    np.testing.assert_allclose(np.tril(products), np.eye(rank) / np.sqrt(2), atol=1e-9)
    # Later signals do depend on earlier normals: that is the response.
    assert np.abs(np.triu(products, 1)).max() > 1e-2


def test_projections_rebuild_the_signals():
    closure = _closure(_committee(), tolerance=1e-5)
    weights = closure.start.coordinates
    for _ in range(5):
        evaluation = closure.evaluate(weights)
        signals = closure.signals(closure.fields(Weights(weights)))
        directions = np.asarray(closure._basis.directions)
        rebuilt = np.asarray(evaluation.projections) @ directions.T
        size = np.sqrt(np.mean(np.asarray(signals) ** 2))
        assert np.sqrt(np.mean((rebuilt - np.asarray(signals)) ** 2)) < 2e-5 * size
        np.testing.assert_allclose(
            evaluation.velocity,
            np.asarray(signals)
            @ np.asarray(closure._basis.latents)
            / closure.samples
            * (np.arange(closure.width) < closure.fixed + closure.rank),
            atol=1e-12,
        )
        weights = closure.widen(weights) + 0.2 * evaluation.velocity


@pytest.mark.slow
def test_results_do_not_depend_on_capacity_or_chunks(monkeypatch):
    reference, final = _descend(_closure(_committee()), 0.1, 30)
    for name, value in (("_FIRST_CAPACITY", 8), ("_CHUNK", 256)):
        monkeypatch.setattr(latent, name, value)
        losses, other = _descend(_closure(_committee()), 0.1, 30)
        np.testing.assert_allclose(losses, reference, rtol=1e-9)
        np.testing.assert_allclose(other @ other.T, final @ final.T, rtol=1e-9)


def test_the_shrunk_convention_is_a_finite_system():
    # With few samples the two conventions part, and with more they meet.
    gaps = []
    for samples in (512, 8192):
        ends = [_descend(_closure(_committee(), samples=samples, shrunk=s), 0.1, 40)[0][-1] for s in (False, True)]
        gaps.append(abs(ends[1] - ends[0]) / ends[0])
    assert gaps[0] > 4 * gaps[1] > 0


@pytest.mark.parametrize("ratio", [0.3, 1.0, 4.0])
def test_the_edge_of_equal_weights_is_marchenko_pasturs(ratio):
    assert float(largest_rate(jnp.ones(100), ratio)) == pytest.approx((1 + 1 / np.sqrt(ratio)) ** 2, rel=2e-3)


def test_the_edge_bounds_the_eigenvalues_of_a_weighted_wishart_matrix():
    rng = np.random.default_rng(1)
    dimension, samples = 300, 900
    weights = rng.exponential(size=samples)
    inputs = rng.normal(size=(samples, dimension)) / np.sqrt(dimension)
    largest = np.linalg.eigvalsh(inputs.T @ (weights[:, None] * inputs) * dimension / samples)[-1]
    # The heaviest samples stick out at this size; the edge is that of the whole, met to a few percent.
    assert float(largest_rate(jnp.asarray(weights), samples / dimension)) == pytest.approx(largest, rel=0.05)


def test_an_activation_that_is_not_differentiable_needs_nothing_special():
    # g of a ReLU student jumps at zero; the first step of the overlap is <g h> + <h g> exactly, whatever phi''.
    signs = np.array([1.0, -1.0]) / np.sqrt(2)
    task = problem(relu, lambda a, b: jnp.tanh(a) * b, signs, signs, alignment=0.1 * np.eye(2), ratio=3.0)
    closure = _closure(task, samples=2**15)
    evaluation = closure.evaluate(closure.start.coordinates)
    start = np.asarray(closure.widen(closure.start.coordinates))
    step = 1e-6
    moved = start + step * np.asarray(evaluation.velocity)
    drift = (moved @ moved.T - np.eye(2)) / step
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4, 400_000))
    fields = np.array([[0.1, 0.0, np.sqrt(0.99), 0.0], [0.0, 0.1, -0.0, np.sqrt(0.99)]])
    fields[1, 2:] = np.linalg.cholesky(np.eye(2) - fields[:, :2] @ fields[:, :2].T)[1]
    fields[0, 2:] = np.linalg.cholesky(np.eye(2) - fields[:, :2] @ fields[:, :2].T)[0]
    signals, _ = jax.jit(lambda *both: task.signals(*both))(jnp.asarray(fields @ draws), jnp.asarray(draws[:2]))
    both = np.asarray(signals) @ (fields @ draws).T / draws.shape[1]
    # Sampling errors of 4e5 draws: 0.003.
    np.testing.assert_allclose(drift, both + both.T, atol=0.01)


def test_too_little_memory_says_what_to_lower():
    with pytest.raises(MemoryError, match="GiB.*lower samples"):
        _closure(_committee(), memory_limit=1e5)
