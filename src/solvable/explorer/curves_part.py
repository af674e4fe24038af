"""The tab with the curves: two panels with legends, what the model says about them, and the choice of quantities."""

from html import escape
from typing import TYPE_CHECKING, Any

import panel as pn
import xarray as xr

from solvable.explorer.components import Form, asset, choice
from solvable.explorer.figures import CurvePanel, legend
from solvable.explorer.markup import told_apart
from solvable.plotting import describe
from solvable.plotting import series as curves
from solvable.plotting.style import unit
from solvable.story import Explanation

if TYPE_CHECKING:
    from solvable.explorer.view import View

_SCALES = {"auto": "automatic", "log": "log", "linear": "linear"}


class CurvesPart:
    """Draws the theories and the simulation of a view whenever one of them changes."""

    def __init__(self, view: "View") -> None:
        style = {"stylesheets": [asset("shown.css")], "sizing_mode": "stretch_width", "margin": 0}
        self._view = view
        self.views = Form(title="What to show", prefix="v", layout="across")
        view.watch(self.views, "edited", view.change_view)
        self.upper, self.lower = (pn.pane.Bokeh(sizing_mode="stretch_width", margin=0) for _ in range(2))
        self.upper_legend, self.lower_legend = (pn.pane.HTML("", **style) for _ in range(2))
        self.sentence = pn.pane.HTML("", **style)
        # What is drawn in each panel, for files.
        self.panels: list[dict[str, Any]] = []

    def draw(self) -> None:
        """Bring everything up to date."""
        self.panels = []
        self.sentence.object = said(self._view.explanation, self._view.is_quick_look)
        first = self._described()
        both = ((self.upper, self.upper_legend), (self.lower, self.lower_legend))
        if first is None:
            for pane, key in both:
                _set_visible(pane, False)
                key.object = ""
            self.views.fields = []
            return
        known = curves.quantities(first)
        upper, lower = curves.usual_quantities(first)
        views = self._view.state.views
        chosen = [
            views["upper"] if views.get("upper") in known else upper,
            views["lower"] if views.get("lower") in (*known, "") and "lower" in views else lower,
        ]
        self._show_choices(known, chosen)
        for quantity, (pane, key) in zip(chosen, both, strict=True):
            if quantity:
                self._draw_panel(quantity, pane, key, first)
            else:
                key.object = ""
            _set_visible(pane, bool(quantity))

    def _described(self) -> xr.Dataset | None:
        """The dataset that names the axes: theory or, without theory, the mean over the simulated seeds."""
        view = self._view
        if view.theory["a"] is not None or view.simulated is None:
            return view.theory["a"]
        simulation: xr.Dataset = view.simulated[1]["simulation"]
        return simulation.mean("seed", keep_attrs=True)

    def _draw_panel(self, quantity: str, pane: Any, key: Any, first: xr.Dataset) -> None:
        view = self._view
        lines = [(curve, which == "b") for which in "ab" for curve in _lines(view.theory[which], quantity)]
        ghost = _lines(view.ghost, quantity)
        points, hollow, words = self._points(quantity)
        label = curves.axis_label(first, quantity)
        log = self._is_log("yscale", curves.log_by_default(quantity))
        time_log = self._is_log("xscale", view.state.a.text("times").endswith("log"))
        x_label = f"{describe(first['time'])} {unit(first['time'])}".strip()
        panel = self._panel(pane, time_log, log, x_label)
        span = curves.y_range([curve for curve, _ in lines] + points, log)
        whose = ("", "") if view.state.b is None else told_apart(view.state.a, view.state.b)
        panel.show(lines, points, hollow, label, span, ghost, whose)
        marks = () if view.explanation is None else view.explanation.marks
        panel.mark(marks, curves.variables_of(quantity), lines, labelled=pane is self.upper)
        view.push(pane)
        key.object = legend(lines, points, words, view.state.theme, hollow, bool(ghost), whose)
        self.panels.append(
            {"lines": lines, "points": points, "hollow": hollow, "x_log": time_log, "y_log": log, "y_range": span}
            | {"x_label": x_label, "y_label": label, "whose": whose}
        )

    def _points(self, quantity: str) -> tuple[list[curves.Curve], bool, str]:
        """The simulated points, whether they are of another setting than the one shown, and words for the legend."""
        if self._view.simulated is None:
            return [], False, ""
        setting, result = self._view.simulated
        points = curves.points(result["simulation"], result["comparison"], quantity)
        hollow = setting.values_differ(self._view.state.a)
        words = f"simulation, {result['seeds']} of {result['of']} seeds" + (", another setting" if hollow else "")
        return points, hollow, words if points else ""

    def _is_log(self, view: str, usual: bool) -> bool:
        return {"log": True, "linear": False}.get(self._view.state.views.get(view, ""), usual)

    def _panel(self, pane: Any, x_log: bool, y_log: bool, x_label: str) -> CurvePanel:
        """The figure of a pane; a new one if the scales of its axes change."""
        panel = getattr(pane, "curve_panel", None)
        if panel is None or (panel.x_log, panel.y_log) != (x_log, y_log):
            name = "upper" if pane is self.upper else "lower"
            panel = CurvePanel(self._view.state.theme, x_log, y_log, x_label, name)
            pane.curve_panel = panel
            pane.object = panel.figure
        return panel

    def _show_choices(self, known: dict[str, str], chosen: list[str]) -> None:
        fields = [
            choice("upper", "Above", known),
            choice("lower", "Below", {"": "nothing", **known}),
            choice("xscale", "Time axis", _SCALES),
            choice("yscale", "Value axis", _SCALES),
        ]
        if self.views.fields != fields:
            self.views.fields = fields
        scales = {name: self._view.state.views.get(name, "auto") for name in ("xscale", "yscale")}
        self.views.texts = {"upper": chosen[0], "lower": chosen[1], **scales}


def said(explanation: Explanation | None, quick: bool) -> str:
    """The sentence below the curves as HTML; a quick look says that it is one."""
    words = "" if explanation is None else escape(explanation.sentence)
    note = '<span class="quick">Quick look with fewer samples, refining…</span> ' if quick else ""
    return f'<p class="sentence" role="status">{note}{words}</p>' if note or words else ""


def _lines(data: xr.Dataset | None, quantity: str) -> list[curves.Curve]:
    return curves.lines(data, quantity) if data is not None and quantity in curves.quantities(data) else []


def _set_visible(pane: Any, visible: bool) -> None:
    """Show or hide a pane. Panel copies the visibility of a figure to its pane, so that the figure comes first."""
    if hasattr(pane.object, "visible"):
        pane.object.visible = visible
    pane.visible = visible
