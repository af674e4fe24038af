"""The noise of batches in the law of feature scaling: its tables against other routes, and what curves tell of it."""

import dataclasses
import math

import numpy as np
import pytest

import solvable
from solvable.inference import Run, differentiable_curves, feature_curves
from solvable.inference.emulator import Axis, Emulator
from solvable.inference.feature_scaling_law import FeatureScalingLaw
from solvable.inference.fitting import Fit, fit
from solvable.inference.profiles import BetterOptimumError, covariance, profile
from solvable.inference.splines import Grid
from solvable.inference.theory_laws import Curve
from solvable.precision import in_float64

TIMES = np.geomspace(1, 300, 40)
# The noise of a batch of one sample.
NOISE = 0.1


def batches(*sizes, noise=NOISE, scatter=0.01, seed=0, **changes):
    """Runs from the tables, with batches of these sizes and scatter of their records."""
    runs = []
    for place, size in enumerate(sizes):
        logs = feature_curves.emulated(1.5, 0.5, 1.0, math.inf, noise / size)
        curve = Curve(Grid(np.log(feature_curves.TIMES)), logs, feature_curves.initial(1.5, 0.5))(TIMES) + 0.02
        wobble = np.exp(scatter * np.random.default_rng([seed, place]).normal(size=TIMES.size))
        known = {} if math.isinf(size) else {"batch_size": size}
        runs.append(Run(f"B = {size:g}", TIMES, curve * wobble, sizes=known, group="all"))
    return [dataclasses.replace(run, **changes) for run in runs]


def names(law):
    return [one.name for one in law.parameters]


def test_an_axis_with_a_shift_reaches_zero_and_survives_its_file(tmp_path):
    axis = Axis.between("noise", 0.0, 0.05, 6, log=True, shift=1e-3)
    assert axis.nodes[[0, -1]].tolist() == [0.0, 0.05]
    times = np.ones(2)

    def curve(noise):
        return math.log(1 + 1e3 * noise) ** 5 * times

    built = Emulator.build(curve, (axis,), times)
    path = tmp_path / "one.npz"
    path.write_bytes(built.to_bytes())
    again = Emulator.read(path)
    for noise in (0.0, 1e-5, 0.013):
        np.testing.assert_allclose(again(noise=noise), curve(noise), rtol=1e-5, atol=1e-4)
    assert built.error < 1e-9


def test_lazy_noise_is_that_of_the_linear_equations_of_the_modes():
    """``dV_k / dt = -2 lambda_k V_k + noise m_k lambda_k L`` with ``L = sum_k lambda_k V_k``, by a matrix exponential.

    The slot march has an error of 1e-3 with 24 steps per decade.
    """
    from scipy.linalg import expm

    modes, noise = feature_curves._modes(1.5, 0.5), 0.04
    values, counts, targets = (np.asarray(part, float) for part in modes[1:])
    # In the parts lambda_k V_k of the loss.
    matrix = -2 * np.diag(values) + noise * np.outer(counts * values**2, np.ones(values.size))
    ratio = feature_curves.noise_ratio(1.5, 0.5, 0.0, noise)
    for place in (20, 40, 60):
        time = feature_curves.TIMES[place]
        noisy = (expm(matrix * time) @ (values * targets)).sum()
        clean = (np.exp(-2 * values * time) * values * targets).sum()
        np.testing.assert_allclose(ratio[place], math.log(noisy / clean), atol=1.5e-3)


def test_rich_noise_is_that_of_small_steps():
    """Batches of one sample against full batches, both marched step by step: their ratio has little error of steps."""
    times, rate = np.array([40, 120, 400]), 0.05
    model = solvable.FeatureScaling(capacity=1.5, source=0.5, richness=1.0, modes=math.inf)
    noisy = model.predict(times, solvable.SGD(rate, batch_size=1)).test_loss.values
    clean = model.predict(times, solvable.GradientDescent(rate)).test_loss.values
    ratio = feature_curves.noise_ratio(1.5, 0.5, 1.0, rate)
    found = np.interp(np.log(times * rate), np.log(feature_curves.TIMES), ratio)
    # The noise raises the loss by a third.
    assert noisy[-1] / clean[-1] > 1.3
    np.testing.assert_allclose(np.exp(found), noisy / clean, rtol=0.03)


@pytest.mark.parametrize(("richness", "early", "late"), [(0.0, 3e-4, 3e-4), (0.4, 5e-3, 0.06)])
def test_tables_of_noise_agree_with_the_solver_between_their_nodes(richness, early, late):
    """Where features learn, the noise of late times depends most on all parameters; the solver corrects a fit there."""
    point = (1.37, 0.62, richness, math.inf)
    assert 1.5 * feature_curves.emulator_error(richness, math.inf, 0.007) < late
    for noise in (3e-4, 0.007):
        gap = np.abs(feature_curves.emulated(*point, noise) - feature_curves.exact(*point, noise))
        assert gap.max() < 1.5 * feature_curves.emulator_error(richness, math.inf, noise)
        assert gap[feature_curves.TIMES < 1e3].max() < early
    np.testing.assert_allclose(feature_curves.emulated(*point, 1e-12), feature_curves.emulated(*point), atol=1e-7)


