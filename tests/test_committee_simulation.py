"""Finite-size committees: the start, the step, its statistics, the forms of it, limits, divergence, bad input."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvable import activations, teachers
from solvable.models.committee.forms import FORMS, Primal, bytes_per_run, choose_form, draw_inputs, velocity
from solvable.models.committee.simulation import (
    initial_weights,
    kernel_alignment,
    largest_curvature,
    sampled_test_loss,
    simulate,
)
from solvable.models.committee.task import Task

OVERLAP = np.array([[1, 0.2], [0.2, 1]])
ALIGNMENT = np.array([[0.3], [-0.1]])
EPSILON = 0.5


def quadratic_task(alpha: float = 0.5, epsilon: float = EPSILON) -> Task:
    """The paper's: c = alpha / N, b = 1."""
    return Task(activations.quadratic(epsilon), teachers.square(), jnp.full(2, alpha / 2), jnp.ones(2))


def relu_task(gradient_readout=(1.0, -0.8, 0.5)) -> Task:
    """Plain descent (b = c) unless told otherwise, on two index fields; the teacher takes them one by one."""
    readout = jnp.array([1.0, -0.8, 0.5])
    return Task(activations.relu, lambda first, second: jnp.tanh(first) * second, readout, jnp.array(gradient_readout))


def quadratic_test_loss(alpha: float, epsilon: float = EPSILON):
    """Closed form for phi = h + epsilon h^2/2, sigma = h^2/2 (Isserlis), with two neurons."""
    a = alpha * epsilon / 2

    def loss(alignment, overlap):
        own = jnp.diag(overlap)
        quartic = own.sum() ** 2 + 2 * (overlap**2).sum()
        return (alpha / 2) ** 2 * overlap.sum() + (
            3 - 2 * a * (own + 2 * alignment[:, 0] ** 2).sum() + a**2 * quartic
        ) / 4

    return loss


# Test losses from (A, C) are quick to compile; those from fresh samples have tests of their own.
RELU_START = {
    "initial_overlap": np.eye(3) + 0.1,
    "initial_alignment": np.array([[0.3, 0.1], [-0.1, 0.2], [0.0, -0.4]]),
    "test_loss": lambda alignment, overlap: overlap.sum() - alignment.sum(),
}
START = {"initial_overlap": OVERLAP, "initial_alignment": ALIGNMENT, "test_loss": quadratic_test_loss(0.5)}


def seed_data(seed: int, samples: int, dimension: int, key: int = 0):
    """The inputs a run draws, as standard normals."""
    data_key, _ = jax.random.split(jax.random.fold_in(jax.random.key(key), seed))
    return np.asarray(draw_inputs(data_key, samples, dimension, "float64"))


def start_weights(start, dimension):
    return initial_weights(start["initial_overlap"], start["initial_alignment"], dimension)


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
        with pytest.raises(ValueError, match="dimension = 5 has no room .* at least 6"):
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
        _, data = Primal.start(quadratic_task(alpha), data_inputs, jnp.asarray(start), data_inputs[:, :1].T)
        speed, _ = velocity(quadratic_task(alpha), data, jnp.asarray(start))
        np.testing.assert_allclose(
            np.sqrt(dimension) * speed, -(2 * dimension / (2 * alpha)) * gradient, rtol=1e-12, atol=1e-13
        )

    def test_runs_equal_descent_written_out(self):
        """A loop in the paper's units, with weight decay, two index fields and a kink; P / D is not round(gamma)."""
        dimension, step, decay, gamma = 11, 0.3, 0.2, 2.2
        samples = 24
        task, readout = relu_task(), np.array([1.0, -0.8, 0.5])
        run = simulate(
            task,
            samples_per_dimension=gamma,
            step=step,
            weight_decay=decay,
            steps=[0, 3, 20],
            dimension=dimension,
            seeds=2,
            key=5,
            form="primal",
            **RELU_START,
        )
        inputs = seed_data(1, samples, dimension, key=5) / np.sqrt(dimension)
        index = np.sqrt(dimension) * inputs[:, :2]
        weights = np.sqrt(dimension) * start_weights(RELU_START, dimension)
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
        task = Task(activations.linear, teachers.linear(), jnp.full(1, readout), jnp.ones(1))
        run = simulate(
            task,
            samples_per_dimension=samples / dimension,
            initial_overlap=[[2.0]],
            initial_alignment=[[0.4]],
            step=step,
            steps=[0, 1, 7, 100],
            dimension=dimension,
            seeds=1,
        )
        inputs = seed_data(0, samples, dimension)
        start = inputs[:, 0] - readout * inputs @ initial_weights(np.array([[2.0]]), np.array([[0.4]]), dimension)[0]
        values, vectors = np.linalg.eigh(inputs @ inputs.T / samples)
        left = (1 - step * readout * values) ** np.array([0, 1, 7, 100])[:, None] * (vectors.T @ start)
        np.testing.assert_allclose(run.train_loss[0], (left**2).sum(axis=1) / samples, rtol=1e-9, atol=0)


