"""The explorer without a browser: controls, addresses, code, planes, limits and files."""

import ast
import base64
import functools
import html
import io
import json
import math
import re
import socket
import zipfile
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qsl

import jax
import numpy as np
import pytest
import xarray as xr
from hypothesis import assume, given
from hypothesis import strategies as st

import solvable
from solvable import GradientFlow, cli, models, papers
from solvable.checks import rules
from solvable.explorer import address, diagnosis, files, history, inference, precomputed, server, tasks
from solvable.explorer.marks import Window, mark_columns
from solvable.explorer.presets import PRESETS
from solvable.explorer.summaries import cards, show
from solvable.numerics.ensemble import ensemble, seeds_from
from solvable.plotting import series as curves
from solvable.progress import progress_bar, progress_callback, progress_part
from solvable.settings import FieldError, Setting, code, planes, theory_of, theory_options
from solvable.settings.contours import contours, regions
from solvable.settings.fields import _guess, fields_of, write
from solvable.story import Band, Explanation, Level, Point, Slope, Tick, crossing

NAMES = list(models.names())
# Models whose theory compiles in well under a second: enough to see that numbers agree to the last bit.
QUICK = {
    "scalar-network": {"target": "1.3", "initial_first": "0.4,-0.25", "initial_second": "0.3,0.2", "times": "0:8:9"},
    "diagonal-network": {"variances": "2,0.3,0.1", "times": "1:50:6log"},
}


def changed(model: str, texts: dict[str, str]) -> Setting:
    return functools.reduce(lambda setting, item: setting.change(*item), texts.items(), Setting(model))


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


# Addresses ---------------------------------------------------------------------------------------------------------


def _kind(setting: Setting) -> str:
    try:
        return setting.training().name
    except FieldError:
        # Nesterov's momentum before there is one, which the page shows at the control.
        assume(False)
        raise


@st.composite
def settings(draw: st.DrawFn, model: str) -> Setting:
    """A setting a visitor could reach by sliders, choices and typed numbers."""
    setting = Setting(model)
    for key, field in fields_of(model).items():
        # The form does not show options of other trainings, nor fractions of a schedule that has none.
        hidden = field.trainings and _kind(setting) not in field.trainings
        if hidden or field.needs or field.kind == "text" or not draw(st.booleans()):
            continue
        if field.kind == "choice":
            texts = st.sampled_from(field.choices)
        elif field.slider is None:
            continue
        else:
            stops = st.sampled_from(field.slider.stops())
            texts = stops if field.whole else stops | st.floats(field.slider.low, field.slider.high).map(write)
        changed = setting.edit(key, draw(texts))
        try:
            changed.training()
        except FieldError:
            # Nesterov's momentum without momentum, a warm-up without a schedule: the visitor takes it back.
            continue
        setting = changed
    try:
        setting.check()
    except FieldError:
        assume(False)
    return setting


@given(st.data())
def test_an_address_brings_the_state_back(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from([name for name in NAMES if name != "committee"]))
    a = data.draw(settings(model))
    b = data.draw(st.none() | settings(model))
    tab, theme = data.draw(st.sampled_from(address.TABS)), data.draw(st.sampled_from(address.THEMES))
    views = data.draw(st.dictionaries(st.sampled_from(address.VIEWS), st.sampled_from(["", "log", "test_loss"])))
    state = address.State(a, b, tab, theme, views)
    back, errors = address.read_state(parse_qsl(state.query(), keep_blank_values=True))
    assert back == state
    assert errors == {}
    assert back.a.values("parameter").keys() == a.values("parameter").keys()
    for key, value in a.values("parameter").items():
        assert np.array_equal(back.a.values("parameter")[key], value) or value is None


@given(
    st.sampled_from(["scalar-network", "linear-estimator", "skills"]),
    st.lists(st.tuples(st.sampled_from(["target", "times", "outputs", "b.exponent", "compare", "x"]), st.text())),
)
def test_no_address_breaks_a_page(model: str, pairs: list[tuple[str, str]]) -> None:
    state, _ = address.read_state([("model", model), *pairs])
    state.a.check()
    assert state.a.model == model


def test_good_values_survive_bad_neighbours_in_any_order() -> None:
    pairs = [("aspect_ratio", "9e400"), ("weight_decay", "2e-5"), ("model", "linear-estimator"), ("nonsense", "1")]
    for order in (pairs, pairs[::-1]):
        state, errors = address.read_state(order)
        assert state.a.texts == {"weight_decay": "2e-05"}
        assert set(errors) == {"aspect_ratio", "nonsense"}
        assert "in the address" in errors["aspect_ratio"]
    state, errors = address.read_state([("model", "linear-estimatr")])
    assert state.a.model == "linear-estimator"
    assert "did you mean" in errors[""]


def test_values_that_fail_only_together_are_dropped_and_named() -> None:
    state, errors = address.read_state([("model", "linear-features"), ("target", "1,2"), ("noise", "0.4")])
    assert state.a.texts == {"noise": "0.4"}
    assert "target must have one coefficient" in errors["target"]


# Code --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(QUICK))
def test_python_gives_the_numbers_of_the_page(name: str) -> None:
    setting = changed(name, QUICK[name])
    shown = theory_of(setting)
    scope: dict[str, object] = {}
    exec(code.python(setting).partition("\n\n#")[0], scope)
    assert shown.equals(scope["theory"]), "to the last bit"


def test_a_notebook_holds_the_script_in_cells_that_run() -> None:
    setting = changed("scalar-network", {**QUICK["scalar-network"], "samples": "20", "seeds": "4"})
    made = json.loads(code.notebook(setting))
    assert (made["nbformat"], [cell["cell_type"] for cell in made["cells"]]) == (4, ["markdown", "code", "code"])
    scope: dict[str, object] = {}
    for cell in made["cells"][1:]:
        exec("".join(cell["source"]), scope)
    assert scope["theory"].equals(theory_of(setting))
    assert scope["simulation"].sizes["seed"] == 4


