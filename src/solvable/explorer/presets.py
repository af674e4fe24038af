"""Settings of the papers' figures: every figure that one model with one set of parameters is behind."""

import dataclasses
from collections.abc import Mapping

from solvable.explorer.address import State
from solvable.explorer.settings import Setting


@dataclasses.dataclass(frozen=True)
class Preset:
    """A figure of a paper as a page: setting A, perhaps B beside it, and the tab."""

    paper: str
    figure: str
    label: str
    model: str
    a: Mapping[str, str]
    b: Mapping[str, str] | None = None
    tab: str = "curves"
    views: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def state(self) -> State:
        b = None if self.b is None else _setting(self.model, self.b)
        return State(_setting(self.model, self.a), b, self.tab, views=self.views)


def _setting(model: str, texts: Mapping[str, str]) -> Setting:
    setting = Setting(model)
    for key, text in texts.items():
        setting = setting.change(key, text)
    return setting


def presets_of(model: str) -> list[Preset]:
    return [preset for preset in PRESETS if preset.model == model]


PRESETS: tuple[Preset, ...] = ()
