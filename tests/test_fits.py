"""Fits over curves and sweeps: exact laws come back, models agree by a second route, errors mean what they say."""

import math

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from solvable import GradientFlow, fits
from solvable.models.feature_scaling import FeatureScaling
from solvable.models.skills import SkillModel
from solvable.numerics import fits as engine
from solvable.numerics.envelope import at_costs, lowest

X = np.geomspace(1, 1e4, 25)


@given(st.floats(-5, 5), st.floats(1e-6, 1e6), st.integers(3, 30))
def test_exact_power_laws_come_back(exponent: float, prefactor: float, count: int) -> None:
    x = np.sort(np.random.default_rng(count).uniform(0.1, 1e3, count))
    fit = fits.power_law(prefactor * x**-exponent, x, resamples=0)
    # Rounding of the logarithms, up to 40 here, over the spread of log x.
    assert float(fit.exponent) == pytest.approx(exponent, abs=1e-12)
    assert float(fit.prefactor) == pytest.approx(prefactor, rel=1e-11)
    slopes = fits.local_exponent(prefactor * x**-exponent, x).exponent
    gap = np.diff(np.log(x)).min()
    np.testing.assert_allclose(slopes, exponent, atol=1e-13 / min(gap, 1.0))


def test_least_squares_are_those_of_numpy() -> None:
    y = X**-0.5 * np.exp(np.random.default_rng(1).normal(size=X.size))
    slope, height = np.polyfit(np.log(X), np.log(y), 1)
    fit = fits.power_law(y, X, resamples=0)
    assert float(fit.exponent) == pytest.approx(-slope, rel=1e-12)
    assert float(fit.prefactor) == pytest.approx(np.exp(height), rel=1e-12)
    weights = np.random.default_rng(2).uniform(0.1, 3, X.size)
    expected = np.polyfit(np.log(X), np.log(y), 1, w=np.sqrt(weights))
    np.testing.assert_allclose(engine.straight_line(np.log(X), np.log(y), weights), expected, rtol=1e-12)


def test_local_exponents_are_of_second_order_on_uneven_grids() -> None:
    """Of exp(-log(x)^3), 3 log(x)^2: a grid twice as fine has a quarter of the error, at the ends too."""
    worst = []
    for count in (20, 40, 80):
        steps = np.linspace(0, 1, count) ** 1.5 * 2 + 0.1
        slopes = fits.local_exponent(np.exp(-(steps**3)), np.exp(steps)).exponent
        off = np.abs(slopes.values - 3 * steps**2)
        worst.append((off[1:-1].max(), off[-1]))
    inner, last = np.log2(np.array(worst)[:-1] / np.array(worst)[1:]).T
    assert (inner > 1.8).all()
    assert (last > 1.8).all()


def test_local_exponents_know_their_errors() -> None:
    """Spread of slopes over 4000 noisy curves, known to 1.1 %; false alarm of 4 such: one in 16 000 a point."""
    generator = np.random.default_rng(3)
    x = np.sort(generator.uniform(1, 50, 9))
    errors = 0.01 * x**-0.5
    noisy = x**-0.5 + errors * generator.normal(size=(4000, 9))
    found = fits.local_exponent(x**-0.5, x, errors=errors).exponent_error.values
    spread = fits.local_exponent(noisy, x).exponent.values.std(0)
    np.testing.assert_allclose(spread, found, rtol=0.045)


def test_errors_of_seeds_know_that_points_fluctuate_together() -> None:
    """Runs that differ by a factor alone have all the same slope, so that there is no error at all."""
    factors = np.random.default_rng(4).uniform(0.5, 2, 10)
    runs = xr.DataArray(factors[:, None] * X**-1.2, dims=("seed", "time"), coords={"time": X})
    found = fits.local_exponent(runs)
    np.testing.assert_allclose(found.exponent, 1.2, rtol=1e-12)
    assert float(found.exponent_error.max()) < 1e-12
    fit = fits.power_law(runs, resamples=200)
    assert fit.attrs["resample"] == "seeds"
    assert float(fit.exponent_error) < 1e-12
    # The prefactor is the mean of ten factors.
    expected = factors.std(ddof=1) / np.sqrt(10)
    assert float(fit.prefactor_error) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("exponent", [2.0, 0.7, 0.1, -0.3, -1.5])
