"""Finite-size committees: the start, the step, its statistics, the forms of it, limits, divergence, bad input."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from committees import ALIGNMENT, OVERLAP, paper_problem, problem
from hypothesis import given
from hypothesis import strategies as st

from solvable import Committee, GradientDescent, activations, teachers
from solvable.models.committee import simulation
from solvable.models.committee.protocol import Descent
from solvable.models.committee.simulation import (
    FORMS,
    Primal,
    bytes_per_run,
    choose_form,
    draw_inputs,
    largest_curvature,
)
from solvable.models.committee.start import initial_weights

EPSILON = 0.5


def simulate(problem, steps, *, dimension, seeds, key=0, dtype="float64", form="auto", **options):
    """Set up and run in one call."""
    setup = simulation.set_up(problem, steps[-1], dimension=dimension, dtype=dtype, form=form)
    return simulation.simulate(setup, steps, seeds=seeds, key=key, **options)


RELU_READOUT = np.array([1.0, -0.8, 0.5])


def relu_problem(gradient_readout=RELU_READOUT, **options):
    """Plain descent (b = c) unless told otherwise, on two index fields; the teacher takes them one by one."""
    start = {
        "overlap": np.eye(3) + 0.1,
        "alignment": np.array([[0.3, 0.1], [-0.1, 0.2], [0.0, -0.4]]),
    }

    def teacher(first, second):
        return jnp.tanh(first) * second

    return problem(activations.relu, teacher, RELU_READOUT, gradient_readout, **start, **options)


def seed_data(seed: int, samples: int, dimension: int, key: int = 0):
    """The inputs a run draws, as standard normals."""
    data_key, _ = jax.random.split(jax.random.fold_in(jax.random.key(key), seed))
    return np.asarray(draw_inputs(data_key, samples, dimension, "float64"))


def start_weights(problem, dimension):
    return initial_weights(np.asarray(problem.initial_overlap), np.asarray(problem.initial_alignment), dimension)


class TestStart:
    @given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3))
    def test_overlaps_and_alignments_are_exactly_those_prescribed(self, seed, neurons, indices):
        rng = np.random.default_rng(seed)
        weights = rng.normal(size=(neurons, indices + neurons))
        overlap, alignment = weights @ weights.T, weights[:, :indices]
        made = initial_weights(overlap, alignment, indices + neurons + 3)
        # Rounding of a product of a dozen numbers of size one to ten.
        np.testing.assert_allclose(made @ made.T, overlap, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(made[:, :indices], alignment)

    def test_as_many_neurons_as_dimensions_fit_when_their_overlap_has_the_rank(self):
        weights = np.random.default_rng(0).normal(size=(8, 6))
        made = initial_weights(weights @ weights.T, weights[:, :1], 6)
        np.testing.assert_allclose(made @ made.T, weights @ weights.T, rtol=0, atol=1e-12)
        with pytest.raises(ValueError, match="dimension = 5 is too small .* at least 6"):
            initial_weights(weights @ weights.T, weights[:, :1], 5)


class TestStep:
    def test_velocity_is_the_gradient_in_the_papers_units(self):
        """dw/dt = (1/gamma) sum g x = -(N D / 2 alpha) grad_w mean Delta^2, with x ~ N(0, I/D), |beta|^2 = D."""
        alpha, dimension, samples = 0.7, 12, 30
        inputs = np.random.default_rng(1).normal(size=(samples, dimension)) / np.sqrt(dimension)
        start = initial_weights(OVERLAP, ALIGNMENT, dimension)

        def loss(weights):
            target = (np.sqrt(dimension) * inputs[:, 0]) ** 2 / 2
            fields = inputs @ weights.T
            return jnp.mean((target - alpha / 2 * (fields + EPSILON / 2 * fields**2).sum(axis=1)) ** 2)

        gradient = jax.grad(loss)(jnp.asarray(np.sqrt(dimension) * start))
        data_inputs = jnp.asarray(np.sqrt(dimension) * inputs)
        data = Primal.of(paper_problem(alpha), data_inputs, jnp.asarray(start), jax.random.key(0))
        speed = data.gradient(data.start).weights.coordinates
        np.testing.assert_allclose(
            np.sqrt(dimension) * speed, -(2 * dimension / (2 * alpha)) * gradient, rtol=1e-12, atol=1e-13
        )

    def test_runs_equal_descent_written_out(self):
        """A loop in the paper's units, with weight decay, two index fields and a kink; P / D is not round(gamma)."""
        dimension, step, decay, gamma = 11, 0.3, 0.2, 2.2
        samples = 24
        training = GradientDescent(step, weight_decay=decay)
        task, readout = relu_problem(ratio=gamma, training=training), RELU_READOUT
        run = simulate(task, [0, 3, 20], dimension=dimension, seeds=2, key=5, form="primal")
        inputs = seed_data(1, samples, dimension, key=5) / np.sqrt(dimension)
        index = np.sqrt(dimension) * inputs[:, :2]
        weights = np.sqrt(dimension) * start_weights(task, dimension)
        for count in range(21):
            fields = inputs @ weights.T
            error = np.tanh(index[:, 0]) * index[:, 1] - np.maximum(fields, 0) @ readout
            if count in (0, 3, 20):
                at = [0, 3, 20].index(count)
                assert run.train_loss[1, at] == pytest.approx((error**2).mean(), rel=1e-11)
                np.testing.assert_allclose(run.overlap[1, at], weights @ weights.T / dimension, rtol=1e-11, atol=1e-12)
                np.testing.assert_allclose(
                    run.alignment[1, at], weights[:, :2] / np.sqrt(dimension), rtol=0, atol=1e-12
                )
            signals = readout * (fields > 0) * error[:, None]
            weights = (1 - step * decay) * weights + step * dimension / samples * signals.T @ inputs

    def test_a_linear_network_follows_the_modes_of_its_data(self):
        """phi = h, sigma = h: the errors are (1 - dt c X X^T / P)^t of the first ones."""
        readout, step, samples, dimension = 0.7, 0.5, 20, 30
        task = problem(
            activations.linear,
            teachers.linear(),
            [readout],
            overlap=[[2.0]],
            alignment=[[0.4]],
            ratio=samples / dimension,
            training=GradientDescent(step),
        )
        run = simulate(task, [0, 1, 7, 100], dimension=dimension, seeds=1)
        inputs = seed_data(0, samples, dimension)
        start = inputs[:, 0] - readout * inputs @ initial_weights(np.array([[2.0]]), np.array([[0.4]]), dimension)[0]
        values, vectors = np.linalg.eigh(inputs @ inputs.T / samples)
        left = (1 - step * readout * values) ** np.array([0, 1, 7, 100])[:, None] * (vectors.T @ start)
        np.testing.assert_allclose(run.train_loss[0], (left**2).sum(axis=1) / samples, rtol=1e-9, atol=0)

    @pytest.mark.parametrize("nesterov", [False, True])
    def test_momentum_and_schedules_are_those_of_optax(self, nesterov):
        """A loop with Optax's own SGD on the same data; its gradient is -(2 c / b) times our velocity, here b = c."""
        dimension, samples, steps, decay, momentum = 11, 24, 12, 0.2, 0.7
        schedule = optax.cosine_decay_schedule(0.3, 20)
        training = GradientDescent(schedule, momentum=momentum, nesterov=nesterov, weight_decay=decay)
        task = relu_problem(ratio=samples / dimension, training=training)
        run = simulate(task, [steps], dimension=dimension, seeds=1)
        inputs = jnp.asarray(seed_data(0, samples, dimension))

        def loss(weights):
            return jnp.mean(task.error(weights @ inputs.T, inputs[:, :2].T) ** 2) / 2 + decay / 2 * jnp.sum(weights**2)

        optimiser = optax.sgd(schedule, momentum=momentum, nesterov=nesterov)
        weights = jnp.asarray(start_weights(task, dimension))
        state = optimiser.init(weights)
        for _ in range(steps):
            updates, state = optimiser.update(jax.grad(loss)(weights), state)
            weights = optax.apply_updates(weights, updates)
        np.testing.assert_allclose(run.overlap[0, 0], weights @ weights.T, rtol=1e-11)


