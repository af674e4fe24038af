"""The run-time type checker of the tests: an int is a float, as everywhere in Python."""

import inspect
from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
_known: dict[Any, Callable[..., Any]] = {}


def check(signature_only: Callable[..., Any]) -> Callable[..., Any]:
    """Checks of a function's signature, which are made once: inner functions come again with every call."""
    name = signature_only.__module__, signature_only.__qualname__, signature_only.__code__.co_varnames
    key = (*name, inspect.signature(signature_only))
    if key not in _known:
        _known[key] = _checked(signature_only)
    return _known[key]