def test_python_simulates_and_compares_like_the_page() -> None:
    setting = changed("scalar-network", {**QUICK["scalar-network"], "samples": "20", "seeds": "5"})
    sent: list[dict] = []
    result = tasks.run("simulation", {"model": setting.model, "texts": dict(setting.texts)}, sent.append)["result"]
    scope: dict[str, object] = {}
    exec(code.python(setting), scope)
    # Two and five seeds are two programs, which may round differently: by 4e-16 where it was seen. Scores of what all
    # seeds share are quotients of such errors, so they are those of their own simulation, to the last bit.
    xr.testing.assert_allclose(result["simulation"], scope["simulation"], rtol=1e-12, atol=1e-14)
    for found in (result, scope):
        assert found["comparison"].equals(solvable.compare(scope["theory"], found["simulation"]))
    assert [part["seeds"] for part in sent] == [2, 2, 4, 5], "seeds arrive in pieces"
    assert '"seeds": 5' in result["simulation"].attrs["solver"]


@pytest.mark.parametrize("name", NAMES)
def test_code_asks_the_library_for_what_the_page_asks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every model: the same model, times, training and options reach ``predict``, from Python and from a shell."""
    setting = changed(name, {**QUICK.get(name, {}), **_UNUSUAL[name]})
    asked: list[tuple] = []
    cls = models.get(name)

    class AskedError(BaseException):
        pass

    @functools.wraps(cls.predict)
    def predict(self: solvable.Model, times: np.ndarray, training: object = None, **options: object) -> None:
        asked.append((self.parameters(), times, training or cls.default_training, {**_defaults(cls), **options}))
        raise AskedError

    options = {**_defaults(cls), **setting.values("theory")}
    wanted = (setting.build().parameters(), setting.times(), setting.training(), options)
    monkeypatch.setattr(cls, "predict", predict)
    with pytest.raises(AskedError):
        exec(code.python(setting), {})
    with pytest.raises(AskedError):
        cli._run(_shell_words(code.command(setting))[1:])
    for found in asked:
        for mine, theirs in zip(wanted[0].values(), found[0].values(), strict=True):
            assert np.array_equal(mine, theirs) or mine is theirs or mine == theirs
        assert np.array_equal(wanted[1], found[1])
        assert wanted[2] == found[2]
        assert wanted[3] == {name: found[3][name] for name in wanted[3]}
    assert len(asked) == 2
    ast.parse(code.python(setting))


_UNUSUAL = {
    "linear-estimator": {"weight_decay": "0.001", "batch_fraction": "0.25", "theory_dimension": "300"},
    "linear-features": {"intensities": "1:1e-3:7log", "target": "1,0,0,0.5,-1,0,2", "samples": ""},
    "diagonal-network": {"initial_first": "0.01,-0.02,0.5", "learning_rate": "0.5"},
    "linear-network": {"singular_values": "", "correlation": "1,0.2;0.2,1", "width": "7"},
    "scalar-network": {"target": "-2.5", "input_power": "0.1", "training": "descent", "momentum": "0.9"},
    "skills": {"skills": "inf", "kind": "linear", "samples": "1000"},
    "committee": {"activation": "erf", "initial_alignment": "0.3;-0.2", "training": "flow", "weight_decay": "0.1"},
    "feature-scaling": {"features": "32", "exact_batch": "true", "batch_size": "16", "nesterov": "true"}
    | {"momentum": "0.5", "richness": "0"},
    "parity-mode": {"loss": "mean", "initial_offset": "-0.25", "tolerance": "1e-08"},
}


def _defaults(cls: type[solvable.Model]) -> dict[str, object]:
    fields = fields_of(cls.name).values()
    return {field.name: field.default for field in fields if field.role == "theory"}


def _shell_words(line: str) -> list[str]:
    import shlex

    return shlex.split(line)


def test_comparison_shares_options_as_the_command_line_does() -> None:
    setting = Setting("linear-estimator").change("dimension", "200").change("theory_dimension", "50")
    assert theory_options(setting) == {"dimension": 200}
    assert "--dimension 200" in code.command(setting, "compare")
    assert "--dimension 50" in code.command(setting, "predict")


# Presets -----------------------------------------------------------------------------------------------------------


def test_every_figure_with_a_model_behind_it_has_a_preset() -> None:
    # Not a curve of one model over time: kernels of a circle; a law in the number of samples; random networks of fifty
    # neurons; a map of two hundred solved theories.
    without = {("feature-scaling", "fig7"), ("layerwise", "eq5-5")}
    without |= {("delayed-features", "fig1"), ("delayed-features", "delay-map")}
    # Features of given functions and networks: for these there are the diagnostics.
    without |= {("layerwise", name) for name in ("fig1-1", "fig2-2-initial", "minimum-projection")}
    # Real networks: their pages are in docs/networks.
    trained = ("fig2-2", "fig5-1-network", "fig5-1-data", "fig5-1-width", "fig6-3", "fig6-4", "fig6-5")
    trained += ("fig2-3", "table2-2", "fig2-4", "fig3-5", "fig3-6", "collapse-epochs")
    trained += tuple(f"fig7-{number}" for number in range(1, 8))
    without |= {("layerwise", name) for name in trained}
    # Best schedules, laws in the batch size and in the number of samples: not curves over time.
    without |= {("feature-scaling", name) for name in ("best-schedule", "growing-momentum", "data-reuse")}
    without |= {("feature-scaling", "network-schedules")}
    without |= {("feature-scaling", name) for name in ("fig5", "fig6", "fig7-circle", "fig8", "circle-bottleneck")}
    figures = {(paper, figure) for paper in papers.papers() for figure in papers.figures(paper)}
    made = {(preset.paper, preset.figure) for preset in PRESETS}
    assert made == figures - without


# The checks of a committee take half a second each.
_LONG = [preset for preset in PRESETS if preset.model == "committee"][1:]


@pytest.mark.parametrize(
    "preset", [preset for preset in PRESETS if preset not in _LONG], ids=lambda preset: preset.label
)
def test_presets_are_possible_and_fit_in_an_address(preset: object) -> None:
    _check_preset(preset)


@pytest.mark.slow
@pytest.mark.parametrize("preset", _LONG, ids=lambda preset: preset.label)
def test_presets_of_the_committee_are_possible(preset: object) -> None:
    _check_preset(preset)


def _check_preset(preset: object) -> None:
    state = preset.state()
    for setting in filter(None, (state.a, state.b)):
        setting.check()
        setting.build().check_run(setting.times(), setting.training(), "predict")
    back, errors = address.read_state(parse_qsl(state.query(), keep_blank_values=True))
    assert (back, errors) == (state, {})
    assert len(state.query()) < 2500


def test_presets_say_which_figure_they_show_and_name_both_settings() -> None:
    said = [preset.words() for preset in PRESETS]
    assert len(set(said)) == len(said)
    assert all(re.match(r"(Fig\.|Table|Eqs?\.|Theorem|Further result:) ", words) for words in said)
    assert not any("(B)" in words for words in said)
    assert "Fig. 1: aspect ratios 0.9 and 1.5 (λ = 0.9 beside λ = 1.5)" in said
    beside = [preset for preset in PRESETS if preset.b is not None]
    assert sum(" beside " in preset.words() for preset in beside) > 0.8 * len(beside)


def _slow_unless(quick: bool, preset: object) -> object:
    return pytest.param(preset, id=preset.label, marks=[] if quick else [pytest.mark.slow])


# One preset of each kind whose theory takes no time, and those that are precomputed; the panel of pure noise's signal
# used to be empty, and so was the page of neurons that grok.
_QUICK_PRESETS = ["Fig. 1.4: pure noise, 100 and 400 modes", "Theorem 1: Z = 1.7, E[x²] = 0.6"]
_QUICK_PRESETS += [preset.label for preset in precomputed.heavy_presets()]


@pytest.mark.parametrize("preset", precomputed.heavy_presets(), ids=lambda preset: preset.label)
def test_curves_of_presets_that_take_minutes_are_shipped_and_say_so(preset: object) -> None:
    """They arrive at once, with a note that says when they were computed, and show neurons that grok."""
    setting = preset.state().a
    answer = tasks.run("theory", {"model": setting.model, "texts": dict(setting.texts)}, lambda partial: None)
    assert any("computed beforehand, with solvable" in note for note in answer["notes"])
    found, explanation = answer["result"]["curves"], answer["result"]["explanation"]
    np.testing.assert_allclose(found.time, setting.times(), rtol=1e-5)
    assert max(float(found[name].max()) for name in ("train_loss_error", "test_loss_error")) < 0.02
    train, test = found.train_loss.values, found.test_loss.values
    assert np.isfinite(train).all()
    assert np.isfinite(test).all()
    # The training loss has fallen to a tenth long before the test loss.
    falls = [crossing(found.time, loss, 0.1 * loss[0]) for loss in (train, test)]
    assert falls[1] > 1.5 * falls[0]
    assert explanation.sentence


@pytest.mark.slow
def test_shipped_curves_are_those_of_the_theory() -> None:
    """The shortest of them, computed again: it agrees within the errors that both state."""
    preset = next(preset for preset in precomputed.heavy_presets() if "α = 0.5" in preset.label)
    shipped, _ = precomputed.shipped_curves(preset.state().a)
    again = theory_of(preset.state().a)
    for name in ("train_loss", "test_loss"):
        error = np.hypot(shipped[f"{name}_error"], again[f"{name}_error"]) + 1e-6
        assert (np.abs(shipped[name] - again[name]) < 5 * error).all()


@pytest.mark.parametrize("preset", [_slow_unless(preset.label in _QUICK_PRESETS, preset) for preset in PRESETS])
def test_no_panel_of_a_preset_is_empty(preset: object) -> None:
    """Each panel that a preset opens with has a line of every setting, with more than one number on its axis."""
    pytest.importorskip("panel")
    from solvable.explorer.view import View

    workers = FakeWorkers()
    view = View(preset.state(), {}, workers, lambda action: action())
    settings = {which: one for which in "ab" if (one := getattr(view.state, which)) is not None}
    for which, setting in settings.items():
        shipped = precomputed.shipped_curves(setting)
        view.theory[which] = theory_of(setting) if shipped is None else shipped[0]
    view._draw()
    assert view.curves.panels
    for panel in view.curves.panels:
        for other in (False, True)[: len(settings)]:
            drawn = np.concatenate([curve.y for curve, of_b in panel["lines"] if of_b == other])
            seen = np.isfinite(drawn) & ((drawn > 0) | (not panel["y_log"]))
            assert seen.sum() > 1, (panel["y_label"], "B" if other else "A")


# Cards, curves, planes ---------------------------------------------------------------------------------------------


def test_cards_are_the_models_own_numbers() -> None:
    setting = changed("linear-network", {"singular_values": "3,2,1", "initial_scale": "1e-4"})
    found = {card.name: card.text for card in cards(setting.build(), setting.training())}
    times = solvable.LinearNetwork([3, 2, 1], initial_scale=1e-4).emergence_time().emergence_time.values
    assert found == {"first": f"{times.min():.6g}", "last": f"{times.max():.6g}"}
    assert (show(math.nan), show(math.inf), show(1e-107), show(-0.5)) == ("never", "∞", "< 1e-16", "−0.5")


def test_a_card_that_does_not_exist_says_why() -> None:
    setting = Setting("committee")
    (card,) = [card for card in cards(setting.build(), setting.training()) if card.name == "escape"]
    assert card.text == "–"
    assert "initial alignments above" in card.why


def test_curves_and_points_carry_the_librarys_numbers() -> None:
    setting = changed("scalar-network", {**QUICK["scalar-network"], "samples": "20", "seeds": "5"})
    theory = theory_of(setting)
    # As the page draws them, so that nothing is compiled twice.
    model = setting.build()
    runs = model.simulate(setting.times(), setting.training(), samples=20, seeds=5)
    comparison = solvable.compare(theory, runs)
    (line,) = curves.lines(theory, "loss")
    assert np.array_equal(line.y, theory.test_loss.values)
    loss = next(one for one in curves.points(runs, comparison, "loss") if one.name == "test loss")
    assert np.array_equal(loss.score, comparison.test_loss.sel(statistic="z_score").values)
    assert np.array_equal(loss.error, comparison.test_loss.sel(statistic="standard_error").values)
    units = curves.lines(theory, "first")
    assert [unit.name for unit in units] == ["neuron 1", "neuron 2"]
    assert "loss" in curves.quantities(theory)
    assert "log_test_loss" not in curves.quantities(theory)


@pytest.mark.parametrize("log", [True, False])
def test_ranges_hold_the_curves_and_do_not_follow_every_step(log: bool) -> None:
    def span(top: float) -> tuple[float, float]:
        return curves.y_range([curves.Curve("", 0, np.arange(3.0), np.array([top, 0.3, 0.02]))], log)

    for top in (0.71, 0.72, 0.73):
        assert span(top) == span(0.71)
        assert span(top)[0] <= 0.02
        assert span(top)[1] >= top
    deep = curves.y_range([curves.Curve("", 0, np.arange(2.0), np.array([1.0, 1e-200]))], True)
    assert deep[0] == pytest.approx(1e-8, rel=1e-9)


def test_planes_agree_with_single_settings_and_with_each_other() -> None:
    """All cells at once, cell by cell, and a setting moved to a cell: the same number."""
    setting = Setting("scalar-network", {"initial_first": "0.4,-0.1", "initial_second": "0.3,0.2"})
    view = {"plane": "kernel_ratio", "px": "initial_first.2", "py": "target"}
    plane = planes.compute(setting, view, lambda partial: None)
    places = [plane["x"][[5, 40]], plane["y"][[7, 30]]]
    one_by_one = planes._cells(setting, "kernel_ratio", ("initial_first.2", "target"), places)
    together = plane["z"][np.ix_([7, 30], [5, 40])]
    # Moving a setting rounds to four digits.
    assert np.allclose(one_by_one, together, rtol=3e-3)
    moved = planes.moved(planes.moved(setting, "initial_first.2", -1.25), "target", 0.5)
    assert moved.text("initial_first") == "0.4,-1.25"
    assert planes.at(moved, "initial_first.2") == -1.25
    exact = planes._vectorised(
        setting, setting.build(), "kernel_ratio", ("initial_first.2", "target"), [np.array([-1.25]), np.array([0.5])]
    )
    assert exact is not None
    assert float(exact[0, 0]) == pytest.approx(float(moved.build().kernel_ratio().kernel_ratio), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_every_model_has_a_plane(name: str) -> None:
    setting = Setting(name)
    view = planes.usual(setting)
    assert view["plane"] in planes.quantities(name)
    assert {view["px"], view["py"]} <= set(planes.axes(setting))
    assert view["px"] != view["py"]
    with pytest.raises(ValueError, match="two different"):
        planes.compute(setting, {**view, "py": view["px"]}, lambda partial: None)


@pytest.mark.parametrize("name", NAMES)
def test_the_plane_that_a_model_states_computes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a coarse grid: the number exists in some part of the plane, and is that of a single setting."""
    monkeypatch.setattr(planes, "_FINE", (5, 4))
    monkeypatch.setattr(planes, "_LEVELS", ((5, 4),))
    setting = Setting(name)
    view = planes.usual(setting)
    stated = models.get(name).controls.plane
    assert view == {"plane": stated[0], "px": stated[1], "py": stated[2]}
    plane = planes.compute(setting, view, lambda partial: None)
    assert plane["z"].shape == (plane["y"].size, plane["x"].size)
    assert np.isfinite(plane["z"]).mean() >= 0.2
    row, column = np.argwhere(np.isfinite(plane["z"]))[-1]
    place = float(plane["x"][column]), float(plane["y"][row])
    # Moving a setting rounds to four digits.
    cell = planes._cell(setting, view["plane"], (view["px"], view["py"]), place)
    assert cell == pytest.approx(plane["z"][row, column], rel=1e-2)


