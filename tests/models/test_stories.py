"""Stories, explanations and pictures of the system: every text is filled, every mark lies on its curve."""

import dataclasses
import functools
import math
import re
from typing import Any

import numpy as np
import pytest
import xarray as xr

from solvable import models, stories
from solvable.models.feature_scaling.schedule_story import last_loss
from solvable.settings import Setting, theory_of
from solvable.stories.catalogue import model_of, story_of
from solvable.story import Band, Explanation, Level, Point, Slope, Step, SystemView, Tick, crossing

TOLD = stories.names()
STEPS = [(name, place) for name in TOLD for place in range(len(story_of(name).steps))]


@dataclasses.dataclass(frozen=True)
class Shown:
    """All that is shown of one setting."""

    model: Any
    training: Any
    curves: xr.Dataset
    explanation: Explanation
    view: SystemView


def setting_of(name: str, texts: dict[str, str]) -> Setting:
    setting = Setting(model_of(name))
    for key, text in texts.items():
        setting = setting.change(key, text)
    return setting


@functools.cache
def shown(name: str, texts: tuple[tuple[str, str], ...]) -> Shown:
    setting = setting_of(name, dict(texts))
    model, training, curves = setting.build(), setting.training(), theory_of(setting)
    controls, story = models.get(model_of(name)).controls, story_of(name)
    # As on the page: what the sentence was told of the curves, the picture and the facts need not predict again.
    explanation = (story.explain or controls.explain)(model, training, curves)
    view = (story.system or controls.system)(model, training, curves.time.values)
    return Shown(model, training, curves, explanation, view)


def of_step(name: str, place: int) -> tuple[Step, Shown]:
    step = story_of(name).steps[place]
    return step, shown(name, tuple(step.settings.items()))


def facts_of(name: str, place: int) -> dict[str, Any]:
    return _facts(name, tuple(story_of(name).steps[place].settings.items()))


