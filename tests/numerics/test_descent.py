"""Training by flow and by steps: closed forms on a quadratic, Optax's own steps, orders of accuracy, stability."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvable import GradientDescent, GradientFlow
from solvable.numerics.descent import (
    TrainingProblem,
    check_samples,
    check_stable,
    check_training_cost,
    flow_steps,
    simulate_runs,
    train_with_error,
)

# Two directions of a quadratic loss, and where its minimum is.
CURVATURES, MINIMUM = np.array([1.5, 0.2]), np.array([1.0, -2.0])
STEPS = np.array([0.0, 1.0, 2.0, 7.0, 40.0])
STABLE = 2 / CURVATURES.max()


def slope(weights):
    return CURVATURES * (weights - MINIMUM)


def train(training, times=STEPS, start=(0.0, 0.0)):
    """Weights at each time, and their errors."""
    values, errors = train_with_error(slope, lambda weights: weights, jnp.array(start), times, training, STABLE)
    return np.asarray(values), np.asarray(errors)


def by_optax(transformation, last):
    """The same gradients given to an optimiser of Optax, step by step."""
    weights, seen = jnp.zeros(2), [np.zeros(2)]
    state = transformation.init(weights)
    for _ in range(last):
        update, state = transformation.update(slope(weights), state, weights)
        weights = optax.apply_updates(weights, update)
        seen.append(np.asarray(weights))
    return np.array(seen)


@pytest.mark.parametrize("rate", [0.1, optax.cosine_decay_schedule(0.3, 30), optax.warmup_constant_schedule(0, 0.2, 9)])
@pytest.mark.parametrize("momentum", [{}, {"momentum": 0.8}, {"momentum": 0.8, "nesterov": True}])
@pytest.mark.parametrize("decay", [0.0, 0.4])
def test_steps_are_those_of_optax(rate, momentum, decay):
    values, errors = train(GradientDescent(rate, weight_decay=decay, **momentum))
    # Optax counts its steps in 32 bits, and schedules would compute in 32 bits with it.
    same = (lambda count: rate(jnp.asarray(count, float))) if callable(rate) else rate
    optimiser = optax.chain(optax.add_decayed_weights(decay), optax.sgd(same, **momentum))
    expected = by_optax(optimiser, int(STEPS[-1]))[STEPS.astype(int)]
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-14)
    # Steps are exact but for rounding: at most one machine precision for each of 40 of them, twice.
    assert errors.max() < 1e-13


def companion(curvature, rate, momentum, nesterov):
    """The matrix that takes (weight, velocity) from one step to the next, about the minimum."""
    velocity = np.array([curvature, momentum])
    move = momentum * velocity + [curvature, 0] if nesterov else velocity
    return np.array([np.array([1.0, 0.0]) - rate * move, velocity])


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_on_a_quadratic_is_a_power_of_a_matrix(nesterov):
    values, _ = train(GradientDescent(0.3, momentum=0.7, nesterov=nesterov))
    for direction, (curvature, minimum) in enumerate(zip(CURVATURES, MINIMUM, strict=True)):
        matrix = companion(curvature, 0.3, 0.7, nesterov)
        expected = [minimum - np.linalg.matrix_power(matrix, int(count))[0, 0] * minimum for count in STEPS]
        np.testing.assert_allclose(values[:, direction], expected, rtol=1e-12, atol=1e-14)


def test_a_schedule_on_a_quadratic_is_a_product():
    """Each step shrinks the distance to the minimum by 1 - rate(s) h; step s leads from time s to time s + 1."""
    values, _ = train(GradientDescent(lambda step: 0.5 / (1 + step)))
    rates = 0.5 / (1 + np.arange(40))
    left = np.concatenate([np.ones((1, 2)), np.cumprod(1 - np.outer(rates, CURVATURES), axis=0)])
    np.testing.assert_allclose(values, MINIMUM * (1 - left[STEPS.astype(int)]), rtol=1e-12)


@given(st.floats(0.1, 3), st.floats(0, 2))
def test_flow_on_a_quadratic_is_exponential_and_states_its_error(rate, decay):
    """Weight decay moves the minimum to h w* / (h + decay) and hurries there at the rate h + decay."""
    times = np.array([0.0, 0.3, 1.0, 5.0])
    values, errors = train(GradientFlow(rate, weight_decay=decay), times)
    speed = CURVATURES + decay
    expected = CURVATURES * MINIMUM / speed * -np.expm1(-rate * times[:, None] * speed)
    assert (np.abs(values - expected) <= errors + 1e-15).all()
    assert errors.max() < 1e-7


def test_flow_is_of_fourth_order():
    """Half as long steps make an error 16 times smaller, up to the next order."""

    def error(count):
        # Steps are 0.02 of the stable learning rate; each is halved for the values that come back.
        stable_rate = 2.0 / (0.02 * count)
        values, _ = train_with_error(slope, jnp.asarray, jnp.zeros(2), np.array([2.0]), GradientFlow(), stable_rate)
        return np.abs(values - MINIMUM * -np.expm1(-2 * CURVATURES)).max()

    assert error(20) / error(40) == pytest.approx(16, rel=0.1)


@pytest.mark.parametrize("momentum", [{}, {"momentum": 0.5}, {"momentum": 0.5, "nesterov": True}])
def test_flow_is_the_limit_of_descent_on_flow_time(momentum):
    """First order in the learning rate; momentum mu multiplies flow time by 1 / (1 - mu)."""
    times, errors = np.array([1.0, 3.0]), []
    flow, _ = train(GradientFlow(), times)
    for rate in (0.01, 0.005):
        training = GradientDescent(rate * (1 - momentum.get("momentum", 0.0)), **momentum)
        errors.append(np.abs(train(training, np.round(times / rate))[0] - flow).max())
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)


def test_every_time_is_reached_by_equal_steps_of_bounded_length():
    clock = np.array([0.0, 0.25, 0.3, 1.3])
    counts, lengths = flow_steps(clock, 5.0)
    # At most 0.02 of the stable learning rate, 0.1.
    assert counts.tolist() == [0, 3, 1, 10]
    np.testing.assert_allclose(np.cumsum(counts * lengths), clock, rtol=1e-15)


@pytest.mark.parametrize("momentum", [{}, {"momentum": 0.6}, {"momentum": 0.6, "nesterov": True}])
@pytest.mark.parametrize("decay", [0.0, 0.7])
def test_learning_rates_are_refused_from_where_descent_is_unstable(momentum, decay):
    """The largest eigenvalue of the exact recursion passes one in size at the rate that is refused."""
    curvature, mu = CURVATURES.max() + decay, momentum.get("momentum", 0.0)
    limit = 2 / curvature * ((1 + mu) / (1 + 2 * mu) if momentum.get("nesterov") else 1 + mu)
    for rate, stable in ((0.999 * limit, True), (1.001 * limit, False)):
        training = GradientDescent(rate, weight_decay=decay, **momentum)
        sizes = np.abs(np.linalg.eigvals(companion(curvature, rate, mu, momentum.get("nesterov", False))))
        assert (sizes.max() < 1) == stable
        if stable:
            check_stable(training, STABLE, 100)
        else:
            with pytest.raises(ValueError, match="not below .* from which gradient descent is unstable"):
                check_stable(training, STABLE, 100)


def test_the_largest_rate_of_a_schedule_decides_about_stability():
    rising = GradientDescent(lambda step: 0.02 * step)
    check_stable(rising, STABLE, 60)
    with pytest.raises(ValueError, match="learning_rate = 1.98 is not below 1.333"):
        check_stable(rising, STABLE, 100)


def problem(key):
    """A minimum that is drawn for each run."""
    place = jax.random.normal(key, (2,))
    return TrainingProblem(lambda w: CURVATURES * (w - place), lambda w: {"weights": w, "place": place}, jnp.zeros(2))


SIZES = {"stable_rate": STABLE, "operations": 10.0, "bytes_per_run": 100.0, "key": 3, "progress": False}


def test_runs_are_drawn_by_seed_and_carry_their_errors():
    times = np.array([0.0, 1.0, 60.0])
    few, many = (simulate_runs(problem, times, GradientFlow(), seeds=n, **SIZES) for n in (2, 5))
    assert many["weights"].shape == (5, 3, 2)
    np.testing.assert_array_equal(few["weights"], many["weights"][:2])
    expected = many["place"] * -np.expm1(-times[:, None] * CURVATURES)
    assert (np.abs(many["weights"] - expected) <= many["weights_error"] + 1e-15).all()
    assert np.std(many["place"][:, 0], axis=0).min() > 0.1


def test_runs_that_cannot_work_are_refused_in_words():
    times = np.array([10.0])
    with pytest.raises(ValueError, match="unstable"):
        simulate_runs(problem, times, GradientDescent(2.0), seeds=2, **SIZES)

    def explodes(key):
        return problem(key)._replace(gradient=lambda w: -jnp.ones(2) - w**3)

    with pytest.raises(ValueError, match="training diverged with GradientDescent.*: lower learning_rate"):
        simulate_runs(explodes, times * 10, GradientDescent(1.0), seeds=1, **SIZES)


def test_sizes_of_training_sets():
    assert check_samples(None) is check_samples(np.inf) is None
    assert check_samples(5) == 5
    with pytest.raises(ValueError, match="samples must be a whole number, 1 or more, not 0"):
        check_samples(0)


@pytest.mark.parametrize("training", [GradientFlow(), GradientDescent(0.1), GradientFlow(weight_decay=1e3)])
def test_runs_of_years_are_refused_before_they_begin(training):
    with pytest.raises(ValueError, match=r"simulating quadratic for .* steps and 10 seeds .*: ask for earlier times"):
        check_training_cost("simulating quadratic", np.array([1e12]), training, STABLE, 10, 100.0)