def _plane(z: np.ndarray, undefined: str = "") -> dict[str, object]:
    rows, columns = z.shape
    labels = {"label": "delay", "x_label": "across", "y_label": "up", "undefined": undefined}
    return {
        "x": np.geomspace(1, 100, columns),
        "y": np.linspace(0, 1, rows),
        "z": z,
        "x_log": True,
        "y_log": False,
        **labels,
    }


def test_contours_lie_where_the_quantity_has_their_value() -> None:
    plane = _plane(np.zeros((20, 30)))
    plane["z"] = plane["x"][None, :] * np.ones((20, 1))
    lines = contours(plane)
    assert [line.text for line in lines] == ["10"]
    np.testing.assert_allclose(lines[0].x, 10, rtol=1e-9)
    plane["z"] = 1 + plane["y"][:, None] * np.ones((1, 30))
    for line in contours(plane):
        np.testing.assert_allclose(1 + line.y, float(line.text), rtol=1e-3)
    assert contours(_plane(np.full((20, 30), np.nan))) == []
    assert contours(_plane(np.full((20, 30), 2.0))) == []


def test_regions_without_numbers_are_named_inside_them() -> None:
    z = np.ones((20, 30))
    z[12:, 16:] = np.nan
    z[0, 0] = np.nan
    plane = _plane(z, "never groks")
    (region,) = regions(plane)
    column, row = np.argmin(abs(plane["x"] - region.x)), np.argmin(abs(plane["y"] - region.y))
    assert (region.text, np.isnan(z[row, column])) == ("never groks", True)
    assert regions(_plane(z)) == []


