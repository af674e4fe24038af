"""The linear estimator's losses by independent routes: closed forms, 30 digits, adaptive quadrature, identities."""

import json

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erf, gammainc

from solvable import SGD, GradientDescent, GradientFlow, LinearEstimator
from solvable.papers.linear_grokking._shared import (
    bessel_train_loss,
    marcum_test_loss,
    quadrature_losses,
    resolvent_square,
)
from solvable.timegrid import whole_steps

FLOW = GradientFlow(learning_rate=0.01)


def thirty_digit_losses(model: LinearEstimator, training: GradientFlow, time: float) -> tuple[float, float]:
    """Losses of gradient flow in 30-digit arithmetic, by quadrature in the angle."""
    with mpmath.workdps(30):
        ratio, shift = mpmath.mpf(model.aspect_ratio), mpmath.mpf(training.weight_decay) / 2
        root = mpmath.sqrt(ratio)
        kappa = 2 * mpmath.mpf(training.learning_rate) / model.outputs
        scale, noise = mpmath.mpf(model.initial_scale) ** 2, mpmath.mpf(model.label_noise) ** 2

        def parts(angle):
            sine = mpmath.sin(angle) ** 2
            nu = (1 - root) ** 2 + 4 * root * sine
            # density d nu = (8/pi) sin^2 cos^2 2 d angle / nu
            weight = 16 / mpmath.pi * sine * (1 - sine) / nu
            left = mpmath.exp(-kappa * (nu + shift) * time)
            teacher = (left * nu + shift) / (nu + shift)
            return weight, nu, (scale * left**2 + teacher**2) / 2, teacher**2, ((1 - left) / (nu + shift)) ** 2

        # Break where the exponential lives, so that the rule sees it at late times.
        width = 1 / mpmath.sqrt(1 + kappa * time)
        inner = [width * mpmath.mpf(2) ** power for power in range(-4, 12)]
        points = [mpmath.mpf(0), *(point for point in inner if point < 1.5), mpmath.pi / 2]

        # mpmath judges convergence by absolute error: integrals that decay are blown up to order one.
        decayed = mpmath.exp(-2 * kappa * (1 - root) ** 2 * time) if shift == 0 else mpmath.mpf(1)

        def integrate(function, size=decayed):
            return size * mpmath.quad(lambda angle: function(*parts(angle)) / size, points, maxdegree=6)

        null = max(mpmath.mpf(0), 1 - 1 / ratio) * (scale * mpmath.exp(-2 * kappa * shift * time) + 1) / 2
        test = (integrate(lambda w, nu, sig, t, f: w * sig) + null) / model.outputs
        train = integrate(lambda w, nu, sig, t, f: w * nu * sig) / model.outputs
        if noise:
            test += noise * ratio * integrate(lambda w, nu, sig, t, f: w * nu * f, mpmath.mpf(1))
            bulk = integrate(lambda w, nu, sig, t, f: w * t)
            train += noise * (max(mpmath.mpf(0), 1 - ratio) + ratio * bulk)
        return float(train), float(test)


@pytest.mark.parametrize(
    ("settings", "decay", "time"),
    [
        ({"aspect_ratio": 0.01}, 0.0, 50.0),
        ({"aspect_ratio": 0.5}, 0.0, 1e3),
        ({"aspect_ratio": 0.9}, 0.0, 1e5),
        ({"aspect_ratio": 1.0}, 0.0, 1e3),
        ({"aspect_ratio": 1.0}, 0.0, 1e7),
        ({"aspect_ratio": 10.0}, 0.0, 300.0),
        ({"aspect_ratio": 0.9}, 1e-6, 1e6),
        ({"aspect_ratio": 1.0}, 1e-4, 1e7),
        ({"aspect_ratio": 1.5}, 1.0, 1e4),
        ({"aspect_ratio": 0.9, "initial_scale": 3.0, "label_noise": 0.3, "outputs": 7}, 1e-3, 2e4),
        ({"aspect_ratio": 2.0, "label_noise": 0.5, "initial_scale": 0.0}, 0.0, 1e4),
    ],
)
def test_losses_to_eleven_digits(settings: dict, decay: float, time: float) -> None:
    """Relative accuracy 1e-11 over the whole range of parameters, and an error estimate that is not below the error
    by more than a factor of ten (and rounding, which both grids share: 1e-12 at most here)."""
    model, training = LinearEstimator(**settings), FLOW.replace(weight_decay=decay)
    predicted = model.predict([time], training)
    train, test = thirty_digit_losses(model, training, time)
    assert float(predicted.train_loss[0]) == pytest.approx(train, rel=1e-11, abs=0)
    assert float(predicted.test_loss[0]) == pytest.approx(test, rel=1e-11, abs=0)
    worst = max(abs(float(predicted.train_loss[0]) / train - 1), abs(float(predicted.test_loss[0]) / test - 1))
    assert worst < 10 * predicted.attrs["numerical_error"] + 1e-12


