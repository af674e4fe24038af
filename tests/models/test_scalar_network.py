"""The scalar network: theorem 1 against its equations, bounds, lazy and rich limits, drawn data, bad input."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from solvable import SGD, GradientDescent, GradientFlow
from solvable.comparison import compare
from solvable.models.scalar_network import WAYS, ScalarNetwork

TIMES = np.array([0.0, 0.2, 0.7, 2.0, 6.0])


def distance(model):
    return float(model.distance_from_linear().distance_from_linear)


def kernel_ratio(model):
    return float(model.kernel_ratio().kernel_ratio)


@st.composite
def networks(draw, positive=False):
    width = draw(st.sampled_from([1, 4]))
    scale = 10 ** draw(st.floats(-3, 0.3))
    layers = np.random.default_rng(draw(st.integers(0, 10**6))).normal(size=(2, width)) * scale
    if draw(st.booleans()):
        layers[1] = draw(st.sampled_from([1.0, -1.0])) * layers[0]
    target = draw(st.floats(0.1, 3))
    sign = 1 if positive else draw(st.sampled_from([1, -1, 0]))
    return ScalarNetwork(*layers, sign * target, draw(st.floats(0.3, 3)), draw(st.floats(0.3, 2)))


def integrate(model, times):
    width = model.initial_first.size

    def rates(_, layers):
        first, second = layers[:width], layers[width:]
        pull = model.input_power / model.output_scale * (model.target - first @ second / model.output_scale)
        return np.concatenate([second * pull, first * pull])

    start = np.concatenate([model.initial_first, model.initial_second])
    solution = solve_ivp(rates, (0, times[-1]), start, "DOP853", times, rtol=1e-12, atol=1e-14)
    return solution.y[:width].T, solution.y[width:].T


@given(networks())
def test_theorem_1_solves_the_flow(model):
    curves = model.predict(TIMES)
    first, second = integrate(model, TIMES)
    output = (first * second).sum(1) / model.output_scale
    np.testing.assert_allclose(curves.first, first, atol=1e-9)
    np.testing.assert_allclose(curves.second, second, atol=1e-9)
    np.testing.assert_allclose(curves.output, output, atol=1e-9)
    np.testing.assert_allclose(curves.test_loss, model.input_power * (model.target - output) ** 2 / 2, atol=1e-9)


@given(networks())
def test_each_unit_conserves_the_difference_of_its_squares(model):
    curves = model.predict([0.0, 1.0, 10.0, 100.0])
    difference = curves.first**2 - curves.second**2
    np.testing.assert_allclose(difference, np.broadcast_to(difference[0], difference.shape), atol=1e-10)


@pytest.mark.parametrize("printed", [True, False])
def test_exponent_of_theorem_1_is_the_corrected_one(printed):
    """With Z and E[x^2] other than 1 the printed exponent -4 K t / Z misses the flow, the corrected one does not."""
    model = ScalarNetwork([0.4, -0.2], [0.1, 0.3], 1.3, output_scale=1.7, input_power=0.6)
    sigma, start = model.weight_size, model.initial_output
    speed = np.sqrt(sigma**2 - start**2 + model.target**2)
    decay = np.exp(-(4 if printed else 2 * model.input_power) * speed * TIMES / model.output_scale)
    growth = (sigma - start + model.target + speed + (-sigma + start - model.target + speed) * decay) / (
        sigma + start - model.target + speed + (-sigma - start + model.target + speed) * decay
    )
    first, _ = integrate(model, TIMES)
    together, apart = (model.initial_first + model.initial_second) / 2, (model.initial_first - model.initial_second) / 2
    by_theorem = together * np.sqrt(growth)[:, None] + apart / np.sqrt(growth)[:, None]
    error = np.abs(by_theorem - first).max()
    assert error > 0.1 if printed else error < 1e-11


def test_growth_has_all_digits_from_tiny_and_opposed_layers():
    for first, second in (([1e-6, 3e-6], [-1e-6, -3e-6 * (1 - 1e-10)]), ([1e-6], [1.2e-6])):
        model = ScalarNetwork(first, second, 0.9, 1.1, 1.3)
        with mpmath.workdps(100):
            pairs = [(mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(first, second, strict=True)]
            scale, power, target = mpmath.mpf(1.1), mpmath.mpf(1.3), mpmath.mpf(0.9)
            sigma = sum(a * a + b * b for a, b in pairs) / 2 / scale
            start = sum(a * b for a, b in pairs) / scale
            speed = mpmath.sqrt(sigma**2 - start**2 + target**2)
            decay = mpmath.exp(-2 * speed * power * 9 / scale)
            growth = (sigma - start + target + speed + (-sigma + start - target + speed) * decay) / (
                sigma + start - target + speed + (-sigma - start + target + speed) * decay
            )
            final = (target + speed) / (sigma + start)
        assert abs(float(model.predict([9.0]).growth[0]) / growth - 1) < 1e-14
        assert abs(model.final_growth / final - 1) < 1e-14


@given(networks(positive=True))
def test_growth_is_monotone_and_ends_at_final_growth(model):
    growth = model.predict(np.linspace(0, 20, 40)).growth.values
    direction = np.sign(model.target - model.initial_output)
    assert growth[0] == 1
    assert (direction * np.diff(growth) >= -1e-12 * growth[1:]).all()
    aligned = ((model.initial_first + model.initial_second) ** 2).sum()
    if aligned > 0:
        # The slowest of these needs 2 K E[x^2] t / Z > 60.
        assert float(model.predict([1e4]).growth[0]) == pytest.approx(model.final_growth, rel=1e-12)
        assert model.final_growth >= model.target / model.weight_size * (1 - 1e-14)


def test_unit_layers_split_into_aligned_and_opposed_modes():
    """Section 6.2: with layers of +-1 the squared weights of the two kinds grow by gamma and by its inverse."""
    model = ScalarNetwork([1.0, 1.0, -1.0, 1.0], [1.0, -1.0, -1.0, -1.0], 2.0)
    curves = model.predict(TIMES)
    np.testing.assert_allclose(curves.first[:, 0] ** 2, curves.growth, rtol=1e-14)
    np.testing.assert_allclose(curves.first[:, 1] ** 2, 1 / curves.growth, rtol=1e-14)
    products = curves.first * curves.second
    difference = products[:, [0, 2]].sum("neuron") - products[:, [1, 3]].sum("neuron")
    # Eqs. 6.8 and 6.9, and what they rest on: Delta^2 - theta^2 is conserved.
    np.testing.assert_allclose(difference**2 - curves.output**2, 16.0, rtol=1e-13)
    np.testing.assert_allclose((curves.output + difference) / 4.0, curves.growth, rtol=1e-13)


@given(networks(positive=True), st.sampled_from(WAYS), st.floats(1.1, 50))
def test_four_ways_raise_the_final_growth(model, way, factor):
    if np.isfinite(model.final_growth):
        assert model.richer(way, factor).final_growth > model.final_growth


def test_target_and_output_scaling_are_the_same_for_the_final_growth():
    model = ScalarNetwork.ntk(8)
    finals = {way: model.richer(way, 3.0).final_growth for way in WAYS}
    assert finals["target"] == pytest.approx(finals["output"], rel=1e-14)
    assert finals["target"] == pytest.approx(finals["input"], rel=1e-14)
    assert finals["weights"] == pytest.approx(model.richer("output", 9.0).final_growth, rel=1e-14)


def test_distance_from_linear_is_the_largest_gap_between_the_curves():
    for model in (
        ScalarNetwork.small(5, scale=0.3),
        ScalarNetwork.ntk(10),
        ScalarNetwork([0.5, 0.2], [-0.4, 0.1], 2.0),
    ):
        times = np.geomspace(1e-3, 1e3, 20_000)
        curves = model.predict(times)
        gap = np.abs(curves.output - curves.linear_output).max() / abs(model.target - model.initial_output)
        # The grid misses the top by at most its spacing squared.
        assert distance(model) == pytest.approx(float(gap), rel=1e-6)


def test_linear_output_is_the_tangent_of_the_network():
    """Linearised by automatic differentiation at the start, and its flow solved as a linear equation."""
    model = ScalarNetwork([0.7, -0.2], [0.3, 0.5], 1.4, 1.5, 0.8)
    start = jnp.concatenate([model.initial_first, model.initial_second])

    def output(layers):
        return layers[:2] @ layers[2:] / model.output_scale

    gradient = jax.grad(output)(start)
    rate = model.input_power * gradient @ gradient
    expected = model.target + (output(start) - model.target) * np.exp(-rate * TIMES)
    curves = model.predict(TIMES)
    np.testing.assert_allclose(curves.linear_output, expected, rtol=1e-13)
    assert float(curves.kernel[0]) == pytest.approx(float(rate), rel=1e-14)
    assert float(model.predict([1e3]).kernel[0]) / float(rate) == pytest.approx(kernel_ratio(model), rel=1e-12)


def test_small_starts_are_rich_and_the_others_lazy_in_their_limits():
    assert distance(ScalarNetwork.small(10, scale=1e-4)) > 0.99
    assert distance(ScalarNetwork.output_downscaled(10, factor=1e6)) > 0.99
    # From a zero function the kernel changes by (S / Sigma_0)^2 / 2: ten times less target, a hundred times lazier.
    lazy = [distance(ScalarNetwork.target_downscaled(10, factor=factor)) for factor in (30.0, 300.0)]
    assert lazy[0] / lazy[1] == pytest.approx(100, rel=0.01)
    assert ScalarNetwork.target_downscaled(10).initial_output == pytest.approx(0, abs=1e-15)
    # Width p: Sigma_0 = sqrt(p), the output at the start is of order one (not vanishing), the kernel moves by 1 / p.
    wide = ScalarNetwork.ntk(40_000)
    assert wide.weight_size == pytest.approx(200, rel=0.02)
    assert distance(wide) < 1e-4
    assert wide.final_growth == pytest.approx(1, abs=0.02)


def test_output_at_the_ntk_start_does_not_vanish_with_width():
    """Var[S_0] = 1 at every width; of 400 draws it is known to 7 %, so that 4 errors are 28 %."""
    starts = [ScalarNetwork.ntk(500, key=key).initial_output for key in range(400)]
    assert np.var(starts) == pytest.approx(1, abs=0.28)


def test_descent_converges_to_the_flow_with_its_learning_rate():
    """At equal flow times the distance is of first order: half the learning rate, half the distance."""
    model = ScalarNetwork([0.4, -0.2], [0.1, 0.3], 1.3, output_scale=1.7, input_power=0.6)
    exact, errors = model.predict(TIMES), []
    for rate in (0.05, 0.025):
        run = model.simulate(np.round(TIMES / rate), GradientDescent(rate), samples=None, seeds=1)
        np.testing.assert_allclose(run.flow_time, TIMES, rtol=1e-14)
        errors.append(np.abs(run.output[0].values - exact.output.values).max())
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)


def test_small_steps_with_momentum_follow_a_faster_flow():
    """Heavy-ball momentum mu is a flow that is 1 / (1 - mu) times as fast, up to the order of the learning rate."""
    model = ScalarNetwork([0.4, -0.2], [0.1, 0.3], 1.3, output_scale=1.7, input_power=0.6)
    exact, errors = model.predict(TIMES), []
    for rate in (0.01, 0.005):
        training = GradientDescent(rate / 2, momentum=0.5)
        run = model.simulate(np.round(TIMES / rate), training, samples=None, seeds=1)
        errors.append(np.abs(run.output[0].values - exact.output.values).max())
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)


def test_flow_on_the_population_is_the_closed_form():
    model = ScalarNetwork([0.4, -0.2], [0.1, 0.3], 1.3, output_scale=1.7, input_power=0.6)
    times = np.array([0.0, 0.5, 2.0, 5.0])
    theory, runs = model.predict(times), model.simulate(times, samples=None, seeds=1)
    for name in ("output", "first", "second", "kernel", "test_loss"):
        difference = np.abs(runs[name][0] - theory[name])
        # The stated error is that of the coarser of two integrations, and the finer one is compared.
        assert (difference <= runs[f"{name}_error"][0] + 1e-15).all(), name
        assert float(runs[f"{name}_error"].max()) < 1e-7


def test_learning_rate_of_the_flow_is_the_unit_of_time():
    model = ScalarNetwork([0.4, -0.2], [0.1, 0.3], 1.3)
    slow, fast = model.predict(TIMES), model.predict(TIMES / 4, GradientFlow(learning_rate=4.0))
    np.testing.assert_allclose(fast.output, slow.output, rtol=1e-14)
    np.testing.assert_allclose(fast.flow_time, TIMES, rtol=1e-15)
    runs = model.simulate(TIMES / 4, GradientFlow(learning_rate=4.0), samples=None, seeds=1)
    np.testing.assert_allclose(runs.output[0], slow.output, atol=1e-7)


def test_weight_decay_ends_where_its_penalty_balances_the_loss():
    """One pair of equal weights: E (S - a^2) = weight_decay at the end, or a = 0 if the decay is stronger than E S."""
    model = ScalarNetwork([0.3], [0.3], 1.5, input_power=0.8)
    for decay, expected in ((0.4, 1.5 - 0.4 / 0.8), (2.0, 0.0)):
        training = GradientFlow(weight_decay=decay)
        end = model.simulate([60.0], training, samples=None, seeds=1).output
        assert float(end[0, 0]) == pytest.approx(expected, abs=1e-8)
    with pytest.raises(ValueError, match=r"does not cover weight_decay=2\.0; it covers GradientFlow.*simulate covers"):
        model.predict([1.0], training)


def test_drawn_data_agree_with_theory():
    model = ScalarNetwork.small(4, scale=0.5)
    times = np.array([0.5, 1.0, 2.0])
    runs = model.simulate(times, samples=4000, seeds=40, key=1)
    scores = compare(model.predict(times), runs).output.sel(statistic="z_score").values
    # Three strongly correlated numbers: beyond 4 standard errors less than once in 5000 keys.
    assert np.abs(scores).max() < 4
    assert float(runs.output.std("seed").max()) > 1e-3


def test_curves_differentiate_and_map_over_parameters():
    def measures(values):
        model = ScalarNetwork(values[:2], values[2:4], values[4], values[5], values[6])
        output = model.predict([1.0]).output.data[0]
        distance = model.distance_from_linear().distance_from_linear.data
        found = jnp.stack([output, model.final_growth, distance, model.kernel_ratio().kernel_ratio.data])
        return found, found

    point, step = jnp.array([0.4, -0.2, 0.1, 0.3, 1.3, 1.7, 0.6]), 1e-5
    shifts = step * np.eye(7)
    # One compilation for the values, their slopes and the map.
    slopes, values = jax.jit(jax.vmap(jax.jacrev(measures, has_aux=True)))(point + np.concatenate([shifts, -shifts]))
    differences = (values[:7] - values[7:]) / (2 * step)
    # Slopes beside the point, whose mean over both sides is that at it up to the step squared.
    np.testing.assert_allclose(slopes.mean(0), differences.T, atol=1e-7)


def test_layers_that_are_zero_stay_and_opposed_layers_die():
    still = ScalarNetwork([0.0], [0.0], 1.0)
    assert float(still.predict([1e4]).output[0]) == 0
    assert distance(still) == 0
    with pytest.raises(ValueError, match="kernel of layers that are all zero"):
        still.kernel_ratio()
    dying = ScalarNetwork([1.0], [-1.0], 1.0)
    curves = dying.predict([0.0, 1.0, 1e4])
    assert dying.final_growth == np.inf
    assert np.isfinite(curves.output).all()
    assert float(curves.test_loss[-1]) == pytest.approx(0.5, rel=1e-14)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], 1.0), "initial_first must be a list"),
        (([1.0, 2.0], [1.0], 1.0), "equally long.*initial_first has 2, initial_second has 1"),
        (([1.0], [1.0], np.inf), "target must be a finite number"),
        (([1.0], [1.0], 1.0, 0.0), "output_scale must be a positive"),
        (([1.0], [1.0], 1.0, 1.0, -1.0), "input_power must be a positive"),
        (([1e80], [1.0], 1.0), "initial_first must be zero or between"),
    ],
)
def test_impossible_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ScalarNetwork(*arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ScalarNetwork.small(0), "width must be a whole number"),
        (lambda: ScalarNetwork.small(3, scale=2.0), "scale must lie between 0 and 1"),
        (lambda: ScalarNetwork.target_downscaled(3), "width must be even"),
        (lambda: ScalarNetwork.output_downscaled(3, factor=0.5), "factor must be a finite number, 1 or more"),
        (lambda: ScalarNetwork.ntk(3).richer("magic", 2.0), "way must be one of"),
        (lambda: ScalarNetwork.ntk(3, target=0.0).richer("target", 2.0), "positive target"),
        (lambda: ScalarNetwork.ntk(3).simulate([1.0], GradientDescent(10.0)), "unstable"),
        (lambda: ScalarNetwork.ntk(3).simulate([0.5], GradientDescent(0.1)), r"times\[0\] = 0.5: round them"),
        (lambda: ScalarNetwork.ntk(3).predict([1.0], SGD(0.1, batch_size=2)), "does not cover SGD"),
        (lambda: ScalarNetwork.ntk(3).simulate([1.0], samples=0), "samples must be a whole number"),
        (lambda: ScalarNetwork.ntk(3).simulate([1.0], seeds=0), "seeds must be a whole number"),
    ],
)
def test_other_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