def test_the_mark_of_a_plane_can_be_dragged() -> None:
    """A drag that begins at the mark moves it; one that begins elsewhere does not."""
    pytest.importorskip("panel")
    from solvable.explorer.plane_figure import PlanePanel

    moved: list[tuple[float, float]] = []
    plane = _plane(np.ones((20, 30)) * np.geomspace(1, 50, 30), "never")
    panel = PlanePanel("light", plane, lambda x, y: moved.append((x, y)))
    panel.show(plane)
    panel.place(10.0, 0.5)
    for start, wanted in (((10.5, 0.51), [(20.0, 0.7)]), ((50.0, 0.9), [])):
        moved.clear()
        panel._drag_begins(SimpleNamespace(x=start[0], y=start[1]))
        panel._drag_ends(SimpleNamespace(x=20.0, y=0.7))
        assert moved == wanted
    assert panel.figure.right[-1].title == "delay"


def test_phase_map_of_the_page_is_the_models() -> None:
    plane = planes.compute(Setting("feature-scaling"), planes.usual(Setting("feature-scaling")), lambda partial: None)
    row, column = 20, 33
    model = solvable.FeatureScaling(float(plane["x"][column]), float(plane["y"][row]), modes=math.inf)
    expected = float(model.exponents().exponent.sel(quantity="time", regime="rich"))
    assert plane["z"][row, column] == pytest.approx(expected, rel=1e-12)


