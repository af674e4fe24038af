"""Linear models in their eigenbasis: mode curves, learnability, the flow on finite samples, and its simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from solvable import GradientDescent, GradientFlow
from solvable.comparison import compare
from solvable.models.linear_features import LinearFeatures

MODES = np.arange(1, 151.0)
TIMES = np.array([0.0, 0.3, 2.0, 15.0, 100.0, 1e4])


# One device: batched LAPACK calls of several virtual devices wait for each other on a machine with few cores.
ONE = {"devices": jax.devices()[:1], "progress": False}


def power_law_model(**changes: object) -> LinearFeatures:
    values = {"intensities": MODES**-1.2, "target": MODES**-0.8, "samples": 60, "noise": 0.5, **changes}
    return LinearFeatures(**values)


@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(-3, 3)), min_size=1, max_size=6).filter(
        lambda modes: any(rho > 0 for rho, _ in modes)
    )
)
def test_population_curves_solve_the_mode_equation(modes: list[tuple[float, float]]) -> None:
    """Eq. 1.25 integrated numerically: c' = rho (w - c), to its tolerance."""
    intensities, target = (np.array(values) for values in zip(*modes, strict=True))
    times = np.linspace(0, 3, 7)
    found = LinearFeatures(intensities, target, samples=None, noise=0.0).predict(times)
    flow = solve_ivp(
        lambda _, c: intensities * (target - c),
        (0, 3),
        np.zeros(len(target)),
        method="DOP853",
        t_eval=times,
        rtol=1e-11,
        atol=1e-13,
    )
    assert np.allclose(found.coefficient, flow.y.T, atol=1e-9)
    assert np.allclose(found.test_loss, np.sum((flow.y.T - target) ** 2, axis=1) / 2, atol=1e-8)


@pytest.mark.slow
def test_theory_and_gaussian_simulation_agree_at_all_times() -> None:
    """200 draws. Z-scores of about 5 x 6 independent numbers: one above 4.5 comes by chance once in 5000 tests.

    Theory is off by a relative 1/n, which is below the error bars: the largest share of the loss is 0.9 / 60 = 1.5 %.
    """
    model = power_law_model()
    comparison = compare(model.predict(TIMES, modes=4), model.simulate(TIMES, seeds=200, key=1, modes=4, **ONE))
    late = ("limit_test_loss", "limit_train_loss", "limit_noise_loss")
    for name in ("test_loss", "train_loss", "noise_loss", "coefficient", *late):
        parts = comparison[name]
        difference, error = (parts.sel(statistic=s).values for s in ("difference", "standard_error"))
        size = np.abs(parts.sel(statistic="theory").values)
        # Losses below 1e-12 of the start are zero for the quadrature.
        assert np.all(np.abs(difference) <= 4.5 * error + size / 60 + 1e-12), name


def test_learnability_is_what_draws_let_pass_on_average() -> None:
    model = power_law_model()
    shares, run = model.learnability().learnability, model.simulate([1.0], seeds=200, key=2, **ONE)
    assert float(shares.sum()) == pytest.approx(60, abs=1e-11)
    assert np.allclose(run.learnability.sum("mode"), 60, atol=1e-10)
    error = run.learnability.std("seed") / np.sqrt(200)
    # 150 modes, 5 standard errors: chance 1e-4; beside it the first correction, L (1 - L) / n.
    allowed = 5 * error.values + (shares * (1 - shares) / 60).values
    assert np.all(np.abs(run.learnability.mean("seed").values - shares.values) < allowed)


@pytest.mark.slow
def test_sines_follow_the_law_roughly() -> None:
    """k^-2, 40 samples: at mode 10 theory says .889 and sines .80 (measured, 400 draws). The law is Gaussian."""
    model = LinearFeatures(MODES**-2, MODES**-1, samples=40, noise=0.0)
    shares = model.simulate([1.0], seeds=60, key=3, features="sine", **ONE).learnability.mean("seed")
    assert abs(float(shares[9]) - 0.80) < 0.03
    assert abs(float(shares[9] - model.learnability().learnability[9])) < 0.12


