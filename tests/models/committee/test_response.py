"""The response equations: regression in closed form, kicks at finite size, the online limit, kinks, the fixed point."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from committees import paper_problem, problem

from solvable import GradientDescent, activations, solvers, teachers
from solvable.models.committee import trajectories
from solvable.models.committee.online import factor, online_descent
from solvable.models.committee.response import March
from solvable.models.linear_estimator.spectra import MarchenkoPastur
from solvable.numerics.sobol import sobol_normals


def solve_response(problem, steps, samples, replicates, key=0):
    """All order parameters at every step, as the solver Response computes them."""
    return solvers.Response(samples=samples, replicates=replicates).two_time(problem, steps, key)


def mean_and_error(values):
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def descend(task, *, steps, dimension, seeds, kick=(0, 0)):
    """Full-batch descent on finite data: losses, alignments, overlaps, and the response to a kick (neuron, step).

    The kick has finite size, both ways, so that fields cross kinks; its curvature enters at the square of the size.
    """
    latents = factor(task.initial_alignment, task.initial_overlap)
    ratio, step, decay = task.samples_per_dimension, task.training.learning_rate, task.training.weight_decay
    indices, count, size = task.indices, int(ratio * dimension), 0.1
    start = jnp.zeros((len(latents), dimension)).at[:, : latents.shape[1]].set(latents * np.sqrt(dimension))

    def run(key):
        data_key, kick_key = jax.random.split(key)
        inputs = jax.random.normal(data_key, (count, dimension)) / np.sqrt(dimension)
        index_fields = np.sqrt(dimension) * inputs[:, :indices].T
        signs = jax.random.rademacher(kick_key, (dimension,), float)

        def path(size):
            def advance(w, t):
                signals, errors = task.signals(w @ inputs.T, index_fields)
                following = (1 - step * decay) * w + step / ratio * signals @ inputs
                kicked = following.at[kick[0]].add(jnp.where(t == kick[1], size, 0.0) * signs)
                return kicked, (jnp.mean(errors**2), w)

            return jax.lax.scan(advance, start, jnp.arange(steps + 1))[1]

        losses, w = path(0.0)
        response = (path(size)[1] - path(-size)[1]) @ signs / (2 * size * dimension)
        return losses, w[:, :, :indices] / np.sqrt(dimension), w @ w.transpose(0, 2, 1) / dimension, response

    keys = jax.random.split(jax.random.key(1), seeds)
    return [np.asarray(values) for values in jax.jit(lambda keys: jax.lax.map(run, keys))(keys)]


def linear_closed_form(ratio, step, decay, alignment, overlap, t, lag):
    """One linear neuron on a linear target: regression, mode by mode of the Marchenko-Pastur law.

    w(t) = p w(0) + q beta with p = (1 - dt (d + nu))^t and q = nu (1 - p) / (d + nu).
    """
    law = MarchenkoPastur(1 / ratio)
    average = lambda f: float(law.average(f(law.nodes), f(jnp.zeros(()))))  # noqa: E731
    p = lambda nu: (1 - step * (decay + nu)) ** t  # noqa: E731
    q = lambda nu: nu * (1 - p(nu)) / (decay + nu)  # noqa: E731
    left = lambda nu: p(nu) ** 2 * overlap + 2 * p(nu) * (q(nu) - 1) * alignment + (q(nu) - 1) ** 2  # noqa: E731
    return {
        "alignment": average(p) * alignment + average(q),
        "overlap": average(lambda nu: p(nu) ** 2 * overlap + 2 * p(nu) * q(nu) * alignment + q(nu) ** 2),
        "train": average(lambda nu: nu * left(nu)),
        "test": average(left),
        "response": average(lambda nu: (1 - step * (decay + nu)) ** (lag - 1)),
    }


@pytest.mark.parametrize(("ratio", "decay"), [(2.0, 0.1), (0.5, 0.3)])
def test_linear_network_is_regression_with_the_marchenko_pastur_law(ratio, decay):
    training = GradientDescent(0.25, weight_decay=decay)
    start = {"overlap": [[1.5]], "alignment": [[0.3]]}
    task = problem(activations.linear, teachers.linear(), [1.0], ratio=ratio, training=training, **start)
    found = solve_response(task, steps=16, samples=2048, replicates=4)
    for t in (1, 5, 16):
        expected = linear_closed_form(ratio, 0.25, decay, 0.3, 1.5, t, lag=t)
        # Here no sample differs from another in its response: only rounding is left.
        np.testing.assert_allclose(found.weight_response[:, t, 0, 0, 0], expected["response"], rtol=1e-10)
        np.testing.assert_allclose(found.alignment[:, t, 0, 0], expected["alignment"], rtol=1e-10)
        for name, values in (
            ("overlap", found.weight_correlation[:, t, t, 0, 0]),
            ("train", found.train_loss[:, t]),
            ("test", found.test_loss[:, t]),
        ):
            mean, error = mean_and_error(values)
            # 6 standard errors from four replicates (Student, 3 degrees: 1%), and a floor for a lucky spread.
            assert mean == pytest.approx(expected[name], abs=6 * error + 1e-3)
    lagged = linear_closed_form(ratio, 0.25, decay, 0.3, 1.5, 16, lag=6)["response"]
    np.testing.assert_allclose(found.weight_response[:, 16, 10, 0, 0], lagged, rtol=1e-10)


PAPER = paper_problem(ratio=2.0, training=GradientDescent(0.2))


@pytest.fixture(scope="module")
def paper_run():
    """The paper's network at gamma = 2, alpha = 1, eps = 0.5, to t = 2.4 in twelve steps."""
    return solve_response(PAPER, steps=12, samples=4096, replicates=6)