# Pieces of an ensemble, and progress -------------------------------------------------------------------------------


def test_seeds_can_be_run_in_pieces() -> None:
    whole = ensemble(jax.random.normal, seeds=4, key=3)
    with seeds_from(2):
        rest = ensemble(jax.random.normal, seeds=2, key=3)
    assert np.array_equal(whole[2:], rest)
    assert len(set(whole.tolist())) == 4


def test_work_reports_its_share_and_stops_when_its_listener_raises() -> None:
    heard: list[float] = []
    with progress_callback(heard.append), progress_part(0.5, 0.5), progress_bar("outer", 4) as advance:
        advance()
        with progress_bar("inner", 10) as inner:
            inner(5)
        advance(3)
    assert heard == [0.625, 0.625, 1.0]

    def stop(share: float) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError), progress_callback(stop), progress_bar("work", 2) as advance:
        advance()


# Files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".nc", ".csv"])
def test_downloads_read_back(ending: str, tmp_path: Path) -> None:
    theory = theory_of(changed("diagonal-network", QUICK["diagonal-network"]))
    path = tmp_path / f"theory{ending}"
    path.write_bytes(files.data_file(theory, ending).getvalue())
    back = solvable.load(path)
    if ending == ".nc":
        assert back.equals(theory)
    else:
        assert np.array_equal(back.strength_mode_1.values, theory.strength.sel(mode=1).values)
    assert back.attrs["model"] == "diagonal-network"


def test_pictures_are_pictures() -> None:
    curve = curves.Curve("test loss", 0, np.arange(1.0, 4), np.array([1.0, 0.5, 0.1]))
    points = curves.Curve("test loss", 0, np.arange(1.0, 4), np.array([1.0, 0.5, 0.1]), np.full(3, 0.1), np.zeros(3))
    panel = {"lines": [(curve, False), (curve, True)], "points": [points], "hollow": False, "x_log": True}
    panel |= {"y_log": True, "y_range": (0.01, 1.0), "x_label": "t", "y_label": "loss", "whose": ("λ = 0.9", "λ = 1.5")}
    assert files.picture([panel], ".png", "title").getvalue().startswith(b"\x89PNG")
    assert b"<svg" in files.picture([panel], ".svg", "title").getvalue()


# Uploads -----------------------------------------------------------------------------------------------------------


def _npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _features(**changes: np.ndarray) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for part, count in (("train", 60), ("test", 40)):
        labels = np.arange(count) % 3
        hidden = np.eye(3)[labels] @ draw.normal(size=(3, 8)) + 0.1 * draw.normal(size=(count, 8))
        arrays |= {
            f"{part}_features": hidden,
            f"{part}_labels": labels,
            f"{part}_outputs": hidden @ draw.normal(size=(8, 3)),
        }
    return {**arrays, **changes}