class TestForms:
    def test_both_forms_take_the_same_steps(self):
        """To 1e-10: rounding, which decaying errors do not amplify. With decay and a non-differentiable activation."""
        training = GradientDescent(0.3, weight_decay=0.1, momentum=0.4)
        task = relu_problem(gradient_readout=(0.9, -0.3, 0.7), ratio=1.7, training=training)
        primal, dual = (simulate(task, [0, 1, 2, 40], dimension=41, seeds=2, form=form) for form in FORMS)
        # Every dataset is another one and begins with the prescribed overlaps and alignments.
        assert primal.train_loss[0, 0] != primal.train_loss[1, 0]
        for seed in range(2):
            np.testing.assert_allclose(primal.overlap[seed, 0], task.initial_overlap, rtol=0, atol=1e-14)
            np.testing.assert_array_equal(primal.alignment[seed, 0], task.initial_alignment)
        for name, values in primal.measured().items():
            np.testing.assert_allclose(getattr(dual, name), values, rtol=1e-10, atol=1e-11, err_msg=name)

    def test_auto_takes_the_form_that_reads_less(self):
        # P^2 < 2 P D where gamma < 2, once there are steps enough to pay for the inner products.
        assert choose_form(1900, 1000, 2, 10**5) == "dual"
        assert choose_form(2100, 1000, 2, 10**5) == "primal"
        assert choose_form(500, 1000, 2, 10) == "primal"
        assert choose_form(500, 1000, 100, 10**4) == "dual"


