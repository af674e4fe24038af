"""Laws from solvable models: tables against solvers, wrong models noticed, one curve against three widths."""

import math

import numpy as np
import pytest
from scipy.special import zeta

import solvable
from solvable.inference import Run, feature_curves, run_of_dataset
from solvable.inference.emulator import Axis, Emulator, cached
from solvable.inference.feature_scaling_law import FeatureScalingLaw
from solvable.inference.fitting import fit
from solvable.inference.misfit import lack_of_fit
from solvable.inference.model_law import ModelLaw
from solvable.inference.profiles import covariance, profile
from solvable.inference.registry import find_law
from solvable.inference.splines import Grid
from solvable.inference.theory_laws import Curve

TIMES = np.geomspace(1, 1000, 40)
TRUTH = {"capacity": 1.5, "source": 0.5, "richness": 1.0}


def features(width=math.inf, richness=1.0, noise=0.01, seed=0, floor=0.02):
    """A run of the tables, with noise."""
    logs = feature_curves.emulated(TRUTH["capacity"], TRUTH["source"], richness, width)
    curve = Curve(Grid(np.log(feature_curves.TIMES)), logs, feature_curves.initial(1.5, 0.5))
    loss = (curve(TIMES) + floor) * np.exp(noise * np.random.default_rng(seed).normal(size=TIMES.size))
    sizes = {} if math.isinf(width) else {"width": width}
    return Run(f"N = {width:g}", TIMES, loss, sizes=sizes, group="all")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("SOLVABLE_CACHE", str(tmp_path_factory.getbasetemp() / "emulators"))


def test_emulator_of_a_polynomial_is_exact_and_survives_its_file(tmp_path):
    axes = (Axis.between("a", 1.0, 2.0, 4), Axis.between("b", 0.1, 10.0, 5, log=True))
    times = np.array([0.0, 1.0, 2.0])

    def curve(a, b):
        return a**3 * times + math.log(b) ** 2

    built = []

    def build():
        built.append(1)
        return Emulator.build(curve, axes, times)

    first = cached("test", {"of": "a polynomial"}, build, tmp_path)
    again = cached("test", {"of": "a polynomial"}, build, tmp_path)
    assert len(built) == 1
    assert first.error < 1e-12
    np.testing.assert_allclose(again(a=1.3, b=3.0), curve(1.3, 3.0), rtol=1e-6)


def test_lazy_curve_is_the_sum_over_modes():
    """Against 2e6 modes, whose tail of the signal, an integral, is still there at these times."""
    ranks = np.arange(1.0, 2e6 + 1)
    signal, values = ranks**-1.75, ranks**-1.5
    times = feature_curves.TIMES[[10, 30, 50]]
    tail = zeta(1.75, 2e6 + 1)
    direct = [float((signal * np.exp(-2 * values * time)).sum()) + tail for time in times]
    np.testing.assert_allclose(np.exp(feature_curves.lazy(1.5, 0.5))[[10, 30, 50]], direct, rtol=1e-4)


def test_tables_agree_with_the_solvers_between_their_nodes():
    """At a point that is no node; the solver corrects the law there, and finite widths end at the closed formula."""
    point = (1.37, 0.62, 0.4)
    gap = np.abs(feature_curves.emulated(*point) - feature_curves.exact(*point)).max()
    assert gap < 1.5 * feature_curves.emulator_error(0.4, math.inf) < 2e-3
    run = features(20.0)
    theta = {"capacity": 1.37, "source": 0.62, "richness": 0.4, "time_unit": 1.0}
    law = FeatureScalingLaw().prepare([run]).exact(theta, [run])
    finite = law.corrections[20.0, math.inf]
    assert np.abs(finite).max() < 1.5 * feature_curves.emulator_error(0.4, 20.0) < 0.012
    exact = feature_curves.emulated(*point, 20.0) + finite
    np.testing.assert_allclose(math.exp(exact[-1]), feature_curves.plateau(1.37, 0.62, 20.0), rtol=1e-6)
    through = Curve(Grid(np.log(feature_curves.TIMES)), exact, 1.0)(TIMES)
    np.testing.assert_allclose(law.basis(theta, run)[:, 0], through, rtol=1e-9)


