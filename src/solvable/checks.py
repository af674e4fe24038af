"""Rules for values given by users, and errors that name the value, the rule and the remedy."""

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

# Formulas square parameters, and the squares must be float64 numbers, too.
_LARGEST = 1e150


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a parameter must be: a text for error messages, a test for each number, and the number of array axes.

    Parameters
    ----------
    text
        What a value must be, for error messages.
    test
        Whether a number keeps the rule.
    dimensions
        Number of axes of an array; 0 for one number.
    function
        Whether the value is a function.
    """

    text: str
    test: Callable[[Any], bool]
    dimensions: int = 0
    function: bool = False


class rules:  # noqa: N801 - a namespace, read as ``rules.positive``
    """The rules that parameters can be asked to keep."""

    positive = Rule("a positive finite number", lambda value: 0 < value < math.inf)
    positive_or_infinite = Rule("a positive number, or inf", lambda value: value > 0)
    not_negative = Rule("a finite number, zero or more", lambda value: 0 <= value < math.inf)
    finite = Rule("a finite number", math.isfinite)
    count = Rule("a whole number, 1 or more", lambda value: value >= 1 and float(value).is_integer())
    count_or_infinite = Rule(
        "a whole number, 1 or more, or inf", lambda value: value >= 1 and (value == math.inf or value % 1 == 0)
    )
    positive_vector = Rule("a list of positive finite numbers", positive.test, dimensions=1)
    not_negative_vector = Rule("a list of finite numbers, zero or more", not_negative.test, dimensions=1)
    finite_vector = Rule("a list of finite numbers", math.isfinite, dimensions=1)
    finite_matrix = Rule("a matrix of finite numbers", math.isfinite, dimensions=2)


def is_traced(*values: Any) -> bool:
    """Whether JAX traces any number in these values, which may be models, trainings or other PyTrees.

    Parameters
    ----------
    *values
        Numbers, arrays, models, trainings or other PyTrees.
    """
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def as_number(value: Any) -> Any:
    """Convert to a plain Python number, so that models print well. Anything else is returned unchanged.

    Parameters
    ----------
    value
        Anything.
    """
    if isinstance(value, bool | np.bool_ | str) or value is None:
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, np.ndarray | jax.Array) and not isinstance(value, jax.core.Tracer) and value.ndim == 0:
        return value.item()
    return value


def check_value(name: str, value: Any, rule: Rule, optional: bool, help: str, infinite: bool = False) -> None:
    """Raise a ValueError that names a number, its value and its rule, if it breaks the rule. Traced values pass.

    Parameters
    ----------
    name
        Name of the value, for the error message.
    value
        The value.
    rule
        The rule.
    optional
        Whether None is allowed.
    help
        What the value means, for the error message.
    infinite
        Whether None stands for infinitely many.
    """
    if isinstance(value, jax.core.Tracer) or (value is None and optional):
        return
    if isinstance(value, np.ndarray | jax.Array):
        raise ValueError(
            f"{name} must be one number, not an array of shape {value.shape}: "
            "use jax.vmap or phase_diagram for many values"
        )
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not rule.test(value):
        other = ", or inf" if infinite else ", or None" if optional else ""
        raise ValueError(f"{name} must be {rule.text}{other}, not {one_line(value)} ({help})")
    if _LARGEST < abs(value) < math.inf:
        raise ValueError(
            f"{name} must be at most {_LARGEST:g} in size, not {value:g}: its square must be a "
            "number as well; change the units"
        )


def check_array(name: str, value: Any, rule: Rule) -> None:
    """Raise a ValueError that names an array and the first of its entries that breaks the rule.

    Parameters
    ----------
    name
        Name of the value, for the error message.
    value
        The value.
    rule
        The rule, which each entry must keep.
    """
    if not isinstance(value, np.ndarray | jax.Array):
        raise ValueError(f"{name} must be {rule.text}, not {one_line(value)}")
    if value.ndim != rule.dimensions or value.size == 0:
        raise ValueError(f"{name} must be {rule.text}, not an array of shape {value.shape}")
    # The rules are bounds: where the extremes keep them and all are finite, all entries do. Only where a rule is broken
    # are the entries searched one by one.
    array = np.asarray(value)
    if np.isfinite(array).all() and rule.test(float(array.min())) and rule.test(float(array.max())):
        return
    for place, number in np.ndenumerate(array):
        if not rule.test(number):
            index = ", ".join(map(str, place))
            raise ValueError(f"{name} must be {rule.text}, but {name}[{index}] = {number:g}")


def one_line(value: Any) -> str:
    """The value as Python writes it, on one line: arrays and random keys of JAX take several.

    Parameters
    ----------
    value
        The value.
    """
    return " ".join(repr(value).split())


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number of at least ``least``, or raise a ValueError that names it.

    Parameters
    ----------
    name
        Name of the value, for the error message.
    value
        The value.
    least
        The smallest number that is allowed.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or value < least or float(value) % 1:
        raise ValueError(f"{name} must be a whole number, {least} or more, not {one_line(value)}")
    return int(float(value))


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return one of the choices, or raise a ValueError that lists them.

    Parameters
    ----------
    name
        Name of the value, for the error message.
    value
        The value.
    choices
        What is allowed.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {one_line(value)}")
    return value


def check_fraction(value: Any, name: str = "fraction", below: float = 1.0) -> float:
    """Return a number between 0 and ``below``, both excluded, or raise a ValueError that says so.

    Parameters
    ----------
    name
        Name of the value, for the error message.
    value
        The value.
    below
        The bound.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < below:
        raise ValueError(f"{name} must lie between 0 and {below:g}, both excluded, not {one_line(value)}")
    return float(value)