@pytest.mark.parametrize("features", ["gaussian", "sine"])
def test_simulated_flow_ends_in_minimum_norm_regression(features: str) -> None:
    model = LinearFeatures(np.arange(1, 31.0) ** -1, np.r_[1.0, -0.5, np.zeros(28)], samples=10, noise=0.2)
    run = model.simulate([1e7], seeds=3, key=4, features=features, **ONE)
    assert np.allclose(run.coefficient[:, 0], run.limit_coefficient, atol=1e-6)
    assert np.allclose(run.test_loss[:, 0], run.limit_test_loss, rtol=1e-5)
    assert np.all(run.train_loss < 1e-12)


def test_simulation_on_sines_is_gradient_flow_on_its_samples() -> None:
    """The drawn samples are given back; integrate their training loss's gradient flow and solve their regression."""
    intensities, target = np.arange(1, 9.0) ** -1, np.array([1.0, 0, -0.5, 0, 0, 0, 0, 0.2])
    model = LinearFeatures(intensities, target, samples=5, noise=0.3)
    times = np.array([0.5, 4.0, 20.0])
    run = model.simulate(times, seeds=1, key=5, features="sine", **ONE).isel(seed=0)
    features = np.sqrt(2 * intensities) * np.sin(2 * np.pi * np.outer(run.inputs, np.arange(1, 9)))
    labels = run.labels.values
    flow = solve_ivp(
        lambda _, theta: features.T @ (labels - features @ theta) / 5,
        (0, 20),
        np.zeros(8),
        method="DOP853",
        t_eval=times,
        rtol=1e-11,
        atol=1e-13,
    )
    coefficients = np.sqrt(intensities) * flow.y.T
    assert np.allclose(run.coefficient, coefficients, atol=1e-9)
    assert np.allclose(run.test_loss, np.sum((coefficients - target) ** 2, axis=1) / 2, atol=1e-9)
    assert np.allclose(run.train_loss, np.mean((features @ flow.y - labels[:, None]) ** 2, axis=0) / 2, atol=1e-9)
    regression = np.linalg.lstsq(features, labels, rcond=None)[0]
    assert np.allclose(run.limit_coefficient, np.sqrt(intensities) * regression, atol=1e-9)


def test_parts_add_up_and_end_where_the_limit_is() -> None:
    model = power_law_model()
    found, limit = model.predict(np.array([0.0, 1.0, 1e12])), model.limit()
    assert np.allclose(found.test_loss, found.bias + found.variance + found.noise_loss, rtol=1e-14)
    for name in ("test_loss", "train_loss", "bias", "variance", "noise_loss"):
        assert float(found[name][-1]) == pytest.approx(float(limit[name]), rel=1e-9, abs=1e-12)
        assert float(found[f"limit_{name}"]) == float(limit[name])
    assert np.allclose(found.coefficient[-1], limit.coefficient, atol=1e-11)
    assert float(found.test_loss[0]) == pytest.approx(np.sum(model.target**2) / 2, rel=1e-14)
    assert float(found.train_loss[0]) == pytest.approx((np.sum(model.target**2) + 0.25) / 2, rel=1e-14)
    assert found.attrs["numerical_error"] < 1e-11


def test_many_samples_are_the_population() -> None:
    """The difference falls as 1/n."""
    times = np.array([0.5, 3.0, 30.0])
    exact = power_law_model(samples=None).predict(times)
    near, far = (power_law_model(samples=n).predict(times) for n in (10**7, 10**6))
    off = [float(np.abs(found.test_loss - exact.test_loss).max()) for found in (near, far)]
    assert off[0] < 1e-4
    assert off[1] / off[0] == pytest.approx(10, rel=0.01)


def test_more_samples_than_modes_is_ordinary_least_squares() -> None:
    """Noise sigma^2/2 p / (n - p), no bias; the exact p / (n - p - 1) differs by 1/n."""
    model = LinearFeatures(MODES**-1, np.ones(150), samples=600, noise=0.4)
    limit = model.limit()
    assert float(limit.noise_loss) == pytest.approx(0.08 * 150 / 450, rel=1e-12)
    assert float(limit.bias) == 0
    assert np.all(limit.learnability == 1)
    assert float(limit.train_loss) == pytest.approx(0.08 * (1 - 150 / 600), rel=1e-12)
    assert float(model.predict([1e9]).train_loss[0]) == pytest.approx(float(limit.train_loss), rel=1e-9)