def test_a_file_of_features_gives_the_librarys_report() -> None:
    from solvable import diagnostics

    path = diagnosis.received(_npz(**_features()), 1_000_000)
    page = diagnosis.diagnose(str(path))
    assert not path.exists(), "uploads are not kept"
    arrays = _features()
    gathered = []
    for part in ("train", "test"):
        statistics = diagnostics.FeatureStatistics()
        statistics.update(arrays[f"{part}_features"], arrays[f"{part}_outputs"], arrays[f"{part}_labels"])
        gathered.append(statistics)
    report = diagnostics.features(*gathered)
    assert report.regime in page
    assert f"{report.mp_distance:.4g}" in page
    assert "data:image/svg+xml" in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_the_sample_file_can_be_diagnosed() -> None:
    path = diagnosis.received(diagnosis.sample_file().getvalue(), 8_000_000)
    report = diagnosis.diagnose(str(path))
    assert "Features:" in report
    assert "Neural collapse" in report
    assert diagnosis.sample_file().getvalue() == diagnosis.sample_file().getvalue()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "empty"),
        (b"not a zip at all", "not an .npz file"),
        (b"x" * 2_000_001, "more than the 2 MB"),
    ],
)
def test_what_is_no_npz_is_not_even_kept(content: bytes, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        diagnosis.received(content, 2_000_000)


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"train_features": np.array([{"a": 1}], dtype=object)}, "Python objects, which could run code"),
        ({"train_features": np.array(["a", "b"])}, "must be an array of numbers"),
        ({"train_features": np.full((60, 8), np.nan)}, "not finite"),
        ({"train_labels": np.zeros(5)}, "equally many rows"),
    ],
)
def test_features_that_are_no_numbers_are_refused(arrays: dict[str, np.ndarray], match: str) -> None:
    path = diagnosis.received(_npz(**_features(**arrays)), 10_000_000)
    with pytest.raises(ValueError, match=match):
        diagnosis.diagnose(str(path))
    assert not path.exists()


def test_an_array_that_says_it_is_huge_is_refused_unread() -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**6)})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in _features().items():
            inner = io.BytesIO()
            np.save(inner, array)
            archive.writestr(f"{name}.npy", header.getvalue() if name == "test_features" else inner.getvalue())
    path = diagnosis.received(buffer.getvalue(), 10_000_000)
    with pytest.raises(ValueError, match="more than the 200 MB allowed"):
        diagnosis.diagnose(str(path))
    missing = diagnosis.received(_npz(other=np.zeros(3)), 10_000_000)
    with pytest.raises(ValueError, match="no array 'train_features'.*holds other"):
        diagnosis.diagnose(str(missing))


# Logs --------------------------------------------------------------------------------------------------------------


def test_every_task_has_a_time_limit() -> None:
    from solvable.settings.limits import SECONDS

    assert set(tasks.TASKS) == set(SECONDS)


def test_a_log_gives_the_librarys_report_and_forecast() -> None:
    import solvable

    content = inference.sample_log().getvalue()
    path = inference.received(content, "mine.csv", 1_000_000)
    page = inference.infer_log(str(path), "mine.csv", "power-law-steps", "2x")
    assert not path.exists(), "uploads are not kept"
    assert path.stem not in page, "the visitor's own name of the file is shown"
    picture = base64.b64decode(page.partition("base64,")[2].partition('"')[0]).decode()
    assert path.stem not in picture
    rows = np.genfromtxt(io.BytesIO(content), delimiter=",", names=True)
    table = {"step": rows["step"], "loss": rows["loss"], "learning_rate": rows["learning_rate"]}
    forecast = solvable.infer(solvable.read_curves(table), "power-law-steps").predict("2x")
    assert f"loss {forecast.loss.item():.4g}" in page
    assert "data:image/svg+xml" in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_a_table_of_runs_gives_its_scaling_law() -> None:
    from solvable.inference import example_table

    table = example_table().to_dataframe().sort_values("loss").iloc[:-5]
    path = inference.received(table.to_csv(index=False).encode(), "runs.csv", 1_000_000)
    page = inference.infer_log(str(path), "runs.csv", "scaling-law", "10x")
    assert "best size" in page
    assert "alpha" in page


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("empty.csv", b"", "empty"),
        ("weights.pkl", b"x", "must end in one of .csv"),
        ("long.csv", b"x" * 2_000_001, "more than the 2 MB"),
    ],
)
def test_what_is_no_log_is_not_even_kept(name: str, content: bytes, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        inference.received(content, name, 2_000_000)


def test_a_log_that_cannot_be_read_is_named_as_the_visitor_knows_it() -> None:
    path = inference.received(b"step,loss\n1,2\n", "short.csv", 1000)
    with pytest.raises(ValueError, match="run 'short' has 1 records"):
        inference.infer_log(str(path), "short.csv", "power-law", "2x")
    assert not path.exists()


# The server --------------------------------------------------------------------------------------------------------


def test_ports_in_use_and_strange_addresses_are_said_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} is in use"):
            server._free_port("127.0.0.1", port)
    for port in (0, 70000):
        with pytest.raises(ValueError, match="between 1 and 65535"):
            server._free_port("127.0.0.1", port)
    with pytest.raises(ValueError, match="not an address of this machine|cannot listen"):
        server._free_port("no.such.host.invalid", 5999)
    assert server._free_port("127.0.0.1", None) >= server.PORT


def test_a_server_answers_to_its_own_names_only() -> None:
    assert server._names("127.0.0.1") == ["127.0.0.1", "localhost"]
    assert server._names("10.1.2.3") == ["10.1.2.3", "127.0.0.1", "localhost"]
    assert socket.gethostname() in server._names("0.0.0.0")


def test_without_panel_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "panel", None)
    assert cli._run(["explore", "--no-browser"]) == 2
    assert "pip install 'solvable[explore]'" in capsys.readouterr().err
    assert cli._run(["explore", "linear-estimatr"]) == 2
    assert "did you mean 'linear-estimator'" in capsys.readouterr().err


def test_no_browser_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import webbrowser

    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert not server._opened("http://127.0.0.1:1/")

    def fails(address: str) -> bool:
        raise webbrowser.Error("no display")

    monkeypatch.setattr(webbrowser, "open", fails)
    assert not server._opened("http://127.0.0.1:1/")


