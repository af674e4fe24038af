"""Inference with a law whose answers are known: coverage, sharing, robustness, misfit, forecasts and files."""

import dataclasses
import math

import numpy as np
import optax
import pytest

import solvable
from solvable.inference import Law, LawParameter, Run
from solvable.inference.fitting import Problem, fit
from solvable.inference.misfit import lack_of_fit
from solvable.inference.noise import Noise
from solvable.inference.profiles import covariance, profile, rise_at, thresholds

STEPS = np.geomspace(1, 1000, 40)
WHOLE = np.unique(np.round(np.geomspace(1, 1000, 48)))


class Power(Law):
    """floor + amplitude t^-exponent, in the intrinsic time."""

    name = "test-power"
    terms = ("floor", "amplitude")
    parameters = (LawParameter("exponent", 0.05, 2.0, 0.5, natural_step=0.1),)

    def basis(self, theta, run):
        return np.stack([np.ones(run.size), np.maximum(run.flow_time, 1e-9) ** -theta["exponent"]], axis=1)


class Twice(Power):
    """The same with two parameters of which only the sum matters."""

    name = "test-twice"
    parameters = (
        LawParameter("first", 0.0, 1.0, 0.2, natural_step=0.1, remedy="measure the second by itself"),
        LawParameter("second", 0.0, 1.0, 0.2, natural_step=0.1),
    )

    def basis(self, theta, run):
        return super().basis({"exponent": theta["first"] + theta["second"]}, run)


def curve(seed, *, floor=0.3, amplitude=1.0, exponent=0.5, noise=0.01, steps=STEPS, name="one", rho=0.0, **options):
    generator = np.random.default_rng(seed)
    own = generator.normal(size=steps.size)
    for place in range(1, steps.size):
        own[place] = rho * own[place - 1] + math.sqrt(1 - rho**2) * own[place]
    return Run(name, steps, (floor + amplitude * steps**-exponent) * np.exp(noise * own), **options)


def test_projection_finds_the_coefficients_of_a_noiseless_curve():
    problem = Problem(Power(), [curve(0, noise=0.0)], {}, (), Noise())
    point = problem.evaluate(np.array([0.5]))
    np.testing.assert_allclose(point.coefficients, [0.3, 1.0], rtol=1e-9)
    assert point.deviance < 1e-16


def test_profile_agrees_with_the_t_interval_of_a_linear_problem():
    """With the exponent and the floor known the logarithm of the amplitude is a mean, whose t interval is exact."""
    run = curve(1, floor=0.0)
    found = fit(Power(), [run], fixed={"exponent": 0.5, "floor": 0.0}, noise="gaussian")
    one = profile(found, 0, covariance(found))
    logs = np.log(run.loss * STEPS**0.5)
    from scipy.stats import t as student

    half = student.ppf(0.975, 39) * logs.std(ddof=1) / math.sqrt(40)
    np.testing.assert_allclose(
        [one.low.ends[1], one.high.ends[1]], np.exp(logs.mean() + half * np.array([-1, 1])), rtol=3e-4
    )


def covered(rho, replicates, count=100, kind="student-ar1"):
    steps = np.geomspace(1, 1000, count)
    hits = {"exponent": 0, "floor": 0, "amplitude": 0}
    truth = {"exponent": 0.5, "floor": 0.3, "amplitude": 1.0}
    for seed in range(replicates):
        found = fit(Power(), [curve(seed, rho=rho, steps=steps)], noise=kind, starts=4)
        limit = thresholds(found.freedom)[1]
        for name, value in truth.items():
            hits[name] += rise_at(found, name, value) < limit
    return {name: hit / replicates for name, hit in hits.items()}


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_95_percent_intervals_hold_the_truth(rho):
    """20 replicates: 15 or fewer of 20 have a chance of 3e-4 at 95 %."""
    for share in covered(rho, 20, count=60).values():
        assert share > 15 / 20