@pytest.mark.parametrize("samples", [2, 40, None])
def test_signal_on_absent_modes_is_noise_that_stays_in_the_training_loss(samples: int | None) -> None:
    """Three modes and two of zero intensity: (sigma^2 + 0.3^2 + 0.2^2) / 2, less the part that three modes fit."""
    model = LinearFeatures([1.0, 0.5, 0.2, 0.0, 0.0], [1.0, 1.0, 1.0, 0.3, 0.2], samples=samples, noise=0.5)
    left = {2: 0.0, 40: 1 - 3 / 40, None: 1.0}[samples]
    assert float(model.limit().train_loss) == pytest.approx(left * (0.25 + 0.09 + 0.04) / 2, rel=1e-13)
    assert float(model.predict([1e7]).train_loss[0]) == pytest.approx(float(model.limit().train_loss), abs=1e-9)
    if samples is not None:
        run = model.simulate([1e7], seeds=3, **ONE)
        assert np.allclose(run.train_loss[:, 0], run.limit_train_loss, atol=1e-9)


def test_learning_rate_of_the_flow_is_the_unit_of_time() -> None:
    model, faster = power_law_model(), GradientFlow(learning_rate=5.0)
    usual, found = model.predict(TIMES), model.predict(TIMES / 5, faster)
    assert np.allclose(found.test_loss, usual.test_loss, rtol=1e-12)
    assert np.allclose(found.flow_time, TIMES, rtol=1e-15)
    runs, usual_runs = model.simulate(TIMES / 5, faster, seeds=2, **ONE), model.simulate(TIMES, seeds=2, **ONE)
    assert np.allclose(runs.test_loss, usual_runs.test_loss, rtol=1e-9)


def test_as_many_samples_as_modes_has_curves_but_no_limit() -> None:
    model = LinearFeatures(np.ones(150), np.ones(150), samples=150, noise=0.1)
    found = model.predict([1.0, 100.0])
    assert np.isfinite(found.test_loss).all()
    assert "limit_test_loss" not in found
    with pytest.raises(ValueError, match="expected loss infinite"):
        model.limit()
    with pytest.raises(ValueError, match="fewer samples than modes"):
        _ = model.kappa


@pytest.mark.slow
def test_benign_overfitting_learns_the_signal_long_before_it_fits_the_noise() -> None:
    """Eq. 1.36 with a tail below (n - d)/(p - d) has two phases; with the printed n/(p - d) both come together."""
    target = np.r_[np.sqrt(0.5), np.zeros(399)]
    benign = LinearFeatures(np.r_[np.ones(5), np.full(395, 1e-3)], target, samples=50, noise=0.3)
    printed = benign.replace(intensities=np.r_[np.ones(5), np.full(395, 50 / 395)])
    phases, together = benign.phases(), printed.phases()
    assert float(phases.noise_time / phases.signal_time) > 50
    # The tail's kernel is sum(tail) times the identity, over n; its spread is of order sqrt(n / p).
    assert float(phases.noise_time) == pytest.approx(np.log(2) * 50 / 0.395, rel=0.2)
    assert float(together.noise_time / together.signal_time) < 3
    assert float(benign.learnability().learnability[0]) > 0.98
    assert float(printed.learnability().learnability[0]) < 0.6
    curves = benign.predict([float(phases.signal_time), float(phases.noise_time)])
    assert float(curves.signal_fit[0]) == pytest.approx(float(benign.learnability().learnability[0]) / 2, rel=1e-8)
    assert float(curves.noise_fit[1]) == pytest.approx(0.5, rel=1e-8)


def test_phases_of_the_population() -> None:
    phases = LinearFeatures([2.0, 2.0], [1.0, 3.0], samples=None, noise=0.0).phases(0.25)
    assert float(phases.signal_time) == pytest.approx(-np.log(0.75) / 2, rel=1e-9)
    assert float(phases.noise_time) == np.inf


def test_extreme_spectra_stay_finite() -> None:
    for scale in (1e-250, 1e250):
        model = LinearFeatures(scale * MODES**-1.2, MODES**-0.8, samples=60, noise=0.5)
        found, usual = model.predict(TIMES[1:] / scale), power_law_model().predict(TIMES[1:])
        assert np.allclose(found.test_loss, usual.test_loss, rtol=1e-9)
        assert float(model.kappa) == pytest.approx(scale * float(power_law_model().kappa), rel=1e-12)
    wide = LinearFeatures(10.0 ** -np.arange(0, 40.0, 2), np.ones(20), samples=5, noise=0.1)
    assert np.isfinite(wide.predict(10.0 ** np.arange(-3, 30.0, 4)).test_loss).all()