class TestForms:
    def test_every_form_takes_the_same_steps(self):
        """To 1e-10: rounding, which decaying errors do not amplify. With decay, a kink, and sizes that need padding."""
        options = {"samples_per_dimension": 1.7, "step": 0.3, "weight_decay": 0.1, "dimension": 41, "seeds": 2}
        task, start = relu_task(gradient_readout=(0.9, -0.3, 0.7)), RELU_START
        primal, *others = (simulate(task, form=form, steps=[0, 1, 2, 40], **options, **start) for form in FORMS)
        assert len(others) == 2
        # Every dataset is another one and begins with the prescribed overlaps and alignments.
        assert primal.train_loss[0, 0] != primal.train_loss[1, 0]
        for seed in range(2):
            np.testing.assert_allclose(primal.overlap[seed, 0], start["initial_overlap"], rtol=0, atol=1e-14)
            np.testing.assert_array_equal(primal.alignment[seed, 0], start["initial_alignment"])
        for other in others:
            for name, values in primal._asdict().items():
                np.testing.assert_allclose(getattr(other, name), values, rtol=1e-10, atol=1e-11, err_msg=name)

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
        run = simulate(
            quadratic_task(alpha),
            samples_per_dimension=2,
            step=step,
            steps=[1],
            dimension=dimension,
            seeds=1500,
            key=3,
            **START,
        )
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
        run = simulate(
            quadratic_task(alpha),
            samples_per_dimension=gamma,
            step=0.1,
            steps=[20],
            dimension=60,
            seeds=40,
            key=gamma,
            **START,
        )
        values = np.concatenate([run.alignment[:, 0, :, 0], run.overlap[:, 0][:, [0, 0, 1], [0, 1, 1]]], axis=1)
        means.append(values.mean(axis=0))
        variances.append(values.var(axis=0, ddof=1) / 40)
    measured, error = 2 * means[1] - means[0], np.sqrt(4 * variances[1] + variances[0])
    expected = online_steps(alpha, 0.1, 20)
    assert (np.abs(measured - expected) < 4 * error).all(), (measured - expected) / error
    assert (np.abs(measured - online_steps(1.0, 0.1, 20)) > 8 * error).any()


