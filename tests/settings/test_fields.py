"""Controls of a setting: what each one takes, and how the choice of a training changes them."""

import math

import numpy as np
import pytest
from settings_made import NAMES, changed

import solvable
from solvable.checks import rules
from solvable.settings import FieldError, Setting, code, planes, theory_of
from solvable.settings.fields import _guess, fields_of

# Controls ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_model_has_a_page_that_starts(name: str) -> None:
    """Every parameter has a control that says what it is; sliders hold only values that the model takes."""
    setting = Setting(name)
    setting.check()
    built = setting.build()
    assert {field.name for field in fields_of(name).values() if field.role == "parameter"} == set(built.parameters())
    for key, field in fields_of(name).items():
        assert field.help
        assert field.allowed
        if field.role == "parameter" and field.kind == "number":
            assert field.slider is not None
            stops = field.slider.stops()
            assert len(set(stops)) == len(stops) > 5
            for text in stops:
                assert setting.change(key, text).text(key) == text, "a slider's value would change on its way back"


def test_a_model_that_states_no_sliders_gets_them_from_its_rules() -> None:
    guessed = _guess(rules.positive, 1.0).stops()
    assert float(guessed[0]) < 1 < float(guessed[-1])
    assert _guess(rules.count_or_infinite, math.inf).stops()[-1] == "inf"
    assert _guess(rules.not_negative, 0.0).stops()[0] == "0"


@pytest.mark.parametrize(
    ("model", "key", "text", "match"),
    [
        ("linear-estimator", "aspect_ratio", "-1", "aspect_ratio must be a positive finite number, not '-1'"),
        ("linear-estimator", "aspect_ratio", "nan", "must be a positive finite number"),
        ("linear-estimator", "aspect_ratio", "true", "must be a positive finite number"),
        ("linear-estimator", "aspect_ratio", "1_0", "must be a positive finite number"),
        ("linear-estimator", "aspect_ratio", "", "must be a positive finite number"),
        ("linear-estimator", "aspect_ratio", "9" * 5000, "5000 characters long"),
        ("linear-estimator", "outputs", "2.5", "a whole number"),
        ("linear-estimator", "seeds", "65", "too large for a page: at most 64"),
        ("linear-estimator", "training", "sideways", "one of flow, descent, sgd, not 'sideways'"),
        ("linear-estimator", "momentum", "1", "from 0 up to, but not including, 1"),
        ("linear-estimator", "times", "1:1e5:999999999", "at most 400 entries"),
        ("linear-estimator", "times", "1:1e5:9" + "9" * 40, "at most 400 entries"),
        ("linear-estimator", "times", "now", "must look like"),
        ("linear-estimator", "colour", "1", "has no 'colour'"),
        ("linear-estimator", "threshhold", "1", "did you mean 'threshold'"),
        ("linear-features", "intensities", "1:1:5000", "at most 2000 entries"),
        ("committee", "activation", "__import__('os').system('true')", "no activation is named"),
        ("committee", "initial_overlap", "1,0;0", "is not a matrix"),
        ("skills", "kind", "other", "one of multilinear, linear"),
    ],
)
def test_what_is_impossible_is_refused_in_words(model: str, key: str, text: str, match: str) -> None:
    with pytest.raises(FieldError, match=match.replace("(", r"\(")) as caught:
        Setting(model).change(key, text)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("model", "texts", "key"),
    [
        ("linear-features", {"target": "1,2"}, "target"),
        ("committee", {"initial_overlap": "1,2;2,1"}, "initial_overlap"),
        ("linear-estimator", {"times": "3,2,1"}, "times"),
        ("linear-estimator", {"times": "1:1e13:5log"}, "times"),
        ("skills", {"training": "descent", "batch_size": "5"}, "batch_size"),
        ("linear-estimator", {"training": "sgd"}, "batch_size"),
        ("linear-estimator", {"batch_size": "5", "batch_fraction": "0.1"}, "batch_size"),
        ("scalar-network", {"training": "descent", "nesterov": "true"}, "momentum"),
    ],
)
def test_what_does_not_go_together_is_shown_at_a_field(model: str, texts: dict[str, str], key: str) -> None:
    with pytest.raises(FieldError) as caught:
        changed(model, texts).check()
    assert caught.value.key == key


# Training ----------------------------------------------------------------------------------------------------------