# Several steps share a setting, and the facts of some take seconds.
@functools.cache
def _facts(name: str, texts: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    seen = shown(name, texts)
    return dict(story_of(name).facts(seen.model, seen.training))


def sentences(text: str) -> int:
    return len(re.findall(r"[.!?](?=\s|$)", text))


def check_words(text: str) -> None:
    assert not re.search(r"\b(nan|inf|None)\b|[{}]", text, re.IGNORECASE), text


def check_view(view: SystemView, times: np.ndarray) -> None:
    required = {"filling": {"density", "learned"}, "bars": {"height"}, "arrows": {"x", "y"}, "path": {"x", "y"}}
    assert required[view.kind] <= set(view.data.data_vars)
    np.testing.assert_array_equal(view.data.time, times)
    for name, values in view.data.data_vars.items():
        assert np.isfinite(values.values).all(), name
        assert "time" not in values.dims or values.dims[0] == "time"
    if view.kind == "filling":
        assert view.data.learned.min() >= -1e-9
        assert view.data.learned.max() <= 1 + 1e-9
    check_words(view.title + view.caption)
    assert sentences(view.caption) == 1


def check_explanation(explanation: Explanation, curves: xr.Dataset) -> None:
    check_words(explanation.sentence)
    assert sentences(explanation.sentence) == 1, explanation.sentence
    last = float(curves.time[-1])
    for mark in explanation.marks:
        check_words(mark.label)
        if isinstance(mark, Point | Level | Slope):
            assert mark.variable in curves
        if isinstance(mark, Point | Tick):
            assert 0 <= mark.time <= last
        if isinstance(mark, Level):
            assert math.isfinite(mark.value)
        if isinstance(mark, Slope):
            assert 0 < mark.start < mark.end <= last
            assert math.isfinite(mark.exponent)
        if isinstance(mark, Band):
            assert 0 <= mark.start < mark.end < math.inf


@pytest.mark.parametrize("name", TOLD)
def test_a_story_is_short_and_hands_over(name):
    story = story_of(name)
    assert story.question.endswith("?")
    assert len(story.question.split()) <= 12
    assert 4 <= len(story.steps) <= 6
    assert all(step.question.endswith("?") for step in story.steps[:-1])
    assert not story.steps[-1].question
    fields = Setting(model_of(name)).fields
    assert story.sliders
    assert all(fields[key].slider is not None for key in story.sliders)
    for text in (story.challenge, story.answer):
        filled = text.format(**facts_of(name, -1))
        check_words(filled)
        assert sentences(filled) <= 2


@pytest.mark.parametrize(("name", "place"), STEPS)
def test_every_step_is_filled_and_shows_what_it_speaks_of(name, place):
    step, seen = of_step(name, place)
    filled = step.text.format(**facts_of(name, place))
    check_words(filled + step.question.format(**facts_of(name, place)))
    assert 1 <= sentences(filled) <= 2, filled
    # Every number comes from a fact.
    assert not re.search(r"\d", re.sub(r"\{[^}]*\}", "", step.text)), step.text
    check_explanation(seen.explanation, seen.curves)
    check_view(seen.view, seen.curves.time.values)
    for panel in story_of(name).variables:
        assert any(variable in seen.curves for variable in panel)
    labels = {mark.label for mark in seen.explanation.marks}
    assert step.look_at in {"", "system", *map(str, seen.curves), *labels}


@pytest.mark.parametrize("name", TOLD)
def test_sliders_of_the_last_step_build_a_model(name):
    base = setting_of(name, dict(story_of(name).steps[-1].settings))
    for key in story_of(name).sliders:
        stops = base.fields[key].slider.stops()
        for text in (stops[0], stops[len(stops) // 2], stops[-1]):
            base.change(key, text).check()


# Settings at the edges of what each model takes; every one must have a sentence and a picture.
EDGES: dict[str, list[dict[str, str]]] = {
    "diagonal-network": [
        {"variances": "1", "target_scales": "1", "initial_first": "0.1", "initial_second": "0.1"},
        {"target_scales": "0,0,0"},
        {"target_scales": "1,0,-2"},
        {"initial_first": "-0.1", "initial_second": "0.1"},
        {"initial_first": "0", "initial_second": "0"},
        {"initial_first": "3", "initial_second": "1e-6"},
        {"variances": "1,2,3,4,5,6", "target_scales": "1,1,1,1,1,1", "initial_first": "0.1", "initial_second": "0.1"},
        {"learning_rate": "0.01"},
    ],
    "scalar-network": [
        {"initial_first": "0", "initial_second": "0"},
        {"initial_first": "1", "initial_second": "1"},
        {"initial_first": "1", "initial_second": "-1"},
        {"initial_first": "0.1,0.2,-0.3", "initial_second": "0.1,-0.1,2"},
        {"target": "0"},
        {"target": "-3", "output_scale": "100", "input_power": "0.01"},
        {"initial_first": "1e-6", "initial_second": "1e-6"},
        {"learning_rate": "0.01"},
    ],
    "skills": [
        {"skills": "1"},
        {"skills": "3", "basis": "1"},
        {"samples": "1"},
        {"samples": "100", "basis": "3"},
        {"kind": "linear"},
        {"basis": "7", "neurons_per_skill": "4"},
        {"initial_strength": "0.9", "learning_rate": "0.001"},
        {"skills": "inf", "times": "1:3:5log"},
    ],
    "linear-network": [
        {"singular_values": "1"},
        {"singular_values": "0,0,0"},
        {"singular_values": "2,2,0"},
        {"width": "1"},
        {"initial_scale": "3"},
        {"initial_scale": "1e-8", "times": "0:1:5"},
        {"singular_values": "6,5,4,3,2,1", "learning_rate": "0.1"},
        {"singular_values": "", "correlation": "1,2;0,1"},
    ],
    "linear-features": [
        {"intensities": "1", "target": "1", "samples": "3"},
        {"samples": ""},
        {"samples": "40"},
        {"samples": "1", "noise": "2"},
        {"noise": "0"},
        {"intensities": "1,0,0.1", "target": "0,0,0", "samples": "2"},
        {"learning_rate": "0.01"},
    ],
    "parity-mode": [
        {"target_scale": "10"},
        {"initial_first": "1", "initial_second": "0.0001"},
        {"initial_offset": "-2"},
        {"loss": "half_sum"},
        {"times": "0:1:61"},
        {"learning_rate": "0.1"},
    ],
    "committee": [
        {"samples_per_dimension": "inf"},
        {"samples_per_dimension": "inf", "training": "sgd", "batch_size": "1", "learning_rate": "0.1"},
        {"samples_per_dimension": "inf", "times": "0:4:3"},
    ],
    "feature-scaling": [
        {},
        {"richness": "0", "training": "flow"},
        {"source": "3", "modes": "1"},
        {"samples": "8", "times": "1:50:9log"},
        {"features": "4", "times": "1:50:9log"},
        {"training": "sgd", "batch_size": "8", "times": "1:50:9log"},
        {"capacity": "", "source": "", "modes": "", "spectrum": "1,0.5", "target": "1,1", "times": "0:50:9"},
    ],
}


@pytest.mark.parametrize(("name", "texts"), [(name, texts) for name, all_texts in EDGES.items() for texts in all_texts])
def test_every_setting_is_explained(name, texts):
    seen = shown(name, tuple(texts.items()))
    check_explanation(seen.explanation, seen.curves)
    check_view(seen.view, seen.curves.time.values)


def test_crossing_of_a_level():
    assert crossing([0, 1, 2], [1.0, 0.5, 0.0], 0.75) == 0.5
    assert crossing([1, 2], [0.0, 1.0], 0.0) == 1
    assert math.isnan(crossing([0, 1], [0.0, 0.1], 0.5))


def test_the_picture_of_the_modes_holds_the_error_of_all_of_them():
    """Its area is the loss, but for half of the first mode (Euler and Maclaurin); what lies beyond is left out."""
    _, seen = of_step("feature-scaling", 0)
    density = seen.view.data.density.values
    area = np.trapezoid(density, np.log(seen.view.data.x)) + density[0] / 2
    first = seen.model.predict([0.0, 1.0], seen.training)
    assert area == pytest.approx(float(first.test_loss[0]), rel=0.1)
    assert density.argmax() == 0


class TestSchedules:
    name = "feature-scaling-schedule"

    @pytest.mark.parametrize("place", range(6))
    def test_facts_are_those_of_the_curves(self, place):
        """Curves come from two-time functions, the facts from a recursion of second moments, another route."""
        _, seen = of_step(self.name, place)
        best = next(mark.value for mark in seen.explanation.marks if isinstance(mark, Level))
        assert float(seen.curves.test_loss[-1]) / best == pytest.approx(facts_of(self.name, place)["ratio"], rel=1e-9)

    def test_the_schedule_that_is_drawn_is_the_best_one(self):
        assert 1 <= facts_of(self.name, 3)["ratio"] < 1.01

    def test_a_warm_up_helps_with_clean_labels_and_a_decay_with_noisy_ones(self):
        clean, noisy = facts_of(self.name, 0), facts_of(self.name, 4)
        assert 1 < clean["warmed"] < 0.6 * clean["cosine"]
        assert 0.8 * clean["constant"] < clean["cosine"] < clean["constant"]
        assert 1 < noisy["cosine"] < 0.6 * noisy["warmed"] < noisy["constant"]

    def test_no_other_fractions_are_better_than_the_answers(self):
        _, seen = of_step(self.name, 5)
        facts = facts_of(self.name, 5)
        best = float(seen.model.best_schedule(100, 0.5, 1, progress=False).test_loss.sel(schedule="optimal")[0])
        for warm_up, decay in ((0.1, 0.1), (0.2, 0.25), (0.33, 0.1), (0.33, 0.4), (0.45, 0.25), (0.3, 0.3)):
            setting = setting_of(self.name, dict(story_of(self.name).steps[5].settings))
            setting = setting.change("warm_up", str(warm_up)).change("decay", str(decay))
            assert last_loss(seen.model, setting.training()) / best - 1 > facts["simple"] - 1e-9

    def test_the_path_is_the_schedule(self):
        _, seen = of_step(self.name, 2)
        rates = seen.training.learning_rates(0, 101)
        np.testing.assert_allclose(0.5 * seen.view.data.y, rates[seen.curves.time.values.astype(int)], atol=1e-12)
        assert seen.view.data.line_y.max() <= 1


class TestDiagonalNetwork:
    name = "diagonal-network"

    def test_half_times_are_crossings_of_the_predicted_strengths(self):
        _, seen = of_step(self.name, 0)
        dense = seen.model.predict(np.linspace(0, 9, 20001))
        facts = facts_of(self.name, 0)
        for mode, fact in enumerate(("half_first", "half_second", "half_third")):
            target = seen.model.target_scales[mode]
            assert crossing(dense.time, dense.strength[:, mode], target / 2) == pytest.approx(facts[fact], abs=1e-5)
        ticks = [mark.time for mark in seen.explanation.marks if isinstance(mark, Tick)]
        np.testing.assert_allclose(ticks, [facts["half_first"], facts["half_second"], facts["half_third"]])

    def test_the_loss_hardly_falls_on_a_plateau(self):
        _, seen = of_step(self.name, 0)
        bands = [mark for mark in seen.explanation.marks if isinstance(mark, Band)]
        assert bands
        for band in bands:
            loss = seen.model.predict([band.start, band.end]).test_loss.values
            assert loss[1] > 0.9 * loss[0]

    def test_halving_the_start_delays_a_mode_by_the_logarithm_of_two_over_its_target(self):
        facts = facts_of(self.name, 3)
        assert facts["later_first"] == pytest.approx(math.log(2) / 3, rel=1e-5)
        assert facts["later_third"] == pytest.approx(math.log(2), rel=1e-5)

    def test_the_stages_are_there_and_merge(self):
        assert facts_of(self.name, 1)["quiet"] > 0.5
        assert facts_of(self.name, 2)["overlapping"] > 0
        assert facts_of(self.name, 4)["spread"] < 0.5 * facts_of(self.name, 0)["spread"]

    def test_the_answer_makes_both_modes_half_learned_together(self):
        _, seen = of_step(self.name, 5)
        variance = facts_of(self.name, 5)["variance"]
        times = seen.model.replace(variances=[1, 1, variance]).emergence_time(0.5).emergence_time.values
        assert times[1] == pytest.approx(times[2], rel=1e-12)

    @pytest.mark.parametrize("place", range(6))
    def test_the_bars_add_up_to_the_loss(self, place):
        _, seen = of_step(self.name, place)
        gap = seen.view.data.target - seen.view.data.height
        loss = (seen.model.variances * gap.transpose("time", "index").values ** 2).sum(1) / 2
        np.testing.assert_allclose(loss, seen.curves.test_loss, rtol=1e-9, atol=1e-14)


class TestScalarNetwork:
    name = "scalar-network"

    @pytest.mark.parametrize("place", range(6))
    def test_facts_are_those_of_the_predicted_curves(self, place):
        _, seen = of_step(self.name, place)
        facts, late = facts_of(self.name, place), np.concatenate([[0.0], np.geomspace(1e-4, 1e6, 20001)])
        curves = seen.model.predict(late)
        assert float(curves.kernel[-1] / curves.kernel[0]) == pytest.approx(facts["kernel_ratio"], rel=1e-6)
        gap = seen.model.target - seen.model.initial_output
        largest = np.abs(curves.output - curves.linear_output).max() / abs(gap)
        assert float(largest) == pytest.approx(facts["distance"], abs=1e-5)
        np.testing.assert_allclose(curves["first"] ** 2 - curves["second"] ** 2, facts["imbalance"], atol=1e-8)

    def test_the_regimes_are_those_that_the_steps_name(self):
        distances = [facts_of(self.name, place)["distance"] for place in range(6)]
        assert min(distances[0], distances[1], distances[3]) > 0.3
        assert distances[2] < 0.05
        assert facts_of(self.name, 4)["kernel_ratio"] < 0.05
        assert facts_of(self.name, 5)["partner_distance"] < 0.05

    @pytest.mark.parametrize("place", range(6))
    def test_the_path_gives_the_output_and_ends_on_the_solutions(self, place):
        _, seen = of_step(self.name, place)
        data, scale = seen.view.data, seen.model.output_scale
        np.testing.assert_allclose(data.x * data.y / scale, seen.curves.output, rtol=1e-12)
        np.testing.assert_allclose(data.line_x * data.line_y / scale, seen.model.target, rtol=1e-12)

    def test_units_of_the_arrows_add_up_to_the_output(self):
        seen = shown(self.name, (("initial_first", "0.1,0.2,-0.3"), ("initial_second", "0.1,-0.1,2")))
        np.testing.assert_allclose((seen.view.data.x * seen.view.data.y).sum("index"), seen.curves.output, rtol=1e-12)

    def test_the_point_is_where_half_of_the_error_is_left(self):
        _, seen = of_step(self.name, 0)
        point = next(mark for mark in seen.explanation.marks if isinstance(mark, Point))
        output = float(seen.model.predict([point.time]).output[0])
        start = seen.model.initial_output
        assert (output - start) / (seen.model.target - start) == pytest.approx(0.5, abs=0.01)


class TestSkills:
    name = "skills"

    def test_emergence_is_the_crossing_of_the_predicted_strength(self):
        _, seen = of_step(self.name, 1)
        dense, facts = seen.model.predict(np.linspace(0, 150, 6001)), facts_of(self.name, 1)
        for level, fact in ((0.1, "fifth_begins"), (0.5, "fifth"), (0.9, "fifth_ends")):
            assert crossing(dense.time, dense.strength[:, 4], level) == pytest.approx(facts[fact], rel=1e-4)

    def test_the_slope_is_that_of_the_curve(self):
        _, seen = of_step(self.name, 2)
        slope = next(mark for mark in seen.explanation.marks if isinstance(mark, Slope))
        late = seen.curves.sel(time=slice(300, None))
        fitted = np.polyfit(np.log(late.time), np.log(late.test_loss), 1)[0]
        assert -fitted == pytest.approx(slope.exponent, abs=2e-3)

    @pytest.mark.parametrize("place", [3, 4])
    def test_the_loss_stops_where_the_text_says(self, place):
        _, seen = of_step(self.name, place)
        assert float(seen.curves.test_loss[-1]) == pytest.approx(facts_of(self.name, place)["limit"], rel=0.01)

    def test_the_answer_follows_from_the_frequencies_alone(self):
        facts = facts_of(self.name, 5)
        assert facts["tenth"] / facts["first"] == pytest.approx(facts["rarer"], rel=1e-9)

    def test_the_bars_add_up_to_the_loss(self):
        seen = shown(self.name, (("skills", "8"),))
        frequency = np.arange(1, 9) ** -1.6
        gap = (seen.view.data.target - seen.view.data.height).transpose("time", "index").values
        loss = gap**2 @ (frequency / frequency.sum()) / 2
        # A gap is a difference of numbers of order one, rounded to their last digit.
        np.testing.assert_allclose(loss, seen.curves.test_loss, rtol=1e-9, atol=1e-14)


class TestFeatureScaling:
    name = "feature-scaling"

    @pytest.mark.parametrize(("place", "allowed"), [(0, 0.005), (1, 0.02), (3, 0.03)])
    def test_the_slope_is_that_of_the_curve(self, place, allowed):
        _, seen = of_step(self.name, place)
        slope = next(mark for mark in seen.explanation.marks if isinstance(mark, Slope))
        late = seen.curves.sel(time=slice(1e3, None))
        assert -np.polyfit(np.log(late.time), np.log(late.test_loss), 1)[0] == pytest.approx(
            slope.exponent, abs=allowed
        )

    def test_feature_learning_helps_as_the_texts_say(self):
        lazy, rich = of_step(self.name, 0)[1].curves, of_step(self.name, 1)[1].curves
        assert float(lazy.test_loss[-1] / rich.test_loss[-1]) == pytest.approx(facts_of(self.name, 1)["gain"], rel=1e-3)
        assert float(rich.kernel_growth[-1]) == pytest.approx(facts_of(self.name, 2)["growth"], rel=1e-3)

    def test_a_finite_network_reaches_its_floor(self):
        _, seen = of_step(self.name, 4)
        assert float(seen.curves.test_loss[-1]) == pytest.approx(facts_of(self.name, 4)["limit"], rel=1e-3)

    def test_the_best_source_is_that_of_the_closed_form(self):
        # The gain b (1 - b) / (1 + b) is largest at sqrt(2) - 1.
        assert facts_of(self.name, 5)["best_source"] == pytest.approx(math.sqrt(2) - 1, abs=0.005)
        assert facts_of(self.name, 5)["best_gain"] == pytest.approx(3 - 2 * math.sqrt(2), rel=1e-3)

    @pytest.mark.parametrize("place", [0, 1, 3])
    def test_the_modes_add_up_to_the_loss(self, place):
        _, seen = of_step(self.name, place)
        data = seen.view.data
        left = ((1 - data.learned) * data.density / data.x).transpose("time", "x").values
        weights, shown = seen.curves.mode_weight.values, left.shape[1]
        # The picture leaves out the last node where it stands for all modes beyond the others.
        assert weights.size - 1 <= shown <= weights.size
        beyond = (seen.curves.mode_loss * seen.curves.mode_weight).values[:, shown:].sum(axis=1)
        np.testing.assert_allclose(left @ weights[:shown] + beyond, seen.curves.test_loss, rtol=1e-3)


class TestLinearNetwork:
    name = "linear-network"

    def test_half_times_are_crossings_of_the_predicted_strengths(self):
        _, seen = of_step(self.name, 0)
        dense, facts = seen.model.predict(np.linspace(0, 10, 20001)), facts_of(self.name, 0)
        for mode, fact in enumerate(("half_first", "half_second", "half_third")):
            level = float(seen.model.modes[mode]) / 2
            assert crossing(dense.time, dense.strength[:, mode], level) == pytest.approx(facts[fact], abs=1e-5)

    def test_halving_the_start_delays_a_mode_by_the_logarithm_of_two_over_its_singular_value(self):
        assert facts_of(self.name, 2)["later_first"] == pytest.approx(math.log(2) / 3, rel=1e-5)
        assert facts_of(self.name, 2)["later_third"] == pytest.approx(math.log(2), rel=1e-5)

    def test_stages_are_there_and_merge(self):
        assert facts_of(self.name, 1)["quiet"] > 1
        assert facts_of(self.name, 3)["overlapping"] > 0

    def test_the_bottleneck_is_where_the_loss_stops(self):
        _, seen = of_step(self.name, 4)
        assert float(seen.model.predict([100.0]).test_loss[0]) == pytest.approx(facts_of(self.name, 4)["lost"])

    def test_the_answer_is_where_the_plateau_vanishes(self):
        _, seen = of_step(self.name, 5)
        model = seen.model.replace(initial_scale=facts_of(self.name, 5)["scale"])
        complete, begins = (model.emergence_time(share).emergence_time.values for share in (0.95, 0.05))
        assert complete[1] == pytest.approx(begins[2], rel=1e-3)

    @pytest.mark.parametrize("place", range(6))
    def test_the_bars_add_up_to_the_loss(self, place):
        _, seen = of_step(self.name, place)
        gap = seen.view.data.target - seen.view.data.height
        np.testing.assert_allclose((gap**2).sum("index") / 2, seen.curves.test_loss, rtol=1e-9, atol=1e-14)


class TestLinearFeatures:
    name = "linear-features"

    def test_the_best_time_is_the_minimum_of_the_curve(self):
        _, seen = of_step(self.name, 0)
        point = next(mark for mark in seen.explanation.marks if isinstance(mark, Point))
        around = seen.model.predict(point.time * np.array([0.5, 1.0, 2.0])).test_loss.values
        assert around[1] < min(around[0], around[2])
        assert facts_of(self.name, 0)["best_time"] == pytest.approx(point.time)

    def test_overfitting_is_harmful_where_the_texts_say(self):
        ratios = [facts_of(self.name, place)["ratio"] for place in range(6)]
        assert ratios[2] < 1.001
        assert ratios[4] < 2 < ratios[0] < ratios[3]

    def test_the_answer_has_the_largest_loss_in_the_end(self):
        _, seen = of_step(self.name, 5)
        modes = facts_of(self.name, 5)["modes"]
        end = [
            float(seen.model.replace(samples=count).predict([1e4]).test_loss[0])
            for count in (modes - 8, modes, modes + 8)
        ]
        assert end[1] == max(end)

    @pytest.mark.parametrize("place", range(6))
    def test_the_bars_add_up_to_the_bias(self, place):
        _, seen = of_step(self.name, place)
        gap = seen.view.data.target - seen.view.data.height
        np.testing.assert_allclose((gap**2).sum("index") / 2, seen.curves.bias, rtol=1e-9, atol=1e-14)


class TestParityMode:
    name = "parity-mode"

    @pytest.mark.parametrize("place", range(6))
    def test_ticks_are_the_emergence_times_of_the_model(self, place):
        _, seen = of_step(self.name, place)
        facts = facts_of(self.name, place)
        ticks = [mark.time for mark in seen.explanation.marks if isinstance(mark, Tick)]
        exact = [facts["half_first"], facts["half_second"], facts["half_third"]]
        np.testing.assert_allclose(ticks, exact, rtol=0.005)

    def test_the_answer_doubles_the_wait(self):
        _, seen = of_step(self.name, 5)
        start = facts_of(self.name, 5)["start"]
        slower = seen.model.replace(initial_first=start, initial_second=start, initial_third=start)
        wait = float(slower.emergence_time(0.5).emergence_time[0])
        assert wait == pytest.approx(2 * facts_of(self.name, 5)["half_first"], rel=0.05)

    def test_the_bars_add_up_to_the_strength_of_the_skill(self):
        _, seen = of_step(self.name, 0)
        np.testing.assert_allclose(seen.view.data.height.sum("index"), seen.curves.total_strength, rtol=1e-9)


class TestCommittee:
    name = "committee"

    def test_the_first_step_groks(self):
        _, seen = of_step(self.name, 0)
        facts = facts_of(self.name, 0)
        assert facts["test_time"] > 1.3 * facts["train_time"]
        for loss, fact in (("train_loss", "train_time"), ("test_loss", "test_time")):
            value = np.interp(facts[fact], seen.curves.time, seen.curves[loss])
            assert value == pytest.approx(float(seen.curves[loss][0]) / 10)

    def test_more_data_shorten_the_delay(self):
        assert facts_of(self.name, 2)["delay"] < 0.6 * facts_of(self.name, 0)["delay"]

    def test_lengths_of_the_arrows_are_the_overlaps(self):
        seen = shown(self.name, (("samples_per_dimension", "inf"),))
        length = seen.view.data.x**2 + seen.view.data.y**2
        own = np.einsum("tii->ti", seen.curves.overlap.transpose("time", "neuron", "other_neuron").values)
        np.testing.assert_allclose(length, own, rtol=1e-9)
