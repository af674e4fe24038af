"""The page of one visitor: its state, its running computations, and what it shows."""

import contextlib
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import panel as pn
import xarray as xr

from solvable.explorer import files
from solvable.explorer.address import TABS, State
from solvable.explorer.components import Address, CodeBox, Form, Runner, asset, check, choice, described
from solvable.explorer.diagnosis_part import DiagnosisPart
from solvable.explorer.figures import CurvePanel, legend
from solvable.explorer.latest import Later, Latest
from solvable.explorer.markup import card_list, notice, run_words, setting_words
from solvable.explorer.plane_part import PlanePart
from solvable.explorer.summaries import Card, empty_cards
from solvable.explorer.workers import Workers
from solvable.plotting import describe
from solvable.plotting import series as curves
from solvable.plotting.style import unit
from solvable.settings import Setting, code

Hold = Callable[[], contextlib.AbstractContextManager[Any]]
_SCALES = {"auto": "automatic", "log": "log", "linear": "linear"}


class View:
    """Everything on a page, for one visitor.

    ``later`` runs a function on the thread that may touch the page; inside ``hold`` changes wait for each other and are
    sent together, in their order: a figure never arrives after its numbers. ``push`` sends the changes of a figure
    where that does not happen by itself.
    """

    def __init__(
        self,
        state: State,
        errors: dict[str, str],
        workers: Workers,
        later: Later,
        hold: Hold = contextlib.nullcontext,
        push: Callable[[Any], None] = lambda pane: None,
    ) -> None:
        self.state = state
        self._hold, self.push, self._begun = hold, push, False
        later = self._together(later)
        self.theory: dict[str, xr.Dataset | None] = {"a": None, "b": None}
        self.found: dict[str, list[Card]] = {"a": [], "b": []}
        self.simulated: tuple[Setting, dict[str, Any]] | None = None
        self.address = Address(query=state.query(), tab=state.tab)
        self._make_controls(errors)
        self._make_shown()
        self._theory = {which: Latest(workers, later, "theory", self._theory_share) for which in "ab"}
        self._cards = {which: Latest(workers, later, "cards", lambda share: None) for which in "ab"}
        self._simulation = Latest(workers, later, "simulation", self._simulation_share)
        self.plane = PlanePart(self, workers, later)
        self.diagnosis = DiagnosisPart(self, workers, later)
        self.watch(self.address, "tab", self.open_tab)
        self._panels: list[dict[str, Any]] = []
        self._enable_downloads()

    def _together(self, later: Later) -> Later:
        def held(action: Callable[[], None]) -> None:
            with self._hold():
                action()

        return lambda action: later(lambda: held(action))

    def watch(self, component: Any, trait: str, action: Callable[[Any], None]) -> None:
        def act(event: Any) -> None:
            with self._hold():
                action(event.new)

        component.param.watch(act, trait)

    # What the page is made of -----------------------------------------------------------------------------------

    def _make_controls(self, errors: dict[str, str]) -> None:
        mine = {key: text for key, text in errors.items() if not key.startswith("b.") and key in self.state.a.fields}
        other = {key.removeprefix("b."): text for key, text in errors.items() if key.startswith("b.")}
        # What cannot be shown at a field is shown above all of them.
        rest = [text for key, text in errors.items() if key not in mine and not key.startswith("b.")]
        fields = [described(field) for field in self.state.a.fields.values()]
        self._address_notes = rest
        self.notice = pn.pane.HTML(notice(rest), stylesheets=[asset("shown.css")], sizing_mode="stretch_width")
        self.form = Form(fields=fields, texts=self.state.a.all_texts(), errors=mine, title="Setting A", prefix="a")
        self.watch(self.form, "edited", lambda new: self._edited("a", new))
        self.compare = Form(
            fields=[check("compare", "compare with a setting B")],
            texts={"compare": "true" if self.state.b else "false"},
            title="Comparison",
            prefix="c",
        )
        self.watch(self.compare, "edited", lambda new: self._compare(new.get("text") == "true"))
        self.form_b = pn.Column(sizing_mode="stretch_width", margin=0)
        if self.state.b is not None:
            self._open_b(other)
        self.runner = Runner(label="Simulate", status="trains the finite-size system and compares")
        self.watch(self.runner, "pressed", self._pressed)

    def _make_shown(self) -> None:
        style = {"stylesheets": [asset("shown.css")], "sizing_mode": "stretch_width", "margin": 0}
        self.cards = pn.pane.HTML("", **style)
        self.progress = Runner(label="")
        self.watch(self.progress, "pressed", lambda new: self._stop_theory())
        self.views = Form(title="What to show", prefix="v", layout="across")
        self.watch(self.views, "edited", self.change_view)
        self.upper, self.lower = (pn.pane.Bokeh(sizing_mode="stretch_width", margin=0) for _ in range(2))
        self.upper_legend, self.lower_legend = (pn.pane.HTML("", **style) for _ in range(2))
        self.python = CodeBox(title="Python")
        self.command = CodeBox(title="Command line")
        self._buttons = self._download_buttons()
        self.downloads = pn.FlexBox(*self._buttons.values(), margin=0)
        self._show_code()
        self._show_cards()

    def _download_buttons(self) -> dict[str, Any]:
        """The buttons by label; all are disabled until there is something to download."""
        name = self.state.a.model

        def button(label: str, filename: str, make: Callable[[], Any]) -> Any:
            return pn.widgets.FileDownload(callback=make, filename=filename, label=label, disabled=True)

        made = {}
        for what in ("theory", "simulation"):
            for ending in (".nc", ".csv"):
                label = f"{what.capitalize()} {ending}"
                made[label] = button(label, f"{name}-{what}{ending}", partial(self._data_file, what, ending))
        for ending in (".svg", ".png"):
            made[f"Picture {ending}"] = button(f"Picture {ending}", f"{name}{ending}", partial(self._picture, ending))
        return made

    def _data_file(self, what: str, ending: str) -> Any:
        return files.data_file(self._to_download()[what], ending)

    def _to_download(self) -> dict[str, Any]:
        """What the buttons give, by the first word of their labels; None for what has not been computed."""
        simulation = None if self.simulated is None else self.simulated[1]["simulation"]
        return {"theory": self.theory["a"], "simulation": simulation, "picture": self._panels or None}

    def _enable_downloads(self) -> None:
        """Enable the buttons of what there is. The others say by their label that there is nothing yet."""
        there = self._to_download()
        for label, button in self._buttons.items():
            missing = there[label.split()[0].lower()] is None
            button.disabled = missing
            button.label = f"{label} (nothing to save yet)" if missing else label

    def _picture(self, ending: str) -> Any:
        return files.picture(self._panels, ending, setting_words(self.state.a))

    # What the visitor does --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the computations of a new page. Further calls do nothing."""
        if self._begun:
            return
        self._begun = True
        self._ask_theory("a")
        if self.state.b is not None:
            self._ask_theory("b")
        self.plane.update()

    def close(self) -> None:
        """Stop all computations, because the page has been closed. Nothing on the page is changed any more."""
        parts = (self.plane.work, self.diagnosis.work)
        for work in (*self._theory.values(), *self._cards.values(), self._simulation, *parts):
            work.close()

    def _edited(self, which: str, change: dict[str, Any]) -> None:
        if "key" in change:
            self.edit(which, str(change["key"]), str(change["text"]))

    def edit(self, which: str, key: str, text: str) -> None:
        """Apply a change of a control, or show the error at the control."""
        form, setting = self._form(which), getattr(self.state, which)
        if form is None or setting is None or key not in setting.fields:
            return
        try:
            changed = setting.edit(key, text)
            changed.check()
        except ValueError as error:
            blamed = getattr(error, "key", "") or key
            form.errors = {**form.errors, blamed if blamed in setting.fields else key: str(error)}
            return
        # What was wrong together with this field may be right now; what was wrong with another alone still is.
        form.errors = {other: words for other, words in form.errors.items() if self._still_wrong(changed, other, words)}
        self.take(which, changed)

    @staticmethod
    def _still_wrong(changed: Setting, key: str, words: str) -> bool:
        return words.startswith(f"{key} must") and key not in changed.texts

    def take(self, which: str, setting: Setting) -> None:
        form = self._form(which)
        if form is not None:
            form.texts = setting.all_texts()
        self._move(**{which: setting})
        self._ask_theory(which)
        if which == "a":
            self._show_code()
            self.plane.update()

    def _move(self, **changes: Any) -> None:
        self.state = dataclasses.replace(self.state, **changes)
        self.address.query = self.state.query()

    def _form(self, which: str) -> Any:
        if which == "a":
            return self.form
        return next(iter(self.opened_b()), None)

    def opened_b(self) -> list[Any]:
        """The form of setting B, if there is one."""
        return list(self.form_b)

    def _compare(self, wanted: bool) -> None:
        self.compare.texts = {"compare": "true" if wanted else "false"}
        if wanted and self.state.b is None:
            self._move(b=self.state.a)
            self._open_b({})
            self._ask_theory("b")
        elif not wanted:
            self.form_b.clear()
            self._theory["b"].stop()
            self.theory["b"], self.found["b"] = None, []
            self._move(b=None)
            self._draw()
            self._show_cards()

    def _open_b(self, errors: dict[str, str]) -> None:
        assert self.state.b is not None
        form = Form(
            fields=[described(field) for field in self.state.b.fields.values() if field.role != "simulation"],
            texts=self.state.b.all_texts(),
            errors=errors,
            title="Setting B (dashed)",
            heading=True,
            prefix="b",
        )
        self.watch(form, "edited", lambda new: self._edited("b", new))
        self.form_b[:] = [form]

    def change_view(self, change: dict[str, Any]) -> None:
        if "key" not in change:
            return
        self._move(views={**self.state.views, change["key"]: change["text"]})
        self._draw()
        self.plane.update()

    def open_tab(self, tab: str) -> None:
        if tab in TABS and tab != self.state.tab:
            self._move(tab=tab)
        self.plane.update()

    # Theory -----------------------------------------------------------------------------------------------------

    def _ask_theory(self, which: str) -> None:
        setting: Setting = getattr(self.state, which)
        self.progress.error = ""
        if setting.is_simulation_only:
            self._theory[which].stop()
            self._theory_failed(which, setting, _alone(which, setting))
            return
        self._theory[which].ask(
            _payload(setting),
            setting.is_slow,
            done=lambda result, notes: self._theory_found(which, setting, result, notes),
            failed=lambda words: self._theory_failed(which, setting, f"Setting {which.upper()}: {words}"),
        )

    def _theory_share(self, share: float) -> None:
        self.progress.status = "" if share < 0 else "computing theory" + (f", {share:.0%}" if share > 0 else "")
        self.progress.share = share

    def _theory_found(self, which: str, setting: Setting, result: xr.Dataset, notes: list[str]) -> None:
        if getattr(self.state, which) is None:
            return
        self.theory[which] = result
        self.notice.object = notice([*self._address_notes, *notes])
        self._draw()
        self._ask_cards(which, setting)

    def _theory_failed(self, which: str, setting: Setting, words: str) -> None:
        # The curve of another setting would be taken for this one's, and so would its cards.
        self.theory[which] = None
        self.progress.error = words
        self._draw()
        self._ask_cards(which, setting)

    def _ask_cards(self, which: str, setting: Setting) -> None:
        self._cards[which].ask(_payload(setting), done=lambda found, _: self._cards_found(which, found))

    def _stop_theory(self) -> None:
        for work in self._theory.values():
            work.stop()
        self.progress.status = "cancelled"

    def _cards_found(self, which: str, found: list[Card]) -> None:
        self.found[which] = found
        self._show_cards()

    # Simulation -------------------------------------------------------------------------------------------------

    def _pressed(self, pressed: dict[str, Any]) -> None:
        if pressed.get("action") == "cancel":
            self._simulation.stop()
            self.runner.status = "cancelled"
        elif pressed.get("action") == "start":
            self._simulate()

    def _simulate(self) -> None:
        setting = self.state.a
        self.simulated = None
        self.runner.error = ""
        self.runner.status = "starting"
        self._draw()
        self._simulation.ask(
            _payload(setting),
            True,
            partial=lambda result: self._seeds_arrived(setting, result),
            done=lambda result, notes: self._simulation_done(setting, result, notes),
            failed=self._simulation_failed,
        )

    def _simulation_share(self, share: float) -> None:
        self.runner.share = share

    def _seeds_arrived(self, setting: Setting, result: dict[str, Any]) -> None:
        self.simulated = (setting, result)
        self.runner.status = run_words(setting, result)
        self._draw()

    def _simulation_done(self, setting: Setting, result: dict[str, Any], notes: list[str]) -> None:
        self._seeds_arrived(setting, result)
        self.runner.error = " ".join(notes)

    def _simulation_failed(self, words: str) -> None:
        self.runner.status = ""
        self.runner.error = words

    # Drawing ----------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        self._panels = []
        self._draw_panels()
        self._enable_downloads()

    def _draw_panels(self) -> None:
        first = self._described()
        if first is None:
            for pane, key in ((self.upper, self.upper_legend), (self.lower, self.lower_legend)):
                _set_visible(pane, False)
                key.object = ""
            self.views.fields = []
            return
        known = curves.quantities(first)
        upper, lower = curves.usual_quantities(first)
        views = self.state.views
        chosen = [
            views["upper"] if views.get("upper") in known else upper,
            views["lower"] if views.get("lower") in (*known, "") and "lower" in views else lower,
        ]
        self._show_view_choices(known, chosen)
        for quantity, pane, key in zip(
            chosen, (self.upper, self.lower), (self.upper_legend, self.lower_legend), strict=True
        ):
            if quantity:
                self._draw_panel(quantity, pane, key, curves.axis_label(first, quantity))
            else:
                key.object = ""
            _set_visible(pane, bool(quantity))

    def _described(self) -> xr.Dataset | None:
        """The dataset that names the axes: theory or, without theory, the mean over the simulated seeds."""
        if self.theory["a"] is not None or self.simulated is None:
            return self.theory["a"]
        simulation: xr.Dataset = self.simulated[1]["simulation"]
        return simulation.mean("seed", keep_attrs=True)

    def _draw_panel(self, quantity: str, pane: Any, key: Any, label: str) -> None:
        lines = [
            (curve, which == "b")
            for which in "ab"
            if (data := self.theory[which]) is not None and quantity in curves.quantities(data)
            for curve in curves.lines(data, quantity)
        ]
        points, hollow, words = [], False, ""
        if self.simulated is not None:
            setting, result = self.simulated
            points = curves.points(result["simulation"], result["comparison"], quantity)
            hollow = setting.values_differ(self.state.a)
            if points:
                words = f"simulation, {result['seeds']} of {result['of']} seeds" + (
                    ", another setting" if hollow else ""
                )
        log = self._is_log("yscale", curves.log_by_default(quantity))
        time_log = self._is_log("xscale", self.state.a.text("times").endswith("log"))
        first = self._described()
        assert first is not None
        x_label = f"{describe(first['time'])} {unit(first['time'])}".strip()
        panel = self._panel(pane, time_log, log, x_label)
        span = curves.y_range([curve for curve, _ in lines] + points, log)
        panel.show(lines, points, hollow, label, span)
        self.push(pane)
        key.object = legend(lines, points, words, self.state.theme, hollow)
        self._panels.append(
            {"lines": lines, "points": points, "hollow": hollow, "x_log": time_log, "y_log": log, "y_range": span}
            | {"x_label": x_label, "y_label": label}
        )

    def _is_log(self, view: str, usual: bool) -> bool:
        return {"log": True, "linear": False}.get(self.state.views.get(view, ""), usual)

    def _panel(self, pane: Any, x_log: bool, y_log: bool, x_label: str) -> CurvePanel:
        """The figure of a pane; a new one if the scales of its axes change."""
        panel = getattr(pane, "curve_panel", None)
        if panel is None or (panel.x_log, panel.y_log) != (x_log, y_log):
            panel = CurvePanel(self.state.theme, x_log, y_log, x_label, "upper" if pane is self.upper else "lower")
            pane.curve_panel = panel
            pane.object = panel.figure
        return panel

    def _show_view_choices(self, known: dict[str, str], chosen: list[str]) -> None:
        fields = [
            choice("upper", "Above", known),
            choice("lower", "Below", {"": "nothing", **known}),
            choice("xscale", "Time axis", _SCALES),
            choice("yscale", "Value axis", _SCALES),
        ]
        if self.views.fields != fields:
            self.views.fields = fields
        scales = {name: self.state.views.get(name, "auto") for name in ("xscale", "yscale")}
        self.views.texts = {"upper": chosen[0], "lower": chosen[1], **scales}

    def _show_cards(self) -> None:
        mine = self.found["a"] or empty_cards(self.state.a.model)
        self.cards.object = card_list(mine, self.found["b"])

    def _show_code(self) -> None:
        self.python.code = code.python(self.state.a)
        verbs = ("predict", "simulate", "compare")
        self.command.code = "\n".join(code.command(self.state.a, verb) for verb in verbs)


def _set_visible(pane: Any, visible: bool) -> None:
    """Show or hide a pane. Panel copies the visibility of a figure to its pane, so that the figure comes first."""
    if hasattr(pane.object, "visible"):
        pane.object.visible = visible
    pane.visible = visible


def _alone(which: str, setting: Setting) -> str:
    """The message for a training that only the simulation covers."""
    words = f"Setting {which.upper()}: the theory of {setting.model} does not cover {setting.training()!r}."
    return words + (" Press Simulate to see the simulation alone." if which == "a" else "")


def _payload(setting: Setting) -> dict[str, Any]:
    return {"model": setting.model, "texts": dict(setting.texts)}
