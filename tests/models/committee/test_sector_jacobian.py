"""The Jacobian of exchangeable neurons is the derivative of their flow, block by block; implicit steps with it."""

import jax.numpy as jnp
import numpy as np
import pytest

from solvable import Committee, GradientFlow, activations, solvers
from solvable.models.committee.exchangeable import ExchangeableClosure
from solvable.models.committee.implicit import Linearisation
from solvable.models.committee.problem import OutputRequest, problem_of
from solvable.models.committee.protocol import Weights
from solvable.models.committee.symmetry import exchangeable_groups
from solvable.precision import in_float64

pytestmark = pytest.mark.filterwarnings("error")
# Groups of three and two, and one neuron that is alone.
ALIGNMENTS = [0.2, -0.2, 0.2, 0.2, -0.2, 0.1]


def committee(alignment) -> Committee:
    alignment = np.asarray(alignment, float)
    return Committee(
        samples_per_dimension=3.0,
        output_scale=0.5,
        activation=activations.Polynomial((0.0, 1.0, 0.15, 0.05)),
        initial_overlap=np.eye(len(alignment)) + np.outer(alignment, alignment),
        initial_alignment=alignment[:, None],
    )


FOUR = Committee(
    samples_per_dimension=4.5,
    output_scale=0.5,
    activation=activations.quadratic(0.05),
    initial_alignment=0.1 * np.array([[1.0], [-1.0], [1.0], [-1.0]]),
    initial_overlap=np.eye(4) + 0.01 * np.outer([1, -1, 1, -1], [1, -1, 1, -1]),
)


def closure_of(namespace=None, samples: int = 256) -> ExchangeableClosure:
    problem = problem_of(committee(ALIGNMENTS), GradientFlow())
    return ExchangeableClosure(
        problem,
        exchangeable_groups(problem),
        samples=samples,
        tolerance=3e-3,
        shrunk=0.5,
        key=(0, 0),
        memory_limit=2.0**31,
        namespace=namespace,
    )


def grown(closure: ExchangeableClosure, steps: int) -> np.ndarray:
    """Weights after some steps, which open directions."""
    weights = closure.start.coordinates
    for _ in range(steps):
        velocity = closure.velocity(weights)
        weights = 0.3 * velocity + np.pad(weights, ((0, 0), (0, velocity.shape[1] - weights.shape[1])))
    return np.pad(weights, ((0, 0), (0, closure.width - weights.shape[1])))


def velocity_in_fixed_basis(closure: ExchangeableClosure, weights: np.ndarray) -> np.ndarray:
    """``<v Y>`` in every sector without opening directions; independent of ``pull``: one product over all samples."""
    signals = np.asarray(closure.signals(closure.fields(Weights(weights))))
    total = np.zeros((len(weights), closure.width))
    groups = [np.array(group) for group in closure._members]
    deviating = [group for group in groups if len(group) > 1]
    for place, (basis, rows, columns) in enumerate(closure._sectors):
        latents = np.asarray(basis.latents)[: len(columns)]
        if place == 0:
            parts = np.stack([signals[group].sum(axis=0) / np.sqrt(len(group)) for group in groups])
        else:
            own = signals[deviating[place - 1]]
            scaled = (own - own.mean(axis=0)) * np.sqrt(len(own) / (len(own) - 1))
            parts = scaled.reshape(1, -1)
        total[rows, columns] = parts @ latents.T / latents.shape[1]
    return total