@given(st.floats(0.02, 8.0), st.floats(-2, 2.5))
def test_closed_forms(ratio: float, log_s: float) -> None:
    """Bessel function for training, Marcum Q function for testing: neither knows of the quadrature."""
    s = 10**log_s
    predicted = LinearEstimator(aspect_ratio=ratio).predict([s], GradientFlow(learning_rate=0.25))
    assert float(predicted.train_loss[0]) == pytest.approx(float(bessel_train_loss(ratio, s)), rel=1e-10, abs=0)
    # SciPy's non-central chi-square keeps about 9 digits of the sum; where the two terms cancel, fewer.
    closed = float(marcum_test_loss(ratio, s))
    terms = max(abs(1 - 1 / ratio), 1.0)
    assert float(predicted.test_loss[0]) == pytest.approx(closed, rel=1e-9, abs=1e-11 * terms)


@given(st.floats(0.05, 5.0), st.floats(0, 1), st.floats(0, 3), st.floats(0, 1), st.integers(1, 20), st.floats(0, 4))
def test_every_combination_against_adaptive_quadrature(
    ratio: float, decay: float, scale: float, noise: float, outputs: int, log_time: float
) -> None:
    model = LinearEstimator(aspect_ratio=ratio, initial_scale=scale, label_noise=noise, outputs=outputs)
    training, time = FLOW.replace(weight_decay=decay), 10**log_time
    predicted, expected = model.predict([time], training), quadrature_losses(model, training, time)
    assert float(predicted.train_loss[0]) == pytest.approx(expected[0], rel=1e-8, abs=1e-13)
    assert float(predicted.test_loss[0]) == pytest.approx(expected[1], rel=1e-8, abs=1e-13)


@given(st.floats(0.05, 3.0), st.floats(-1, 3))
def test_training_loss_is_the_speed_of_the_test_loss(ratio: float, log_time: float) -> None:
    """dL_gen/dt = -4 eta L_tr (eq. 21), by differentiating through the library in time."""
    time = 10**log_time
    model = LinearEstimator(aspect_ratio=ratio)
    step = time * 1e-4
    around = model.predict([time - step, time, time + step], FLOW)
    slope = float(around.test_loss[2] - around.test_loss[0]) / (2 * step)
    assert slope == pytest.approx(-0.04 * float(around.train_loss[1]), rel=1e-5, abs=1e-9)


def test_losses_start_at_one_over_outputs() -> None:
    for outputs in (1, 5, 300):
        start = LinearEstimator(aspect_ratio=0.7, outputs=outputs).predict([0.0])
        assert float(start.train_loss[0]) == pytest.approx(1 / outputs, rel=1e-13, abs=0)
        assert float(start.test_loss[0]) == pytest.approx(1 / outputs, rel=1e-13, abs=0)


def test_several_outputs_rescale_time_and_loss() -> None:
    """Eq. 13: outputs divide learning rate and loss."""
    one = LinearEstimator(aspect_ratio=0.9).predict([1.0, 100.0], FLOW)
    seven = LinearEstimator(aspect_ratio=0.9, outputs=7).predict([7.0, 700.0], FLOW)
    np.testing.assert_allclose(seven.test_loss, one.test_loss / 7, rtol=1e-13)
    np.testing.assert_allclose(seven.train_loss, one.train_loss / 7, rtol=1e-13)


def test_losses_far_below_the_smallest_float_keep_their_logarithm() -> None:
    """log L_tr = -a s + log(2 I_1e(x) / x): compared where the loss itself is zero in float64."""
    from scipy.special import ive

    predicted = LinearEstimator(aspect_ratio=0.1).predict([1e7], FLOW)
    s, root = 4e5, np.sqrt(0.1)
    expected = -((1 - root) ** 2) * s + np.log(ive(1, 2 * s * root) / (s * root))
    assert float(predicted.train_loss[0]) == 0.0
    assert float(predicted.log_train_loss[0]) == pytest.approx(expected, rel=1e-13, abs=0)
    assert np.isfinite(predicted.log_test_loss).all()


