"""What a preset is: a figure of a paper as a state of the page."""

import dataclasses
import re
from collections.abc import Mapping

from solvable.explorer.address import State
from solvable.explorer.markup import told_apart
from solvable.settings import Setting

# Beginnings of the labels that name a figure, a table or an equation of a paper.
_OF_A_PAPER = re.compile(r"(Fig\.|Table|Eqs?\.|Theorem) ")


@dataclasses.dataclass(frozen=True)
class Preset:
    """A figure of a paper as a page: setting A, optionally setting B beside it, the open tab and what it shows."""

    paper: str
    figure: str
    label: str
    model: str
    a: Mapping[str, str]
    b: Mapping[str, str] | None = None
    tab: str = "curves"
    views: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def words(self) -> str:
        """What the preset shows: the figure, and both settings by what differs between them."""
        words = self.label if _OF_A_PAPER.match(self.label) else f"Further result: {self.label}"
        state = self.state()
        if state.b is None:
            return words
        told = told_apart(state.a, state.b)
        return words if told == ("A", "B") else f"{words} ({told[0]} beside {told[1]})"

    def state(self) -> State:
        b = None if self.b is None else _setting(self.model, self.b)
        return State(_setting(self.model, self.a), b, self.tab, views=self.views)


def _setting(model: str, texts: Mapping[str, str]) -> Setting:
    setting = Setting(model)
    for key, text in texts.items():
        setting = setting.change(key, text)
    return setting


def changed(common: Mapping[str, str], **more: str) -> dict[str, str]:
    """Texts of a setting with some added or changed."""
    return {**common, **more}
