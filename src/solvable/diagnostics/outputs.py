"""The outputs in the return value of a network: an array, or a tuple, mapping or dataclass that holds one.

All diagnostics find outputs here, so that no two of them use different ones.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

Field = str | int
_OUTPUTS = "logits"


def find_outputs(returned: Any, field: Field | None = None, *, samples: int | None = None) -> tuple[Any, Field | None]:
    """The outputs in the return value of a network, and the name or position of their field (None: the whole value).

    ``field`` chooses. By default it is the array itself, the field ``logits`` (as in Hugging Face models), or the only
    array that can be outputs: a loss cannot, which is recognised by its name, or because it is a single number for a
    batch of ``samples``. Without ``samples`` the network was given one input, and a single number may be its output.
    Nested fields, such as the states of a recurrent network, are ignored.
    """
    fields = _fields(returned)
    if fields is None:
        if field is not None:
            raise ValueError(f"output_field={field!r}: the network returns {_kind(returned)}, which has no fields")
        if not _is_array(returned):
            raise ValueError(f"the network must return an array, or fields with one, not {_kind(returned)}")
        return returned, None
    if field is not None:
        return select_field(returned, field), field
    if _is_array(fields.get(_OUTPUTS)):
        return fields[_OUTPUTS], _OUTPUTS
    possible = {
        name: value
        for name, value in fields.items()
        if _is_array(value)
        and not (isinstance(name, str) and (name == "loss" or name.endswith("_loss")))
        and (samples is None or tuple(value.shape[:1]) == (samples,))
    }
    if len(possible) != 1:
        found = ", ".join(f"{name!r} ({_kind(value)})" for name, value in fields.items()) or "nothing"
        which = "several of these" if possible else "none of these"
        raise ValueError(
            f"the network returns {found}, and {which} can be its outputs: choose one with output_field=, a name or a "
            "position counted from 0"
        )
    ((name, value),) = possible.items()
    return value, name


def select_field(returned: Any, field: Field | None) -> Any:
    """The field of that name or position; the whole value for None."""
    if field is None:
        return returned
    fields = _fields(returned) or {}
    name = list(fields)[field] if isinstance(field, int) and -len(fields) <= field < len(fields) else field
    if name not in fields:
        known = ", ".join(repr(name) for name in fields) or f"none, but {_kind(returned)}"
        raise ValueError(f"output_field={field!r} is not among the fields that the network returns: {known}")
    if not _is_array(fields[name]):
        raise ValueError(f"output_field={field!r} holds {_kind(fields[name])}, which is not an array of outputs")
    return fields[name]


def plain_fields(returned: Any) -> Any:
    """A dataclass as a dict of its fields, which JAX can return from transformed functions; anything else as it is."""
    if dataclasses.is_dataclass(returned) and not isinstance(returned, type) and not _is_array(returned):
        return _fields(returned)
    return returned


def only_row(outputs: Any) -> Any:
    """The outputs for the only input of a batch of one."""
    shape = tuple(outputs.shape)
    if not shape:
        return outputs
    if shape[0] != 1:
        raise ValueError(
            f"the network must return one row for each input, but for a batch of one it returned shape {shape}: do not "
            "squeeze the batch axis away"
        )
    return outputs[0]


def _fields(returned: Any) -> dict[Field, Any] | None:
    """Fields by name, or by position in a tuple or list; None if there are none. Fields that hold None are dropped."""
    found: dict[Any, Any]
    if _is_array(returned):
        return None
    if isinstance(returned, Mapping):
        found = dict(returned)
    elif isinstance(returned, tuple) and hasattr(returned, "_fields"):
        found = dict(zip(returned._fields, returned, strict=True))
    elif isinstance(returned, tuple | list):
        found = dict(enumerate(returned))
    elif dataclasses.is_dataclass(returned) and not isinstance(returned, type):
        found = {one.name: getattr(returned, one.name) for one in dataclasses.fields(returned)}
    else:
        return None
    return {name: value for name, value in found.items() if value is not None}


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _kind(value: Any) -> str:
    return f"array of shape {tuple(value.shape)}" if _is_array(value) else type(value).__name__