class FakeWorkers:
    """Workers that keep the jobs they are asked to do, for the test to answer."""

    def __init__(self) -> None:
        self.asked: list[SimpleNamespace] = []

    def submit(self, task: str, payload: dict, heavy: bool = False) -> SimpleNamespace:
        return SimpleNamespace(task=task, payload=payload, heavy=heavy, cancel=lambda: None)

    def begin(self, job: SimpleNamespace) -> None:
        self.asked.append(job)


def answer_to(job: SimpleNamespace) -> object:
    """What a worker would answer."""
    return tasks.run(job.task, job.payload, lambda partial: None)["result"]


def test_a_notebook_shows_the_same_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a server: the parts are laid out, theory is asked for, and its answer is drawn."""
    pytest.importorskip("panel")
    from solvable.explorer import explore, notebook

    workers = FakeWorkers()
    monkeypatch.setattr(notebook, "_workers", workers)
    page = explore(solvable.ScalarNetwork)
    (job,) = workers.asked
    assert (job.task, job.payload) == ("theory", {"model": "scalar-network", "texts": {}})
    setting = Setting("scalar-network")
    job.on_done(answer_to(job), [])
    assert [job.task for job in workers.asked] == ["theory", "cards"]
    curve = page.select(lambda part: getattr(part, "curve_panel", None))[0].curve_panel
    assert np.array_equal(curve.lines.data["ys"][0], theory_of(setting).test_loss.values)
    with pytest.raises(ValueError, match="did you mean 'scalar-network'"):
        explore("scalar-netwrk")


def test_a_training_without_theory_shows_the_simulation_alone() -> None:
    """Theory is not asked; the page says so in words, drops the curve it had, and draws the simulation by itself."""
    pytest.importorskip("panel")
    from solvable.explorer.view import View

    workers = FakeWorkers()
    setting = changed("scalar-network", {**QUICK["scalar-network"], "samples": "20", "seeds": "4"})
    view = View(address.State(setting), {}, workers, lambda action: action())
    view.begin()
    job = workers.asked.pop()
    job.on_done(answer_to(job), [])
    assert view.theory["a"] is not None
    workers.asked.pop().on_done([], [])
    view.edit("a", "weight_decay", "0.1")
    assert [job.task for job in workers.asked] == ["cards"]
    workers.asked.pop().on_done([], [])
    assert view.theory["a"] is None
    assert not view.curves.upper.visible
    assert view.curves.upper_legend.object == ""
    assert view.curves.sentence.object == ""
    assert view.curves.views.fields == []
    words = "the theory of scalar-network does not cover GradientFlow(weight_decay=0.1). Press Simulate"
    assert words in view.progress.error
    view._simulate()
    job = workers.asked[-1]
    assert job.task == "simulation"
    answer = tasks.run("simulation", job.payload, lambda partial: None)
    job.on_done(answer["result"], answer["notes"])
    assert view.curves.upper.visible
    (panel,) = [one for one in view.curves.panels if one["y_label"] == "loss"]
    assert panel["lines"] == []
    assert {points.name for points in panel["points"]} == {"test loss", "train loss"}
    assert "no theory to compare with" in view.runner.error
    flow = setting.build().simulate(setting.times(), GradientFlow(weight_decay=0.1), samples=20, seeds=4).test_loss
    assert np.allclose(answer["result"]["simulation"].test_loss, flow, rtol=1e-10)
    view.edit("a", "weight_decay", "0")
    assert view.progress.error == ""
    assert workers.asked[-1].task == "theory"


def _page(**texts: str) -> tuple[FakeWorkers, object]:
    pytest.importorskip("panel")
    from solvable.explorer.view import View

    workers = FakeWorkers()
    setting = changed("scalar-network", {**QUICK["scalar-network"], "samples": "20", "seeds": "4", **texts})
    return workers, View(address.State(setting), {}, workers, lambda action: action())


def test_the_page_says_what_the_model_says_about_its_curves() -> None:
    """The sentence and the marks of ``explain``, on the curves they belong to, follow a slider."""
    workers, view = _page(times="0:8:81")
    for act in (view.begin, lambda: view.edit("a", "target", "2")):
        act()
        job = next(job for job in reversed(workers.asked) if job.task == "theory")
        result = answer_to(job)
        job.on_done(result, [])
        setting = view.state.a
        model = setting.build()
        said = model.controls.explain(model, setting.training(), theory_of(setting))
        assert result["explanation"] == said
        assert html.escape(said.sentence) in view.curves.sentence.object
        marked = {kind: source.data for kind, source in view.curves.upper.curve_panel.marks.items()}
        ticks = [mark.time for mark in said.marks if isinstance(mark, Tick)]
        assert marked["ticks"]["time"] == ticks
        cards_asked = workers.asked[-1]
        assert cards_asked.task == "cards"
        cards_asked.on_done([], [])


def test_marks_lie_on_the_curves_of_their_panel() -> None:
    times = np.geomspace(1, 100, 41)
    loss = curves.Curve("test loss", 0, times, 1 / times)
    marks = (
        Band(3, 1000, "delay"),
        Tick(10, "now"),
        Tick(1e4, "too late"),
        Level("test_loss", 0.05, "floor"),
        Level("alignment", 0.05, "of another panel"),
        Slope("test_loss", 1.0, 2, 50, "t^-1"),
        Point("test_loss", 20, "a twentieth"),
    )
    window = Window(1, 100, 1e-3, 1, True, True)
    found = mark_columns(marks, {"test_loss": (loss, "#0072b2")}, window, "#000", labelled=True)
    assert found["bands"] == {"start": [3], "end": [100]}
    assert found["ticks"]["time"] == [10]
    assert found["levels"]["value"] == [0.05]
    assert (found["dots"]["x"], found["dots"]["y"]) == ([20], [pytest.approx(0.05, rel=1e-2)])
    slope = np.polyfit(np.log(found["slopes"]["xs"][0]), np.log(found["slopes"]["ys"][0]), 1)[0]
    assert slope == pytest.approx(-1)
    assert found["labels"]["text"] == ["delay", "now", "floor", "t^-1", "a twentieth"]
    unlabelled = mark_columns(marks, {}, window, "#000", labelled=False)
    assert unlabelled["labels"]["text"] == []
    assert unlabelled["bands"] == found["bands"]


def test_changes_are_undone_one_gesture_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drag is one change; the curve before it stays as a ghost; reset goes back to the model's own start."""
    workers, view = _page()
    now = [0.0]
    monkeypatch.setattr(history.time, "monotonic", lambda: now[0])

    def answer() -> None:
        job = next(job for job in reversed(workers.asked) if job.task == "theory")
        job.on_done(answer_to(job), [])
        for job in workers.asked:
            if job.task == "cards":
                job.on_done([], [])

    view.begin()
    answer()
    assert not view.actions.can_undo
    first = view.theory["a"]
    for place, text in enumerate(("1.4", "1.5", "1.6")):
        now[0] = 10 + 0.1 * place
        view.edit("a", "target", text)
        answer()
    assert view.ghost is first
    assert view.curves.upper.curve_panel.ghost.data["ys"][0] == pytest.approx(first.test_loss.values)
    now[0] = 20.0
    view.edit("a", "target", "3")
    answer()
    view._act("undo")
    assert view.state.a.text("target") == "1.6"
    view._act("undo")
    assert view.state.a.text("target") == "1.3"
    assert not view.actions.can_undo
    view._act("undo")
    view._act("reset")
    assert view.state.a == Setting("scalar-network")
    assert view.actions.can_undo


