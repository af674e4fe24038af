"""The server, and the page without a browser."""

import html
import socket

import numpy as np
import pytest
from fake_workers import FakeWorkers, answer_to
from settings_made import QUICK, changed

import solvable
from solvable import GradientFlow, cli
from solvable.explorer import address, history, server, tasks
from solvable.explorer.figures import CurvePanel
from solvable.explorer.marks import Window, mark_columns
from solvable.plotting import series as curves
from solvable.settings import Setting, theory_of
from solvable.story import Band, Explanation, Level, Point, Slope, Tick

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


@pytest.mark.parametrize("between", [1.05, 40.0])
def test_labels_of_points_do_not_cover_each_other(between: float) -> None:
    """Memorised after 270 steps and understood after 293: the second label hid the first. Far apart they stay put."""
    times = np.geomspace(1.0, 1e4, 50)
    names = ("train_accuracy", "test_accuracy")
    lines = {name: (curves.Curve(name, 0, times, np.full(50, 0.95)), "#000") for name in names}
    marks = [Point(names[0], 200.0, "memorised"), Point(names[1], 200.0 * between, "understood")]
    window = Window(1.0, 1e4, 0.0, 1.0, x_log=True, y_log=False)
    labels = mark_columns(marks, lines, window, "#000", labelled=True)["labels"]
    assert labels["align"] == ["right", "right"]
    assert labels["shift"][1] - labels["shift"][0] == (16 if between < 2 else 0)


def test_marks_of_every_kind_follow_a_curve_that_moves() -> None:
    """Fitted slopes were compared as arrays: moving a slider of feature scaling drew nothing."""
    times = np.geomspace(1, 100, 41)
    panel = CurvePanel("light", True, True, "time", "upper")
    panel.figure.x_range.update(start=1, end=100)
    for exponent in (1.0, 0.5):
        lines = [(curves.Curve("test loss", 0, times, times**-exponent), False)]
        marks = [Slope("test_loss", exponent, 2, 50, "slope"), Level("test_loss", 0.3, "floor"), Tick(10, "now")]
        panel.mark(marks, ("test_loss",), lines, labelled=True)
        drawn = panel.marks["slopes"].data
        slope = np.polyfit(np.log(drawn["xs"][0]), np.log(drawn["ys"][0]), 1)[0]
        assert slope == pytest.approx(-exponent)


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
        for label, button in view.downloads.buttons.items():
            assert button.disabled == button.label.endswith("(nothing to save yet)")
            assert button.label.startswith(label)
        return {label.split()[0] for label, button in view.downloads.buttons.items() if not button.disabled}

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
    saved = view.downloads.buttons["Simulation .csv"].callback().getvalue()
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
