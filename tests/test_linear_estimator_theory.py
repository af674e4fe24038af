"""The linear estimator's losses by independent routes: closed forms, 30 digits, adaptive quadrature, identities."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erf, gammainc

from solvable import LinearEstimator
from solvable.papers.linear_grokking._shared import (
    bessel_train_loss,
    marcum_test_loss,
    quadrature_losses,
    resolvent_square,
)


def thirty_digit_losses(model: LinearEstimator, time: float) -> tuple[float, float]:
    """Losses of gradient flow in 30-digit arithmetic, by quadrature in the angle."""
    with mpmath.workdps(30):
        ratio, shift = mpmath.mpf(model.aspect_ratio), mpmath.mpf(model.weight_decay) / 2
        root = mpmath.sqrt(ratio)
        kappa = 2 * mpmath.mpf(model.learning_rate) / model.outputs
        scale, noise = mpmath.mpf(model.student_scale) ** 2, mpmath.mpf(model.label_noise) ** 2

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
    ("settings", "time"),
    [
        ({"aspect_ratio": 0.01}, 50.0),
        ({"aspect_ratio": 0.5}, 1e3),
        ({"aspect_ratio": 0.9}, 1e5),
        ({"aspect_ratio": 1.0}, 1e3),
        ({"aspect_ratio": 1.0}, 1e7),
        ({"aspect_ratio": 10.0}, 300.0),
        ({"aspect_ratio": 0.9, "weight_decay": 1e-6}, 1e6),
        ({"aspect_ratio": 1.0, "weight_decay": 1e-4}, 1e7),
        ({"aspect_ratio": 1.5, "weight_decay": 1.0}, 1e4),
        ({"aspect_ratio": 0.9, "weight_decay": 1e-3, "student_scale": 3.0, "label_noise": 0.3, "outputs": 7}, 2e4),
        ({"aspect_ratio": 2.0, "label_noise": 0.5, "student_scale": 0.0}, 1e4),
    ],
)
def test_losses_to_eleven_digits(settings: dict, time: float) -> None:
    """Relative accuracy 1e-11 over the whole range of parameters, and an error estimate that is not below the error
    by more than a factor of ten (and rounding, which both grids share: 1e-12 at most here)."""
    model = LinearEstimator(**settings)
    predicted = model.predict([time])
    train, test = thirty_digit_losses(model, time)
    assert float(predicted.train_loss[0]) == pytest.approx(train, rel=1e-11, abs=0)
    assert float(predicted.test_loss[0]) == pytest.approx(test, rel=1e-11, abs=0)
    worst = max(abs(float(predicted.train_loss[0]) / train - 1), abs(float(predicted.test_loss[0]) / test - 1))
    assert worst < 10 * predicted.attrs["numerical_error"] + 1e-12


@given(st.floats(0.02, 8.0), st.floats(-2, 2.5))
def test_closed_forms(ratio: float, log_s: float) -> None:
    """Bessel function for training, Marcum Q function for testing: neither knows of the quadrature."""
    s = 10**log_s
    predicted = LinearEstimator(aspect_ratio=ratio, learning_rate=0.25).predict([s])
    assert float(predicted.train_loss[0]) == pytest.approx(float(bessel_train_loss(ratio, s)), rel=1e-10, abs=0)
    # SciPy's non-central chi-square keeps about 9 digits of the sum; where the two terms cancel, fewer.
    closed = float(marcum_test_loss(ratio, s))
    terms = max(abs(1 - 1 / ratio), 1.0)
    assert float(predicted.test_loss[0]) == pytest.approx(closed, rel=1e-9, abs=1e-11 * terms)


@given(st.floats(0.05, 5.0), st.floats(0, 1), st.floats(0, 3), st.floats(0, 1), st.integers(1, 20), st.floats(0, 4))
def test_every_combination_against_adaptive_quadrature(
    ratio: float, decay: float, scale: float, noise: float, outputs: int, log_time: float
) -> None:
    model = LinearEstimator(
        aspect_ratio=ratio, weight_decay=decay, student_scale=scale, label_noise=noise, outputs=outputs
    )
    time = 10**log_time
    predicted, expected = model.predict([time]), quadrature_losses(model, time)
    assert float(predicted.train_loss[0]) == pytest.approx(expected[0], rel=1e-8, abs=1e-13)
    assert float(predicted.test_loss[0]) == pytest.approx(expected[1], rel=1e-8, abs=1e-13)


@given(st.floats(0.05, 3.0), st.floats(-1, 3))
def test_training_loss_is_the_speed_of_the_test_loss(ratio: float, log_time: float) -> None:
    """dL_gen/dt = -4 eta L_tr (eq. 21), by differentiating through the library in time."""
    time = 10**log_time
    model = LinearEstimator(aspect_ratio=ratio)
    step = time * 1e-4
    around = model.predict([time - step, time, time + step])
    slope = float(around.test_loss[2] - around.test_loss[0]) / (2 * step)
    assert slope == pytest.approx(-0.04 * float(around.train_loss[1]), rel=1e-5, abs=1e-9)


def test_losses_start_at_one_over_outputs() -> None:
    for outputs in (1, 5, 300):
        start = LinearEstimator(aspect_ratio=0.7, outputs=outputs).predict([0.0])
        assert float(start.train_loss[0]) == pytest.approx(1 / outputs, rel=1e-13, abs=0)
        assert float(start.test_loss[0]) == pytest.approx(1 / outputs, rel=1e-13, abs=0)


def test_several_outputs_rescale_time_and_loss() -> None:
    """Eq. 13: outputs divide learning rate and loss."""
    one = LinearEstimator(aspect_ratio=0.9).predict([1.0, 100.0])
    seven = LinearEstimator(aspect_ratio=0.9, outputs=7).predict([7.0, 700.0])
    np.testing.assert_allclose(seven.test_loss, one.test_loss / 7, rtol=1e-13)
    np.testing.assert_allclose(seven.train_loss, one.train_loss / 7, rtol=1e-13)


def test_losses_far_below_the_smallest_float_keep_their_logarithm() -> None:
    """log L_tr = -a s + log(2 I_1e(x) / x): compared where the loss itself is zero in float64."""
    from scipy.special import ive

    predicted = LinearEstimator(aspect_ratio=0.1).predict([1e7])
    s, root = 4e5, np.sqrt(0.1)
    expected = -((1 - root) ** 2) * s + np.log(ive(1, 2 * s * root) / (s * root))
    assert float(predicted.train_loss[0]) == 0.0
    assert float(predicted.log_train_loss[0]) == pytest.approx(expected, rel=1e-13, abs=0)
    assert np.isfinite(predicted.log_test_loss).all()


def test_discrete_steps_tend_to_the_flow() -> None:
    """Halving the learning rate halves the distance to the flow."""
    gaps = []
    for rate in (0.02, 0.01):
        model = LinearEstimator(aspect_ratio=0.3, learning_rate=rate)
        times = [round(2 / rate)]
        flow, steps = (model.predict(times, descent=kind).test_loss[0] for kind in ("flow", "discrete"))
        gaps.append(float(steps / flow) - 1)
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.03, abs=0)
    assert gaps[1] < 0


@given(st.floats(0.05, 4.0), st.floats(0, 0.5), st.integers(0, 40), st.floats(0.05, 0.99))
def test_discrete_steps_are_moments(ratio: float, decay: float, steps: int, share: float) -> None:
    """With a student at zero, e = (1 - kappa (nu + g))^k is a polynomial: average it by Gauss quadrature, including
    learning rates at which modes overshoot."""
    limit = LinearEstimator(aspect_ratio=ratio, weight_decay=decay).stable_learning_rate()
    model = LinearEstimator(
        aspect_ratio=ratio, weight_decay=decay, student_scale=0.5, label_noise=0.2, learning_rate=share * limit
    )
    predicted = model.predict([steps], descent="discrete")
    count = 400
    angle = np.arange(1, count + 1) * np.pi / (count + 1)
    x, weight = (1 - np.cos(angle)) / 2, np.sin(angle) ** 2 * np.pi / (count + 1)
    nu = (1 - np.sqrt(ratio)) ** 2 + 4 * np.sqrt(ratio) * x
    weight = 2 / np.pi * weight  # averages nu f: Gauss-Chebyshev rule of the second kind for sqrt(x (1-x))
    left = (1 - 2 * model.learning_rate * (nu + decay / 2)) ** steps
    teacher = (left * nu + decay / 2) / (nu + decay / 2)
    train = weight @ ((0.25 * left**2 + teacher**2) / 2) + 0.04 * max(0, 1 - ratio)
    # The remaining terms divide by nu, where Gauss rules fail near ratio one; they are tested against simulation.
    assert float(predicted.train_loss[0]) >= train - 1e-12
    quiet = model.replace(label_noise=0.0).predict([steps], descent="discrete")
    assert float(quiet.train_loss[0]) == pytest.approx(train - 0.04 * max(0, 1 - ratio), rel=1e-9, abs=0)


def test_label_noise_limits() -> None:
    """The noise that is fitted in the end: sigma^2 lambda/(1-lambda), or sigma^2/(lambda-1); infinite at one."""
    for ratio in (0.2, 0.9, 1.5, 5.0):
        quiet = float(LinearEstimator(aspect_ratio=ratio).limits().test_loss)
        noisy = float(LinearEstimator(aspect_ratio=ratio, label_noise=0.3).limits().test_loss)
        expected = 0.09 * (ratio / (1 - ratio) if ratio < 1 else 1 / (ratio - 1))
        assert noisy - quiet == pytest.approx(expected, rel=1e-9, abs=0)
    assert float(LinearEstimator(aspect_ratio=1.0, label_noise=0.1).limits().test_loss) == np.inf


@given(st.floats(0.05, 3.0), st.floats(1e-4, 1.0))
def test_limits_with_weight_decay(ratio: float, decay: float) -> None:
    """The Stieltjes transform in closed form (eq. 16 corrected, at any weight decay)."""
    limits = LinearEstimator(aspect_ratio=ratio, weight_decay=decay).limits()
    assert float(limits.test_loss) == pytest.approx(resolvent_square(ratio, decay / 2) / 2, rel=1e-6, abs=0)


@given(st.floats(0.1, 3.0), st.floats(0.01, 1), st.floats(0, 2), st.floats(0, 1), st.integers(1, 9))
def test_predictions_end_at_their_limits(ratio: float, decay: float, scale: float, noise: float, outputs: int) -> None:
    model = LinearEstimator(
        aspect_ratio=ratio, weight_decay=decay, student_scale=scale, label_noise=noise, outputs=outputs
    )
    limits, late = model.limits(), model.predict([1e7])
    assert float(late.train_loss[0]) == pytest.approx(float(limits.train_loss), rel=1e-10, abs=0)
    assert float(late.test_loss[0]) == pytest.approx(float(limits.test_loss), rel=1e-10, abs=0)


def test_accuracy_is_the_error_function_of_the_loss() -> None:
    predicted = LinearEstimator(aspect_ratio=0.9).predict([1e2, 1e4])
    expected = erf(np.sqrt(1e-3 / (2 * predicted.test_loss.values)))
    np.testing.assert_allclose(predicted.test_accuracy, expected, rtol=1e-12)
    several = LinearEstimator(aspect_ratio=0.9, outputs=50).predict([1e5])
    expected = gammainc(25, 25 * 1e-3 / several.train_loss.values)
    np.testing.assert_allclose(several.train_accuracy, expected, rtol=1e-11)


def test_finite_inputs_lower_the_degrees_of_freedom() -> None:
    """The correction vanishes as 1/d_in, and takes the accuracy of 50 outputs from .950 to .905 at d_in = 1000
    (t = 71414, lambda = .9), which simulation confirms (test_linear_estimator_simulation)."""
    model = LinearEstimator(aspect_ratio=0.9, outputs=50)
    bare = float(model.predict([71414.0]).test_accuracy[0])
    finite = float(model.predict([71414.0], inputs=1000).test_accuracy[0])
    assert bare == pytest.approx(0.950, abs=5e-4)
    assert finite == pytest.approx(0.905, abs=1e-3)
    gaps = [bare - float(model.predict([71414.0], inputs=n).test_accuracy[0]) for n in (10**6, 2 * 10**6)]
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=1e-2, abs=0)


@given(st.floats(0.1, 5.0), st.integers(20, 2000), st.integers(2, 100))
def test_before_training_a_training_sample_is_like_any_other(ratio: float, inputs: int, outputs: int) -> None:
    """At t = 0 the student has seen nothing: both accuracies are those of errors x.D, x of random length, so both have
    1/degrees = 1/outputs + 1/inputs. On the training side the spread of eigenvalues, 1 + lambda, and the fixed number
    of samples, - lambda, add up to that."""
    threshold = 1 / outputs
    model = LinearEstimator(aspect_ratio=ratio, outputs=outputs, threshold=threshold)
    start = model.predict([0.0], inputs=inputs)
    half = 1 / (1 / outputs + 1 / inputs) / 2
    for name in ("train_accuracy", "test_accuracy"):
        assert float(start[name][0]) == pytest.approx(gammainc(half, half), rel=1e-10)


@pytest.mark.parametrize("ratio", [0.01, 0.5, 0.9, 1.5, 4.0])
def test_late_time_forms_hold_where_they_say(ratio: float) -> None:
    model = LinearEstimator(aspect_ratio=ratio, student_scale=2.0, outputs=3)
    times = np.geomspace(1, 1e6, 60)
    late, exact = model.late_time(times), model.predict(times)
    for name in ("train_loss", "test_loss", "test_loss_leading"):
        held = late[f"{name}_holds"].values & (exact[name.removesuffix("_leading")].values > 1e-290)
        assert held.any()
        off = np.abs(late[name] / exact[name.removesuffix("_leading")] - 1).values[held]
        assert off.max() < 0.055
    # and not much longer: eq. 11 for the test loss is far off before its range begins
    if ratio == 0.9:
        assert float(late.test_loss_leading[20] / exact.test_loss[20]) > 10


@pytest.mark.parametrize(("ratio", "decay"), [(0.5, 1e-4), (0.9, 1e-5), (1.5, 1e-3)])
def test_saturated_forms_hold_where_they_say(ratio: float, decay: float) -> None:
    model = LinearEstimator(aspect_ratio=ratio, weight_decay=decay)
    times = np.geomspace(1, 1e9, 60)
    late, exact = model.late_time(times), model.predict(times)
    for name in ("train_loss", "test_loss"):
        held = late[f"{name}_holds"].values
        assert held.any()
        assert not held[0]
        np.testing.assert_allclose(late[name].values[held], exact[name].values[held], rtol=0.055)


@pytest.mark.slow
def test_minibatch_theory_tends_to_the_full_batch() -> None:
    model, times = LinearEstimator(aspect_ratio=0.5), [0, 1, 10, 100]
    full = model.predict(times, descent="discrete")
    excess = [
        model.predict(times, descent="discrete", inputs=1000, batch=size).test_loss - full.test_loss
        for size in (10**6, 2 * 10**6)
    ]
    np.testing.assert_allclose((excess[0] / excess[1])[1:], 2, rtol=1e-3)
    assert abs(float(excess[0][0])) < 1e-15


def test_minibatch_volterra_equation() -> None:
    """L_k = F_k + 4 eta^2 (d_in/B) sum_j K_{k-1-j} L_j, K_m = E[nu^2 (1-2 eta nu)^{2m}], summed directly."""
    from solvable.models.linear_estimator.spectra import MarchenkoPastur

    model, ratio_to_batch = LinearEstimator(aspect_ratio=0.5, learning_rate=0.02), 25.0
    law = MarchenkoPastur(0.5)
    nodes, weights = np.asarray(law.nodes), np.asarray(law.weights)
    steps = 40
    memory = [weights @ (nodes * (1 - 0.04 * nodes) ** (2 * m)) for m in range(steps)]
    full = model.predict(np.arange(steps + 1), descent="discrete").train_loss.values
    losses = [full[0]]
    for k in range(1, steps + 1):
        losses.append(full[k] + 4 * 0.02**2 * ratio_to_batch * sum(memory[k - 1 - j] * losses[j] for j in range(k)))
    predicted = model.predict(np.arange(steps + 1), descent="discrete", inputs=1000, batch=40)
    np.testing.assert_allclose(predicted.train_loss, losses, rtol=1e-10)


def test_gradients_and_vmap() -> None:
    """Derivatives in every smooth parameter against central differences; vmap against a loop."""
    base = {"aspect_ratio": 0.8, "weight_decay": 0.01, "student_scale": 1.5, "label_noise": 0.2, "learning_rate": 0.02}
    for name, value in base.items():

        def loss(x, name=name):
            return LinearEstimator(**{**base, name: x}).predict([200.0]).test_loss.data[0]

        step = 1e-5 * value
        slope = (float(loss(value + step)) - float(loss(value - step))) / (2 * step)
        assert float(jax.grad(loss)(value)) == pytest.approx(slope, rel=1e-6, abs=0)
    ratios = jnp.array([0.3, 1.0, 2.0])
    batched = jax.vmap(lambda x: LinearEstimator(aspect_ratio=x).predict([100.0]).train_loss.data[0])(ratios)
    looped = [float(LinearEstimator(aspect_ratio=float(x)).predict([100.0]).train_loss[0]) for x in ratios]
    np.testing.assert_allclose(batched, looped, rtol=1e-13)


def test_gradient_in_weight_decay_at_zero() -> None:
    """The derivative exists at the edge of the range: one-sided difference."""

    def log_loss(decay):
        return LinearEstimator(aspect_ratio=0.9, weight_decay=decay).predict([300.0]).log_test_loss.data[0]

    step = 1e-7
    slope = (float(log_loss(step)) - float(log_loss(0.0))) / step
    assert float(jax.grad(log_loss)(0.0)) == pytest.approx(slope, rel=1e-4, abs=0)