@pytest.mark.parametrize("offset", [0.3, 5.0])
def test_offsets_come_back(exponent: float, offset: float) -> None:
    fit = fits.power_law(offset + 2 * X**-exponent, X, offset=True, resamples=0)
    # Golden section finds the place of a minimum to the square root of rounding.
    assert float(fit.exponent) == pytest.approx(exponent, rel=1e-5)
    assert float(fit.offset) == pytest.approx(offset, rel=1e-4)
    assert float(fit.prefactor) == pytest.approx(2, rel=1e-4)


def test_a_logarithm_is_the_power_zero_beside_an_offset() -> None:
    fit = fits.power_law(20 - np.log(X), X, offset=True, resamples=0)
    assert abs(float(fit.exponent)) < 1e-5


def test_windows_find_the_branches_of_a_broken_power_law() -> None:
    x = np.geomspace(1, 1e6, 61)
    broken = x**-0.5 / (1 + x / 1e3) ** 1.0
    # Local exponents are 0.5 + u/(1+u), u = x/1000: within 0.02 below u = 0.0204 and above u = 47, 1.3 decades each
    # on this grid. Of equals the later one is taken.
    fit = fits.power_law(broken, x, window="straight", drift=0.02)
    assert (float(fit["first"]), float(fit["last"])) == (pytest.approx(5.01e4, rel=1e-3), x[-1])
    assert float(fit.exponent) == pytest.approx(1.49, abs=0.01)
    early = fits.straight_window(broken[:40], x[:40], drift=0.02)
    assert (float(early["first"]), float(early["last"])) == (1.0, pytest.approx(19.95, rel=1e-3))
    assert "window" in early["first"].attrs["long_name"]
    whole = fits.power_law(broken, x)
    assert float(whole.exponent_drift) > 0.5
    # Without a drift to speak of everything is straight.
    whole = fits.straight_window(x**-0.5, x)
    assert (float(whole["first"]), float(whole["last"])) == (1.0, 1e6)


@pytest.mark.parametrize("offset", [False, True])
def test_what_lies_outside_the_window_is_not_looked_at(offset: bool) -> None:
    """Growth from zero, a missing number, or the time zero: only the window must have a logarithm."""
    x = np.concatenate([[0.0, 1.0], np.geomspace(2, 100, 12), [200.0, 300.0]])
    y = 3 * np.maximum(x, 1e-9) ** -0.7 + (0.5 if offset else 0.0)
    expected = fits.power_law(y[2:-2], x[2:-2], offset=offset, resamples=0)
    y[[0, 1, -2, -1]] = -1.0, 0.0, np.nan, np.inf
    found = fits.power_law(y, x, window=(2.0, 100.0), offset=offset, resamples=0)
    xr.testing.assert_equal(found, expected)
    curve = xr.DataArray([y, y], {"time": x}, ("seed", "time"))
    xr.testing.assert_allclose(fits.power_law(curve, window=(2.0, 100.0), offset=offset, resamples=0), expected)
    with pytest.raises(ValueError, match="finite|positive"):
        fits.power_law(y, x, window=(2.0, 200.0), offset=offset)
    with pytest.raises(ValueError, match="positive"):
        fits.power_law(y, x, offset=offset)
    with pytest.raises(ValueError, match="increasing"):
        fits.power_law(y[:0:-1], x[:0:-1], window=(2.0, 100.0), offset=offset)
    with pytest.raises(ValueError, match="too few"):
        fits.power_law(y, x, window=(400.0, 500.0), offset=offset)
    with pytest.raises(ValueError, match=r"a pair of x.*not \(2.0,\)"):
        fits.power_law(y, x, window=(2.0,), offset=offset)


def test_windows_allow_for_noise() -> None:
    """Noise of 2 % makes local exponents jump by 0.1; told of it, the window is that of the curve without noise."""
    x = np.geomspace(1, 1e6, 61)
    broken = np.minimum(x**-0.3, x**-1.3 * 1e2)
    noisy = broken * np.exp(0.02 * np.random.default_rng(5).normal(size=61))
    with pytest.raises(ValueError, match="allow more drift"):
        fits.straight_window(noisy, x, drift=0.02)
    told = fits.straight_window(noisy, x, drift=0.02, errors=0.02 * broken)
    assert float(told["first"]) == pytest.approx(100, rel=0.8)
    assert float(told["last"]) == 1e6