def test_flow_is_the_limit_of_descent() -> None:
    """At the same flow time, halving the learning rate halves the distance of gradient descent from the flow."""
    model, gaps = LinearEstimator(aspect_ratio=0.3), []
    for rate in (0.02, 0.01):
        steps = model.predict([round(2 / rate)], GradientDescent(learning_rate=rate))
        flow = model.predict(steps.flow_time.values, GradientFlow())
        gaps.append(float(steps.test_loss[0] / flow.test_loss[0]) - 1)
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.03, abs=0)
    assert gaps[1] < 0


def test_time_of_a_flow_is_flow_time_over_the_learning_rate() -> None:
    """One curve as a function of flow time; with weight decay, which acts at the same rate as the gradient."""
    model = LinearEstimator(aspect_ratio=0.7, label_noise=0.1)
    slow = model.predict([10.0, 1000.0], GradientFlow(learning_rate=0.01, weight_decay=0.1))
    unit = model.predict([0.1, 10.0], GradientFlow(weight_decay=0.1))
    np.testing.assert_allclose(slow.flow_time, unit.flow_time, rtol=1e-15)
    np.testing.assert_allclose(slow.test_loss, unit.test_loss, rtol=1e-13)
    assert unit.time.attrs["units"] == "flow time"
    assert model.predict([3]).time.attrs["units"] == "steps"


@given(st.floats(0.05, 4.0), st.floats(0, 0.5), st.integers(0, 40), st.floats(0.05, 0.99))
def test_descent_steps_are_moments(ratio: float, decay: float, steps: int, fraction: float) -> None:
    """e = (1 - kappa (nu + g))^k is a polynomial: average it by Gauss quadrature, including learning rates at which
    modes overshoot."""
    quiet = LinearEstimator(aspect_ratio=ratio, initial_scale=0.5)
    training = GradientDescent(learning_rate=0.01, weight_decay=decay)
    limit = float(quiet.stable_learning_rate(training).stable_learning_rate)
    training = training.replace(learning_rate=fraction * limit)
    count = 400
    angle = np.arange(1, count + 1) * np.pi / (count + 1)
    x, weight = (1 - np.cos(angle)) / 2, np.sin(angle) ** 2 * np.pi / (count + 1)
    nu = (1 - np.sqrt(ratio)) ** 2 + 4 * np.sqrt(ratio) * x
    weight = 2 / np.pi * weight  # averages nu f: Gauss-Chebyshev rule of the second kind for sqrt(x (1-x))
    left = (1 - 2 * training.learning_rate * (nu + decay / 2)) ** steps
    teacher = (left * nu + decay / 2) / (nu + decay / 2)
    train = weight @ ((0.25 * left**2 + teacher**2) / 2)
    predicted = quiet.predict([steps], training)
    assert float(predicted.train_loss[0]) == pytest.approx(train, rel=1e-9, abs=0)
    # The terms of label noise divide by nu, where Gauss rules fail near ratio one; they are tested against simulation.
    noisy = quiet.replace(label_noise=0.2).predict([steps], training)
    assert float(noisy.train_loss[0]) >= train + 0.04 * max(0, 1 - ratio) - 1e-12


def test_label_noise_limits() -> None:
    """The noise that is fitted in the end: sigma^2 lambda/(1-lambda), or sigma^2/(lambda-1); infinite at one."""
    for ratio in (0.2, 0.9, 1.5, 5.0):
        quiet = float(LinearEstimator(aspect_ratio=ratio).limit().test_loss)
        noisy = float(LinearEstimator(aspect_ratio=ratio, label_noise=0.3).limit().test_loss)
        expected = 0.09 * (ratio / (1 - ratio) if ratio < 1 else 1 / (ratio - 1))
        assert noisy - quiet == pytest.approx(expected, rel=1e-9, abs=0)
    assert float(LinearEstimator(aspect_ratio=1.0, label_noise=0.1).limit().test_loss) == np.inf