@in_float64
@pytest.mark.parametrize("richness", [0.0, 0.4])
def test_curves_with_noise_in_jax_are_those_of_numpy(richness):
    found = differentiable_curves.emulated(1.37, 0.62, richness, math.inf, 0.007)
    np.testing.assert_allclose(found, feature_curves.emulated(1.37, 0.62, richness, math.inf, 0.007), rtol=1e-10)


def profiles_of(found):
    """Profiles of all parameters; from the better optimum, where one of them finds that."""
    spread = covariance(found)
    try:
        return {one.label: profile(found, number, spread) for number, one in enumerate(found.problem.space)}
    except BetterOptimumError as better:
        return profiles_of(Fit(found.problem, found.problem.minimise(better.point.coordinates), []))


def open_sides(runs):
    return profiles_of(fit(FeatureScalingLaw().prepare(runs), runs, starts=16))


def test_one_curve_does_not_determine_the_noise_and_full_batches_beside_small_ones_do():
    one = open_sides(batches(4.0, seed=1))
    assert one["batch_noise"].identified != "yes"
    assert one["capacity"].identified != "yes"
    three = open_sides(batches(math.inf, 16.0, 4.0, seed=2))
    # The capacity has a standard error of 0.2 in a box of 0.8.
    for name, truth in {"source": 0.5, "richness": 1.0, "batch_noise": NOISE}.items():
        assert three[name].identified == "yes"
        # Four standard errors, so that the seed does not matter.
        low, high = three[name].low.ends[1], three[name].high.ends[1]
        assert low / (high / low) ** 0.5 < truth < high * (high / low) ** 0.5


def test_the_report_keeps_the_noise(tmp_path):
    """Through a file; the law is corrected by the solver for both sizes, and a prediction needs no new batch size."""
    runs = batches(math.inf, 4.0)
    report = solvable.infer(runs, "feature-scaling", uncertainty="none", backtest=False, starts=4)
    assert {size for _, size in report.fit.problem.law.corrections} == {math.inf, 4.0}
    assert 0 < report.emulator_error < 0.05
    again = solvable.InferenceReport.load(report.save(tmp_path / "report.nc"))
    np.testing.assert_allclose(again.parameters.estimate, report.parameters.estimate)
    at = [50.0, 500.0]
    np.testing.assert_allclose(again.predict(at).loss, report.predict(at).loss)


def test_noise_is_left_out_where_there_are_no_tables_of_it_and_said_so():
    falling = batches(4.0, schedule=lambda step: 1 / (1 + 0.01 * step), flow_time=None)
    wide = batches(4.0, sizes={"batch_size": 4.0, "width": 64.0})
    for runs, reason in ((falling, "a schedule of its learning rate"), (wide, "a width")):
        law = FeatureScalingLaw().prepare(runs)
        assert "batch_noise" not in names(law)
        notes = law.check(runs)
        assert any("noise of the batches is left out" in note and reason in note for note in notes), notes
    plain = batches(4.0)
    assert "batch_noise" in names(FeatureScalingLaw().prepare(plain))
    assert not any("left out" in note for note in FeatureScalingLaw().prepare(plain).check(plain))
    assert "batch_noise" not in names(FeatureScalingLaw().prepare(batches(math.inf)))


def test_a_noise_that_is_known_to_be_zero_is_that_of_full_batches():
    runs = batches(4.0)
    law = FeatureScalingLaw().prepare(runs)
    theta = {"capacity": 1.5, "source": 0.5, "richness": 1.0, "time_unit": 1.0}
    full = batches(math.inf)
    expected = FeatureScalingLaw().prepare(full).basis(theta, full[0])
    np.testing.assert_allclose(law.basis({**theta, "batch_noise": 0.0}, runs[0]), expected, rtol=1e-12)


def test_batch_sizes_must_be_positive():
    with pytest.raises(ValueError, match=r"run 'B = 4': batch_size must be positive, not 0"):
        FeatureScalingLaw().prepare(batches(4.0, sizes={"batch_size": 0.0}))


def test_for_networks_of_the_model_the_noise_is_the_time_unit():
    """Steps of SGD marched one by one: with times in steps both are the learning rate, which the fit is not told.

    Full batches, and batches of eight and of two samples. Steps of 0.05 in place of a flow, and the march, which knows
    nothing of slots, leave a few per cent.
    """
    steps, rate = np.unique(np.round(np.geomspace(20, 600, 25))), 0.05
    model = solvable.FeatureScaling(capacity=1.5, source=0.5, richness=1.0, modes=math.inf)
    runs = []
    for size in (math.inf, 8, 2):
        full = math.isinf(size)
        training = solvable.GradientDescent(rate) if full else solvable.SGD(rate, batch_size=size)
        loss = model.predict(steps, training).test_loss.values
        wobble = np.exp(0.003 * np.random.default_rng(len(runs)).normal(size=steps.size))
        runs.append(Run(f"B = {size}", steps, loss * wobble, sizes={} if full else {"batch_size": size}, group="all"))
    found = fit(FeatureScalingLaw().prepare(runs), runs, fixed={"capacity": 1.5, "floor": 0.0}, starts=8)
    theta = found.problem.theta(found.best.coordinates, "all")
    assert abs(theta["time_unit"] / rate - 1) < 0.1
    assert abs(theta["batch_noise"] / theta["time_unit"] - 1) < 0.15
    assert abs(theta["source"] - 0.5) < 0.02
