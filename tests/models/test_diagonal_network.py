"""The diagonal network: its differential equation, conservation, sigmoids, stages, drawn data, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from solvable import GradientDescent, GradientFlow
from solvable.comparison import compare
from solvable.models.diagonal_network import DiagonalNetwork

TIMES = np.array([0.0, 0.3, 1.0, 3.0, 8.0])
# Rounded, because sizes whose squares are no numbers are refused.
weights = st.floats(-1.5, 1.5).map(lambda value: round(value, 9)) | st.floats(-6, -1).map(lambda power: 10**power)
modes = st.tuples(st.floats(0.1, 1.5), st.floats(-2, 2).map(lambda value: round(value, 9)), weights, weights)


def emergence(model, fraction):
    return model.emergence_time(fraction).emergence_time.values


def saturation(model, fraction):
    return model.saturation_time(fraction).saturation_time.values


def integrate(model, times):
    """Layers by an eighth-order method at relative tolerance 1e-12."""
    count = model.variances.size

    def rates(_, layers):
        first, second = layers[:count], layers[count:]
        pull = model.variances * (model.target_scales - first * second)
        return np.concatenate([second * pull, first * pull])

    start = np.concatenate([model.initial_first, model.initial_second])
    solution = solve_ivp(rates, (0, times[-1]), start, "DOP853", times, rtol=1e-12, atol=1e-14)
    return solution.y[:count].T, solution.y[count:].T


@given(st.lists(modes, min_size=1, max_size=2))
def test_curves_solve_the_flow_from_any_layers(chosen):
    model = DiagonalNetwork(*np.array(chosen).T)
    curves = model.predict(TIMES)
    first, second = integrate(model, TIMES)
    np.testing.assert_allclose(curves.first, first, atol=1e-9)
    np.testing.assert_allclose(curves.second, second, atol=1e-9)
    np.testing.assert_allclose(curves.strength, first * second, atol=1e-9)
    loss = (model.variances * (model.target_scales - first * second) ** 2).sum(1) / 2
    np.testing.assert_allclose(curves.test_loss, loss, atol=1e-9)


@given(st.lists(modes, min_size=1, max_size=2))
def test_difference_of_squared_layers_is_conserved(chosen):
    model = DiagonalNetwork(*np.array(chosen).T)
    imbalance = model.predict([0.0, 0.1, 1.0, 10.0, 1e3]).imbalance
    np.testing.assert_allclose(imbalance, np.broadcast_to(model.imbalance, imbalance.shape), atol=1e-10)
    np.testing.assert_allclose(model.imbalance, model.initial_first**2 - model.initial_second**2, atol=1e-14)


@given(st.floats(0.1, 2), st.floats(0.2, 3) | st.floats(-3, -0.2), st.floats(1e-8, 0.9), st.floats(0.1, 5))
def test_equal_layers_give_the_sigmoid(variance, target, share, time):
    model = DiagonalNetwork.balanced([variance], [target], share * abs(target))
    exact, sigmoid = model.predict([time]), model.sigmoid([time])
    # Rounding in an exponent of at most 60.
    np.testing.assert_allclose(exact.strength, sigmoid.strength, rtol=3e-14)
    np.testing.assert_allclose(exact.test_loss, sigmoid.test_loss, rtol=1e-12)
    expected = target / (1 + (1 / share - 1) * np.exp(-2 * abs(target) * variance * time))
    assert float(exact.strength[0, 0]) == pytest.approx(expected, rel=1e-13)


def test_linear_model_relaxes_exponentially():
    model = DiagonalNetwork([1.0, 0.25], [1.0, -2.0], [0.1, 0.1], [0.1, 0.1])
    curves = model.predict([0.0, 1.0, 4.0])
    np.testing.assert_allclose(curves.linear_strength[:, 1], -2 * (1 - np.exp([0.0, -0.25, -1.0])), rtol=1e-14)
    assert float(curves.linear_test_loss[0]) == pytest.approx(0.5 * 1 + 0.5 * 0.25 * 4)


def test_loss_keeps_its_digits_long_after_the_target_is_reached():
    """At late times the error shrinks as exp(-2 E S t); subtracting strength from target would give 1e-16."""
    model = DiagonalNetwork.balanced([1.0], [1.0], 0.01)
    early, late = model.predict([30.0, 60.0]).test_loss.values
    assert late / early == pytest.approx(np.exp(-120), rel=1e-12)


def test_opposed_layers_never_learn_and_nearly_opposed_ones_wait():
    exactly = DiagonalNetwork([1.0], [1.0], [0.5], [-0.5])
    assert float(exactly.predict([1e5]).strength[0, 0]) == 0
    assert np.isinf(emergence(exactly, 0.5)).all()
    assert np.isinf(saturation(exactly, 0.1)).all()
    waits = [emergence(DiagonalNetwork([1.0], [1.0], [0.5], [-0.5 + gap]), 0.5)[0] for gap in (1e-6, 1e-12)]
    # Sums of layers grow as exp(E S t): a million times less to start from costs ln(1e6).
    assert waits[1] - waits[0] == pytest.approx(np.log(1e6), rel=1e-4)


@given(st.lists(modes, min_size=1, max_size=2), st.floats(0.02, 0.48))
def test_emergence_and_saturation_are_crossings_of_the_curve(chosen, fraction):
    chosen = [(variance, target if abs(target) > 0.1 else 1.0, a, b) for variance, target, a, b in chosen]
    model = DiagonalNetwork(*np.array(chosen).T)
    begin, lasting = emergence(model, fraction), saturation(model, fraction)
    for mode, (_, target, a, b) in enumerate(chosen):
        for part, time in ((fraction, begin[mode]), (1 - fraction, begin[mode] + lasting[mode])):
            if np.isinf(time) or a * b / target >= part - 1e-9:
                continue
            reached = float(model.predict([time]).strength[0, mode]) / target
            assert reached == pytest.approx(part, abs=1e-11)


def test_times_of_sigmoids_are_those_of_eq_3_12():
    model = DiagonalNetwork.balanced([1.0, 0.3], [2.0, 2.0], 1e-3)
    eps = 0.07
    log_start = np.log(2.0 / 1e-3 - 1)
    np.testing.assert_allclose(
        emergence(model, eps), (log_start - np.log(1 / eps - 1)) / (2 * model.variances * 2), rtol=1e-13
    )
    np.testing.assert_allclose(saturation(model, eps), np.log(1 / eps - 1) / (model.variances * 2), rtol=1e-13)


@pytest.mark.parametrize(
    ("variances", "targets", "starts"),
    [
        ([1.0, 0.5, 0.2], [1.0, 1.0, 1.0], 1e-4),
        ([0.2, 1.0, 0.5], [1.0, 1.0, 1.0], 1e-4),
        ([1.0, 0.6], [1.0, -3.0], [1e-3, 1e-6]),
    ],
)
def test_stage_overlap_is_where_saturation_fills_the_gap(variances, targets, starts):
    """The root of tau_s(eps) = tau_e_next(eps) - tau_e(eps), found without the closed form."""
    model = DiagonalNetwork.balanced(variances, targets, starts)
    stages = model.stage_overlap()
    for overlap, mode, after in zip(stages.overlap.values, stages.mode.values, stages.next_mode.values, strict=True):

        def excess(log_eps, mode=mode, after=after):
            eps = float(np.exp(log_eps))
            begin = emergence(model, eps)
            # Modes are counted from 1.
            return saturation(model, eps)[mode - 1] - (begin[after - 1] - begin[mode - 1])

        # Above every starting share, where the times of eq. 3.12 are those of the curves.
        low = np.log(1.01 * np.max(np.asarray(starts) / np.abs(targets)))
        root = np.exp(brentq(excess, low, np.log(0.499), xtol=1e-14))
        assert overlap == pytest.approx(root, rel=1e-11)


def test_stage_overlap_of_equal_targets_is_the_corrected_eq_3_13():
    model = DiagonalNetwork.balanced([1.0, 0.5], [1.0, 1.0], 1e-4)
    corrected = 1 / (1 + (1e4 - 1) ** ((1.0 - 0.5) / (1.0 + 0.5)))
    printed = 1 / (1 + (1e4 - 1) * (0.5 - 1.0) / (0.5 + 1.0))
    assert float(model.stage_overlap().overlap[0]) == pytest.approx(corrected, rel=1e-13)
    assert printed < 0


def test_descent_converges_to_the_flow_with_its_learning_rate():
    model = DiagonalNetwork([1.0, 0.5], [1.0, -0.7], [0.3, 0.1], [0.1, 0.2])
    exact = model.predict(TIMES)
    errors = []
    for rate in (0.02, 0.01):
        run = model.simulate(np.round(TIMES / rate), GradientDescent(rate), samples=None, seeds=1)
        np.testing.assert_allclose(run.flow_time, TIMES, rtol=1e-14)
        errors.append(np.abs(run.strength[0].values - exact.strength.values).max())
        assert np.abs(run.linear_strength[0].values - exact.linear_strength.values).max() < rate
    # First order: half the learning rate, half the error, up to the next order.
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)
    assert errors[1] < 0.01


def test_steps_of_different_lengths_follow_the_flow_of_their_sum():
    """A schedule that decays: what counts is the sum of its learning rates, up to the order of the largest one."""
    model = DiagonalNetwork([1.0, 0.5], [1.0, -0.7], [0.3, 0.1], [0.1, 0.2])
    errors = []
    for rate in (0.02, 0.01):
        steps = np.round(np.array([1.0, 3.0, 8.0]) / rate)
        training = GradientDescent(lambda step, rate=rate: rate / (1 + rate * step / 8))
        run = model.simulate(steps, training, samples=None, seeds=1)
        exact = model.predict(run.flow_time.values)
        errors.append(np.abs(run.strength[0].values - exact.strength.values).max())
        # The integral of the schedule, 8 ln(1 + rate s / 8), up to the first step.
        np.testing.assert_allclose(run.flow_time, 8 * np.log1p(rate * steps / 8), atol=rate)
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)


def test_flow_on_the_population_is_the_closed_form():
    model = DiagonalNetwork([1.0, 0.5], [1.0, -0.7], [0.3, 0.1], [0.1, 0.2])
    times = np.array([0.0, 0.5, 2.0, 5.0])
    theory, runs = model.predict(times), model.simulate(times, samples=None, seeds=1)
    for name in ("strength", "first", "second", "linear_strength", "test_loss", "linear_test_loss"):
        difference = np.abs(runs[name][0] - theory[name])
        # The stated error is that of the coarser of two integrations, and the finer one is compared.
        assert (difference <= runs[f"{name}_error"][0] + 1e-15).all(), name
        assert float(runs[f"{name}_error"].max()) < 1e-7


def test_drawn_data_agree_with_theory():
    model = DiagonalNetwork([1.0, 0.5], [1.0, 1.0], [0.2, 0.3], [0.2, -0.1])
    times = np.array([1.0, 2.0, 4.0])
    runs = model.simulate(times, samples=4000, seeds=40, key=3)
    scores = compare(model.predict(times), runs).strength.sel(statistic="z_score").values
    # 6 numbers whose standard error is that of 40 training sets (about 0.0015 where the curve is steepest); beyond 4 by
    # chance once in 2500 such tests, and the key is fixed.
    assert np.abs(scores).max() < 4
    assert float(runs.strength.std("seed").max()) > 1e-3
    assert {"train_loss", "test_loss", "imbalance"} <= set(runs.data_vars)


def test_spread_over_training_sets_falls_with_their_size():
    """The spread over training sets falls as one over the square root of their size."""
    model = DiagonalNetwork.balanced([1.0, 0.5], [1.0, 1.0], 0.01)
    spreads = [
        float(model.simulate([3.0], samples=samples, seeds=40).strength.std("seed")[0, 0]) for samples in (100, 1600)
    ]
    # Each spread is known to 11 %, their ratio of 4 to 16 %.
    assert spreads[0] / spreads[1] == pytest.approx(4, rel=0.45)


def test_curves_differentiate_and_map_over_parameters():
    @jax.jit
    def loss(first):
        model = DiagonalNetwork(jnp.array([1.0, 0.5]), jnp.ones(2), first, jnp.array([0.1, 0.2]))
        return model.predict([0.5, 2.0]).test_loss.data.sum()

    point, step = jnp.array([0.3, -0.1]), 1e-5
    slopes = [(loss(point + step * unit) - loss(point - step * unit)) / (2 * step) for unit in np.eye(2)]
    np.testing.assert_allclose(jax.grad(loss)(point), slopes, rtol=1e-8)
    np.testing.assert_allclose(jax.vmap(loss)(jnp.stack([point, 2 * point]))[1], loss(2 * point), rtol=1e-14)

    def wait(target):
        model = DiagonalNetwork(jnp.ones(1), target, jnp.full(1, 0.1), jnp.full(1, 0.1))
        return model.emergence_time(0.5).emergence_time.data

    np.testing.assert_allclose(jax.vmap(wait)(jnp.array([[1.0], [2.0]]))[1], wait(jnp.array([2.0])), rtol=1e-14)


def test_every_variable_says_what_it_is():
    model = DiagonalNetwork.balanced([1.0, 0.5], [1.0, 1.0], 0.01)
    runs = model.simulate([0.0, 1.0], seeds=2)
    for dataset in (model.predict([0.0, 1.0]), runs, model.stage_overlap(), model.emergence_time()):
        for name in dataset.variables:
            assert {"long_name", "units"} <= set(dataset[name].attrs), name
    assert runs.strength.dims == ("seed", "time", "mode")
    assert runs.mode.values.tolist() == [1, 2]
    assert model.stage_overlap().stage.values.tolist() == [1]
    assert "half of the mean square" in runs.attrs["loss"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], [], []), "variances must be a list of positive"),
        (([1.0], [1.0, 2.0], [0.1], [0.1]), "equally long.*target_scales has 2"),
        (([0.0], [1.0], [0.1], [0.1]), r"variances\[0\] = 0"),
        (([1.0], [np.nan], [0.1], [0.1]), r"target_scales\[0\] = nan"),
        (([1.0], [1.0], [1e-90], [0.1]), "initial_first must be zero or between"),
        ((1.0, [1.0], [0.1], [0.1]), "variances must be a list"),
    ],
)
def test_impossible_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        DiagonalNetwork(*arguments)


@pytest.mark.parametrize("strength", [0.0, 1.0, 2.0, -0.1])
def test_sigmoid_needs_a_start_between_zero_and_target(strength):
    with pytest.raises(ValueError, match="strictly between 0 and the target"):
        DiagonalNetwork.balanced([1.0], [1.0], strength)
    model = DiagonalNetwork([1.0, 1.0], [1.0, 1.0], [0.1, 1.0], [0.1, strength])
    for call in (lambda: model.sigmoid([1.0]), model.stage_overlap):
        with pytest.raises(ValueError, match="at mode 2"):
            call()


def test_other_mistakes_are_named():
    model = DiagonalNetwork.balanced([1.0, 0.5], [1.0, 1.0], 0.01)
    for fraction in (0.0, 1.0, -1, np.nan):
        with pytest.raises(ValueError, match="fraction must lie between 0 and 1"):
            model.emergence_time(fraction)
    with pytest.raises(ValueError, match=r"fraction must lie between 0 and 0\.5"):
        model.saturation_time(0.5)
    with pytest.raises(ValueError, match=r"target_scales\[0\] is 0"):
        DiagonalNetwork([1.0], [0.0], [0.1], [0.1]).emergence_time(0.5)
    with pytest.raises(ValueError, match="at least 2 modes"):
        DiagonalNetwork.balanced([1.0], [1.0], 0.1).stage_overlap()
    with pytest.raises(ValueError, match="equal size"):
        model.replace(initial_first=model.initial_first * 2).stage_overlap()
    with pytest.raises(ValueError, match="unstable"):
        model.simulate([1.0], GradientDescent(1.5))
    with pytest.raises(ValueError, match="does not cover weight_decay=0.1; it covers GradientFlow.*simulate covers it"):
        model.predict([1.0], GradientFlow(weight_decay=0.1))
    with pytest.raises(ValueError, match="samples must be a whole number"):
        model.simulate([1.0], samples=0)
    with pytest.raises(ValueError, match="times is empty"):
        model.predict([])