@given(st.floats(0.05, 3.0), st.floats(1e-4, 1.0))
def test_limits_with_weight_decay(ratio: float, decay: float) -> None:
    """The Stieltjes transform in closed form (eq. 16 corrected, at any weight decay)."""
    limits = LinearEstimator(aspect_ratio=ratio).limit(GradientFlow(weight_decay=decay))
    assert float(limits.test_loss) == pytest.approx(resolvent_square(ratio, decay / 2) / 2, rel=1e-6, abs=0)


@given(st.floats(0.1, 3.0), st.floats(0.01, 1), st.floats(0, 2), st.floats(0, 1), st.integers(1, 9))
def test_predictions_end_at_their_limits(ratio: float, decay: float, scale: float, noise: float, outputs: int) -> None:
    model = LinearEstimator(aspect_ratio=ratio, initial_scale=scale, label_noise=noise, outputs=outputs)
    for training in (FLOW.replace(weight_decay=decay), GradientDescent(learning_rate=0.01, weight_decay=decay)):
        limits, late = model.limit(training), model.predict([1e7], training)
        assert float(late.train_loss[0]) == pytest.approx(float(limits.train_loss), rel=1e-10, abs=0)
        assert float(late.test_loss[0]) == pytest.approx(float(limits.test_loss), rel=1e-10, abs=0)


def test_accuracy_is_the_error_function_of_the_loss() -> None:
    predicted = LinearEstimator(aspect_ratio=0.9).predict([1e2, 1e4], FLOW)
    expected = erf(np.sqrt(1e-3 / (2 * predicted.test_loss.values)))
    np.testing.assert_allclose(predicted.test_accuracy, expected, rtol=1e-12)
    several = LinearEstimator(aspect_ratio=0.9, outputs=50).predict([1e5], FLOW)
    expected = gammainc(25, 25 * 1e-3 / several.train_loss.values)
    np.testing.assert_allclose(several.train_accuracy, expected, rtol=1e-11)


def test_accuracy_at_a_finite_dimension_when_the_square_of_the_loss_is_no_number() -> None:
    late = LinearEstimator(aspect_ratio=0.1).predict([18_000, 20_000, 100_000], GradientDescent(0.01), dimension=400)
    assert late.log_test_loss[-1] < -700
    assert np.array_equal(late.test_accuracy, np.ones(3))
    assert np.array_equal(late.train_accuracy, np.ones(3))


def test_a_finite_dimension_lowers_the_degrees_of_freedom() -> None:
    """The correction vanishes as 1/d_in, and takes the accuracy of 50 outputs from .950 to .905 at d_in = 1000
    (t = 71414, lambda = .9), which simulation confirms (test_linear_estimator_simulation)."""
    model = LinearEstimator(aspect_ratio=0.9, outputs=50)
    bare = float(model.predict([71414.0], FLOW).test_accuracy[0])
    finite = float(model.predict([71414.0], FLOW, dimension=1000).test_accuracy[0])
    assert bare == pytest.approx(0.950, abs=5e-4)
    assert finite == pytest.approx(0.905, abs=1e-3)
    gaps = [bare - float(model.predict([71414.0], FLOW, dimension=n).test_accuracy[0]) for n in (10**6, 2 * 10**6)]
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=1e-2, abs=0)


@given(st.floats(0.1, 5.0), st.integers(20, 2000), st.integers(2, 100))
def test_before_training_a_training_sample_is_like_any_other(ratio: float, dimension: int, outputs: int) -> None:
    """At t = 0 the student has seen nothing: both accuracies are those of errors x.D, x of random length, so both have
    1/degrees = 1/outputs + 1/dimension. On the training side the spread of eigenvalues, 1 + lambda, and the fixed
    number of samples, - lambda, add up to that."""
    threshold = 1 / outputs
    model = LinearEstimator(aspect_ratio=ratio, outputs=outputs, threshold=threshold)
    start = model.predict([0], dimension=dimension)
    half = 1 / (1 / outputs + 1 / dimension) / 2
    for name in ("train_accuracy", "test_accuracy"):
        assert float(start[name][0]) == pytest.approx(gammainc(half, half), rel=1e-10)


