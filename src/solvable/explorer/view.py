"""The page of one visitor: its state, its running computations, and what it shows."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import panel as pn
import xarray as xr

from solvable.explorer.address import TABS, State
from solvable.explorer.components import Actions, Address, CodeBox, Form, Runner, asset, check, described
from solvable.explorer.curves_part import CurvesPart
from solvable.explorer.diagnosis_part import DiagnosisPart
from solvable.explorer.downloads_part import DownloadsPart
from solvable.explorer.history import History
from solvable.explorer.inference_part import InferencePart
from solvable.explorer.latest import Later, Latest
from solvable.explorer.markup import card_list, notice, queue_words, run_words
from solvable.explorer.plane_part import PlanePart
from solvable.explorer.precomputed import is_shipped
from solvable.explorer.summaries import Card, empty_cards
from solvable.explorer.workers import Workers
from solvable.settings import Setting, code
from solvable.story import Explanation

Hold = Callable[[], contextlib.AbstractContextManager[Any]]


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
        # What the model says about the curves of setting A, the curves before the last change, and all changes.
        self.explanation: Explanation | None = None
        self.ghost: xr.Dataset | None = None
        self.is_quick_look = False
        self._history = History()
        self.found: dict[str, list[Card]] = {"a": [], "b": []}
        self.simulated: tuple[Setting, dict[str, Any]] | None = None
        self.address = Address(query=state.query(), tab=state.tab)
        self._make_controls(errors)
        self._make_shown()
        self._theory = {
            which: Latest(workers, later, "theory", self._theory_share, self._theory_waits) for which in "ab"
        }
        self._looks = {which: Latest(workers, later, "theory", lambda share: None) for which in "ab"}
        self._cards = {which: Latest(workers, later, "cards", lambda share: None) for which in "ab"}
        self._simulation = Latest(workers, later, "simulation", self._simulation_share, self._simulation_waits)
        self.plane = PlanePart(self, workers, later)
        self.diagnosis = DiagnosisPart(self, workers, later)
        self.inference = InferencePart(self, workers, later)
        self.watch(self.address, "tab", self.open_tab)
        self.downloads.update()

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
        self.actions = Actions()
        self.watch(self.actions, "pressed", lambda new: self._act(str(new.get("action"))))
        self.curves = CurvesPart(self)
        self.python = CodeBox(title="Python")
        self.command = CodeBox(title="Command line")
        self.downloads = DownloadsPart(self)
        self._show_code()
        self._show_cards()

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
        parts = (self.plane.work, self.diagnosis.work, self.inference.work)
        for work in (*self._theory.values(), *self._looks.values(), *self._cards.values(), self._simulation, *parts):
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
        self.note(which, key)
        self.take(which, changed)

    def note(self, which: str, key: str) -> None:
        """Remember what is shown before a control changes; a slider that is dragged changes once."""
        if self._history.note(which, getattr(self.state, which), key) and which == "a":
            self.ghost = self.theory["a"]
        self.actions.can_undo = bool(self._history)

    def _act(self, action: str) -> None:
        if action == "undo":
            self._undo()
        elif action == "reset":
            self.note("a", "reset")
            self.form.errors = {}
            self.take("a", Setting(self.state.a.model))

    def _undo(self) -> None:
        found = self._history.undo()
        self.actions.can_undo = bool(self._history)
        if found is None or getattr(self.state, found[0]) is None:
            return
        which, setting = found
        if which == "a":
            self.ghost = self.theory["a"]
        self.take(which, setting)

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
        slow = setting.is_slow and not is_shipped(setting)
        look_first = slow and setting.has_quick_look
        if look_first:
            quick = {**_payload(setting), "quick": True}
            self._looks[which].ask(quick, done=lambda result, notes: self._look_found(which, result))
        else:
            self._looks[which].stop()
        self._theory[which].ask(
            _payload(setting),
            slow,
            rest=look_first,
            done=lambda result, notes: self._theory_found(which, setting, result, notes),
            failed=lambda words: self._theory_failed(which, setting, f"Setting {which.upper()}: {words}"),
        )

    def _look_found(self, which: str, result: dict[str, Any]) -> None:
        """Show a quick look, unless the theory itself has come first."""
        if getattr(self.state, which) is None or not self._theory[which].busy:
            return
        self.theory[which] = result["curves"]
        if which == "a":
            self.explanation, self.is_quick_look = result["explanation"], True
        self._draw()

    def _theory_share(self, share: float) -> None:
        self.progress.status = "" if share < 0 else "computing theory" + (f", {share:.0%}" if share > 0 else "")
        self.progress.share = share

    def _theory_waits(self, before: int) -> None:
        self.progress.status = queue_words(before) or self.progress.status

    def _theory_found(self, which: str, setting: Setting, result: dict[str, Any], notes: list[str]) -> None:
        if getattr(self.state, which) is None:
            return
        self._looks[which].stop()
        self.theory[which] = result["curves"]
        if which == "a":
            self.explanation, self.is_quick_look = result["explanation"], False
        self.notice.object = notice([*self._address_notes, *notes])
        self._draw()
        self._ask_cards(which, setting)

    def _theory_failed(self, which: str, setting: Setting, words: str) -> None:
        # The curve of another setting would be taken for this one's, and so would its cards.
        self.theory[which] = None
        if which == "a":
            self.explanation, self.is_quick_look = None, False
        self.progress.error = words
        self._draw()
        self._ask_cards(which, setting)

    def _ask_cards(self, which: str, setting: Setting) -> None:
        self._cards[which].ask(_payload(setting), done=lambda found, _: self._cards_found(which, found))

    def _stop_theory(self) -> None:
        for work in (*self._theory.values(), *self._looks.values()):
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

    def _simulation_waits(self, before: int) -> None:
        self.runner.status = queue_words(before) or self.runner.status

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

    # Showing ----------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        self.curves.draw()
        self.downloads.update()

    def _show_cards(self) -> None:
        mine = self.found["a"] or empty_cards(self.state.a.model)
        self.cards.object = card_list(mine, self.found["b"])

    def _show_code(self) -> None:
        self.python.code = code.python(self.state.a)
        verbs = ("predict", "simulate", "compare")
        self.command.code = "\n".join(code.command(self.state.a, verb) for verb in verbs)


def _alone(which: str, setting: Setting) -> str:
    """The message for a training that only the simulation covers."""
    words = f"Setting {which.upper()}: the theory of {setting.model} does not cover {setting.training()!r}."
    return words + (" Press Simulate to see the simulation alone." if which == "a" else "")


def _payload(setting: Setting) -> dict[str, Any]:
    return {"model": setting.model, "texts": dict(setting.texts)}
