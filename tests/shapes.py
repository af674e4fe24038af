"""The run-time checker of array shapes in the tests, by beartype. An int is a float, as everywhere in Python.

Only jaxtyping's annotations are checked. What users hand in is checked by the package itself, which answers with errors
that name the value and the remedy; a type checker would answer before it.
"""

import inspect
from collections.abc import Callable
from typing import Any, get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
_known: dict[Any, Callable[..., Any]] = {}


def check(signature_only: Callable[..., Any]) -> Callable[..., Any]:
    """Checks of a function's signature, which are made once: inner functions come again with every call."""
    hints = signature_only.__annotations__
    signature_only.__annotations__ = {name: hint for name, hint in hints.items() if _has_shape(hint)}
    if not signature_only.__annotations__:
        return signature_only
    name = signature_only.__module__, signature_only.__qualname__, signature_only.__code__.co_varnames
    key = (*name, inspect.signature(signature_only))
    if key not in _known:
        _known[key] = _checked(signature_only)
    return _known[key]


def _has_shape(hint: Any) -> bool:
    """Whether a type hint, or a part of it, is one of jaxtyping's."""
    return (inspect.isclass(hint) and issubclass(hint, AbstractArray)) or any(map(_has_shape, get_args(hint)))