def coverage(draw, how: str, offset: bool = False, trials: int = 400) -> tuple[float, float]:
    """How often intervals of 68 % and of 95 % hold the true exponent, 0.7, in many experiments."""
    inside = np.zeros((trials, 2))
    for trial in range(trials):
        generator = np.random.default_rng([7, trial])
        values, errors = draw(generator)
        drawn = engine.resample(values.x.values, values.values, errors, offset, how, 300, generator)
        for place, confidence in enumerate((0.68, 0.95)):
            _, low, high = engine.error_and_interval(drawn.laws.exponent, drawn, confidence)
            inside[trial, place] = low <= 0.7 <= high
    return tuple(inside.mean(0))


def alike(generator: np.random.Generator, offset: float = 0.0):
    x = np.geomspace(1, 100, 14)
    return xr.DataArray((offset + 3 * x**-0.7) * np.exp(0.05 * generator.normal(size=14)), {"x": x}, ("x",)), None


def known(generator: np.random.Generator):
    x = np.geomspace(1, 100, 8)
    errors = 3 * x**-0.7 * np.geomspace(0.01, 0.2, 8)
    return xr.DataArray(3 * x**-0.7 + errors * generator.normal(size=8), {"x": x}, ("x",)), errors


def uneven(generator: np.random.Generator):
    x = np.geomspace(1, 100, 30)
    return xr.DataArray(
        3 * x**-0.7 * np.exp(np.geomspace(0.01, 0.3, 30) * generator.normal(size=30)), {"x": x}, "x"
    ), None


def seeds(generator: np.random.Generator):
    """Eight runs that walk away from the mean, so that neighbouring points go together."""
    x = np.geomspace(1, 100, 10)
    walk = 0.1 * np.cumsum(generator.normal(size=(8, 10)), axis=1)
    return xr.DataArray(3 * x**-0.7 * (1 + walk), {"x": x}, ("seed", "x")), None


# 400 experiments know a coverage of 68 % to 2.3 %, of 95 % to 1.1 %. Allowed are 3 of these and what is known of the
# methods: seven runs short of infinity lose up to 3 %. False alarms: 1 in 300 each, were the seeds not fixed.
@pytest.mark.parametrize(("draw", "how"), [(alike, "residuals"), (known, "errors"), (seeds, "seeds")])
def test_intervals_hold_the_truth_as_often_as_they_say(draw, how: str) -> None:
    most, nearly_all = coverage(draw, how)
    assert most == pytest.approx(0.68, abs=0.08)
    assert nearly_all == pytest.approx(0.95, abs=0.045)


def test_pairs_are_for_noise_that_is_not_alike() -> None:
    """Noise that grows along x by a factor of thirty, where the lever is longest: pairs still hold 95 % of the time but
    for 5 %, while residuals, mixed over all points, give intervals that are far too short."""
    most, nearly_all = coverage(uneven, "pairs")
    assert most == pytest.approx(0.68, abs=0.08)
    assert 0.89 < nearly_all < 0.97
    # Measured: 50 %, known to 4 %.
    assert coverage(uneven, "residuals", trials=150)[0] < 0.6


@pytest.mark.slow
def test_intervals_beside_an_offset() -> None:
    most, nearly_all = coverage(lambda generator: alike(generator, 0.5), "residuals", offset=True)
    assert most == pytest.approx(0.68, abs=0.08)
    assert nearly_all == pytest.approx(0.95, abs=0.045)


def test_feature_scaling_bottleneck_by_fits() -> None:
    """What few features leave falls as N^(-αβ) on hard tasks; the first correction goes as N^(-α(1 - β)) = 3e-6."""
    sizes = 2.0 ** np.arange(20, 23)
    losses = [float(FeatureScaling(1.5, 0.4, features=int(size), modes=math.inf).limit().test_loss) for size in sizes]
    assert float(fits.power_law(losses, sizes, resamples=0).exponent) == pytest.approx(0.6, abs=1e-4)


@pytest.mark.slow
def test_feature_scaling_exponent_by_fits() -> None:
    """Features that learn: 2β/(1 + β), reached to 0.006 at t = 1e5 to 1e6 (fig. 1 of the paper's folder)."""
    curve = FeatureScaling(1.5, 0.4, modes=math.inf).predict(np.geomspace(1e4, 1e6, 13), GradientFlow(0.1)).test_loss
    assert float(fits.power_law(curve, window=(1e5, 1e6), resamples=0).exponent) == pytest.approx(0.8 / 1.4, abs=6e-3)


@pytest.fixture(scope="module")
def family() -> xr.Dataset:
    sizes = np.unique(np.round(np.geomspace(10, 3000, 32)))
    return SkillModel(0.6, skills=math.inf).losses(np.geomspace(1e2, 1e7, 51), [*sizes, np.inf])


