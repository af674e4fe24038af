"""The quantity that a sweep computes in each cell: a method or property of the model, or any function of it."""

import hashlib
import inspect
import json
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from solvable.model import Model
from solvable.sweeps.results import Result, as_result


@dataclass(frozen=True)
class Quantity:
    """A quantity of a model. ``target`` is the name of a method or property, or a function of the model."""

    target: str | Callable[[Model], Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the quantity, and of outputs without a name of their own."""
        if isinstance(self.target, str):
            return self.target
        name = getattr(self.target, "__name__", type(self.target).__name__)
        return name if name.isidentifier() else "value"

    def evaluate(self, model: Model, options: Mapping[str, Any]) -> Result:
        """The result of one cell, whose options are added to the fixed ones."""
        chosen = {**self.options, **options}
        if not isinstance(self.target, str):
            return as_result(self.target(model, **chosen), self.name)
        found = getattr(model, self.target)
        return as_result(found(**chosen) if callable(found) else found, self.name)

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers, so that each cell needs a random seed."""
        return isinstance(self.target, str) and self.target.startswith("simulate")

    def identity(self) -> dict[str, Any]:
        """JSON that identifies the quantity: a name and, for a function, a hash of its source code."""
        if isinstance(self.target, str):
            return {"quantity": self.target}
        try:
            source = inspect.getsource(self.target)
        except (OSError, TypeError):
            code = getattr(self.target, "__code__", None)
            source = repr((code.co_code, code.co_consts)) if code else repr(type(self.target))
        digest = hashlib.sha256(source.encode()).hexdigest()[:16]
        return {"quantity": f"{getattr(self.target, '__module__', '')}.{self.name}", "source": digest}


def check_quantity(kind: type[Model], target: Any) -> None:
    """Raise a ValueError unless the model has such a quantity."""
    if not isinstance(target, str):
        if not callable(target):
            raise ValueError(f"quantity must be the name of a method or property, or a function, not {target!r}")
        return
    name = target.replace("-", "_")
    found = inspect.getattr_static(kind, name, None)
    if name.startswith("_") or not (callable(found) or isinstance(found, property)):
        raise ValueError(f"the model {kind.name} has no quantity {name!r}; it has {', '.join(quantities(kind))}")


def make_quantity(
    kind: type[Model], target: Any, options: Mapping[str, Any] | None, swept: tuple[str, ...]
) -> Quantity:
    """The quantity of a name or function, with its options checked; ``swept`` are the options that are swept."""
    options = dict(options or {})
    if not isinstance(target, str):
        return Quantity(target, options)
    name = target.replace("-", "_")
    if not isinstance(inspect.getattr_static(kind, name), property):
        _check_options(kind, name, options, swept)
    elif options:
        raise ValueError(f"{name} is a property and takes no options: leave out {', '.join(options)}")
    return Quantity(name, options)


def quantities(kind: type[Model]) -> list[str]:
    """Names of the methods and properties of a model that can be swept."""
    inherited = set(dir(Model)) - {"predict", "simulate"}
    return [
        name
        for name in dir(kind)
        if not name.startswith("_")
        and name not in inherited
        and name not in getattr(kind, "__dataclass_fields__", {})
        and (isinstance(found := inspect.getattr_static(kind, name), property) or inspect.isfunction(found))
    ]


def option_names(kind: type[Model], target: Any) -> list[str]:
    """Names of the options of a quantity."""
    if not isinstance(target, str):
        try:
            return list(inspect.signature(target).parameters)[1:]
        except (TypeError, ValueError):
            return []
    found = getattr(kind, target.replace("-", "_"), None)
    return list(inspect.signature(found).parameters)[1:] if inspect.isfunction(found) else []


def _check_options(kind: type[Model], name: str, options: Mapping[str, Any], swept: tuple[str, ...]) -> None:
    parameters = dict(list(inspect.signature(getattr(kind, name)).parameters.items())[1:])
    open_ended = any(option.kind is option.VAR_KEYWORD for option in parameters.values())
    for given in options:
        if given not in parameters and not open_ended:
            raise ValueError(
                f"{name} of {kind.name} has no option {given!r}; it takes {', '.join(parameters) or 'no options'}"
            )
    for option in parameters.values():
        needed = option.default is option.empty and option.kind in (option.POSITIONAL_OR_KEYWORD, option.KEYWORD_ONLY)
        if needed and option.name not in options and option.name not in swept:
            raise ValueError(f"{name} of {kind.name} needs {option.name}: give options={{{option.name!r}: ...}}")


def json_value(value: Any) -> Any:
    """A value as JSON, in full or by its hash, for cache keys and random seeds."""
    if isinstance(value, Mapping):
        return {str(key): json_value(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list | tuple):
        value = np.asarray(value) if value and all(isinstance(item, numbers.Real) for item in value) else value
        if not isinstance(value, np.ndarray):
            return [json_value(item) for item in value]
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)
        if array.size <= 50:
            return [json_value(item) for item in array.tolist()] if array.ndim else json_value(array.item())
        digest = hashlib.sha256(json.dumps(array.tolist()).encode()).hexdigest()[:16]
        return f"array of shape {array.shape}, sha256 {digest}"
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, numbers.Real):
        # 1 and 1.0 are the same setting; JSON has no infinities.
        number = float(value)
        return number if np.isfinite(number) else repr(number)
    if callable(value) and not hasattr(value, "__dataclass_fields__"):
        return Quantity(value).identity()
    return repr(value)