def flags(runs):
    found = fit(FeatureScalingLaw().prepare(runs), runs, starts=8)
    spread = covariance(found)
    return {one.label: profile(found, number, spread) for number, one in enumerate(found.problem.space)}


def test_one_curve_does_not_determine_the_capacity_and_three_widths_do():
    one = flags([features(seed=1)])
    assert one["capacity"].identified != "yes"
    assert one["source"].identified == "yes"
    three = flags([features(width, seed=2 + place) for place, width in enumerate((16.0, 64.0, 256.0))])
    for name, truth in TRUTH.items():
        assert three[name].identified == "yes"
        # Four standard errors, so that the seed does not matter.
        low, high = three[name].low.ends[1], three[name].high.ends[1]
        assert low / (high / low) ** 0.5 < truth < high * (high / low) ** 0.5


def test_wrong_models_are_noticed():
    """The skill model's curve given to feature scaling, and the reverse; each fits its own."""
    times = np.geomspace(1, 3000, 60)
    wobble = np.exp(0.01 * np.random.default_rng(0).normal(size=60))
    skills = solvable.SkillModel(exponent=0.6, skills=math.inf).predict(times, max_skills=1).test_loss.values
    logs = feature_curves.emulated(1.5, 0.5, 0.8)
    rich = Curve(Grid(np.log(feature_curves.TIMES)), logs, feature_curves.initial(1.5, 0.5))(times) + 0.01
    for loss, right, wrong in ((skills, "skills", "feature-scaling"), (rich, "feature-scaling", "skills")):
        run = Run("one", times, loss * wobble)
        tested = {}
        for name in (right, wrong):
            found = fit(find_law(name).prepare([run]), [run], starts=8)
            tested[name] = lack_of_fit(found, "student-ar1")
        assert tested[wrong].found
        assert not tested[right].found


def test_any_model_becomes_a_law():
    """A model without tables: its emulator finds the parameter with which the curve was made."""
    model = solvable.SkillModel(skills=math.inf)
    law = ModelLaw(model, {"exponent": (0.3, 1.2)})
    times = np.geomspace(1, 1000, 40)
    loss = model.replace(exponent=0.75).predict(times, max_skills=1).test_loss.values
    run = Run("one", times, 3 * loss * np.exp(0.005 * np.random.default_rng(1).normal(size=40)))
    found = fit(law.prepare([run]), [run], fixed={"time_unit": 1.0, "floor": 0.0}, starts=4)
    assert abs(found.problem.space[0].parameter.outward(found.best.coordinates[0]) - 0.75) < 0.02
    assert abs(found.best.coefficients[0] - 3) < 0.05
    with pytest.raises(ValueError, match="SkillModel has no parameter 'colour' to fit"):
        ModelLaw(model, {"colour": (0.0, 1.0)})


@pytest.mark.slow
def test_own_simulations_are_recovered():
    """Simulated networks of 32 and 128 features: source and capacity near those of the model.

    The theory is of infinitely many modes and of a flow; steps, the cut at 3000 modes and the scatter of 16 seeds add a
    few per cent to the loss.
    """
    training = solvable.GradientDescent(learning_rate=0.05)
    times = np.unique(np.round(np.geomspace(20, 4000, 30)))
    model = solvable.FeatureScaling(richness=1.0, modes=3000, source=0.8)
    runs = [
        run_of_dataset(
            model.replace(features=width).simulate(times, training, seeds=16, progress=False), f"N = {width}"
        )
        for width in (32, 128)
    ]
    assert [run.sizes["width"] for run in runs] == [32.0, 128.0]
    found = fit(FeatureScalingLaw().prepare(runs), runs, fixed={"time_unit": 0.05, "floor": 0.0}, starts=8)
    values = dict(zip([one.label for one in found.problem.space], found.best.coordinates, strict=True))
    assert abs(values["source"] - 0.8) < 0.08
    assert abs(values["capacity"] - 1.5) < 0.15