def test_choosing_a_training_brings_its_learning_rate_and_its_times() -> None:
    """The flow times on the page stay the same, whatever the training: only their units change."""
    flow = Setting("scalar-network")
    descent = flow.edit("training", "descent")
    assert (flow.text("learning_rate"), flow.text("times")) == ("1", "0:6:31")
    assert (descent.text("learning_rate"), descent.text("times")) == ("0.01", "0:600:31")
    flow_times = [setting.training().flow_time(setting.times()) for setting in (flow, descent)]
    np.testing.assert_allclose(*flow_times, rtol=1e-12)
    # Times that somebody has typed are converted, there and back.
    typed = flow.change("times", "0:8:9")
    there = typed.edit("training", "descent")
    assert there.texts == {"training": "descent", "times": "0:800:9"}
    assert there.edit("training", "flow").texts == typed.texts
    # A learning rate that somebody has chosen stays, and then so do the times.
    chosen = typed.change("learning_rate", "0.05").edit("training", "descent")
    assert chosen.training() == solvable.GradientDescent(0.05)
    assert chosen.text("times") == "0:8:9"


def test_choosing_a_training_leaves_out_what_it_does_not_have() -> None:
    setting = Setting("skills").edit("training", "sgd")
    assert setting.training() == solvable.SGD(0.01, batch_size=32)
    setting = setting.edit("batch_fraction", "0.5").edit("momentum", "0.9")
    assert setting.training() == solvable.SGD(0.01, batch_fraction=0.5, momentum=0.9), "one size in place of another"
    descent = setting.edit("training", "descent")
    assert descent.training() == solvable.GradientDescent(0.01, momentum=0.9)
    assert descent.edit("training", "flow").texts == {}, "as at the beginning"
    assert Setting("committee").edit("training", "sgd").training() == solvable.SGD(0.25, batch_fraction=0.25)


@pytest.mark.parametrize("name", NAMES)
def test_every_training_on_offer_is_one_that_the_model_covers(name: str) -> None:
    """Each choice is accepted by theory or by simulation, and says so where it is by one of them only."""
    field = fields_of(name).get("training")
    for choice, words in zip(*((field.choices, field.names) if field else ((), ())), strict=True):
        setting = Setting(name).edit("training", choice)
        if (name, choice) == ("committee", "sgd"):
            setting = setting.change("samples_per_dimension", "inf")
        setting.check()
        covered = {}
        for verb in ("predict", "simulate"):
            try:
                setting.build().check_run(setting.times(), setting.training(), verb)
                covered[verb] = True
            except ValueError:
                covered[verb] = False
        assert any(covered.values())
        assert ("(simulation only)" in words) == (not covered["predict"]) == setting.is_simulation_only
        assert ("(theory only)" in words) == (not covered["simulate"])
        shown = [key for key, one in setting.fields.items() if one.role == "training" and choice in one.trainings]
        assert set(shown) - {"training", "schedule", "warm_up", "decay"} <= set(setting.training().parameters())


def test_a_schedule_has_controls_and_the_code_that_makes_it() -> None:
    """Fractions belong to one kind of schedule, and go with it; the rate stays in its control as the peak."""
    base = Setting("scalar-network").edit("training", "descent").change("times", "0:40:5")
    setting = base.edit("schedule", "wsd:40").edit("warm_up", "0.25")
    np.testing.assert_allclose(setting.training().learning_rates(0, 41)[[0, 5, 10, 32, 40]], [0, 0.005, 0.01, 0.01, 0])
    assert setting.text("learning_rate") == "0.01"
    assert "--schedule wsd:40 --warm-up 0.25" in code.command(setting)
    found: dict = {}
    exec(code.python(setting).partition("\n# The finite")[0], found)
    assert found["theory"].test_loss.equals(theory_of(setting).test_loss)
    assert "warm_up" not in setting.edit("schedule", "cosine:40").texts
    with pytest.raises(FieldError, match="schedule must be constant") as raised:
        base.edit("schedule", "cosine")
    assert raised.value.key == "schedule"
    with pytest.raises(FieldError, match="wsd:STEPS") as raised:
        base.edit("warm_up", "0.3").check()
    assert raised.value.key == "warm_up"


def test_axes_of_a_plane_are_those_of_the_training() -> None:
    assert "batch_fraction" not in planes.axes(Setting("linear-estimator"))
    assert "batch_fraction" in planes.axes(Setting("linear-estimator").edit("training", "sgd"))
    assert "momentum" not in planes.axes(Setting("linear-features")), "theory does not cover it"
    assert "momentum" in planes.axes(Setting("linear-estimator"))
    assert "momentum" in planes.axes(Setting("committee"))
    assert "momentum" not in planes.axes(Setting("committee").edit("training", "flow"))
