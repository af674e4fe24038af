"""The latent closure: against linear regression, which random matrices solve, and against itself."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from committees import classifier, paper_problem, problem

from solvable import SGD, Committee, GradientDescent, activations, solvers
from solvable.activations import linear, relu
from solvable.models.committee.basis import Basis, extreme_eigenvalues
from solvable.models.committee.closure import LatentClosure
from solvable.models.committee.problem import problem_of
from solvable.models.committee.protocol import Descent, Weights, combine_arrays
from solvable.models.committee.relaxation import largest_rate
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
        losses.append(closure.loss(Weights(weights))[0])
        final, weights = weights, combine_arrays((1.0, step), (weights, closure.velocity(weights)))
    return np.array(losses), final


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
    directions, latents = closure.basis.directions, closure.basis.latents[closure.fixed :]
    np.testing.assert_allclose(directions @ directions.T / samples, np.eye(rank), atol=1e-10)
    # <Y_a e_b> = delta_ab / sqrt(gamma) for b <= a: the normals of a direction know nothing of earlier ones.
    products = latents @ directions.T / samples
    np.testing.assert_allclose(np.tril(products), np.eye(rank) / np.sqrt(2), atol=1e-9)
    # Later signals do depend on earlier normals: that is the response.
    assert np.abs(np.triu(products, 1)).max() > 1e-2


def test_projections_rebuild_the_signals():
    closure = _closure(_committee(), tolerance=1e-5)
    weights = closure.start
    for _ in range(5):
        velocity = closure.gradient(weights).weights
        signals = np.asarray(closure.signals(closure.fields(weights)))
        rebuilt = closure.projections(weights) @ closure.basis.directions
        assert np.sqrt(np.mean((rebuilt - signals) ** 2)) < 2e-5 * np.sqrt(np.mean(signals**2))
        np.testing.assert_allclose(velocity.coordinates, signals @ closure.basis.latents.T / 4096, atol=1e-12)
        weights = weights + 0.2 * velocity


def test_an_accelerators_arrays_give_the_same_numbers():
    # There arrays are JAX's and have rows of zeros beyond those in use, more of them as the basis grows.
    training = SGD(0.3, batch_fraction=0.25, sampling="subsets", temperature=0.1, max_gradient_norm=0.5)
    task = problem_of(classifier(), training)
    found = []
    for namespace in (np, jnp):
        closure = _closure(task, samples=512, tolerance=1e-2, shrunk=0.5, namespace=namespace)
        descent = Descent(training)
        state = descent.start(closure)
        for count in range(12):
            state = descent.step(closure, state, count)
        assert isinstance(closure.basis.latents, namespace.ndarray)
        pulls = closure.squared_pull(closure.fields(state.weights))
        found.append((closure.rank, *closure.loss(state.weights), closure.overlap(state.weights), pulls))
    assert found[0][0] == found[1][0] == 48
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_signals_are_taken_up_once_and_dependent_ones_not_at_all():
    closure = _closure(_committee())
    signals = np.random.default_rng(0).normal(size=(2, 4096))
    closure.pull(signals)
    assert closure.rank == 2
    closure.pull(signals[::-1] + 2 * signals)
    assert closure.rank == 2
    # Three vectors in a plane that is new, one of them zero.
    closure.basis.extend(np.array([signals[0] ** 2, 0 * signals[0], -3 * signals[0] ** 2]))
    assert closure.rank == 3


def test_the_shrunk_convention_is_a_finite_system():
    # With few samples the two conventions part, and with more they meet.
    gaps = []
    for samples in (512, 8192):
        ends = [_descend(_closure(_committee(), samples=samples, shrunk=s), 0.1, 40)[0][-1] for s in (False, True)]
        gaps.append(abs(ends[1] - ends[0]) / ends[0])
    assert gaps[0] > 4 * gaps[1] > 0


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_extreme_eigenvalues_are_those_of_lapack(rows):
    random = np.random.default_rng(rows)
    for _ in range(20):
        matrix = random.normal(size=(rows, rows))
        matrix = matrix + matrix.T
        values = np.linalg.eigvalsh(matrix)
        np.testing.assert_allclose(extreme_eigenvalues(matrix), (values[0], values[-1]), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("values", "columns", "samples"), [(1, 3, 10), (2, 300, 9000), (3, 0, 64), (5, 300, 2048)])
def test_averages_and_combinations_are_matrix_products_whatever_their_parts(values, columns, samples):
    random = np.random.default_rng(0)
    rows = random.normal(size=(columns, samples))
    basis = Basis(
        rows[: max(columns, 0)],
        lambda begin, end: np.zeros((end - begin, samples)),
        ratio=1.0,
        tolerance=1e-3,
        shrunk=0.0,
        check_memory=lambda rows: None,
        namespace=np,
    )
    signals, weights = random.normal(size=(values, samples)), random.normal(size=(values, columns))
    np.testing.assert_allclose(basis.average(signals, rows), signals @ rows.T / samples, atol=1e-12)
    np.testing.assert_allclose(basis.fields(weights), weights @ rows, atol=1e-11)


@pytest.mark.parametrize("ratio", [0.3, 1.0, 4.0])
def test_the_edge_of_equal_weights_is_marchenko_pasturs(ratio):
    assert largest_rate(np.ones(100), ratio) == pytest.approx((1 + 1 / np.sqrt(ratio)) ** 2, rel=2e-3)


def test_the_edge_bounds_the_eigenvalues_of_a_weighted_wishart_matrix():
    rng = np.random.default_rng(1)
    dimension, samples = 300, 900
    weights = rng.exponential(size=samples)
    inputs = rng.normal(size=(samples, dimension)) / np.sqrt(dimension)
    largest = np.linalg.eigvalsh(inputs.T @ (weights[:, None] * inputs) * dimension / samples)[-1]
    # The heaviest samples stick out at this size; the edge is that of the whole, met to a few percent.
    assert largest_rate(weights, samples / dimension) == pytest.approx(largest, rel=0.05)


def test_an_activation_that_is_not_differentiable_needs_nothing_special():
    # g of a ReLU student jumps at zero; the first step of the overlap is <g h> + <h g> exactly, whatever phi''.
    signs = np.array([1.0, -1.0]) / np.sqrt(2)
    task = problem(relu, lambda a, b: jnp.tanh(a) * b, signs, signs, alignment=0.1 * np.eye(2), ratio=3.0)
    closure = _closure(task, samples=2**15)
    step = 1e-6
    moved = (closure.start + step * closure.gradient(closure.start).weights).coordinates
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


@pytest.mark.parametrize("neurons", [2, 4])
def test_a_run_leaves_no_cycle_that_holds_its_samples(neurons):
    """Cycles of bases and closures kept every run's samples: a worker of a sweep grew by 360 MB with each cell.

    Two neurons have the closure of single neurons, four alike that of exchangeable ones.
    """
    model = Committee(
        samples_per_dimension=2.0,
        activation=activations.quadratic(0.1),
        initial_alignment=0.2 * np.tile([[1.0], [-1.0]], (neurons // 2, 1)),
        initial_overlap=np.eye(neurons),
    )
    solver = solvers.Latent(samples=256, replicates=2)
    model.predict([3], GradientDescent(0.2), solver=solver, progress=False)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        model.predict([3], GradientDescent(0.2), solver=solver, progress=False)
        gc.collect()
        kept = [type(one).__name__ for one in gc.garbage if isinstance(one, Basis | LatentClosure)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert kept == []
