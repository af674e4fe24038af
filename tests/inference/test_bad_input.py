"""Bad input: one clear line each, that names the run and the remedy."""

import numpy as np
import pytest

import solvable
from solvable.inference import Run

STEPS = np.geomspace(1, 1000, 30)
LOSS = 0.3 + STEPS**-0.5


def changed(place, value):
    loss = LOSS.copy()
    loss[place] = value
    return loss


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ([], "there are no runs to fit"),
        (Run("a", [], []), "run 'a' is empty"),
        (Run("a", STEPS, np.ones(30)), "the loss is 1 throughout"),
        (Run("a", STEPS, changed(3, np.nan)), r"the loss is nan at step 2.04336 \(1 such records\); remove them"),
        (Run("a", STEPS, changed(29, np.inf)), "the loss is inf at step 1000"),
        (Run("a", STEPS, changed(5, 0.0)), "the loss is 0 at step"),
        (Run("a", STEPS, LOSS[::-1]), "the loss rises by"),
        (Run("a", np.append(STEPS[:-1], STEPS[-2]), LOSS), "is there twice; keep one record"),
        (Run("a", STEPS[::-1], LOSS), "steps must increase"),
        (Run("a", STEPS[:3], LOSS[:3]), "has 3 records; a law needs at least 5"),
        (Run("a", STEPS, LOSS, errors=np.zeros(30)), "errors must be positive"),
        ([Run("a", STEPS, LOSS), Run("a", STEPS, LOSS)], "two runs are called 'a'"),
    ],
)
def test_runs_that_no_law_fits(curves, message):
    with pytest.raises(ValueError, match=message) as error:
        solvable.infer(curves, "power-law")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "feature-scalling"}, "there is no law 'feature-scalling'; did you mean 'feature-scaling'"),
        ({"model": 3}, "model must be the name of a law, a Law or a model, not 3"),
        ({"fixed": {"colour": 1.0}}, "has no parameter or term 'colour'"),
        ({"fixed": {"floor": -1.0}}, "floor must be fixed at a finite number, zero or more"),
        ({"noise": "pink"}, "noise must be one of"),
        ({"uncertainty": "guess"}, "uncertainty must be one of"),
        ({"training": {"b": solvable.GradientFlow()}}, "training names 'b', but the runs are a"),
    ],
)
def test_options_that_do_not_exist(options, message):
    with pytest.raises(ValueError, match=message):
        solvable.infer(Run("a", STEPS, LOSS), **{"model": "power-law", **options})


def test_widths_beyond_the_tables_are_refused():
    with pytest.raises(ValueError, match="width = 4 is outside of the tables"):
        solvable.infer(Run("a", STEPS, LOSS, sizes={"width": 4}))


def test_spikes_that_are_not_finite_can_be_masked():
    noisy = LOSS * np.exp(0.01 * np.random.default_rng(0).normal(size=30))
    noisy[[4, 9]] = np.nan
    report = solvable.infer(Run("a", STEPS, noisy), "power-law", mask_spikes=True, backtest=False, uncertainty="none")
    assert any("2 records that are not finite are left out, the first at step" in text for text in report.warnings)


def test_forecasts_of_nonsense_are_refused():
    report = solvable.infer(Run("a", STEPS, LOSS * (1 + 0.01 * np.sin(9 * STEPS))), "power-law", uncertainty="none")
    for at in ("tenfold", [3.0, 2.0], [np.nan], []):
        with pytest.raises(ValueError, match="at must be"):
            report.predict(at)
    with pytest.raises(ValueError, match="there is no run 'b'"):
        report.predict("2x", run="b")


def test_a_dataset_without_a_curve_is_refused():
    data = solvable.SkillModel().exponents()
    with pytest.raises(ValueError, match="has no curve 'test_loss' over time"):
        solvable.infer(data)
