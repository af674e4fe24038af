"""The buttons that save what the page shows: curves as data, the setting as a notebook, the picture."""

import io
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import panel as pn

from solvable.explorer import files
from solvable.explorer.markup import setting_words
from solvable.settings import code

if TYPE_CHECKING:
    from solvable.explorer.view import View


class DownloadsPart:
    """A row of buttons, each of which is disabled until there is something to save."""

    def __init__(self, view: "View") -> None:
        self._view = view
        self.buttons = self._made()
        self.row = pn.FlexBox(*self.buttons.values(), margin=0)

    def update(self) -> None:
        """Enable the buttons of what there is. The others say by their label that there is nothing yet."""
        there = self._there()
        for label, button in self.buttons.items():
            missing = there[label.split()[0].lower()] is None
            button.disabled = missing
            button.label = f"{label} (nothing to save yet)" if missing else label

    def _made(self) -> dict[str, Any]:
        """The buttons by label, all of them disabled."""
        name = self._view.state.a.model

        def button(label: str, filename: str, make: Callable[[], Any]) -> Any:
            return pn.widgets.FileDownload(callback=make, filename=filename, label=label, disabled=True)

        made = {}
        for what in ("theory", "simulation"):
            for ending in (".nc", ".csv"):
                label = f"{what.capitalize()} {ending}"
                made[label] = button(label, f"{name}-{what}{ending}", partial(self._data_file, what, ending))
        made["Notebook .ipynb"] = button("Notebook .ipynb", f"{name}.ipynb", self._notebook)
        for ending in (".svg", ".png"):
            made[f"Picture {ending}"] = button(f"Picture {ending}", f"{name}{ending}", partial(self._picture, ending))
        return made

    def _there(self) -> dict[str, Any]:
        """What the buttons save, by the first word of their labels; None for what has not been computed."""
        view = self._view
        simulation = None if view.simulated is None else view.simulated[1]["simulation"]
        return {"theory": view.theory["a"], "simulation": simulation, "picture": view.curves.panels or None} | {
            "notebook": view.state.a
        }

    def _data_file(self, what: str, ending: str) -> Any:
        return files.data_file(self._there()[what], ending)

    def _notebook(self) -> io.BytesIO:
        return io.BytesIO(code.notebook(self._view.state.a).encode())

    def _picture(self, ending: str) -> Any:
        return files.picture(self._view.curves.panels, ending, setting_words(self._view.state.a))