class TestStatisticsOfOneStep:
    def test_mean_alignment_and_overlap_are_exact_at_finite_size(self):
        """Drift and noise. With fields at the start Gaussian of covariance (A, C) at any D,

        <A'> = A + dt (Rh A + R*),   <C'> = C + dt (Rh C + R* A^T + transposed) + dt^2 [(1 - 1/P) v v^T + noise / P],
        noise_ij = <g_i g_j |x|^2> = (D - 3) Cg_ij + <g_i g_j |x in the span|^2>, v = Rh w + R* beta.

        1500 datasets; five numbers within 4.5 standard errors: false alarms 4e-5.
        """
        alpha, dimension, samples, step = 0.5, 40, 80, 0.2
        task = paper_problem(alpha, ratio=2.0, training=GradientDescent(step))
        run = simulate(task, [1], dimension=dimension, seeds=1500, key=3)
        memory = EPSILON / 2 * np.eye(2) * (1 - alpha * EPSILON / 2 * np.trace(OVERLAP)) - alpha / 2 * (
            1 + EPSILON**2 * OVERLAP
        )
        pull = EPSILON * ALIGNMENT
        # The coefficients on (w1, beta): -.125, -.2625 and .15.
        np.testing.assert_allclose([*memory[0], pull[0, 0]], [-0.125, -0.2625, 0.15], rtol=1e-12)
        weights = initial_weights(OVERLAP, ALIGNMENT, 3)
        drift = memory @ weights + pull * np.eye(3)[0]
        nodes, masses = np.polynomial.hermite_e.hermegauss(12)
        noise, signal_covariance = np.zeros((2, 2)), np.zeros((2, 2))
        for z, mass in zip(itertools.product(nodes, repeat=3), itertools.product(masses, repeat=3), strict=True):
            fields, share = weights @ np.array(z), np.prod(mass) / (2 * np.pi) ** 1.5
            error = z[0] ** 2 / 2 - alpha / 2 * (fields + EPSILON / 2 * fields**2).sum()
            signals = (1 + EPSILON * fields) * error
            signal_covariance += share * np.outer(signals, signals)
            noise += share * np.outer(signals, signals) * (dimension - 3 + np.dot(z, z))
        assert signal_covariance[0, 0] == pytest.approx(0.909, abs=5e-4)
        moved = weights + step * drift
        overlap = moved @ moved.T + step**2 / samples * (noise - drift @ drift.T)
        measured = np.concatenate([run.alignment[:, 0, :, 0], run.overlap[:, 0][:, [0, 0, 1], [0, 1, 1]]], axis=1)
        expected = np.array([*moved[:, 0], overlap[0, 0], overlap[0, 1], overlap[1, 1]])
        errors = measured.std(axis=0, ddof=1) / np.sqrt(1500)
        assert (np.abs(measured.mean(axis=0) - expected) < 4.5 * errors).all()
        # The noise is seen: without it the overlap would be off by tens of standard errors.
        assert step**2 / samples * noise[0, 0] > 10 * errors[2]