def test_descent_on_finite_data_agrees_in_every_order_parameter_and_in_the_response_to_kicks(paper_run):
    seeds = 40
    losses, alignments, overlaps, responses = descend(PAPER, steps=12, dimension=400, seeds=seeds, kick=(0, 2))
    for t in (4, 8, 12):
        for simulated, theory in (
            (losses[:, t], paper_run.train_loss[:, t]),
            (alignments[:, t, 0, 0], paper_run.alignment[:, t, 0, 0]),
            (overlaps[:, t, 0, 0], paper_run.weight_correlation[:, t, t, 0, 0]),
            (overlaps[:, t, 0, 1], paper_run.weight_correlation[:, t, t, 0, 1]),
            # A kick after step 2 is the noise of step 2; R(t, 2) of either neuron.
            (responses[:, t, 0], paper_run.weight_response[:, t, 2, 0, 0]),
            (responses[:, t, 1], paper_run.weight_response[:, t, 2, 1, 0]),
        ):
            mean, error = mean_and_error(simulated)
            expected, spread = mean_and_error(theory)
            # 4 standard errors, 18 numbers: false alarm 1e-3; corrections of 1/D = 0.0025 of the value beside.
            assert mean == pytest.approx(expected, abs=4 * np.hypot(error, spread) + 0.003 * abs(expected))


def test_means_of_signals_and_fields_move_alignment_and_correlation(paper_run):
    """Stein: A(t+1) - A(t) = dt <g h*>, Cw(t+1, s) - Cw(t, s) = dt <g(t) h(s)>, which no response enters."""
    # h = u + memory has <g(t) h(s)> = sum_s' Rh(t, s') Cw(s', s) + R* A + (dt/gamma) sum_{s'<s} Cg(t, s') Rw(s, s')
    run, step, ratio = paper_run, 0.2, 2.0
    t, s = 9, 6
    for k in range(len(run.train_loss)):
        by_response = np.einsum("uij,ujk->ik", run.field_response[k, t, : t + 1], run.weight_correlation[k, : t + 1, s])
        by_response += run.index_response[k, t] @ run.alignment[k, s].T
        past = np.einsum("uik,ujk->ij", run.gradient_correlation[k, t, :s], run.weight_response[k, s, :s])
        change = run.weight_correlation[k, t + 1, s] - run.weight_correlation[k, t, s]
        np.testing.assert_allclose(change, step * (by_response + step / ratio * past), atol=1e-10)