@pytest.mark.parametrize("namespace", [np, jnp])
@in_float64
def test_it_is_the_derivative_of_the_flow(namespace):
    closure = closure_of(namespace)
    weights = grown(closure, 8)
    decay, factor = 0.2, 0.7
    linear = Linearisation(closure, weights, decay)
    direction = np.zeros_like(weights)
    random = np.random.default_rng(1)
    for _, rows, columns in closure._sectors:
        direction[rows, columns] = random.normal(size=(rows.stop - rows.start, len(columns)))

    def velocity_at(step: float) -> np.ndarray:
        moved = weights + step * direction
        return velocity_in_fixed_basis(closure, moved) - decay * moved

    # Two-point differences are wrong by h^2 times the third derivative.
    along = (velocity_at(1e-4) - velocity_at(-1e-4)) / 2e-4
    assert np.allclose(linear.solve(factor, direction - factor * along), direction, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("symmetric", [False, True])
@in_float64
def test_blocks_that_grew_with_the_bases_are_those_computed_at_once(symmetric):
    closure = closure_of(np)
    weights = grown(closure, 2)
    slopes = np.random.default_rng(2).normal(size=(6, 6, 256))
    if symmetric:
        slopes = slopes + slopes.transpose(1, 0, 2)
    early, since = closure.jacobian(slopes, None, ()), closure.extent
    grown(closure, 5)
    assert all(now > before for now, before in zip(closure.extent, since, strict=True))
    both = closure.jacobian(slopes, early, since), closure.jacobian(slopes, None, ())
    for line, expected in zip(*both, strict=True):
        for block, whole in zip(line, expected, strict=True):
            assert np.allclose(block, whole, rtol=1e-12, atol=1e-12)
    assert weights.shape[1] < closure.width


@in_float64
def test_a_sector_that_opened_nothing_keeps_its_blocks():
    """Regression: rows of no new coordinate were reshaped to an array of unknown size."""
    closure = closure_of(np)
    grown(closure, 3)
    slopes = np.random.default_rng(2).normal(size=(6, 6, 256))
    known, (first, *others) = closure.jacobian(slopes, None, ()), closure.extent
    since = (first - 1, *others)
    rows = [(place.stop - place.start, basis.used) for basis, place, _ in closure._sectors]
    (fields, used), begin = rows[0], since[0]
    narrow = [list(line) for line in known]
    keep = (np.arange(fields)[:, None] * used + np.arange(begin)).ravel()
    narrow[0] = [block[keep] for block in narrow[0]]
    for line in narrow:
        line[0] = line[0][:, keep]
    for line, expected in zip(closure.jacobian(slopes, narrow, since), known, strict=True):
        for block, whole in zip(line, expected, strict=True):
            assert np.allclose(block, whole, rtol=1e-12, atol=1e-12)


@in_float64
def test_late_steps_share_jacobians(monkeypatch):
    """Runs that share and that do not differ by the directions that their iterates happen to open, whose weights are
    known to the difference of the two conventions: some percent of the test loss here, ten times what is allowed."""
    problem, times, found, made = problem_of(FOUR, GradientFlow()), np.geomspace(10, 1000, 6), {}, []
    begin = Linearisation.__init__
    monkeypatch.setattr(ExchangeableClosure, "jacobian_worth", lambda self: 0.0)
    monkeypatch.setattr(Linearisation, "__init__", lambda self, *settings: made.append(1) or begin(self, *settings))
    for name, again in (("shared", Linearisation.serves_again), ("each its own", lambda self: False)):
        monkeypatch.setattr(Linearisation, "serves_again", again)
        solver = solvers.Flow(samples=4096, replicates=2)
        found[name] = solver.run(problem, times, OutputRequest(), 0, 0.5, 0, lambda part: None), len(made)
        made.clear()
    (shared, few), (single, many) = found.values()
    assert 0 < 2 * few <= many
    for loss in ("train_loss", "test_loss"):
        assert np.allclose(*(run.arrays(times.size)[loss] for run in (shared, single)), rtol=5e-3)


@in_float64
def test_implicit_steps_agree_with_explicit_ones(monkeypatch):
    """Four neurons until late on the same samples. The two runs open different directions, and the weights of these
    are known to half the distance of the two conventions for new directions, which is computed beside them."""
    problem, times, found = problem_of(FOUR, GradientFlow()), np.geomspace(10, 3000, 6), {}
    for name, worth, shrunk in (
        ("explicit", np.inf, 0.5),
        ("implicit", 0.0, 0.5),
        ("open", 0.0, 0.0),
        ("shrunk", 0.0, 1.0),
    ):
        monkeypatch.setattr(ExchangeableClosure, "jacobian_worth", lambda self, worth=worth: worth)
        solver = solvers.Flow(samples=4096, replicates=2)
        found[name] = solver.run(problem, times, OutputRequest(), 0, shrunk, 0, lambda part: None)
    assert found["implicit"].evaluations < found["explicit"].evaluations
    assert found["implicit"].rank < found["explicit"].rank
    for loss in ("train_loss", "test_loss"):
        explicit, implicit, opened, shrunk = (found[name].arrays(times.size)[loss] for name in found)
        assert np.all(abs(implicit - explicit) < abs(opened - shrunk) / 2 + 1e-3 * explicit)