def test_a_slow_theory_begins_with_a_quick_look(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("panel")
    from solvable.explorer import latest
    from solvable.explorer.view import View

    monkeypatch.setattr(latest, "_REST", 1000.0)
    workers = FakeWorkers()
    view = View(address.State(Setting("committee")), {}, workers, lambda action: action())
    view.begin()
    (look,) = [job for job in workers.asked if job.task == "theory"]
    assert look.payload["quick"]
    assert not look.heavy
    curves_shown = theory_of(changed("committee", {"samples_per_dimension": "inf", "times": "0:8:3"}))
    look.on_done({"curves": curves_shown, "explanation": Explanation("what is seen")}, [])
    assert "refining" in view.curves.sentence.object
    # The slider has come to rest.
    timer = view._theory["a"]._timer
    timer.cancel()
    timer.function()
    assert workers.asked[-1].heavy
    workers.asked[-1].on_done({"curves": curves_shown, "explanation": Explanation("what is seen")}, [])
    assert "refining" not in view.curves.sentence.object
    # A solver that the visitor has chosen is used as it is.
    assert not changed("committee", {"solver": "latent"}).has_quick_look
    assert not Setting("scalar-network").has_quick_look
    view.close()


def test_files_can_be_saved_once_there_is_something_in_them() -> None:
    """A file of a simulation that was never run used to be empty."""
    workers, view = _page()

    def enabled() -> set[str]:
        for label, button in view._buttons.items():
            assert button.disabled == button.label.endswith("(nothing to save yet)")
            assert button.label.startswith(label)
        return {label.split()[0] for label, button in view._buttons.items() if not button.disabled}

    assert enabled() == {"Notebook"}
    view.begin()
    job = workers.asked.pop()
    job.on_done(answer_to(job), [])
    workers.asked.pop().on_done([], [])
    assert enabled() == {"Notebook", "Theory", "Picture"}
    view._simulate()
    assert enabled() == {"Notebook", "Theory", "Picture"}
    job = workers.asked[-1]
    answer = tasks.run("simulation", job.payload, lambda partial: None)
    job.on_done(answer["result"], answer["notes"])
    assert enabled() == {"Notebook", "Theory", "Simulation", "Picture"}
    saved = view._buttons["Simulation .csv"].callback().getvalue()
    assert b"test_loss_seed_3" in saved
    view.edit("a", "weight_decay", "0.1")
    assert enabled() == {"Notebook", "Simulation", "Picture"}, "theory does not cover weight decay"


def test_a_closed_page_is_not_touched_any_more() -> None:
    """Its document is gone: a change of a component would fail, and the log would say so."""
    _, view = _page()
    view.begin()
    view._simulate()
    view.plane._ask()
    parts = [view.progress, view.runner, view.plane.runner, view.diagnosis.runner]
    changes: list[object] = []
    for part in parts:
        part.param.watch(changes.append, list(part.param))
    view.close()
    assert changes == []
    assert not view._simulation.busy
    assert not any(work.busy for work in view._theory.values())


def test_points_without_a_line_have_their_own_entry_in_the_legend() -> None:
    pytest.importorskip("panel")
    from solvable.explorer.figures import legend

    times, numbers = np.arange(1.0, 4), np.array([1.0, 0.5, 0.1])
    line = curves.Curve("test loss", 0, times, numbers)
    points = [curves.Curve(name, place, times, numbers) for place, name in enumerate(("test loss", "train loss"))]
    shown, _, told = legend([(line, False)], points, "simulation, 4 of 4 seeds", "light", hollow=False).partition(
        "</ul>"
    )
    assert "test loss goes from 1 at time 1 to 0.1 at time 3" in told
    assert shown.count("<li>") == 3
    assert [shown.count(words) for words in ("test loss", "train loss", "4 of 4 seeds")] == [1, 1, 1]
    assert "seeds" not in legend([(line, False)], [], "", "light", hollow=False)
    # A line of setting B says nothing about the points, which are of setting A.
    shown = legend([(line, True)], points, "simulation", "light", hollow=False).partition("</ul>")[0]
    assert shown.count("test loss") == 2