def test_correlated_noise_called_independent_fails():
    assert min(covered(0.8, 12, count=60, kind="gaussian").values()) < 0.8


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_95_percent_intervals_hold_the_truth_in_300_replicates(rho):
    for share in covered(rho, 300).values():
        assert 0.9 < share <= 0.99


def test_only_the_sum_of_two_parameters_is_determined():
    report = solvable.infer(curve(2), Twice(), backtest=False, starts=1)
    flags = dict(zip(report.parameters.parameter.values, report.parameters.identified.values, strict=True))
    assert flags["first"] != "yes"
    assert flags["second"] != "yes"
    assert flags["floor"] == flags["amplitude"] == "yes"
    assert any("measure the second by itself" in sentence for sentence in report.unidentified)
    worst = report.identifiability.sloppy[0]
    assert set(worst.names) == {"first", "second"}
    assert "against" in worst.text
    assert float(report.correlations.sel(parameter="first", other="second")) < -0.95


def test_shared_and_separate_parameters():
    """Two groups of different exponents: shared they do not fit, separate they are found, with one floor."""
    runs = [curve(3, name="slow", exponent=0.4), curve(4, name="fast", exponent=0.8)]
    shared = solvable.infer(runs, Power(), backtest=False, uncertainty="none")
    separate = solvable.infer(runs, Power(), separate=("exponent",), backtest=False)
    assert shared.misfit.found
    assert not separate.misfit.found
    estimates = separate.parameters
    for group, truth in (("slow", 0.4), ("fast", 0.8)):
        one = estimates.sel(parameter=f"exponent[{group}]")
        assert float(one.low95) < truth < float(one.high95)
    assert [name for name in estimates.parameter.values if name.startswith("floor")] == ["floor"]


def test_spikes_do_not_move_the_estimate():
    run = curve(5)
    loss = run.loss.copy()
    loss[[7, 20, 33]] *= 3.0
    spiked = dataclasses.replace(run, loss=loss)
    report = solvable.infer(spiked, Power(), backtest=False)
    plain = solvable.infer(spiked, Power(), backtest=False, noise="gaussian", uncertainty="none")
    robust = float(report.parameters.estimate.sel(parameter="exponent"))
    assert report.noise.freedom < 5
    assert abs(robust - 0.5) < 0.05
    assert abs(robust - 0.5) < abs(float(plain.parameters.estimate.sel(parameter="exponent")) - 0.5)


def wavy(steps, seed=6):
    """A curve of the law times an oscillation of 2 %, with noise of 1 %."""
    run = curve(seed, steps=steps)
    return dataclasses.replace(run, loss=run.loss * (1 + 0.02 * np.sin(2 * np.log(steps))))


def test_misfit_is_noticed():
    """200 records tell an oscillation from correlated noise; 40 do not, and the report says that; known independence
    of the noise does."""
    assert lack_of_fit(fit(Power(), [wavy(np.geomspace(1, 1000, 200))], starts=2), "student-ar1").found
    few = solvable.infer(wavy(STEPS), Power(), backtest=False, uncertainty="none")
    assert few.misfit.ambiguous
    assert any("either noise or a misfit" in warning for warning in few.warnings)
    known = solvable.infer(wavy(STEPS), Power(), backtest=False, uncertainty="none", noise="gaussian")
    assert known.misfit.found
    assert any("does not fit" in warning for warning in known.warnings)


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_false_alarms_of_the_misfit_test_are_rare(rho):
    """Of 25 curves of the law itself at most two are flagged: more have a chance of 2e-3 at a level of 1 %."""
    alarms = [lack_of_fit(fit(Power(), [curve(seed, rho=rho)], starts=2), "student-ar1").found for seed in range(25)]
    assert sum(alarms) <= 2