@pytest.mark.slow
def test_derivatives_and_vectorisation_over_parameters() -> None:
    intensities, target = np.arange(1, 21.0) ** -1, np.arange(1, 21.0) ** -0.5

    def loss(noise: jax.Array, scale: jax.Array) -> jax.Array:
        model = LinearFeatures(scale * intensities, target, samples=8, noise=noise)
        return model.predict([5.0]).test_loss.data[0] + model.limit().test_loss.data + model.kappa

    by_noise, by_scale = jax.grad(loss, argnums=(0, 1))(0.3, 1.0)
    step = 1e-4
    assert float(by_noise) == pytest.approx((loss(0.3 + step, 1.0) - loss(0.3 - step, 1.0)) / (2 * step), abs=1e-7)
    assert float(by_scale) == pytest.approx((loss(0.3, 1 + step) - loss(0.3, 1 - step)) / (2 * step), abs=1e-7)
    many = jax.vmap(lambda noise: loss(noise, 1.0))(jnp.array([0.3, 0.6]))
    assert np.allclose(many, [loss(0.3, 1.0), loss(0.6, 1.0)], rtol=1e-12)


def test_runs_do_not_depend_on_how_many_there_are() -> None:
    model = LinearFeatures([1.0, 0.5, 0.1], [1.0, 0.0, 1.0], samples=2, noise=0.1)
    few, many = (model.simulate([1.0], seeds=n, key=9, **ONE) for n in (2, 5))
    assert np.array_equal(few.labels, many.labels[:2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: LinearFeatures([1.0, -0.1], [1.0, 1.0], samples=None, noise=0.0),
            r"zero or more, but intensities\[1\] = -0.1",
        ),
        (lambda: LinearFeatures([], [], samples=None, noise=0.0), "intensities must be a list"),
        (
            lambda: LinearFeatures([0.0, 0.0], [1.0, 1.0], samples=None, noise=0.0),
            "at least one of the intensities must be positive",
        ),
        (
            lambda: LinearFeatures([1.0, 2.0], [1.0], samples=None, noise=0.0),
            "one coefficient for each intensity, not 1 for 2",
        ),
        (lambda: LinearFeatures([1.0], [np.nan], samples=None, noise=0.0), "target must be"),
        (lambda: LinearFeatures([1.0], [1.0], samples=0, noise=0.0), "samples must be a whole number"),
        (lambda: LinearFeatures([1.0], [1.0], samples=1.5, noise=0.0), "samples must be a whole number"),
        (lambda: LinearFeatures([1.0], [1.0], noise=-1, samples=None), "noise must be"),
        (lambda: LinearFeatures([1.0], [1.0], samples=None, noise=0.0).kappa, "kappa needs a finite number of samples"),
        (
            lambda: LinearFeatures([1.0, 1.0], [1.0, 0.0], samples=5, noise=0.0).learnability(),
            "fewer samples than modes",
        ),
        (
            lambda: LinearFeatures([1.0], [1.0], samples=None, noise=0.0).simulate([1.0]),
            "simulate needs a finite number of samples",
        ),
        (
            lambda: LinearFeatures([1.0, 1.0], [1.0, 0.0], samples=1, noise=0.0).simulate([1.0], features="cosine"),
            "features must",
        ),
        (lambda: LinearFeatures([1.0], [1.0], samples=None, noise=0.0).predict([-1.0]), "not negative"),
        (
            lambda: LinearFeatures([1.0], [1.0], samples=None, noise=0.0).predict([1.0], modes=0),
            "modes must be a whole number",
        ),
        (lambda: LinearFeatures([1.0], [0.0], samples=None, noise=0.0).phases(), "no signal"),
        (lambda: LinearFeatures([1.0], [1.0], samples=None, noise=0.0).phases(1.0), "fraction must lie between"),
        (lambda: LinearFeatures().predict([1.0], GradientDescent(0.1)), "does not cover GradientDescent"),
        (lambda: LinearFeatures().simulate([1.0], GradientFlow(weight_decay=0.1)), "does not cover weight_decay"),
    ],
)
def test_bad_input_is_refused_with_the_rule(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
