"""Panel components of the page: each has JavaScript and CSS in ``assets``, and the parameters that both sides share.

Panel's own widgets lack accessible names, send more messages than needed, or lose the connection over a large file.
"""

from pathlib import Path
from typing import Any

import param
from panel.custom import JSComponent

_ASSETS = Path(__file__).parent / "assets"


def asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


class Form(JSComponent):
    """The controls of a setting. ``edited`` is the visitor's last change: a key and a text."""

    fields = param.List(default=[])
    texts = param.Dict(default={})
    errors = param.Dict(default={})
    edited = param.Dict(default={})
    title = param.String(default="")
    heading = param.Boolean(default=False)
    prefix = param.String(default="a")
    layout = param.String(default="")

    _esm = asset("form.js")
    _stylesheets = [asset("form.css")]  # noqa: RUF012 - Panel's convention


class Runner(JSComponent):
    """Start and cancel buttons with a progress bar. ``share`` is negative if nothing runs, 0 if progress is unknown."""

    label = param.String(default="")
    share = param.Number(default=-1.0)
    status = param.String(default="")
    error = param.String(default="")
    pressed = param.Dict(default={})

    _esm = asset("runner.js")
    _stylesheets = [asset("runner.css")]  # noqa: RUF012


class CodeBox(JSComponent):
    """Code with a button that copies it."""

    title = param.String(default="")
    code = param.String(default="")

    _esm = asset("codebox.js")
    _stylesheets = [asset("codebox.css")]  # noqa: RUF012


class Address(JSComponent):
    """The query string, set by the server, and the open tab, set by the browser."""

    query = param.String(default="")
    tab = param.String(default="")

    _esm = asset("address.js")


class Actions(JSComponent):
    """Buttons that undo the last change, go back to the start, and copy the address of the page."""

    can_undo = param.Boolean(default=False)
    pressed = param.Dict(default={})

    _esm = asset("actions.js")
    _stylesheets = [asset("runner.css"), ":host { width: auto; }"]  # noqa: RUF012


class Upload(JSComponent):
    """An upload of one file, in base64, of at most ``limit`` bytes."""

    limit = param.Integer(default=0)
    label = param.String(default="Features file (.npz)")
    ident = param.String(default="npz")
    accept = param.String(default=".npz")
    file = param.Dict(default={})

    _esm = asset("upload.js")
    _stylesheets = [asset("upload.css")]  # noqa: RUF012


def described(field: Any) -> dict[str, Any]:
    """A field as the JSON that the form needs."""
    return {
        "key": field.key,
        "role": field.role,
        "kind": "check" if field.choices == ("false", "true") else field.kind,
        "symbol": field.symbol,
        # A box that is ticked needs no "whether".
        "help": field.help.removeprefix("whether ") if field.choices == ("false", "true") else field.help,
        "units": field.units,
        "allowed": field.allowed,
        "optional": field.optional,
        "choices": list(field.choices),
        "names": list(field.names),
        "trainings": list(field.trainings),
        "needs": list(field.needs),
        "suggestions": list(field.suggestions),
        "stops": None if field.slider is None else list(field.slider.stops()),
    }


def choice(key: str, help: str, choices: dict[str, str]) -> dict[str, Any]:
    """A drop-down list that is not part of a setting: keys and the words shown for them."""
    return {
        **dict.fromkeys(("symbol", "units", "allowed"), ""),
        "key": key,
        "role": "view",
        "kind": "choice",
        "help": help,
        "optional": False,
        "choices": list(choices),
        "names": list(choices.values()),
        "trainings": [],
        "needs": [],
        "suggestions": [],
        "stops": None,
    }


def number(key: str, help: str, allowed: str) -> dict[str, Any]:
    """A box for a number that is not part of a setting; ``allowed`` says which."""
    return {**choice(key, help, {}), "kind": "number", "allowed": allowed}


def check(key: str, help: str) -> dict[str, Any]:
    """A check box."""
    return {**choice(key, help, {}), "kind": "check"}