def test_skills_exponent_by_fits(family: xr.Dataset) -> None:
    """Without a limit on the basis: α/(1 + α), from a curve that becomes a power."""
    fit = fits.power_law(family.test_loss.sel(basis=np.inf), window="straight", drift=1e-3)
    assert float(fit.exponent) == pytest.approx(0.6 / 1.6, abs=1e-4)
    assert float(fit.last) == 1e7


def test_envelope_of_skills_is_their_compute_optimum(family: xr.Dataset) -> None:
    budgets = np.geomspace(1e5, 1e9, 33)
    loss = family.test_loss.isel(basis=slice(-1))
    found = fits.envelope(loss.time * loss.basis, loss, budgets)
    best = SkillModel(0.6, skills=math.inf).compute_optimal(budgets)
    off = np.abs(found.test_loss.values - best.test_loss.values)
    # The estimate is one, not a bound: at most three times too small at these 32 sizes, and never large.
    assert (off < 3 * found.test_loss_error).all()
    assert float((found.test_loss_error / best.test_loss).max()) < 0.015
    np.testing.assert_allclose(found.optimal_basis, best.basis, rtol=0.04)
    np.testing.assert_allclose(found.optimal_time * found.optimal_basis, budgets, rtol=1e-9)
    assert found.bracketed.all()
    # Better than the best size of the family.
    members = [(loss.time.values * size, loss.sel(basis=size).values) for size in loss.basis.values]
    tried = np.min([at_costs(*member, budgets)[0] for member in members], axis=0)
    assert np.mean((off / best.test_loss) ** 2) < 0.5 * np.mean((tried / best.test_loss - 1) ** 2)
    slope = fits.power_law(found.test_loss, "budget", resamples=0)
    assert float(slope.exponent) == pytest.approx(0.6 / 2.6, abs=2e-3)


def test_envelope_in_closed_form() -> None:
    """Of ``1/N + 1/t`` at cost ``N t``: 2 C^(-1/2) at N = t = C^(1/2)."""
    sizes, times = np.geomspace(1, 1e4, 25), np.geomspace(1, 1e4, 60)
    loss = xr.DataArray(1 / sizes + 1 / times[:, None], {"time": times, "size": sizes}, ("time", "size"), name="loss")
    budgets = np.geomspace(1e2, 1e6, 20)
    found = fits.envelope(loss.time * loss["size"], loss, budgets)
    # In u = log N the loss is a hyperbolic cosine, and the fourth derivative of its logarithm is 2: a parabola on steps
    # of 0.38 misses its minimum by at most 2/24 0.38^4 9/16.
    np.testing.assert_allclose(found.loss, 2 * budgets**-0.5, rtol=1e-3)
    assert (np.abs(found.loss - 2 * budgets**-0.5) < found.loss_error + 1e-9).all()
    np.testing.assert_allclose(found.optimal_size, budgets**0.5, rtol=3e-3)
    np.testing.assert_allclose(found.optimal_time, budgets**0.5, rtol=3e-3)


def test_envelope_says_where_the_family_ends() -> None:
    sizes, times = np.geomspace(1, 10, 8), np.geomspace(1, 1e4, 40)
    loss = xr.DataArray(1 / sizes + 1 / times[:, None], {"time": times, "size": sizes}, ("time", "size"), name="loss")
    found = fits.envelope(loss.time * loss["size"], loss, [20.0, 1e4])
    np.testing.assert_array_equal(found.bracketed, [True, False])
    assert np.isinf(found.loss_error[1])
    assert float(found.optimal_size[1]) == pytest.approx(10)


def test_envelopes_keep_other_dimensions_and_use_seeds() -> None:
    """Noise of 1 % in all of a run; eight seeds know their mean to 0.35 %, estimated to a quarter of itself."""
    sizes, times, scale = np.geomspace(1, 1e3, 61), np.geomspace(1, 1e3, 40), np.array([1.0, 3.0])
    clean = scale[:, None, None] * (1 / sizes + 1 / times[:, None])
    factor = 1 + 0.01 * np.random.default_rng(6).normal(size=(8, 1, 1, 1))
    loss = xr.DataArray(
        factor * clean,
        {"scale": scale, "time": times, "size": sizes},
        ("seed", "scale", "time", "size"),
        name="loss",
    )
    found = fits.envelope(loss.time * loss["size"], loss, [100.0, 1e4])
    assert found.loss.dims == ("scale", "budget")
    np.testing.assert_allclose(found.loss.sel(scale=3.0), 3 * found.loss.sel(scale=1.0))
    spread = factor.std(ddof=1) / np.sqrt(8)
    np.testing.assert_allclose(found.loss_error / found.loss, spread, rtol=0.2)