class TestLosses:
    def test_fresh_samples_give_the_closed_form(self):
        """Standard error from the spread of 64 keys; 4.5 of them: false alarms 7e-6."""
        losses = jax.vmap(
            lambda key: sampled_test_loss(quadratic_task(), jnp.asarray(ALIGNMENT), jnp.asarray(OVERLAP), key, 4096)
        )(jax.random.split(jax.random.key(1), 64))
        exact = float(quadratic_test_loss(0.5)(ALIGNMENT, OVERLAP))
        assert abs(losses.mean() - exact) < 4.5 * losses.std(ddof=1) / 8
        assert losses.std(ddof=1) / 8 < 0.01 * exact

    def test_a_student_that_is_the_teacher_has_no_loss(self):
        """w1 = -w2 = beta / sqrt(alpha epsilon): zero train and test loss, and it stays there; C - A A^T has rank 0."""
        alpha = 0.5
        scale = 1 / np.sqrt(alpha * EPSILON)
        alignment = scale * np.array([[1.0], [-1.0]])
        options = {"samples_per_dimension": 3, "step": 0.1, "steps": [0, 10], "dimension": 12, "seeds": 2}
        run = simulate(
            quadratic_task(alpha), initial_overlap=alignment @ alignment.T, initial_alignment=alignment, **options
        )
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
        task = relu_task()
        options = {"samples_per_dimension": 2.0, "dimension": 10, "seeds": 1, "step": 0.2, "form": "dual"}
        run = simulate(task, steps=[0, 5], **options, **RELU_START)
        inputs = jnp.asarray(seed_data(0, 20, 10))
        weights = jnp.asarray(start_weights(RELU_START, 10))
        student, data = Primal.start(task, inputs, weights, inputs[:, :2].T)
        for _ in range(5):
            student, _ = student.moved(task, data, 0.2, 0.0)
        for at, when in enumerate((weights, student.weights)):
            explicit = self.explicit(task, when, inputs, inputs[:, :2].T)
            assert run.kernel_alignment[0, at] == pytest.approx(explicit, rel=1e-12)

    @pytest.mark.slow
    @pytest.mark.parametrize("form", ["primal", "dual"])
    def test_the_size_of_large_kernels_is_estimated_from_probes(self, form):
        run = simulate(
            quadratic_task(), samples_per_dimension=60, step=0.1, steps=[0], dimension=10, seeds=1, form=form, **START
        )
        inputs = jnp.asarray(seed_data(0, 600, 10))
        weights = jnp.asarray(initial_weights(OVERLAP, ALIGNMENT, 10))
        explicit = self.explicit(quadratic_task(), weights, inputs, inputs[:, :1].T)
        # |K z|^2 of 16 probes: about ten eigenvalues matter, a relative spread of the root of sqrt(2 / (16 * 10)) / 2.
        assert run.kernel_alignment[0, 0] == pytest.approx(explicit, rel=4 * 0.056)

    def test_root_p_for_the_kernel_of_the_target_alone_and_none_without_a_kernel(self):
        task = Task(activations.linear, teachers.linear(), jnp.ones(1), jnp.ones(1))
        target = jnp.array([1.0, -2.0, 0.5])
        key = jax.random.key(0)
        alone = kernel_alignment(task, jnp.ones((1, 3)), target, lambda rows: rows @ jnp.outer(target, target), key)
        assert alone == pytest.approx(np.sqrt(3))
        dead = Task(activations.relu, teachers.linear(), jnp.ones(1), jnp.ones(1))
        assert kernel_alignment(dead, -jnp.ones((1, 3)), target, lambda rows: rows, key) == 0

    def test_learning_features_raises_it(self):
        """An easy case (many samples, large epsilon): the kernel turns to the target as the student finds it."""
        run = simulate(
            quadratic_task(1.0, 1.0),
            samples_per_dimension=12,
            step=0.05,
            steps=[0, 400],
            dimension=30,
            seeds=4,
            test_loss=quadratic_test_loss(1.0, 1.0),
            initial_overlap=np.eye(2),
            initial_alignment=np.array([[0.5], [-0.5]]),
        )
        assert (run.test_loss[:, 1] < 0.05 * run.test_loss[:, 0]).all()
        assert (run.kernel_alignment[:, 1] > 2 * run.kernel_alignment[:, 0]).all()


class TestSeeds:
    def run(self, **changed):
        options = {"samples_per_dimension": 1.5, "step": 0.2, "steps": [0, 4], "dimension": 20, "form": "primal"}
        return simulate(quadratic_task(), **{"seeds": 3, **options, **START, **changed})

    def test_they_do_not_depend_on_chunks_or_on_how_many_there_are_and_hardly_on_precision(self):
        assert 3e4 < bytes_per_run("primal", 30, 20, 2, "float64") < 1e5
        together, chunked, single = self.run(seeds=5), self.run(memory_limit=1e5), self.run(dtype="float32")
        for name, values in together._asdict().items():
            np.testing.assert_allclose(getattr(chunked, name), values[:3], rtol=1e-12, atol=1e-14, err_msg=name)
        assert single.train_loss.dtype == single.overlap.dtype == np.float32
        # A few times 2^-24 after sums of some ten terms.
        np.testing.assert_allclose(single.train_loss, together.train_loss[:3], rtol=1e-5)
        np.testing.assert_allclose(single.overlap, together.overlap[:3], rtol=0, atol=1e-5)
        assert (single.overlap != together.overlap[:3]).any()


