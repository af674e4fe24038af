"""A setting in an address of the page, and back."""

from urllib.parse import parse_qsl

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from settings_made import NAMES

from solvable.explorer import address
from solvable.settings import FieldError, Setting
from solvable.settings.fields import fields_of, write

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