def online_steps(alpha: float, step: float, count: int):
    """Descent at infinitely many samples: the corrected eqs. 14 and 15, whole steps."""
    alignment, overlap = ALIGNMENT[:, 0].copy(), OVERLAP.copy()
    for _ in range(count):
        memory = EPSILON / 2 * np.eye(2) * (1 - alpha * EPSILON / 2 * np.trace(overlap)) - alpha / 2 * (
            1 + EPSILON**2 * overlap
        )
        pull, kept = step * EPSILON * alignment, np.eye(2) + step * memory
        aligned = kept @ alignment
        overlap = kept @ overlap @ kept.T + np.outer(aligned, pull) + np.outer(pull, aligned) + np.outer(pull, pull)
        alignment = aligned + pull
    return np.array([*alignment, overlap[0, 0], overlap[0, 1], overlap[1, 1]])


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [2.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_many_samples_give_the_online_limit(alpha):
    """At t = 2, extrapolated from gamma = 25 and 50: what is left is of order 2/(25 50), far below the error bars.

    40 datasets each; five numbers within 4 standard errors of the extrapolated mean: false alarms 3e-4. The equations
    as printed, which have no alpha, are excluded.
    """
    means, variances = [], []
    for gamma in (25, 50):
        task = paper_problem(alpha, ratio=gamma, training=GradientDescent(0.1))
        run = simulate(task, [20], dimension=60, seeds=40, key=gamma)
        values = np.concatenate([run.alignment[:, 0, :, 0], run.overlap[:, 0][:, [0, 0, 1], [0, 1, 1]]], axis=1)
        means.append(values.mean(axis=0))
        variances.append(values.var(axis=0, ddof=1) / 40)
    measured, error = 2 * means[1] - means[0], np.sqrt(4 * variances[1] + variances[0])
    expected = online_steps(alpha, 0.1, 20)
    assert (np.abs(measured - expected) < 4 * error).all(), (measured - expected) / error
    assert (np.abs(measured - online_steps(1.0, 0.1, 20)) > 8 * error).any()


class TestLosses:
    def test_a_student_that_is_the_teacher_has_no_loss(self):
        """w1 = -w2 = beta / sqrt(alpha epsilon): zero train and test loss, and it stays there; C - A A^T has rank 0."""
        alpha = 0.5
        scale = 1 / np.sqrt(alpha * EPSILON)
        alignment = scale * np.array([[1.0], [-1.0]])
        task = paper_problem(alpha, alignment=alignment, overlap=alignment @ alignment.T, ratio=3.0)
        run = simulate(task, [0, 10], dimension=12, seeds=2)
        np.testing.assert_allclose(run.train_loss, 0, atol=1e-25)
        np.testing.assert_allclose(run.test_loss, 0, atol=1e-12)
        np.testing.assert_allclose(run.alignment[..., 0], np.broadcast_to(alignment[:, 0], (2, 2, 2)), rtol=1e-12)


class TestKernelAlignment:
    def explicit(self, task, weights, inputs, index):
        """The kernel from the Jacobian of the network: sample by sample, weight by weight."""

        def network(at):
            return jax.vmap(lambda row: jnp.sum(task.readout * jax.vmap(task.activation)(at @ row)))(inputs)

        jacobian = jax.jacrev(network)(weights).reshape(len(inputs), -1)
        kernel, target = np.asarray(jacobian @ jacobian.T), np.asarray(task.target(jnp.asarray(index)))
        return np.sqrt(len(target)) * target @ kernel @ target / (np.linalg.norm(kernel) * target @ target)

    def test_it_is_that_of_the_networks_own_tangent_kernel(self):
        task = relu_problem(ratio=2.0, training=GradientDescent(0.2))
        run = simulate(task, [0, 5], dimension=10, seeds=1, form="dual")
        inputs = jnp.asarray(seed_data(0, 20, 10))
        weights = jnp.asarray(start_weights(task, 10))
        data = Primal.of(task, inputs, weights, jax.random.key(0))
        descent = Descent(task.training)
        state = descent.start(data)
        for count in range(5):
            state = descent.step(data, state, count)
        for at, when in enumerate((weights, state.weights.coordinates)):
            explicit = self.explicit(task, when, inputs, inputs[:, :2].T)
            assert run.kernel_alignment[0, at] == pytest.approx(explicit, rel=1e-12)

    @pytest.mark.slow
    @pytest.mark.parametrize("form", ["primal", "dual"])
    def test_the_size_of_large_kernels_is_estimated_from_probes(self, form):
        task = paper_problem(0.5, ratio=60.0)
        run = simulate(task, [0], dimension=10, seeds=1, form=form)
        inputs = jnp.asarray(seed_data(0, 600, 10))
        weights = jnp.asarray(initial_weights(OVERLAP, ALIGNMENT, 10))
        explicit = self.explicit(task, weights, inputs, inputs[:, :1].T)
        # |K z|^2 of 16 probes: about ten eigenvalues matter, a relative spread of the root of sqrt(2 / (16 * 10)) / 2.
        assert run.kernel_alignment[0, 0] == pytest.approx(explicit, rel=4 * 0.056)

    def test_root_p_for_the_kernel_of_the_target_alone_and_none_without_a_kernel(self):
        task = problem(activations.linear, teachers.linear(), [1.0])
        target = jnp.array([1.0, -2.0, 0.5])
        key = jax.random.key(0)
        alone = task.kernel_alignment(jnp.ones((1, 3)), target, lambda rows: rows @ jnp.outer(target, target), key)
        assert alone == pytest.approx(np.sqrt(3))
        dead = problem(activations.relu, teachers.linear(), [1.0])
        assert dead.kernel_alignment(-jnp.ones((1, 3)), target, lambda rows: rows, key) == 0

    def test_learning_features_raises_it(self):
        """An easy case (many samples, large epsilon): the kernel turns to the target as the student finds it."""
        start = {"overlap": np.eye(2), "alignment": [[0.5], [-0.5]]}
        task = paper_problem(1.0, 1.0, ratio=12.0, training=GradientDescent(0.05), **start)
        run = simulate(task, [0, 400], dimension=30, seeds=4)
        assert (run.test_loss[:, 1] < 0.05 * run.test_loss[:, 0]).all()
        assert (run.kernel_alignment[:, 1] > 2 * run.kernel_alignment[:, 0]).all()


class TestSeeds:
    def run(self, **changed):
        task = paper_problem(0.5, ratio=1.5, training=GradientDescent(0.2))
        return simulate(task, [0, 4], **{"seeds": 3, "dimension": 20, "form": "primal", **changed})

    def test_they_do_not_depend_on_chunks_or_on_how_many_there_are_and_hardly_on_precision(self):
        assert 3e4 < bytes_per_run("primal", 30, 20, 2, "float64") < 1e5
        together, chunked, single = self.run(seeds=5), self.run(memory_limit=1e5), self.run(dtype="float32")
        for name, values in together.measured().items():
            np.testing.assert_allclose(getattr(chunked, name), values[:3], rtol=1e-12, atol=1e-14, err_msg=name)
        assert single.train_loss.dtype == single.overlap.dtype == np.float32
        # A few times 2^-24 after sums of some ten terms.
        np.testing.assert_allclose(single.train_loss, together.train_loss[:3], rtol=1e-5)
        np.testing.assert_allclose(single.overlap, together.overlap[:3], rtol=0, atol=1e-5)
        assert (single.overlap != together.overlap[:3]).any()


DIVERGING = {"dimension": 20, "seeds": 3}


class TestDivergence:
    def test_what_was_before_is_kept_and_the_error_names_a_stable_learning_rate(self):
        task = paper_problem(ratio=2.0, training=GradientDescent(3.0))
        run = simulate(task, [0, 2, 60], **DIVERGING)
        assert np.isfinite(run.train_loss[:, :2]).all()
        assert np.isnan(run.train_loss[:, 2]).all()
        assert np.isnan(run.overlap[:, 2]).all()
        assert ((run.diverged > 2) & (run.diverged < 60)).all()
        setup = simulation.set_up(task, 60, dimension=20, dtype="float64", form="auto")
        error = simulation.divergence(setup, run, key=0)
        assert "3 of 3 runs diverged" in str(error)
        assert error.step == run.diverged[0]
        calm = paper_problem(ratio=2.0, training=GradientDescent(error.stable_learning_rate))
        run = simulate(calm, [0, 2, 60], **DIVERGING)
        assert np.isfinite(run.train_loss).all()
        assert (run.diverged == -1).all()

    def test_curvature_is_the_largest_eigenvalue_of_the_hessian(self):
        """With b = c the velocity is minus half the gradient of the loss."""
        readout = jnp.full(2, 0.5)
        task = problem(activations.quadratic(0.5), teachers.square(), readout, readout)
        inputs = jax.random.normal(jax.random.key(2), (15, 6))
        weights = jnp.asarray(initial_weights(OVERLAP, ALIGNMENT, 6))
        data = Primal.of(task, inputs, weights, jax.random.key(0))

        def loss(flat):
            fields = flat.reshape(2, 6) @ inputs.T
            return jnp.mean((inputs[:, 0] ** 2 / 2 - 0.5 * (fields + fields**2 / 4).sum(axis=0)) ** 2) / 2

        largest = np.abs(np.linalg.eigvalsh(jax.hessian(loss)(weights.reshape(-1)))).max()
        assert float(largest_curvature(data, weights)) == pytest.approx(largest, rel=1e-6)


@pytest.mark.parametrize(
    ("ratio", "changed", "message"),
    [
        (np.inf, {}, "online limit"),
        (0.01, {}, "leaves no sample in dimension = 20: raise either"),
        (2.0, {"dimension": 2}, "at least 3"),
        (2.0, {"dimension": 2.5}, "dimension must be a whole number"),
        (2.0, {"dtype": "float16"}, "dtype must be one of 'float32', 'float64'"),
        (2.0, {"form": "sideways"}, "form must be one of 'auto', 'primal', 'dual'"),
        (2.0, {"memory_limit": 1e3}, "one run needs about"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(ratio, changed, message):
    with pytest.raises(ValueError, match=message):
        simulate(paper_problem(ratio=ratio), [0, 1], **{"dimension": 20, "seeds": 2, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"seeds": 0}, "seeds must be a whole number, 1 or more"), ({"key": -1}, "key must be a whole number, 0 or more")],
)
def test_the_model_checks_seeds_and_key(changed, message):
    with pytest.raises(ValueError, match=message):
        Committee().simulate([0, 1], **changed)