@given(st.floats(0.2, 3), st.floats(0.2, 3), st.floats(0.3, 3))
def test_parabolas_are_exact(curvature: float, place: float, depth: float) -> None:
    places = np.geomspace(0.01, 100, 9)
    found = lowest(places, depth * np.exp(curvature * np.log(places / place) ** 2))
    assert float(found.depth) == pytest.approx(depth, rel=1e-9)
    assert float(found.place) == pytest.approx(place, rel=1e-9)
    assert bool(found.bracketed)


def test_sweeps_are_fitted_curve_by_curve() -> None:
    exponents = xr.DataArray([0.5, 1.0, 2.0], dims="source", coords={"source": [1, 2, 3]})
    x = xr.DataArray(X, dims="time", coords={"time": X})
    found = fits.power_law(2 * x**-exponents, resamples=0)
    assert found.exponent.dims == ("source",)
    np.testing.assert_allclose(found.exponent, exponents, rtol=1e-12)
    np.testing.assert_array_equal(found.source, [1, 2, 3])
    # Any place of the dimension gives the same.
    np.testing.assert_array_equal(fits.power_law((2 * x**-exponents).T, resamples=0).exponent, found.exponent)


def test_everything_says_what_it_is() -> None:
    data = fits.power_law(X**-1.0, X, offset=True)
    for name, array in data.data_vars.items():
        assert array.attrs["long_name"], name
    assert "68 %" in data.exponent_low.attrs["long_name"]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: fits.power_law([1.0, -2.0, 3.0], [1.0, 2.0, 3.0]), "must be positive.*-2 at x = 2"),
        (lambda: fits.power_law([1.0, np.nan, 3.0], [1.0, 2.0, 3.0]), "must be positive"),
        (lambda: fits.power_law([1.0, np.inf, 3.0], [1.0, 2.0, 3.0]), "must be finite"),
        (lambda: fits.power_law([1.0, 2.0, 3.0], [0.0, 2.0, 3.0]), "leave zero out"),
        (lambda: fits.power_law([1.0, 2.0, 3.0], [2.0, 2.0, 3.0]), "must be increasing"),
        (lambda: fits.power_law([1.0], [1.0]), "1 points are too few"),
        (lambda: fits.power_law([1.0, 2.0], [1.0, 2.0]), "2 points are too few: give at least 3"),
        (lambda: fits.power_law(X, X, window=(2.0, 3.0)), "too few.*widen the window"),
        (lambda: fits.power_law(X, X, window="best"), "window must be"),
        (lambda: fits.power_law(np.ones(25), X, offset=True), "no power beside an offset fits"),
        (lambda: fits.power_law(1 + np.exp(-20 * X[:4]), X[:4], offset=True), "no power beside an offset fits"),
        (lambda: fits.power_law(X, X, resample="errors"), "pass errors="),
        (lambda: fits.power_law(X, X, resample="some"), "resample must be"),
        (lambda: fits.power_law(X, X, resamples=3), "at least 100"),
        (lambda: fits.power_law(X, X, confidence=68), "confidence must lie"),
        (lambda: fits.power_law(X, X, errors=0.0), "errors must be positive"),
        (lambda: fits.power_law(X), "pass x="),
        (lambda: fits.power_law(xr.DataArray(X, dims="t"), "time"), "no dimension 'time'"),
        (lambda: fits.power_law(xr.DataArray([X, X], dims=("seed", "x"), coords={"x": X}), "x"), "2 seeds are too few"),
        (lambda: fits.straight_window(np.exp(-X[:12]), X[:12]), "allow more drift"),
        (lambda: fits.straight_window(X, X, drift=0.0), "drift must be"),
        (lambda: fits.straight_window(np.array([X, X]), X), "select along axis_0"),
    ],
)
def test_bad_input(call, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call()


def test_envelopes_refuse_what_they_cannot_do(family: xr.Dataset) -> None:
    loss = family.test_loss.isel(basis=slice(-1))
    with pytest.raises(ValueError, match="one dimension that numbers the family"):
        fits.envelope(loss.time, loss)
    with pytest.raises(ValueError, match="no run has the cost 1e\\+20"):
        fits.envelope(loss.time * loss.basis, loss, [1e20])
    with pytest.raises(ValueError, match="cost must rise"):
        fits.envelope(loss.basis / loss.time, loss)