def test_many_samples_are_the_online_limit_and_the_gap_of_eq_18():
    training, settings = GradientDescent(0.2), {"steps": 8, "samples": 4096, "replicates": 2}
    online = online_descent(PAPER, 8)
    endless = solve_response(paper_problem(ratio=1e12, training=training), **settings)
    # Samples estimate the responses only: 4096 Sobol points, spread of one run about 0.3% here.
    np.testing.assert_allclose(endless.alignment.mean(axis=0), online.alignment, atol=0.01)
    np.testing.assert_allclose(endless.test_loss.mean(axis=0), online.test_loss, rtol=0.02)
    ratio = 100.0
    many = solve_response(paper_problem(ratio=ratio, training=training), **settings)
    # The same samples at gamma = inf take their sampling error off the gap.
    gap = (many.test_loss - many.train_loss) - (endless.test_loss - endless.train_loss)
    for t in (3, 8):
        pairs = many.weight_response[:, t, :t] * many.gradient_correlation[:, t, :t]
        # 2 alpha / (gamma N), alpha = 1, N = 2
        expected = 2 * 1.0 / (ratio * 2) * 0.2 * pairs.sum(axis=(1, 2, 3))
        # Next order in 1/gamma: 1-3% at gamma = 100.
        np.testing.assert_allclose(gap[:, t] / expected, 1, atol=0.06)


def two_index(a, b):
    return (jnp.tanh(a) + jnp.tanh(b)) / np.sqrt(2)


SIGNS = np.array([1.0, -1.0]) / np.sqrt(2)
RELU = problem(activations.relu, two_index, SIGNS, SIGNS, indices=2, ratio=3.0, training=GradientDescent(0.6))


def test_relu_needs_the_jump_and_then_agrees_with_descent(monkeypatch):
    found = solve_response(RELU, steps=5, samples=4096, replicates=4)
    # One step from orthonormal weights: <u u> after it is 0.8529 by quadrature over the population.
    assert found.weight_correlation[:, 1, 1, 0, 0].mean() == pytest.approx(0.8529, abs=5e-4)
    losses, alignments, overlaps, responses = descend(RELU, steps=5, dimension=400, seeds=40, kick=(0, 0))
    for t in (2, 5):
        for simulated, theory in (
            (losses[:, t], found.train_loss[:, t]),
            (alignments[:, t, 0, 0], found.alignment[:, t, 0, 0]),
            (overlaps[:, t, 0, 0], found.weight_correlation[:, t, t, 0, 0]),
            (responses[:, t, 0], found.weight_response[:, t, 0, 0, 0]),
            (responses[:, t, 1], found.weight_response[:, t, 0, 1, 0]),
        ):
            mean, error = mean_and_error(simulated)
            expected, spread = mean_and_error(theory)
            # As above: ten numbers.
            assert mean == pytest.approx(expected, abs=4 * np.hypot(error, spread) + 0.004 * abs(expected))
    monkeypatch.setattr(trajectories, "slope_jumps", lambda problem: False)
    without = solve_response(RELU, steps=1, samples=4096, replicates=2)
    assert without.weight_correlation[0, 1, 1, 0, 0] == pytest.approx(0.77, abs=0.01)


def test_jump_formula_gives_the_population_response_of_relu():
    """<dg_i/du_j> at once, by Stein: <g_i u_j> for orthonormal weights that know nothing of the target."""
    found = solve_response(RELU, steps=1, samples=8192, replicates=2)
    response = found.field_response[:, 0, 0].mean(axis=0)
    # c^2 = 1/2. <g_1 u_1> = -c^2 <relu' relu u> + c^2 <relu' u> <relu>, <g_1 u_2> = c^2 <relu'> <relu u>
    own, other = -1 / 4 + 1 / (4 * np.pi), 1 / 8
    np.testing.assert_allclose(response, [[own, other], [other, own]], atol=2e-3)


