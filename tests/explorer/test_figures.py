"""Cards, curves and planes of the page, without a browser."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from settings_made import NAMES, QUICK, changed

import solvable
from solvable import models
from solvable.explorer.summaries import cards, show
from solvable.plotting import series as curves
from solvable.settings import Setting, planes, theory_of
from solvable.settings.contours import contours, regions

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