def test_a_schedule_enters_as_intrinsic_time():
    """A cosine decay bends the curve in steps; in the sum of the rates the exponent is that of the law."""
    training = solvable.GradientDescent(learning_rate=optax.cosine_decay_schedule(0.1, 1200))
    bare = Run("cosine", WHOLE, np.ones(WHOLE.size)).trained_by(training)
    loss = (0.3 + bare.flow_time**-0.5) * np.exp(0.003 * np.random.default_rng(7).normal(size=WHOLE.size))
    given = solvable.infer((WHOLE, loss), Power(), training=training, backtest=False)
    one = given.parameters.sel(parameter="exponent")
    assert float(one.low95) < 0.5 < float(one.high95)
    assert not given.misfit.found
    unaware = solvable.infer((WHOLE, loss), Power(), backtest=False, uncertainty="none")
    assert (
        abs(float(unaware.parameters.estimate.sel(parameter="exponent")) - 0.5) > 3 * float(one.high95 - one.low95) / 4
    )


def test_forecast_holds_the_truth_and_says_what_its_width_is_made_of():
    report = solvable.infer(curve(8, steps=np.geomspace(1, 1000, 80)), Power())
    ahead = report.predict("10x")
    truth = 0.3 + 1e4**-0.5
    assert float(ahead.time[0]) == 1e4
    assert float(ahead.low95[0]) < truth < float(ahead.high95[0])
    assert float(ahead.low95[0]) < float(ahead.low68[0]) < float(ahead.loss[0]) < float(ahead.high68[0])
    assert float(ahead.noise[0]) > 0
    assert float(ahead.parameters[0]) > 0
    assert "schedule" in ahead.attrs["warnings"]
    wider = report.predict("10x", discrepancy=0.05)
    assert float(wider.discrepancy[0]) == pytest.approx(0.05)
    assert float(wider.high95[0]) > float(ahead.high95[0])


def test_a_forecast_without_a_known_discrepancy_is_refused():
    report = solvable.infer(curve(9), Power(), backtest=False)
    assert float(report.predict("2x").loss[0]) > 0
    with pytest.raises(ValueError, match="is not known, so that a forecast at 10000"):
        report.predict("10x")


def test_comparison_prefers_the_right_law():
    class Exponential(Power):
        name = "test-exponential"
        parameters = (LawParameter("rate", 1e-4, 1.0, 0.01, log=True),)

        def basis(self, theta, run):
            return np.stack([np.ones(run.size), np.exp(-theta["rate"] * run.flow_time)], axis=1)

    report = solvable.infer(curve(10, steps=np.geomspace(1, 1000, 80)), Power())
    table = report.compare(Exponential())
    assert str(table.law.values[0]) == "test-power"
    assert "test-power" in table.attrs["verdict"]
    assert float(table.rms.sel(law="test-exponential")) > 2 * float(table.rms.sel(law="test-power"))
    assert "last value" in table.law.values


def test_a_report_survives_its_file(tmp_path):
    training = solvable.GradientDescent(learning_rate=optax.cosine_decay_schedule(0.1, 2000))
    report = solvable.infer((WHOLE, curve(11, steps=WHOLE).loss), Power(), training=training)
    path = report.save(tmp_path / "report.nc")
    again = solvable.InferenceReport.load(path, Power())
    np.testing.assert_allclose(again.parameters.low95.values, report.parameters.low95.values)
    assert again.warnings == report.warnings
    assert again.summary() == report.summary()
    at = [100.0, 900.0]
    np.testing.assert_allclose(again.predict(at).high95.values, report.predict(at).high95.values, rtol=1e-5)
    assert "exponent" in again._repr_html_()
    with pytest.raises(ValueError, match="is not an inference report"):
        solvable.InferenceReport.load(solvable.save(report.parameters, tmp_path / "other.nc"))


def test_figure_has_data_fit_residuals_and_profiles():
    figure = solvable.infer(curve(12), Power()).plot()
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["data, fit and forecast (95 %)", "residuals", "profile likelihood"]
