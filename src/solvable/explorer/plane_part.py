"""The tab with the phase diagram: a plane with the current setting marked, which a click moves."""

from html import escape
from typing import TYPE_CHECKING, Any

import panel as pn

from solvable.explorer.components import Form, Runner, asset, choice
from solvable.explorer.latest import Later, Latest
from solvable.explorer.plane_figure import PlanePanel, plane_kind
from solvable.explorer.workers import Workers
from solvable.settings import planes

if TYPE_CHECKING:
    from solvable.explorer.view import View


class PlanePart:
    """Computes the plane while its tab is open, again whenever something changes that is not one of its axes."""

    def __init__(self, view: "View", workers: Workers, later: Later) -> None:
        self._view = view
        self.views = Form(title="Axes of the phase diagram", prefix="p", layout="across")
        self.runner = Runner(label="")
        self.words = pn.pane.HTML("", stylesheets=[asset("shown.css")], sizing_mode="stretch_width", margin=0)
        self.pane = pn.pane.Bokeh(sizing_mode="stretch_width", margin=0)
        self.work = Latest(workers, later, "plane", lambda share: setattr(self.runner, "share", share))
        self._key: Any = None
        self._panel: PlanePanel | None = None
        view.watch(self.views, "edited", view.change_view)
        view.watch(self.runner, "pressed", lambda new: self.stop())

    def stop(self) -> None:
        self.work.stop()
        self._key = None

    def chosen(self) -> dict[str, str]:
        """Quantity and axes: those of the address where they exist, otherwise those that the model states."""
        setting, views = self._view.state.a, self._view.state.views
        usual, known = planes.usual(setting), planes.axes(setting)
        view = {key: views.get(key, usual[key]) for key in usual}
        if view["px"] not in known or view["py"] not in known or view["px"] == view["py"]:
            view |= {"px": usual["px"], "py": usual["py"]}
        if view["plane"] not in planes.quantities(setting.model):
            view["plane"] = usual["plane"]
        return view

    def update(self) -> None:
        """Bring choices, plane and mark up to date after any change."""
        setting = self._view.state.a
        known = planes.axes(setting)
        fields = [
            choice("plane", "Quantity", planes.quantities(setting.model)),
            choice("px", "Across", known),
            choice("py", "Up", known),
        ]
        if self.views.fields != fields:
            self.views.fields = fields
        self.views.texts = self.chosen()
        if self._view.state.tab == "phase":
            self._ask()

    def _ask(self) -> None:
        setting, view = self._view.state.a, self.chosen()
        # Moving along the axes themselves only moves the mark; an entry of a list shares its text with the others.
        axes = {name for name in (view["px"], view["py"]) if "." not in name}
        key = (view, {name: text for name, text in setting.texts.items() if name not in axes})
        if key == self._key:
            self._mark()
            return
        self._key = key
        self.runner.error = ""
        self.work.ask(
            {"model": setting.model, "texts": dict(setting.texts), "view": view},
            True,
            partial=self._found,
            done=lambda plane, notes: self._found(plane),
            failed=self._failed,
        )

    def _found(self, plane: dict[str, Any]) -> None:
        if self._panel is None or self._panel.kind != plane_kind(plane):
            self._panel = PlanePanel(self._view.state.theme, plane, self._move_to)
            self.pane.object = self._panel.figure
        words = f"{plane['label']}: grey where it is not defined. Click, or drag the mark, to move setting A."
        self.words.object = f'<p class="plane">{escape(words)}</p>'
        self._panel.show(plane)
        self._mark()

    def _failed(self, words: str) -> None:
        self._key = None
        self.runner.error = words

    def _mark(self) -> None:
        if self._panel is not None:
            setting, view = self._view.state.a, self.chosen()
            self._panel.place(planes.at(setting, view["px"]), planes.at(setting, view["py"]))
            self._view.push(self.pane)

    def _move_to(self, x: float, y: float) -> None:
        setting, view = self._view.state.a, self.chosen()
        try:
            moved = planes.moved(planes.moved(setting, view["px"], x), view["py"], y)
            moved.check()
        except ValueError as error:
            self.runner.error = str(error)
            return
        self.runner.error = ""
        self._view.note("a", "plane")
        self._view.take("a", moved)