DIVERGING = {"samples_per_dimension": 2, "dimension": 20, "seeds": 3, "steps": [0, 2, 60], **START}


class TestDivergence:
    def test_it_is_reported_with_its_time_and_a_step_that_is_stable(self):
        with pytest.raises(
            ValueError, match=r"3 of 3 runs diverged.*seed 0 .*time 0 .*stable.*keep_diverged"
        ) as caught:
            simulate(quadratic_task(1.0), step=3.0, **DIVERGING)
        stable = float(str(caught.value).split("lower step = 3 to ")[1].split()[0])
        run = simulate(quadratic_task(1.0), step=stable, **DIVERGING)
        assert np.isfinite(run.train_loss).all()
        assert (run.diverged_step == -1).all()

    def test_what_was_before_is_kept_on_request(self):
        run = simulate(quadratic_task(1.0), step=3.0, keep_diverged=True, **DIVERGING)
        assert np.isfinite(run.train_loss[:, :2]).all()
        assert np.isnan(run.train_loss[:, 2]).all()
        assert np.isnan(run.overlap[:, 2]).all()
        assert ((run.diverged_step > 2) & (run.diverged_step < 60)).all()

    def test_curvature_is_the_largest_eigenvalue_of_the_hessian(self):
        """With b = c the velocity is minus half the gradient of the loss."""
        readout = jnp.full(2, 0.5)
        task = Task(activations.quadratic(0.5), teachers.square(), readout, readout)
        inputs = jax.random.normal(jax.random.key(2), (15, 6))
        weights = jnp.asarray(initial_weights(OVERLAP, ALIGNMENT, 6))
        _, data = Primal.start(task, inputs, weights, inputs[:, :1].T)

        def loss(flat):
            fields = flat.reshape(2, 6) @ inputs.T
            return jnp.mean((inputs[:, 0] ** 2 / 2 - 0.5 * (fields + fields**2 / 4).sum(axis=0)) ** 2) / 2

        largest = np.abs(np.linalg.eigvalsh(jax.hessian(loss)(weights.reshape(-1)))).max()
        assert float(largest_curvature(task, data, weights)) == pytest.approx(largest, rel=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"samples_per_dimension": 0}, "samples_per_dimension must be a positive finite number"),
        ({"samples_per_dimension": np.inf}, "online limit"),
        ({"samples_per_dimension": 0.01}, "leaves no sample in dimension = 20: raise either"),
        ({"initial_alignment": [[1.2], [0.0]]}, "eigenvalue -0.4.* must not be negative"),
        ({"initial_overlap": [[1.0, 0.5], [0.2, 1.0]]}, "must be symmetric"),
        ({"initial_overlap": [[1.0]]}, r"not \(2, 1\) and \(1, 1\)"),
        ({"dimension": 2}, "at least 3"),
        ({"dimension": 2.5}, "dimension must be a whole number"),
        ({"steps": [3, 1]}, "ascending"),
        ({"steps": []}, "ascending"),
        ({"step": 0.0}, "step must be positive"),
        ({"weight_decay": -1.0}, "weight_decay not negative"),
        ({"dtype": "float16"}, "dtype must be one of 'float32', 'float64'"),
        ({"form": "sideways"}, "form must be one of 'auto', 'primal', 'dual', 'fused'"),
        ({"memory_limit": 1e3}, "one run needs about"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(changed, message):
    options = {
        "samples_per_dimension": 2,
        "step": 0.1,
        "steps": [0, 1],
        "dimension": 20,
        "seeds": 2,
        **START,
        **changed,
    }
    with pytest.raises(ValueError, match=message):
        simulate(quadratic_task(), **options)


def test_the_kernel_has_room_for_few_neurons():
    wide = Task(activations.relu, teachers.square(), jnp.ones(9), jnp.ones(9))
    with pytest.raises(ValueError, match="room for 8 neurons, not 9"):
        simulate(
            wide,
            samples_per_dimension=2,
            initial_overlap=np.eye(9),
            initial_alignment=np.zeros((9, 1)),
            step=0.1,
            steps=[1],
            dimension=20,
            seeds=1,
            form="fused",
        )
