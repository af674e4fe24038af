"""The online limit: the corrected equations, gradients of the population loss, one-pass descent, early times."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from committees import ALIGNMENT, OVERLAP, classifier, paper_problem, problem

from solvable import SGD, GradientDescent, GradientFlow, activations, compare, solvers, teachers
from solvable.models.committee.gaussian import drift, test_loss
from solvable.models.committee.online import (
    descent_latents,
    early_alignment_rate,
    escape_time,
    factor,
    one_pass,
    online_descent,
    online_flow,
    recovery,
    signal_correlation,
)
from solvable.models.committee.population import sampled_averages
from solvable.models.committee.problem import problem_of
from solvable.numerics.sobol import sobol_normals

FLOW = GradientFlow()


def corrected_velocity(state, scale, epsilon):
    """Eqs. 14 and 15 with every power of alpha and epsilon, and the C equation that follows from them."""
    a, c = state
    share = scale / len(a)
    held = 1 - share * epsilon * np.trace(c)
    response = epsilon / 2 * held * np.eye(len(a)) - share * (1 + epsilon**2 * c)
    da = response @ a + epsilon * a
    sums = c.sum(axis=1)
    dc = epsilon * held * c - share * (sums[:, None] + sums + 2 * epsilon**2 * c @ c) + 2 * epsilon * np.outer(a, a)
    return da, dc


def printed_velocity(state, scale, epsilon):
    """Eq. 15 as printed."""
    a, c = state
    n = len(a)
    da = epsilon / 2 * (1 - np.trace(c) / n) * a - (1 + epsilon**2 * c) @ a / n + epsilon * a
    cubic = np.einsum("ik,kj,ikj->ij", c, c, 2 + epsilon**2 * (c[:, :, None] + c[None]))
    dc = epsilon * (1 - np.trace(c) / n) * c - cubic / n + 2 * epsilon * np.outer(a, a)
    return da, dc


def integrate(velocity, time, *parameters):
    from scipy.integrate import solve_ivp

    def flat(_, y):
        return np.concatenate([values.ravel() for values in velocity((y[:2], y[2:].reshape(2, 2)), *parameters)])

    start = np.concatenate([np.ravel(ALIGNMENT), np.ravel(OVERLAP)])
    end = solve_ivp(flat, (0, time), start, method="DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    return end[:2], end[2:].reshape(2, 2)


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_flow_follows_the_corrected_equations_and_not_the_printed_ones(scale):
    path = online_flow(paper_problem(scale, training=FLOW), np.array([4.0]), tolerance=1e-10)
    alignment, overlap = integrate(corrected_velocity, 4.0, scale, 0.5)
    np.testing.assert_allclose(path.alignment[-1, :, 0], alignment, rtol=1e-8)
    np.testing.assert_allclose(path.overlap[-1], overlap, rtol=1e-8)
    _, printed = integrate(printed_velocity, 4.0, scale, 0.5)
    assert np.max(np.abs(printed - overlap)) > 0.1


def test_descent_is_the_discrete_form_of_the_responses():
    """M = 1 - dt d + dt Rh, A+ = M A + dt R*, C+ = M C M^T + (M A)(dt R*)^T + its transpose + dt^2 R* R*^T."""
    scale, epsilon, dt, decay = 0.7, 0.5, 0.3, 0.2
    path = online_descent(paper_problem(scale, epsilon, training=GradientDescent(dt, weight_decay=decay)), 6)
    a, c = np.ravel(ALIGNMENT), np.array(OVERLAP)
    for _ in range(6):
        held = 1 - scale / 2 * epsilon * np.trace(c)
        response = epsilon / 2 * held * np.eye(2) - scale / 2 * (1 + epsilon**2 * c)
        move = (1 - dt * decay) * np.eye(2) + dt * response
        kick = dt * epsilon * a
        carried = move @ a
        c = move @ c @ move.T + np.outer(carried, kick) + np.outer(kick, carried) + np.outer(kick, kick)
        a = carried + kick
    np.testing.assert_allclose(path.alignment[-1, :, 0], a, rtol=1e-12)
    np.testing.assert_allclose(path.overlap[-1], c, rtol=1e-12)


def test_small_steps_of_descent_are_the_flow():
    flow = online_flow(paper_problem(training=FLOW), np.array([2.0]))
    errors = []
    for steps in (200, 400):
        end = descent_latents(paper_problem(training=GradientDescent(2.0 / steps)), steps)[-1]
        errors.append(float(jnp.max(jnp.abs(end @ end.T - flow.overlap[0]))))
    # First order: half the step, half the error.
    assert errors[0] < 0.02
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)


TASKS = {
    "quadratic": (activations.quadratic(0.5), teachers.square(), 1),
    "cubic on sine": (activations.Polynomial((0.2, 1.0, 0.3, 0.1)), jnp.sin, 1),
    "relu on two": (activations.relu, lambda a, b: jnp.tanh(a) * b, 2),
    "erf on kink": (activations.erf, jnp.abs, 1),
}


@pytest.mark.parametrize("name", TASKS)
def test_drift_is_the_slope_of_the_population_loss_and_the_mean_over_samples(name):
    activation, teacher, indices = TASKS[name]
    readout, speed = jnp.array([0.5, -0.3]), jnp.array([1.0, 2.0])
    task = problem(activation, teacher, readout, speed, indices=indices)
    latents = jnp.asarray(np.random.default_rng(1).normal(size=(2, indices + 2)) / np.sqrt(2))
    found = jax.jit(drift)(task, latents)
    # d L_test / d U = -2 c <phi' Delta z>, along a random direction by central differences of 1e-4.
    way = np.random.default_rng(2).normal(size=latents.shape)
    loss = jax.jit(lambda u: test_loss(task, u[:, :indices], u @ u.T))
    slope = (loss(latents + 1e-4 * way) - loss(latents - 1e-4 * way)) / 2e-4
    # Rounding 1e-15 / 1e-4, third derivatives times 1e-8.
    assert -2 * jnp.sum((readout / speed)[:, None] * found * way) == pytest.approx(float(slope), rel=1e-6)
    normals = sobol_normals(2**14, latents.shape[1], 0).T
    signals, _ = task.signals(latents @ normals, jnp.asarray(normals[:indices]))
    # Plain samples would have the error below; five of those, for 24 numbers in all: no false alarm.
    error = np.sqrt(np.mean((signals[:, None] * normals) ** 2, axis=-1) / 2**14)
    assert np.all(np.abs(found - signals @ normals.T / 2**14) < 5 * error)


def test_weights_inside_the_span_of_the_teacher_move_within_it():
    inside = jnp.array([[0.5, 0.0, 0.0], [-0.3, 0.0, 0.0]])
    for activation in (activations.quadratic(0.5), activations.tanh):
        task = problem(activation, teachers.square(), np.full(2, 0.5))
        force = jax.jit(drift)(task, inside)
        assert np.all(np.abs(force[:, 1:]) < 1e-12)
        assert np.all(np.isfinite(factor(inside[:, :1], inside @ inside.T)))


def test_signal_correlation_of_polynomials_is_exact():
    """For one neuron on a target it ignores (readout 0): g = (1 + eps h) h*^2 / 2, moments by hand."""
    epsilon, a, variance = 0.4, 0.3, 1.7
    task = problem(activations.quadratic(epsilon), teachers.square(), [0.0])
    latents = factor(jnp.array([[a]]), jnp.array([[variance]]))
    # <h*^4> = 3, <h^2 h*^4> = 3 C + 12 A^2
    expected = (3 + epsilon**2 * (3 * variance + 12 * a**2)) / 4
    assert signal_correlation(task, latents)[0, 0] == pytest.approx(expected, rel=1e-11)


def stochastic_descent(task, *, step, samples, dimension, seeds, decay):
    """w <- (1 - step d / D) w + step g x, one fresh input at a time; overlaps after ``samples`` inputs."""
    latents = factor(task.initial_alignment, task.initial_overlap)
    start = jnp.zeros((len(latents), dimension)).at[:, : latents.shape[1]].set(latents * np.sqrt(dimension))

    def run(key):
        def move(w, key):
            x = jax.random.normal(key, (dimension,)) / np.sqrt(dimension)
            signals, _ = task.signals((w @ x)[:, None], np.sqrt(dimension) * x[None, :1])
            return (1 - step * decay / dimension) * w + step * signals * x, None

        end = jax.lax.scan(move, start, jax.random.split(key, samples))[0]
        return end[:, 0] / np.sqrt(dimension), end @ end.T / dimension

    return jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds))


@pytest.mark.slow
def test_one_pass_descent_has_the_noise_of_saad_and_solla():
    # The quick test of it is in test_model.py, with the package's own simulation.
    step, time, dimension, decay = 0.3, 1.5, 200, 0.1
    task = paper_problem(training=SGD(step, batch_size=1, weight_decay=decay))
    samples = int(time / step * dimension)
    alignments, overlaps = stochastic_descent(
        task, step=step, samples=samples, dimension=dimension, seeds=48, decay=decay
    )
    # Time counts D steps, each of which passes a flow time of step / D.
    path = one_pass(task, np.array([time / step]), tolerance=1e-6)
    error = overlaps.std(axis=0) / np.sqrt(48)
    # 4 standard errors, three numbers: false alarm below 1e-3; 1/D corrections are below one of them.
    assert np.all(np.abs(overlaps.mean(axis=0) - path.overlap[0]) < 4 * error)
    assert np.all(np.abs(alignments.mean(axis=0) - path.alignment[0, :, 0]) < 4 * alignments.std(axis=0) / np.sqrt(48))
    without = online_flow(paper_problem(training=GradientFlow(weight_decay=decay)), np.array([time]))
    assert np.all(np.abs(overlaps.mean(axis=0) - without.overlap[0])[[0, 1], [0, 1]] > 10 * error[[0, 1], [0, 1]])


def test_one_pass_descent_in_small_steps_is_the_flow():
    noisy = one_pass(paper_problem(training=SGD(1e-6, batch_size=1)), np.array([1e6]), tolerance=1e-6)
    quiet = online_flow(paper_problem(training=FLOW), np.array([1.0]))
    np.testing.assert_allclose(noisy.overlap, quiet.overlap, rtol=2e-5)


OTHER_LOSSES = {
    "logistic with flips": {"label_flips": 0.1},
    "hinge, ReLU": {"loss": "hinge", "activation": activations.relu},
    "Huber with noise, tanh": {
        "loss": "huber",
        "labels": "teacher",
        "huber_width": 0.6,
        "label_noise": 0.4,
        "activation": activations.tanh,
    },
}


@jax.jit
def fresh_batch(task, state, rate, share):
    """``A`` and ``C`` after a step on ``share * D`` fresh samples: C gains ``rate^2 <g g> / share``."""
    latents = factor(*state)
    force, correlation = sampled_averages(task, latents)
    moved = latents + rate * force
    return moved[:, : task.indices], moved @ moved.T + rate**2 * correlation / share


def fresh_batches(model, rate, share, steps):
    """``A`` and ``C`` after some numbers of steps."""
    task = problem_of(model.replace(samples_per_dimension=1.0), GradientFlow())
    states = [(task.initial_alignment, task.initial_overlap)]
    for _ in range(steps[-1]):
        states.append(fresh_batch(task, states[-1], rate, share))
    return [np.stack([np.asarray(states[step][part]) for step in steps]) for part in (0, 1)]


@pytest.mark.parametrize("name", OTHER_LOSSES)
def test_the_first_epoch_of_small_batches_is_one_pass_for_every_loss(name):
    # In its first epoch SGD without replacement sees every sample once: batches of b gamma D fresh samples.
    rate, fraction, ratio = 0.8, 1 / 8, 4.0
    model = classifier(samples_per_dimension=ratio, **OTHER_LOSSES[name])
    training = SGD(rate, batch_fraction=fraction, sampling="epochs")
    curve = model.predict([1, 4, 8], training, solver=solvers.Latent(samples=4096, replicates=8))

    def score(share):
        """The largest deviation in units of the stated errors, to which 1e-4 is added for the points of averages."""
        paths = fresh_batches(model, rate, share, [1, 4, 8])
        return max(
            float(np.max(np.abs(curve[name] - path) / np.hypot(curve[f"{name}_error"], 1e-4)))
            for name, path in zip(("alignment", "overlap"), paths, strict=True)
        )

    # 18 numbers with errors of 8 sets of samples: one in 40 right theories is called wrong. Twice the batch is told.
    assert score(fraction * ratio) < 5 < 10 < score(2 * fraction * ratio)


@pytest.mark.parametrize(
    "name", ["hinge, ReLU", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHER_LOSSES if name[0] in "lH")]
)
def test_one_pass_descent_is_the_limit_of_ever_smaller_batches_for_every_loss(name):
    # The error of batches of a share s of D samples at the rate s eta is of order s: extrapolated, of order s^2.
    rate, times = 0.8, np.array([1, 2])
    model = classifier(samples_per_dimension=np.inf, **OTHER_LOSSES[name])
    curve = model.predict(times, SGD(rate, batch_size=1))
    coarse, fine, noiseless = (
        fresh_batches(model, rate / shares, size, times * shares)
        for shares, size in ((16, 1 / 16), (32, 1 / 32), (16, np.inf))
    )
    for variable, few, many in zip(("alignment", "overlap"), coarse, fine, strict=True):
        np.testing.assert_allclose(curve[variable], 2 * many - few, atol=1e-3)
    assert np.abs(curve.overlap - noiseless[1]).max() > 0.03


def test_one_pass_descent_of_a_logistic_loss_meets_simulation():
    model, training = classifier(samples_per_dimension=np.inf, label_flips=0.1), SGD(0.8, batch_size=1)
    runs = model.simulate([1, 3], training, dimension=100, seeds=40)
    verdict = compare(model.predict([1, 3], training), runs).attrs["verdict"]
    assert verdict.startswith("theory and simulation agree"), verdict


def test_gradients_with_respect_to_the_start_are_finite_and_right():
    def end(size):
        start = paper_problem(alignment=size * ALIGNMENT, training=GradientDescent(0.2))
        end = descent_latents(start, 5)[-1]
        return test_loss(start, end[:, :1], end @ end.T)

    slope, value = jax.jit(jax.grad(end))(1.0), jax.jit(end)
    assert slope == pytest.approx(float(value(1 + 1e-5) - value(1 - 1e-5)) / 2e-5, rel=1e-6)


def test_early_rate_is_the_eigenvalue_of_the_corrected_equations():
    scale, epsilon = 1.0, 0.1
    matrix = (1.5 * epsilon - scale / 4 * epsilon**2 * 2) * np.eye(2) - scale / 2 * (1 + epsilon**2 * OVERLAP)
    expected = np.linalg.eigvalsh(matrix).max()
    assert early_alignment_rate(paper_problem(scale, epsilon)) == pytest.approx(expected, rel=1e-10)
    assert early_alignment_rate(paper_problem(1e-9, epsilon)) == pytest.approx(1.5 * epsilon, rel=1e-8)
    decayed = early_alignment_rate(paper_problem(scale, epsilon, training=GradientFlow(weight_decay=0.03)))
    assert decayed == pytest.approx(expected - 0.03, rel=1e-9)
    with pytest.raises(ValueError, match="linearly"):
        early_alignment_rate(problem(activations.tanh, jnp.tanh, np.ones(2), overlap=OVERLAP))


@pytest.mark.parametrize(("scale", "start"), [(1e-4, 0.01), (1e-2, 0.01), (1e-3, 0.1), (1e-5, 1e-4)])
def test_escape_time_is_that_of_the_flow_and_the_printed_one_is_not(scale, start):
    epsilon = 0.1
    task = paper_problem(scale, epsilon, alignment=[[start], [-start]], overlap=np.eye(2), training=FLOW)
    times = np.linspace(0, 200, 4001)
    path = online_flow(task, times, tolerance=1e-6)
    size = np.asarray(path.alignment[:, 0, 0])
    half = times[np.argmax(size > 0.5 / np.sqrt(scale * epsilon))]
    doubling = 2 * np.log(2) / (3 * epsilon)
    early = escape_time(task) - half
    # The exponential would be at half one doubling before; the approach to saturation slows it.
    assert 0.3 * doubling < early < doubling
    printed = 2 / (3 * epsilon) * np.log(1 / (scale * start))
    assert printed - half > 2 * doubling


def test_escape_time_says_where_it_does_not_hold():
    start = {"alignment": ALIGNMENT, "overlap": OVERLAP}
    with pytest.raises(ValueError, match="isotropic part"):
        escape_time(paper_problem(1.0, 0.1, alignment=[[1e-4], [-1e-4]], overlap=np.eye(2)))
    with pytest.raises(ValueError, match="activation quadratic"):
        escape_time(problem(activations.relu, teachers.square(), np.ones(2), **start))
    with pytest.raises(ValueError, match="teacher square"):
        escape_time(problem(activations.quadratic(0.1), jnp.tanh, np.ones(2), **start))
    with pytest.raises(ValueError, match="equal readouts"):
        recovery(problem(activations.quadratic(0.1), teachers.square(), [1.0, 2.0]))


@pytest.mark.parametrize("neurons", [2, 3])
def test_recovered_weights_have_no_loss_and_stay(neurons):
    task = paper_problem(0.5, 0.3, neurons)
    alignment = jnp.asarray(recovery(task))
    assert test_loss(task, alignment, alignment @ alignment.T) == pytest.approx(0, abs=1e-13)
    assert np.max(np.abs(jax.jit(drift)(task, factor(alignment, alignment @ alignment.T)))) < 1e-6
    with pytest.raises(ValueError, match="one neuron"):
        recovery(paper_problem(0.5, 0.3, 1))