def test_responses_of_relu_are_those_of_stein():
    """<g(t) z> = sum_s Rh(t,s) U(s) + R*(t): means of signals and latents hold the jumps without being told."""
    latents = np.asarray(factor(RELU.initial_alignment, RELU.initial_overlap))
    differences = []
    for replicate in range(4):
        normals = sobol_normals(2**14, 6, (7, replicate)).T
        march = March(RELU, latents, normals, steps=1)
        march.run()
        by_response = np.einsum("sij,sja->ia", march.field_response[1], march.cavity[:, :, :4])
        by_response[:, :2] += march.index_response[1]
        differences.append(march.samples.signals[1] @ normals[:4].T / 2**14 - by_response)
    # The mean of four replicates has an error of 0.0003; a branch that is not moved with its latents is off by 0.003.
    assert np.max(np.abs(np.mean(differences, axis=0))) < 0.0015


def test_fixed_point_agrees_with_marching():
    task = paper_problem(ratio=2.0, training=GradientDescent(0.3))
    march = solve_response(task, steps=5, samples=4096, replicates=4)
    found, changes = solvers.FixedPoint(samples=2000, iterations=10, replicates=8).iterate(task, 5, 0)
    # From the distance between the online limit and gamma = 2 down to the sampling noise.
    assert changes[:, -1].mean() < 0.4 * changes[:, 0].mean()
    for name in ("test_loss", "alignment", "weight_correlation", "weight_response", "field_response"):
        one, other = getattr(march, name), getattr(found, name)
        difference = one.mean(axis=0) - other.mean(axis=0)
        error = np.sqrt(one.var(axis=0, ddof=1) / 4 + other.var(axis=0, ddof=1) / 8)
        # Pooled over times and neurons; entries are strongly correlated, hence the room.
        assert np.sqrt(np.mean(difference**2)) < 2.5 * np.sqrt(np.mean(error**2))


def test_backward_passes_are_the_inverse_of_the_whole_matrix():
    generator, times, neurons, count = np.random.default_rng(0), 11, 2, 20
    slopes = generator.normal(size=(times, neurons, neurons, count))
    causal = (np.arange(times)[:, None] > np.arange(times))[:, :, None, None]
    kernel = 0.2 * generator.normal(size=(times, times, neurons, neurons)) * causal
    flat = kernel.transpose(0, 2, 1, 3).reshape(times * neurons, -1)
    expected = np.zeros_like(flat)
    for n in range(count):
        local = np.zeros_like(flat)
        for t in range(times):
            local[t * neurons : (t + 1) * neurons, t * neurons : (t + 1) * neurons] = slopes[t, :, :, n]
        expected += np.linalg.solve(np.eye(len(flat)) - local @ flat, local) / count
    expected = expected.reshape(times, neurons, times, neurons).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(trajectories.mean_field_responses(slopes, kernel), expected, atol=1e-12)
    np.testing.assert_allclose(trajectories.mean_field_response(slopes, kernel), expected[-1], atol=1e-12)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="misses the jump"):
        solvers.FixedPoint().two_time(RELU, 2, 0)
    with pytest.raises(ValueError, match="GB"):
        solve_response(RELU, steps=1000, samples=8192, replicates=2)
    with pytest.raises(ValueError, match="diverged at step") as caught:
        solve_response(paper_problem(ratio=2.0, training=GradientDescent(50.0)), steps=12, samples=64, replicates=2)
    assert 0 < caught.value.step == caught.value.time < 12
    with pytest.raises(ValueError, match="damping"):
        solvers.FixedPoint(damping=1.0)
    with pytest.raises(ValueError, match="iterations"):
        solvers.FixedPoint(iterations=0)