@pytest.mark.parametrize("training", [FLOW, GradientDescent(learning_rate=0.01), GradientDescent(learning_rate=0.1)])
@pytest.mark.parametrize("ratio", [0.01, 0.5, 0.9, 1.5, 4.0])
def test_late_time_forms_hold_where_they_say(ratio: float, training: GradientFlow | GradientDescent) -> None:
    """Also for gradient descent, whose forms follow from the same expansion about the edge of the spectrum."""
    model = LinearEstimator(aspect_ratio=ratio, initial_scale=2.0, outputs=3)
    times = whole_steps(np.geomspace(1, 1e6, 60))
    late, exact = model.late_time(times, training), model.predict(times, training)
    for name in ("train_loss", "test_loss", "test_loss_leading"):
        held = late[f"{name}_holds"].values & (exact[name.removesuffix("_leading")].values > 1e-290)
        assert held.any()
        off = np.abs(late[name] / exact[name.removesuffix("_leading")] - 1).values[held]
        assert off.max() < 0.055
    # and not much longer: eq. 11 for the test loss is far off before its range begins
    if ratio == 0.9 and training is FLOW:
        early = {"time": 100, "method": "nearest"}
        assert float(late.test_loss_leading.sel(**early) / exact.test_loss.sel(**early)) > 10


def test_next_order_of_the_late_time_form_of_descent() -> None:
    """The largest learning rate at which no mode overshoots: steps differ from the flow by much, and the form of the
    training loss is off by 3/(8x) + 15/(16t) to leading order."""
    model = LinearEstimator(aspect_ratio=0.5)
    rate = 0.499 * float(model.stable_learning_rate().stable_learning_rate)
    training, times = GradientDescent(learning_rate=rate), [400, 800]
    late, exact = model.late_time(times, training), model.predict(times, training)
    off = (late.train_loss / exact.train_loss).values - 1
    edge = (1 - np.sqrt(0.5)) ** 2
    s = 4 * rate * np.array(times) / (1 - 2 * rate * edge)
    expected = 3 / (16 * s * np.sqrt(0.5)) + 15 / (16 * np.array(times))
    np.testing.assert_allclose(off, expected, rtol=0.02)
    flow = model.predict(times, GradientFlow(learning_rate=rate))
    assert float(exact.train_loss[1] / flow.train_loss[1]) < 0.5


@pytest.mark.parametrize(("ratio", "decay"), [(0.5, 1e-4), (0.9, 1e-5), (1.5, 1e-3)])
def test_saturated_forms_hold_where_they_say(ratio: float, decay: float) -> None:
    model, times = LinearEstimator(aspect_ratio=ratio), whole_steps(np.geomspace(1, 1e9, 60))
    for training in (FLOW.replace(weight_decay=decay), GradientDescent(learning_rate=0.05, weight_decay=decay)):
        late, exact = model.late_time(times, training), model.predict(times, training)
        for name in ("train_loss", "test_loss"):
            held = late[f"{name}_holds"].values
            assert held.any()
            assert not held[0]
            np.testing.assert_allclose(late[name].values[held], exact[name].values[held], rtol=0.055)


@pytest.mark.slow
def test_minibatch_theory_tends_to_the_full_batch() -> None:
    model, times = LinearEstimator(aspect_ratio=0.5), [0, 1, 10, 100]
    full = model.predict(times)
    excess = [
        model.predict(times, SGD(learning_rate=0.01, batch_size=size), dimension=1000).test_loss - full.test_loss
        for size in (10**6, 2 * 10**6)
    ]
    np.testing.assert_allclose((excess[0] / excess[1])[1:], 2, rtol=1e-3)
    assert abs(float(excess[0][0])) < 1e-15


def test_minibatch_volterra_equation() -> None:
    """L_k = F_k + 4 eta^2 (d_in/B) sum_j K_{k-1-j} L_j, K_m = E[nu^2 (1-2 eta nu)^{2m}], summed directly."""
    from solvable.models.linear_estimator.spectra import MarchenkoPastur

    model, ratio_to_batch = LinearEstimator(aspect_ratio=0.5), 25.0
    law = MarchenkoPastur(0.5)
    nodes, weights = np.asarray(law.nodes), np.asarray(law.weights)
    steps = 40
    memory = [weights @ (nodes * (1 - 0.04 * nodes) ** (2 * m)) for m in range(steps)]
    full = model.predict(np.arange(steps + 1), GradientDescent(learning_rate=0.02)).train_loss.values
    losses = [full[0]]
    for k in range(1, steps + 1):
        losses.append(full[k] + 4 * 0.02**2 * ratio_to_batch * sum(memory[k - 1 - j] * losses[j] for j in range(k)))
    predicted = model.predict(np.arange(steps + 1), SGD(learning_rate=0.02, batch_size=40), dimension=1000)
    np.testing.assert_allclose(predicted.train_loss, losses, rtol=1e-10)


