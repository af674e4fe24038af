"""The state of a page in its address (URL query): model, settings A and B, tab and views. Nothing is evaluated."""

import dataclasses
from collections.abc import Iterable, Mapping
from urllib.parse import urlencode

from solvable import models
from solvable.settings import FieldError, Setting

TABS = ("curves", "phase", "code", "diagnose", "infer")
THEMES = ("light", "dark")
# Longer values are cut, and further pairs ignored, before anything is parsed.
_LONGEST = 4200
_MOST_PAIRS = 120
_B = "b."


@dataclasses.dataclass(frozen=True)
class State:
    """The state of a page. ``views`` holds what is drawn: quantities, axes and their scales."""

    a: Setting
    b: Setting | None = None
    tab: str = "curves"
    theme: str = "light"
    views: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def query(self) -> str:
        """The query string, with everything that differs from the initial page."""
        pairs = [("model", self.a.model), *self.a.texts.items()]
        if self.b is not None:
            pairs += [("compare", "1"), *((f"{_B}{key}", text) for key, text in self.b.texts.items())]
        if self.tab != TABS[0]:
            pairs.append(("tab", self.tab))
        if self.theme != THEMES[0]:
            pairs.append(("theme", self.theme))
        pairs += self.views.items()
        # Commas, colons and semicolons are fine in a query and read better than their codes.
        return urlencode(pairs, safe=",:()/")


VIEWS = ("upper", "lower", "xscale", "yscale", "plane", "px", "py")


def read_state(pairs: Iterable[tuple[str, str]], model: str | None = None) -> tuple[State, dict[str, str]]:
    """The state for the pairs of a query string, and error messages by key; keys of setting B begin with ``b.``.

    Impossible values are left out, whatever their order, and the rest is kept.
    """
    given = {key[:64]: value[:_LONGEST] for key, value in list(pairs)[:_MOST_PAIRS]}
    errors: dict[str, str] = {}
    name = given.pop("model", model or "") or next(iter(models.names()))
    try:
        models.get(name)
    except ValueError as error:
        errors[""] = str(error)
        name = model or next(iter(models.names()))
    compared = given.pop("compare", "") == "1"
    tab, theme = given.pop("tab", TABS[0]), given.pop("theme", THEMES[0])
    views = {key: given.pop(key) for key in VIEWS if key in given}
    mine = {key: text for key, text in given.items() if not key.startswith(_B)}
    other = {key.removeprefix(_B): text for key, text in given.items() if key.startswith(_B)}
    a, wrong = _setting(name, mine)
    errors |= wrong
    b = None
    if compared:
        b, wrong = _setting(name, other)
        errors |= {_B + key: text for key, text in wrong.items()}
    state = State(a, b, tab if tab in TABS else TABS[0], theme if theme in THEMES else THEMES[0], views)
    return state, errors


def _setting(model: str, texts: Mapping[str, str]) -> tuple[Setting, dict[str, str]]:
    """Read each text alone, then check them together; texts that are not compatible are dropped, the last one first."""
    setting, errors = Setting(model), {}
    for key, text in texts.items():
        try:
            setting = setting.change(key, text)
        except FieldError as error:
            errors[error.key] = f"in the address: {error}"
    while setting.texts:
        try:
            setting.check()
            break
        except (FieldError, ValueError) as error:
            blamed = getattr(error, "key", "")
            dropped = blamed if blamed in setting.texts else list(setting.texts)[-1]
            errors[dropped] = f"in the address: {error}"
            setting = Setting(model, {key: text for key, text in setting.texts.items() if key != dropped})
    return setting, errors
