"""Errors of the library name its arguments, ``loss='train_loss'``; on the command line they are flags."""

import functools
import re
from collections.abc import Callable, Collection
from typing import Any

# An argument with a text, a list of texts, with True, or without a value; not inside of a call, and numbers are values
# that were given.
_ARGUMENT = re.compile(
    r"(?<![\w(.\[{'\"-])(?P<name>[a-z]+(?:_[a-z]+)*)="
    r"(?:'(?P<single>[^'\s]+)'|\"(?P<double>[^\"\s]+)\"|\['(?P<several>[^\]]+)'\]|True\b|(?=[\s,;:.)]|$))"
)


def in_flags(message: str, options: Collection[str]) -> str:
    """The message with the options of a command as its flags.

    >>> from solvable.cli.remedies import in_flags
    >>> in_flags("choose one, such as loss='val_loss', or pass mask_spikes=True", ["loss", "mask_spikes"])
    'choose one, such as --loss val_loss, or pass --mask-spikes'
    >>> in_flags("pass allow_different=['initial', 'width'] to compare them anyway", ["allow_different"])
    'pass --allow-different initial,width to compare them anyway'
    """

    def flag(found: re.Match[str]) -> str:
        if found["name"] not in options:
            return found[0]
        text = found["single"] or found["double"] or ",".join((found["several"] or "").split("', '"))
        return "--" + found["name"].replace("_", "-") + (f" {text}" if text else "")

    return _ARGUMENT.sub(flag, message)


def naming_flags(function: Callable[..., Any], options: Collection[str]) -> Callable[..., Any]:
    """The function of a command, whose errors name its flags."""

    @functools.wraps(function)
    def command(*arguments: Any, **values: Any) -> Any:
        try:
            return function(*arguments, **values)
        except ValueError as error:
            raise ValueError(in_flags(str(error), options)) from error

    return command