def test_a_batch_fraction_needs_no_dimension() -> None:
    """d_in / B = lambda / fraction: the same curve as with the batch size at any dimension; accuracies apart."""
    model, steps = LinearEstimator(aspect_ratio=0.5), [0, 10, 100]
    fraction = model.predict(steps, SGD(learning_rate=0.01, batch_fraction=0.02))
    size = model.predict(steps, SGD(learning_rate=0.01, batch_size=40), dimension=1000)
    np.testing.assert_allclose(fraction.test_loss, size.test_loss, rtol=1e-12)
    with pytest.raises(ValueError, match="needs dimension"):
        model.predict(steps, SGD(learning_rate=0.01, batch_size=40))


def test_gradients_and_vmap() -> None:
    """Derivatives in every smooth parameter against central differences; vmap against a loop."""
    base = {"aspect_ratio": 0.8, "initial_scale": 1.5, "label_noise": 0.2}
    trained = {"weight_decay": 0.01, "learning_rate": 0.02}
    for kind in (GradientFlow, GradientDescent):

        def loss(point, kind=kind):
            model = LinearEstimator(**{name: point[name] for name in base})
            training = kind(**{name: point[name] for name in trained})
            return model.predict([200], training).test_loss.data[0]

        point = base | trained
        slopes = jax.grad(loss)(point)
        for name, value in point.items():
            step = 1e-5 * value
            above, below = (float(loss(point | {name: value + change})) for change in (step, -step))
            assert float(slopes[name]) == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=0)
    ratios = jnp.array([0.3, 1.0, 2.0])
    batched = jax.vmap(lambda x: LinearEstimator(aspect_ratio=x).predict([100.0]).train_loss.data[0])(ratios)
    looped = [float(LinearEstimator(aspect_ratio=float(x)).predict([100.0]).train_loss[0]) for x in ratios]
    np.testing.assert_allclose(batched, looped, rtol=1e-13)


def test_gradient_in_weight_decay_at_zero() -> None:
    """The derivative exists at the edge of the range: one-sided difference."""
    for training in (FLOW, GradientDescent(learning_rate=0.01)):

        def log_loss(decay, training=training):
            changed = training.replace(weight_decay=decay)
            return LinearEstimator(aspect_ratio=0.9).predict([300.0], changed).log_test_loss.data[0]

        step = 1e-7
        slope = (float(log_loss(step)) - float(log_loss(0.0))) / step
        assert float(jax.grad(log_loss)(0.0)) == pytest.approx(slope, rel=1e-4, abs=0)


@pytest.mark.parametrize(
    ("times", "training", "message"),
    [
        ([0.5], None, "times count the steps of this training"),
        ([1], GradientDescent(learning_rate=0.01, momentum=0.9, ema_decay=0.9), "does not cover ema_decay=0.9"),
        ([1], SGD(learning_rate=0.01, batch_size=lambda step: 4), "a schedule of batch_size"),
        ([1], SGD(learning_rate=0.01, batch_size=4, sampling="online"), "sampling='online'"),
        ([1], GradientDescent(learning_rate=0.5), "0.2633, from which gradient descent is unstable: lower it"),
        ([1], 0.01, "training must be GradientFlow"),
    ],
)
def test_training_that_is_not_covered(times: list, training: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearEstimator(aspect_ratio=0.9).predict(times, training)


def test_mini_batches_have_no_limit() -> None:
    model, training = LinearEstimator(aspect_ratio=0.9), SGD(learning_rate=0.01, batch_fraction=0.5)
    for method in (model.limit, model.critical_weight_decay, model.grokking_time, model.phase_diagram):
        with pytest.raises(ValueError, match="for full batches: use GradientDescent or GradientFlow"):
            method(training=training)
    with pytest.raises(ValueError, match="for full batches"):
        model.late_time([1], training)


def test_datasets_say_what_the_loss_is_and_how_it_was_trained() -> None:
    model, training = LinearEstimator(aspect_ratio=0.9), GradientDescent(learning_rate=0.02)
    for result in (
        model.predict([0, 100], training),
        model.simulate([0, 100], training, dimension=20, seeds=2),
        model.grokking_time(training=training),
        model.limit(training),
        model.late_time([100], training),
    ):
        assert "per output" in result.attrs["loss"]
        assert json.loads(result.attrs["training"])["learning_rate"] == 0.02
