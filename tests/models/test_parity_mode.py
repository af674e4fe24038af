"""The parity network: its gradients by automatic differentiation, its flow by another integrator, the net itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from solvable import GradientDescent, GradientFlow
from solvable.comparison import compare
from solvable.models.parity_mode import BITS, CLOCKS, PARITY, ParityMode, network
from solvable.models.parity_mode_flow import velocity

weights = st.floats(0.05, 2.5)
# Always six times: one compiled integration serves most tests.
TIMES = np.array([0.0, 1.0, 2.5, 4.0, 6.0, 12.0])


def outputs(alpha, beta, gamma, offset):
    """The network written out with the matrices of eq. C.9, in NumPy."""
    hidden = np.array([[-alpha, alpha, -alpha], [-beta, beta, -beta], [gamma, -gamma, gamma]])
    activity = np.maximum(hidden @ BITS.T + np.array([0, beta, -gamma])[:, None], 0)
    return np.array([-2 * alpha, beta, gamma]) @ activity + offset


def sum_of_halves(values, target):
    shared = network(values, jnp.asarray(BITS)).sum(-1) + values[3]
    return ((shared - target * PARITY) ** 2).sum() / 2


# One compiled program for all tests and examples.
gradient_of_halves = jax.jit(jax.grad(sum_of_halves))


def test_inputs_and_targets_are_those_of_the_task():
    assert BITS[6].tolist() == [1, 1, 0]
    assert PARITY.tolist() == [1, -1, -1, 1, -1, 1, 1, -1]


@given(weights, weights, weights, st.floats(-2, 2))
def test_network_is_the_one_with_shared_weights(alpha, beta, gamma, offset):
    modes = network(jnp.array([alpha, beta, gamma, offset]), jnp.asarray(BITS))
    np.testing.assert_allclose(modes.sum(-1) + offset, outputs(alpha, beta, gamma, offset), atol=1e-13)


@given(weights, weights, weights, st.floats(-3, 3), st.floats(0.2, 3))
def test_corrected_equations_are_the_gradients_of_the_network(alpha, beta, gamma, offset, target):
    """Rates of ln w^2 are -2 grad / w; and the printed right-hand sides, up to any factor, are not."""
    values = jnp.array([alpha, beta, gamma, offset])
    gradient = np.asarray(gradient_of_halves(values, target))
    rates = np.array([*(-2 * gradient[:3] / values[:3]), -gradient[3]])
    np.testing.assert_allclose(velocity(values[:3] ** 2, values[3], target), rates, atol=1e-11)


def test_printed_equations_run_away():
    """Eqs. C.15 to C.18 as printed: small weights shrink instead of growing, and the offset explodes."""
    a, b, g, c, s = 1e-4, 1e-4, 1e-4, 1e-3, 1.0
    printed = [2 * a * (-s - (-2 * a + 2 * b + c)), -b * (s - (-2 * a + 5 * b + 5 * c)), -g * (s - (g + c))]
    assert max(printed) < 0
    assert min(velocity(jnp.array([a, b, g]), jnp.asarray(c), s)[:3]) > 0
    assert -(2 * a - 5 * b - g - 8 * c) > 0 > velocity(jnp.array([a, b, g]), jnp.asarray(c), s)[3]


@settings(max_examples=6)
@given(st.floats(0.01, 0.5), st.floats(0.01, 0.5), st.floats(0.01, 0.5), st.floats(-0.5, 0.5), st.floats(0.5, 5))
def test_flow_agrees_with_another_integrator(alpha, beta, gamma, offset, target):
    """DOP853 on the weights themselves, with gradients of the network by automatic differentiation."""

    def rates(_, values):
        return -np.asarray(gradient_of_halves(values, target)) / 8

    solution = solve_ivp(rates, (0, TIMES[-1]), [alpha, beta, gamma, offset], "DOP853", TIMES, rtol=1e-12, atol=1e-13)
    curves = ParityMode(target, alpha, beta, gamma, offset).predict(TIMES)
    np.testing.assert_allclose(curves.weight, solution.y[:3].T, atol=1e-9)
    np.testing.assert_allclose(curves.offset, solution.y[3], atol=1e-9)
    direct = np.array([PARITY @ outputs(*values) for values in solution.y.T]) / (8 * target)
    np.testing.assert_allclose(curves.total_strength, direct, atol=1e-9)
    loss = [np.mean((outputs(*values) - target * PARITY) ** 2) / 2 for values in solution.y.T]
    np.testing.assert_allclose(curves.test_loss, loss, atol=1e-9)


def test_modes_end_as_the_exact_solution():
    end = ParityMode(target_scale=1.5).predict([*TIMES[:5], 400.0]).isel(time=[-1])
    np.testing.assert_allclose(end.strength[0], [0.5, 0.25, 0.25], rtol=1e-9)
    np.testing.assert_allclose(end.weight[0], np.sqrt(3.0), rtol=1e-9)
    assert float(end.offset[0]) == pytest.approx(-1.5, rel=1e-9)
    np.testing.assert_allclose(outputs(*[np.sqrt(3.0)] * 3, -1.5), 1.5 * PARITY, atol=1e-14)


@pytest.mark.slow
def test_modes_emerge_one_after_the_other():
    """S = 5 from 0.01. Crossings of the flow as another integrator gives it, by its event location."""
    model = ParityMode(target_scale=5.0)
    times = model.emergence_time(0.5).emergence_time.values
    # Strengths are alpha^2 / 4S, beta^2 / 8S, gamma^2 / 8S and end at squares of 2S: half of it is S.
    crossings = [lambda _, values, mode=mode: values[mode] ** 2 - 5.0 for mode in range(3)]
    solution = solve_ivp(
        lambda _, values: -np.asarray(gradient_of_halves(values, 5.0)) / 8,
        (0, 8.0),
        [0.01, 0.01, 0.01, 0.0],
        "DOP853",
        events=crossings,
        rtol=1e-11,
        atol=1e-13,
    )
    np.testing.assert_allclose(times, [found[0] for found in solution.t_events], rtol=1e-8)
    reached = model.predict([*times, 6.0, 7.0, 8.0]).strength.values.diagonal()
    np.testing.assert_allclose(reached, [0.25, 0.125, 0.125], rtol=1e-8)
    # The third takes 1.6 times the first, not twice.
    assert times[2] / times[0] == pytest.approx(1.56, abs=0.01)
    # The offset does not saturate first, let alone to +S.
    curve = model.predict(np.linspace(0.5, 3, 6)).offset
    assert float(abs(curve).max()) < 0.05 * 5


def test_any_fraction_of_a_mode_is_found_on_its_curve():
    model = ParityMode(target_scale=2.0, initial_first=0.3, initial_second=0.3, initial_third=0.3)
    for fraction in (0.1, 0.9):
        times = model.emergence_time(fraction).emergence_time.values
        assert (np.diff(times) > 0).all()
        reached = model.predict([*times, *(times[-1] + TIMES[1:4])]).strength.values[:3].diagonal()
        np.testing.assert_allclose(reached, fraction * np.array([0.5, 0.25, 0.25]), rtol=1e-7)
    # All three start at 0.3^2 / (2 S) = 0.0225 of their end.
    np.testing.assert_array_equal(model.emergence_time(0.02).emergence_time, 0.0)


def test_loss_normalisations_are_clocks():
    reference = ParityMode().predict(TIMES)
    for loss, clock in CLOCKS.items():
        other = ParityMode(loss=loss).predict(TIMES / clock)
        np.testing.assert_allclose(other.strength, reference.strength, atol=1e-9)
        np.testing.assert_allclose(other.test_loss, reference.test_loss, atol=1e-9)


def test_numerical_error_covers_the_difference_to_a_tighter_run():
    model = ParityMode(target_scale=5.0)
    loose, tight = model.predict(TIMES, tolerance=1e-6), model.predict(TIMES, tolerance=1e-13)
    error = float(abs(loose.strength - tight.strength).max())
    assert 0 < error <= loose.attrs["numerical_error"] < 1e-3
    assert model.predict(TIMES).attrs["numerical_error"] < 1e-8


LARGER = {"target_scale": 2.0, "initial_first": 0.2, "initial_second": 0.3, "initial_third": 0.25}


def test_descent_on_the_network_converges_to_the_flow():
    model = ParityMode(**LARGER)
    exact = model.predict(TIMES)
    errors = []
    for rate in (0.01, 0.005):
        run = model.simulate(np.round(TIMES / rate), GradientDescent(rate), seeds=1)
        np.testing.assert_allclose(run.flow_time, TIMES, rtol=1e-14)
        errors.append(np.abs(run.strength[0].values - exact.strength.values).max())
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)
    assert np.abs(run.test_loss[0].values - exact.test_loss.values).max() < 0.02


@pytest.mark.parametrize("loss", ["mean", "half_sum"])
def test_training_the_network_keeps_the_clock_of_its_loss(loss):
    model = ParityMode(initial_first=0.3, initial_second=0.3, initial_third=0.3, loss=loss)
    times = TIMES / CLOCKS[loss]
    exact = model.predict(times)
    flow = model.simulate(times, seeds=1)
    np.testing.assert_allclose(flow.strength[0], exact.strength, atol=1e-7)
    run = model.simulate(np.round(TIMES / 0.005), GradientDescent(0.005 / CLOCKS[loss]), seeds=1)
    np.testing.assert_allclose(run.strength[0], exact.strength, atol=5e-3)


def test_learning_rate_of_the_flow_is_the_unit_of_time():
    model = ParityMode(**LARGER)
    fast = model.predict(TIMES / 4, GradientFlow(learning_rate=4.0))
    np.testing.assert_allclose(fast.strength, model.predict(TIMES).strength, rtol=1e-12)
    np.testing.assert_allclose(fast.flow_time, TIMES, rtol=1e-15)


def test_drawn_inputs_agree_with_theory():
    model = ParityMode(target_scale=2.0, initial_first=0.3, initial_second=0.3, initial_third=0.3)
    times = np.array([0.5, 1.0, 1.5, 2.0, 3.0, 4.0])
    runs = model.simulate(times, samples=20_000, seeds=40, key=2)
    scores = compare(model.predict(times), runs).strength.sel(statistic="z_score").values
    # 18 correlated numbers, each with the error of 40 training sets: beyond 4.5 once in 8000 keys.
    assert np.abs(scores).max() < 4.5
    assert float(runs.strength.std("seed").max()) > 1e-3
    assert runs.mode.values.tolist() == [1, 2, 3]


@pytest.mark.slow
def test_curves_differentiate_and_map_over_parameters():
    def strength(target):
        return ParityMode(target_scale=target, initial_first=0.1).predict([3.0]).total_strength.data[0]

    # One compilation for the values, their slopes and the map.
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(strength)))(jnp.array([1.0 - 1e-4, 1.0, 1.0 + 1e-4]))
    assert float(slopes[1]) == pytest.approx(float(values[2] - values[0]) / 2e-4, rel=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target_scale": 0.0}, "target_scale must be a positive"),
        ({"initial_first": -0.1}, "initial_first must be a positive"),
        ({"initial_offset": np.nan}, "initial_offset must be a finite"),
        ({"loss": "hinge"}, "loss must be one of half_mean, mean, half_sum"),
    ],
)
def test_impossible_parameters_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        ParityMode(**fields)


def test_other_mistakes_are_named():
    model = ParityMode()
    with pytest.raises(ValueError, match="raise max_steps"):
        model.predict([1e3], max_steps=20)
    with pytest.raises(ValueError, match="tolerance must lie"):
        model.predict([1.0], tolerance=0.0)
    with pytest.raises(ValueError, match="unstable"):
        model.simulate([1.0], GradientDescent(0.5))
    with pytest.raises(ValueError, match=r"times\[0\] = 0.5: round them"):
        model.simulate([0.5], GradientDescent(0.01))
    with pytest.raises(ValueError, match="does not cover GradientDescent; it covers GradientFlow. simulate covers it"):
        model.predict([1.0], GradientDescent(0.01))
    with pytest.raises(ValueError, match="fraction must lie between 0 and 1"):
        model.emergence_time(1.0)
    with pytest.raises(ValueError, match="samples must be"):
        model.simulate([1.0], samples=0)


def test_late_times_are_reached_and_end_at_the_minimum() -> None:
    # An explicit integrator alone needs 1e8 steps; the flow is linear near its end, and is continued in closed form.
    late = ParityMode().predict([1e3, 1e8])
    np.testing.assert_allclose(late.strength.values, [[0.5, 0.25, 0.25]] * 2, rtol=0, atol=1e-14)
    np.testing.assert_allclose(late.offset.values, -1, rtol=0, atol=1e-14)
    assert (late.test_loss.values < 1e-28).all()


def test_the_end_is_approached_at_the_slowest_rate_of_the_linearised_flow() -> None:
    # The flow at alpha^2 = beta^2 = gamma^2 = 2 S, c = -S with S = 1, in logarithms of the squares and in c, by hand.
    flow = np.array([[-32.0, 32, 0, 8], [32, -56, 0, -20], [0, 0, -8, -4], [4, -10, -2, -8]]) / 8
    slowest = -np.linalg.eigvals(flow).real.max()
    # From before the switch to long after it: a jump there would show in the slope.
    times = np.linspace(50, 90, 21)
    slopes = -np.diff(np.log(ParityMode().predict(times).test_loss.values)) / np.diff(times)
    np.testing.assert_allclose(slopes, 2 * slowest, rtol=2e-4)
